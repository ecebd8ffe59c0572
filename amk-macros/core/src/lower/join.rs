//! The result of an `if`: both branches write the same values. The first branch that writes decides
//! between one value and a tuple.

use super::Lowering;
use super::item::{Dest, Item};
use amk_ir::{DType, ValueId};

/// The destination of an `if`'s branches.
pub(super) enum Join {
    /// Not written yet: the name it is to have.
    Open(String),
    /// One value.
    Value(ValueId),
    /// A tuple: the join of each element.
    Tuple(Vec<usize>),
}

impl Lowering<'_> {
    /// The branches' destination within `dest`.
    pub(super) fn shared(&mut self, dest: &Dest) -> Dest {
        match dest {
            Dest::Named(name) => self.open(name.clone()),
            Dest::Temp => self.open("if".to_owned()),
            Dest::Tuple(dests) => Dest::Tuple(dests.iter().map(|dest| self.shared(dest)).collect()),
            Dest::Value(_) | Dest::Join(_) | Dest::Nothing => dest.clone(),
        }
    }

    fn open(&mut self, name: String) -> Dest {
        self.joins.push(Join::Open(name));
        Dest::Join(self.joins.len() - 1)
    }

    /// The value of a join. Branches of different types are Rust's to refuse.
    pub(super) fn joined_value(&mut self, join: usize, dtype: DType) -> ValueId {
        match &self.joins[join] {
            Join::Value(value) => *value,
            Join::Open(name) => {
                let name = name.clone();
                let value = self.value(&name, dtype, Vec::new());
                self.joins[join] = Join::Value(value);
                value
            }
            Join::Tuple(_) => self.value("if", dtype, Vec::new()),
        }
    }

    /// The destinations of a tuple's elements, if `dest` has them.
    pub(super) fn elements(&mut self, dest: &Dest, count: usize) -> Option<Vec<Dest>> {
        match dest {
            Dest::Tuple(dests) if dests.len() == count => Some(dests.clone()),
            Dest::Join(join) => self.joined_tuple(*join, count),
            _ => None,
        }
    }

    fn joined_tuple(&mut self, join: usize, count: usize) -> Option<Vec<Dest>> {
        if let Join::Open(name) = &self.joins[join] {
            let first = self.joins.len();
            let names: Vec<String> = (0..count).map(|at| format!("{name}.{at}")).collect();
            self.joins.extend(names.into_iter().map(Join::Open));
            self.joins[join] = Join::Tuple((first..first + count).collect());
        }
        match &self.joins[join] {
            Join::Tuple(joins) if joins.len() == count => Some(joins.iter().copied().map(Dest::Join).collect()),
            _ => None,
        }
    }

    /// The item of an `if` whose branches wrote to `dest`.
    pub(super) fn joined(&self, dest: &Dest) -> Item {
        match dest {
            Dest::Value(value) => Item::Value(*value),
            Dest::Tuple(dests) => Item::Tuple(dests.iter().map(|dest| self.joined(dest)).collect()),
            Dest::Join(join) => match &self.joins[*join] {
                Join::Value(value) => Item::Value(*value),
                Join::Tuple(joins) => Item::Tuple(joins.iter().map(|join| self.joined(&Dest::Join(*join))).collect()),
                Join::Open(_) if self.diagnostics.is_empty() => Item::Unit,
                Join::Open(_) => Item::Unknown,
            },
            Dest::Nothing | Dest::Temp | Dest::Named(_) => Item::Unit,
        }
    }
}

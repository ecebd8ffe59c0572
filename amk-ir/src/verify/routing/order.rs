//! What is ordered for every routing, or for every one in which an entry has a certain value.
//!
//! Where entry `n` of a table says `v`, the task that signals `n` finishes before those start that wait for the count of `v`;
//! and who signals element `v` of an event finishes before those start that wait there for entry `n` and for all signals. With
//! the order of the least program, these *edges* give what comes after a task given the value. An entry has *some* value: what
//! comes after a task for each value of one entry comes after it for every routing; and so does what comes after it for each
//! entry of a row that names all values.

use crate::verify::Given;
use crate::verify::clocks::Clocks;
use crate::verify::storage::Access;
use crate::{Element, EventId, Holds, Program, Routed, RoutedWait, TableId};
use std::collections::HashMap;

/// A set of tasks.
type Tasks = Vec<u64>;

/// Edges of a table of routes.
#[derive(Default)]
struct Edges {
    entries: u32,
    values: u32,
    /// Entries of a row if they differ, else 1.
    row: u32,
    /// By entry: who signals it, on which event tensor.
    signals: Vec<Vec<(EventId, u32)>>,
    /// By entry: who waits for its element, of which event tensor and for how many signals.
    picks: Vec<Vec<(u32, EventId, u32)>>,
}

/// What routed waits order.
pub(in crate::verify) struct RoutedOrder {
    tasks: u32,
    tables: Vec<Edges>,
    /// By element: who waits for its count.
    counts: HashMap<Element, Vec<u32>>,
    /// By element: who signals it, whatever the routing.
    fixed: HashMap<Element, Vec<u32>>,
    /// By buffer: the table it is. A task's waits read it before the waits are over, so they do not order it.
    is_table: Vec<bool>,
    /// Tasks after a task in the least program.
    successors: HashMap<u32, Tasks>,
    /// Tasks after a task.
    after: HashMap<(u32, Option<Given>), Tasks>,
}

impl RoutedOrder {
    pub(super) fn of(program: &Program) -> Self {
        let edges = |table: &crate::Table| {
            let (entries, values, row) = match table.holds {
                Holds::Routes { values, distinct: true } => (table.entries(program), values, table.row_len(program)),
                Holds::Routes { values, distinct: false } => (table.entries(program), values, 1),
                Holds::Splits { .. } => (0, 0, 1),
            };
            let none = entries as usize;
            Edges { entries, values, row, signals: vec![Vec::new(); none], picks: vec![Vec::new(); none] }
        };
        let mut tables: Vec<Edges> = program.tables.iter().map(edges).collect();
        let (mut counts, mut fixed) = (HashMap::<_, Vec<u32>>::new(), HashMap::<_, Vec<u32>>::new());
        let mut picked = Vec::new();
        for (id, task) in (0..).zip(&program.tasks) {
            for wait in &task.routed_waits {
                match *wait {
                    RoutedWait::Count { event, value, .. } => {
                        counts.entry(Element { event, index: value }).or_default().push(id);
                    }
                    RoutedWait::Pick { event, table, entry, threshold } => {
                        tables[table.index()].picks[entry as usize].push((id, event, threshold));
                        picked.push(event);
                    }
                }
            }
            for signal in &task.routed_signals {
                tables[signal.table.index()].signals[signal.entry as usize].push((signal.event, id));
            }
        }
        picked.sort_unstable();
        for (id, task) in (0..).zip(&program.tasks) {
            for &signal in task.signals.iter().filter(|signal| picked.binary_search(&signal.event).is_ok()) {
                fixed.entry(signal).or_default().push(id);
            }
        }
        let mut is_table = vec![false; program.buffers.len()];
        program.tables.iter().for_each(|table| is_table[table.buffer.index()] = true);
        let tasks = program.tasks.len() as u32;
        Self { tasks, tables, counts, fixed, is_table, successors: HashMap::new(), after: HashMap::new() }
    }

    /// Whether `first` has finished when `second` starts, for every routing in which they touch the same elements. If not, a
    /// value for which no order is known, where it matters.
    pub(in crate::verify) fn holds(
        &mut self,
        clocks: &Clocks,
        first: &Access,
        second: &Access,
    ) -> Result<(), Option<Given>> {
        if self.is_table[first.operand.buffer.index()] {
            return Err(None);
        }
        let (a, b) = (first.task(), second.task());
        if self.comes_after(clocks, a, b, None) {
            return Ok(());
        }
        let cases = self.cases(first, second);
        match cases.iter().find(|&&given| !self.comes_after(clocks, a, b, Some(given))) {
            None if !cases.is_empty() => Ok(()),
            failing => Err(failing.copied()),
        }
    }

    /// The values that make two operands touch the same elements: for each of them some routing does. Empty where every
    /// routing does, or it depends on no value.
    fn cases(&self, first: &Access, second: &Access) -> Vec<Given> {
        let given = |table: TableId, entry, value| Given { table, entry, value };
        let all_entries = |table: TableId, value| {
            (0..self.tables[table.index()].entries).map(|entry| given(table, entry, value)).collect()
        };
        // The elements that a picked one can be among those of an operand.
        let picked = |table: TableId, entry, other: &Access| {
            let fixed = other.operand.region.intervals().first().filter(|i| !i.lo.pos && !i.hi.pos);
            let rows = fixed.map_or(0..self.tables[table.index()].values, |i| i.lo.base..i.hi.base);
            rows.map(|value| given(table, entry, value)).collect()
        };
        match (first.operand.routed, second.operand.routed) {
            (Some(Routed::Row { table, entry }), Some(Routed::Group { group, .. }))
            | (Some(Routed::Group { group, .. }), Some(Routed::Row { table, entry })) => {
                vec![given(table, entry, group)]
            }
            // The group has rows if some entry says so.
            (Some(Routed::Group { table, group }), _) | (_, Some(Routed::Group { table, group })) => {
                all_entries(table, group)
            }
            (Some(Routed::Pick { table, entry }), _) => picked(table, entry, second),
            (_, Some(Routed::Pick { table, entry })) => picked(table, entry, first),
            _ => Vec::new(),
        }
    }

    fn comes_after(&mut self, clocks: &Clocks, a: u32, b: u32, given: Option<Given>) -> bool {
        if !self.after.contains_key(&(a, given)) {
            const KEPT: usize = 1 << 12;
            if self.after.len() == KEPT {
                self.after.clear();
            }
            let after = self.all_after(clocks, a, given);
            self.after.insert((a, given), after);
        }
        self.after.get(&(a, given)).is_some_and(|after| has(after, b))
    }

    /// All tasks that start only when `a` has finished.
    fn all_after(&mut self, clocks: &Clocks, a: u32, given: Option<Given>) -> Tasks {
        let mut after = self.successors(clocks, a).clone();
        loop {
            let mut more = after.clone();
            if let Some(given) = given {
                let reached = self.reached(clocks, a, &after, given);
                more.iter_mut().zip(&reached).for_each(|(more, reached)| *more |= reached);
            }
            for table in (0..self.tables.len()).map(TableId::from) {
                let &Edges { entries, values, row, .. } = &self.tables[table.index()];
                let given = move |entry, value| Given { table, entry, value };
                for entry in 0..entries {
                    self.one_of(clocks, a, &after, (0..values).map(|value| given(entry, value)), &mut more);
                }
                // A row of different entries that is as long as there are values names each of them.
                for first in (0..entries).step_by(row as usize).filter(|_| row == values) {
                    for value in 0..values {
                        let row = (first..first + row).map(|entry| given(entry, value));
                        self.one_of(clocks, a, &after, row, &mut more);
                    }
                }
            }
            if more == after {
                return after;
            }
            after = more;
        }
    }

    /// Adds what comes after `a` in all of several cases, one of which holds for every routing.
    fn one_of(&mut self, clocks: &Clocks, a: u32, after: &Tasks, cases: impl Iterator<Item = Given>, more: &mut Tasks) {
        let mut common: Option<Tasks> = None;
        for given in cases {
            let reached = self.reached(clocks, a, after, given);
            let both = match common {
                None => reached,
                Some(common) => common.iter().zip(&reached).map(|(a, b)| a & b).collect(),
            };
            if both.iter().all(|&word| word == 0) {
                return;
            }
            common = Some(both);
        }
        more.iter_mut().zip(common.iter().flatten()).for_each(|(more, common)| *more |= common);
    }

    /// What the edges of a value lead to from `a` and what comes after it.
    fn reached(&mut self, clocks: &Clocks, a: u32, after: &Tasks, given: Given) -> Tasks {
        let mut reached = vec![0; after.len()];
        loop {
            let mut more = reached.clone();
            let known: Tasks = after.iter().zip(&reached).map(|(a, b)| a | b).collect();
            for to in self.targets(a, &known, given) {
                let beyond = self.successors(clocks, to);
                more.iter_mut().zip(beyond).for_each(|(more, beyond)| *more |= beyond);
                more[to as usize / 64] |= 1 << (to % 64);
            }
            if more == reached {
                return reached;
            }
            reached = more;
        }
    }

    /// Where the edges of a value end that start at `a` or after it.
    fn targets(&self, a: u32, after: &Tasks, Given { table, entry, value }: Given) -> Vec<u32> {
        let comes_after = |task: u32| task == a || has(after, task);
        let edges = &self.tables[table.index()];
        let mut targets = Vec::new();
        for &(event, from) in &edges.signals[entry as usize] {
            if comes_after(from) {
                targets.extend(self.counts.get(&Element { event, index: value }).into_iter().flatten());
            }
        }
        for &(to, event, threshold) in &edges.picks[entry as usize] {
            let signals = self.fixed.get(&Element { event, index: value }).map_or(&[][..], Vec::as_slice);
            if signals.len() as u32 == threshold && signals.iter().any(|&from| comes_after(from)) {
                targets.push(to);
            }
        }
        targets
    }

    /// What comes after a task in the least program.
    fn successors(&mut self, clocks: &Clocks, a: u32) -> &Tasks {
        let tasks = self.tasks;
        self.successors.entry(a).or_insert_with(|| {
            let mut after = vec![0; tasks as usize / 64 + 1];
            for b in (0..tasks).filter(|&b| clocks.before(a, 0, b, 0)) {
                after[b as usize / 64] |= 1 << (b % 64);
            }
            after
        })
    }
}

fn has(tasks: &Tasks, task: u32) -> bool {
    tasks.get(task as usize / 64).is_some_and(|word| word >> (task % 64) & 1 == 1)
}

//! C2: all pairs of accesses that conflict, each at the least distance at which they do (L8).

use crate::budget::Budget;
use crate::bytes::Bytes;
use crate::clocks::Clocks;
use crate::launch::Launch;
use crate::meet::{Distances, Meet, Span};
use crate::refusal::{Conflict, Refusal};
use crate::trap::Traps;
use crate::uses::Use;
use amk_ir::certificate::Period;
use amk_ir::{BufferKind, Exchange};

/// The orders that a proof shows, for launches from its start positions.
#[derive(Debug)]
pub(crate) struct Orders<'a> {
    pub(crate) starts: Period,
    pub(crate) clocks: Clocks<'a>,
    pub(crate) traps: Traps,
}

/// Where two operands conflict.
trait Conflicts {
    fn ever(&self, budget: &mut Budget) -> Result<bool, Refusal>;
    /// A position, of those given, at which they do in one step.
    fn in_step(&self, positions: Span, budget: &mut Budget) -> Result<Option<i64>, Refusal>;
    /// The least distance, and a position of the first: an order at this distance in launches that
    /// start there or later is one at all distances in all launches that start where it was asked
    /// for.
    fn least(&self, order: Order, distances: Distances, budget: &mut Budget) -> Result<Option<(i64, i64)>, Refusal>;
}

/// Which of two operands is of the earlier step.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    AsListed,
    Mirrored,
}

/// Tiles of one buffer.
struct Tiles {
    meet: Meet,
    positions: Span,
}

impl Conflicts for Tiles {
    fn ever(&self, _: &mut Budget) -> Result<bool, Refusal> {
        Ok(self.meet.ever(self.positions))
    }

    fn in_step(&self, positions: Span, _: &mut Budget) -> Result<Option<i64>, Refusal> {
        Ok(self.meet.in_step(positions).map(|at| at.first))
    }

    fn least(&self, order: Order, distances: Distances, _: &mut Budget) -> Result<Option<(i64, i64)>, Refusal> {
        Ok(if order == Order::AsListed { self.meet } else { self.meet.mirrored() }.least(distances))
    }
}

/// Tiles of two buffers that share bytes.
struct Shared<'b, 'p> {
    first: &'b Bytes<'p>,
    second: &'b Bytes<'p>,
    positions: Span,
}

impl Conflicts for Shared<'_, '_> {
    fn ever(&self, budget: &mut Budget) -> Result<bool, Refusal> {
        self.first.ever(self.second, self.positions, budget)
    }

    fn in_step(&self, positions: Span, budget: &mut Budget) -> Result<Option<i64>, Refusal> {
        self.first.in_step(self.second, positions, budget)
    }

    fn least(&self, order: Order, distances: Distances, budget: &mut Budget) -> Result<Option<(i64, i64)>, Refusal> {
        match order {
            Order::AsListed => self.first.least(self.second, distances, budget),
            Order::Mirrored => self.second.least(self.first, distances, budget),
        }
    }
}

/// All conflicting pairs, held against the orders that proofs show.
pub(crate) struct Pairs<'a> {
    pub(crate) launch: &'a Launch<'a>,
    pub(crate) orders: &'a [Orders<'a>],
    pub(crate) budget: &'a mut Budget,
}

impl Pairs<'_> {
    /// Pairs of operands in the same buffer.
    pub(crate) fn check_buffer(&mut self, uses: &[Use<'_>]) -> Result<(), Refusal> {
        let positions = self.launch.positions();
        let writes: Vec<usize> = (0..uses.len()).filter(|&n| uses[n].writes()).collect();
        for (n, first) in uses.iter().enumerate() {
            let later = writes.partition_point(|&write| write < n);
            let writes = writes[later..].iter().copied();
            let others: &mut dyn Iterator<Item = usize> =
                if first.writes() { &mut (n..uses.len()) } else { &mut { writes } };
            for second in others.map(|n| &uses[n]) {
                self.budget.take(1, "comparing accesses")?;
                if let Some(meet) = Meet::of(&first.operand.region, &second.operand.region) {
                    self.check(first, second, &Tiles { meet, positions })?;
                }
            }
        }
        Ok(())
    }

    /// Pairs of operands in different buffers that share bytes.
    pub(crate) fn check_shared(&mut self, group: &[Bytes<'_>]) -> Result<(), Refusal> {
        let positions = self.launch.positions();
        for (n, first) in group.iter().enumerate() {
            for second in &group[n..] {
                let other_buffer = first.of.at.buffer != second.of.at.buffer;
                if other_buffer && (first.of.writes() || second.of.writes()) {
                    let shared = Shared { first, second, positions };
                    if shared.ever(self.budget)? {
                        self.check(&first.of, &second.of, &shared)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Two operands, of which one writes, `x` not after `y` in eager order.
    fn check(&mut self, x: &Use<'_>, y: &Use<'_>, conflicts: &impl Conflicts) -> Result<(), Refusal> {
        if (x.operand.early || y.operand.early) && conflicts.ever(self.budget)? {
            let (early, written) = if x.operand.early { (x, y) } else { (y, x) };
            return Err(Refusal::Early(Box::new(early.at), Box::new(written.at)));
        }
        if x.at != y.at {
            self.check_step(x, y, conflicts)?;
        }
        // A local buffer belongs to each instance of its task alone.
        let buffer = &self.launch.program.buffers[x.at.buffer.index()];
        if self.launch.is_pipelined() && buffer.kind != BufferKind::Local {
            self.check_steps(x, y, Order::AsListed, conflicts)?;
            if x.at != y.at {
                self.check_steps(y, x, Order::Mirrored, conflicts)?;
            }
        }
        Ok(())
    }

    /// Of the same step.
    fn check_step(&mut self, x: &Use<'_>, y: &Use<'_>, conflicts: &impl Conflicts) -> Result<(), Refusal> {
        let Some(position) = conflicts.in_step(self.launch.positions(), self.budget)? else { return Ok(()) };
        if x.call() == y.call() {
            return Err(Refusal::SameCall(conflict(x, y, position, 0)));
        }
        if self.slots(x).is_some() {
            if x.writes() && y.writes() {
                return Err(Refusal::WrittenTwice(conflict(x, y, position, 0)));
            }
            if x.writes() {
                return Ok(());
            }
        }
        if x.task() == y.task() {
            return Ok(());
        }
        for orders in self.orders {
            self.budget.take(1, "comparing accesses")?;
            let starts = Span::new(orders.starts.first, orders.starts.last);
            if let Some(position) = conflicts.in_step(starts, self.budget)? {
                shown(orders, x, y, position, 0)?;
            }
        }
        Ok(())
    }

    /// Of different steps, `x` in the earlier one.
    fn check_steps(
        &mut self,
        x: &Use<'_>,
        y: &Use<'_>,
        order: Order,
        conflicts: &impl Conflicts,
    ) -> Result<(), Refusal> {
        let slots = self.slots(x).unwrap_or(1).into();
        for orders in self.orders {
            self.budget.take(1, "comparing accesses")?;
            let starts = Span::new(orders.starts.first, orders.starts.last);
            let distances = Distances { starts, positions: self.launch.positions(), slots };
            if let Some((distance, position)) = conflicts.least(order, distances, self.budget)? {
                shown(orders, x, y, position, distance)?;
            }
        }
        Ok(())
    }

    fn slots(&self, one: &Use<'_>) -> Option<u8> {
        match self.launch.program.buffers[one.at.buffer.index()].exchange {
            Exchange::Packet { slots } => Some(slots),
            Exchange::Counter => None,
        }
    }
}

fn conflict(x: &Use<'_>, y: &Use<'_>, position: i64, distance: i64) -> Box<Conflict> {
    let position = u32::try_from(position).unwrap_or(u32::MAX);
    Box::new(Conflict { first: x.at, second: y.at, position, distance: distance.unsigned_abs() })
}

/// Whether a proof shows that `x` finishes before `y` starts.
fn shown(orders: &Orders<'_>, x: &Use<'_>, y: &Use<'_>, position: i64, distance: i64) -> Result<(), Refusal> {
    let (first, second, steps) = (x.task(), y.task(), distance.unsigned_abs());
    if orders.clocks.shows(first, second, steps) || orders.traps.shows(first, second, steps, position) {
        return Ok(());
    }
    Err(Refusal::Unordered { conflict: conflict(x, y, position, distance), start: orders.starts.first })
}

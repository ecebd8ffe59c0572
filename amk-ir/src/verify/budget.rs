//! Limits on the cost of a check, so that no input takes minutes or gigabytes.
//!
//! Work is counted, not timed: the same program is accepted or refused on every machine. A unit is
//! about a nanosecond on one core of a current machine. Work proportional to the size of a program
//! is always granted.

use super::found::Found;
use super::violation::{TooMuch, Violation};
use crate::Program;

/// Units for programs of any size.
const BASE: u64 = 400_000_000;
/// Units for each task, operand, wait, signal, buffer and queue.
const PER_ITEM: u64 = 4_000;
/// Numbers in stored clocks, of 4 bytes each: for programs of any size, and for each task.
const CLOCKS: usize = 32 << 20;
const CLOCKS_PER_TASK: usize = 64;

/// The remaining budget of one check.
#[derive(Default)]
pub(super) struct Budget {
    left: u64,
    /// The limit that was exceeded.
    exceeded: Option<TooMuch>,
    /// Numbers that clocks may hold at a time.
    pub(super) clocks: usize,
}

impl Budget {
    pub(super) fn of(program: &Program) -> Self {
        let items: usize = program
            .tasks
            .iter()
            .map(|task| {
                let operands: usize = task.calls.iter().map(|call| 1 + call.operands.len()).sum();
                let routed = task.routed_waits.len() + task.routed_signals.len();
                1 + operands + routed + task.waits.len() + task.signals.len()
            })
            .sum();
        let items = items + program.buffers.len() + program.queues.workers() as usize;
        Self {
            left: BASE.saturating_add(PER_ITEM.saturating_mul(items as u64)),
            exceeded: None,
            clocks: CLOCKS + CLOCKS_PER_TASK * program.tasks.len(),
        }
    }

    /// Takes units for a kind of work; returns whether they were available. The first request that
    /// exceeds the budget is remembered.
    pub(super) fn spend(&mut self, units: u64, on: TooMuch) -> bool {
        if self.exceeded.is_some() {
            return false;
        }
        match self.left.checked_sub(units) {
            Some(left) => self.left = left,
            None => self.exceeded = Some(on),
        }
        self.exceeded.is_none()
    }

    pub(super) fn is_spent(&self) -> bool {
        self.exceeded.is_some()
    }

    /// Reports what exhausted the budget, if it is exhausted.
    pub(super) fn report(self, found: &mut Found) {
        if let Some(what) = self.exceeded {
            found.push(Violation::TooMuch(what));
        }
    }
}

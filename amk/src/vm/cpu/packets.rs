//! Packets as counters: each task that writes packets has a private counter, on which every reader
//! of its packets waits.
//!
//! A packet's reader waits for the epoch in each word. In an accepted program a word is written
//! once per step and before (in eager order) it is read, so waiting for the words is waiting for
//! their writers' tasks.

use super::plan::WaitPlan;
use amk_ir::{Exchange, Program, Region, TaskId};
use std::collections::HashMap;

pub(super) struct Packets {
    /// The writing tasks and their regions, by buffer.
    writers: HashMap<u32, Vec<(TaskId, Region)>>,
    /// The counter of each writing task.
    counters: HashMap<TaskId, usize>,
}

impl Packets {
    pub(super) fn new(program: &Program) -> Self {
        let mut out = Self { writers: HashMap::new(), counters: HashMap::new() };
        for (index, task) in program.tasks.iter().enumerate() {
            let id = TaskId::from(index);
            for operand in task.calls.iter().flat_map(|call| &call.operands) {
                let exchange = program.buffers[operand.buffer.index()].exchange;
                if operand.access.writes() && exchange != Exchange::Counter {
                    out.writers.entry(operand.buffer.0).or_default().push((id, operand.region));
                    let next = out.counters.len();
                    out.counters.entry(id).or_insert(next);
                }
            }
        }
        out
    }

    /// Number of tasks that write packets.
    pub(super) fn writers(&self) -> usize {
        self.counters.len()
    }

    /// The counter of a task that writes packets.
    pub(super) fn counter_of(&self, task: TaskId) -> Option<usize> {
        self.counters.get(&task).copied()
    }

    /// The waits of a task for the packets it reads, on counters from `base` on.
    pub(super) fn waits(&self, program: &Program, task: TaskId, base: usize) -> Vec<WaitPlan> {
        let mut out: Vec<WaitPlan> = Vec::new();
        for operand in program.tasks[task.index()].calls.iter().flat_map(|call| &call.operands) {
            let Some(writers) = self.writers.get(&operand.buffer.0).filter(|_| operand.access.reads()) else {
                continue;
            };
            for &(writer, region) in writers.iter().filter(|(writer, _)| *writer < task) {
                let moves = moves(&region) || moves(&operand.region);
                let counter = base + self.counters[&writer];
                let known = out.iter().any(|wait| wait.counter == counter && wait.overlap.is_none());
                if !known && (moves || overlap_at(&region, &operand.region, 0)) {
                    let overlap = moves.then(|| Box::new((region, operand.region)));
                    out.push(WaitPlan { counter, threshold: 1, overlap });
                }
            }
        }
        out
    }
}

fn moves(region: &Region) -> bool {
    region.intervals().iter().any(|interval| interval.moves())
}

/// Whether two regions of one buffer have an element in common at a position.
pub(super) fn overlap_at(a: &Region, b: &Region, pos: u64) -> bool {
    a.intervals()
        .iter()
        .zip(b.intervals())
        .all(|(a, b)| a.lo.at(pos).max(b.lo.at(pos)) < a.hi.at(pos).min(b.hi.at(pos)))
}

//! Placement: which worker runs which task, and how much of a phase each gets. Queues keep the
//! eager order, so they never oppose a dependency.

use super::task::TiledOp;
use crate::TaskId;
use crate::program::{BufferKind, Program, Queues, Task};
use crate::schedule::{Assign, QueuePolicy, Schedule};
use std::collections::BTreeSet;
use std::ops::Range;

pub(super) fn place(program: &Program, ops: &[TiledOp], schedule: &Schedule) -> Queues {
    let all = || (0..program.tasks.len()).map(TaskId::from);
    if schedule.queue == QueuePolicy::Ticket {
        return Queues::Ticket { workers: schedule.workers, order: all().collect() };
    }
    let mut queues = vec![Vec::new(); schedule.workers as usize];
    // The workers by their bytes so far.
    let mut loads: BTreeSet<(u64, usize)> = (0..queues.len()).map(|worker| (0, worker)).collect();
    for op in ops {
        for (number, task) in op.tasks.clone().enumerate() {
            let turn = number % queues.len();
            let worker = match schedule.assign {
                Assign::RoundRobin => turn,
                Assign::Balanced => least(&mut loads, turn, weight_bytes(program, &program.tasks[task])),
            };
            queues[worker].push(TaskId::from(task));
        }
    }
    Queues::Static(queues)
}

/// The worker with the fewest bytes, which gets `more`; ties go round from `turn` on.
fn least(loads: &mut BTreeSet<(u64, usize)>, turn: usize, more: u64) -> usize {
    let fewest = loads.first().map_or(0, |(bytes, _)| *bytes);
    let tied = loads.range((fewest, turn)..=(fewest, usize::MAX)).next().or_else(|| loads.first());
    let Some(&(bytes, worker)) = tied else { return turn };
    loads.remove(&(bytes, worker));
    loads.insert((bytes.saturating_add(more), worker));
    worker
}

fn weight_bytes(program: &Program, task: &Task) -> u64 {
    let operands = task.calls.iter().flat_map(|call| &call.operands);
    let weights = operands.filter_map(|operand| {
        let buffer = program.buffers.get(operand.buffer.index())?;
        let bytes = u64::from(buffer.dtype.bytes());
        (buffer.kind == BufferKind::Weight).then(|| operand.region.len_at(0).saturating_mul(bytes))
    });
    weights.fold(1, u64::saturating_add)
}

/// Where part `n` of so many even parts of `units` begins.
pub(super) fn share(units: i64, n: i64, parts: i64) -> i64 {
    (i128::from(units) * i128::from(n) / i128::from(parts)) as i64
}

/// `units` in order, evenly spread.
pub fn even(units: u32, workers: u32) -> Vec<Range<u32>> {
    let cut = |n: u32| share(i64::from(units), i64::from(n), i64::from(workers.max(1))) as u32;
    (0..workers).map(|n| cut(n)..cut(n + 1)).collect()
}

/// `units` in order; those that do not divide go to the first workers of `order`, which has all of
/// them.
pub fn level(units: u32, order: &[usize]) -> Vec<Range<u32>> {
    let workers = order.len().max(1) as u32;
    let mut counts = vec![units / workers; order.len()];
    order.iter().take((units % workers) as usize).for_each(|&worker| counts[worker] += 1);
    let mut next = 0;
    counts
        .into_iter()
        .map(|count| {
            next += count;
            next - count..next
        })
        .collect()
}

/// The parts moved on by some workers.
pub fn rotated<T>(mut parts: Vec<T>, by: usize) -> Vec<T> {
    let len = parts.len().max(1);
    parts.rotate_right(by % len);
    parts
}

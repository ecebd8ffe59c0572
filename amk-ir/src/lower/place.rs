//! Placement: assigns tasks, and shares of a phase, to workers. Queues keep the eager order, so
//! they never contradict a dependency.

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

/// Returns the worker with the fewest bytes and adds `more` to it; ties rotate, starting at `turn`.
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

/// Returns the start of part `n` when `units` are divided evenly into `parts`.
pub(super) fn share(units: i64, n: i64, parts: i64) -> i64 {
    (i128::from(units) * i128::from(n) / i128::from(parts)) as i64
}

/// `units` in order, evenly spread.
pub fn even(units: u32, workers: u32) -> Vec<Range<u32>> {
    let cut = |n: u32| share(i64::from(units), i64::from(n), i64::from(workers.max(1))) as u32;
    (0..workers).map(|n| cut(n)..cut(n + 1)).collect()
}

/// Distributes `units` in order; the remainder goes to the first workers of `order`, which lists
/// all of them. A worker gets fewer units by the number that it is `charged`.
pub fn level(units: u32, order: &[usize], charged: &[u32]) -> Vec<Range<u32>> {
    let charge = |worker: usize| charged.get(worker).copied().unwrap_or(0);
    // All get units up to the common level, then the first ones get one more each.
    let filled =
        |level: u32| -> u64 { order.iter().map(|&worker| u64::from(level.saturating_sub(charge(worker)))).sum() };
    let (mut low, mut high) = (0, units.saturating_add(charged.iter().copied().max().unwrap_or(0)));
    while low < high {
        let middle = high - (high - low) / 2;
        if filled(middle) <= u64::from(units) { low = middle } else { high = middle - 1 }
    }
    let mut counts: Vec<u32> = vec![0; order.len()];
    order.iter().for_each(|&worker| counts[worker] = low.saturating_sub(charge(worker)));
    let left = (u64::from(units) - filled(low).min(u64::from(units))) as usize;
    let next = order.iter().filter(|&&worker| charge(worker) <= low);
    next.take(left).for_each(|&worker| counts[worker] += 1);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(units: u32, order: &[usize], charged: &[u32]) -> Vec<u32> {
        level(units, order, charged).iter().map(|part| part.end - part.start).collect()
    }

    #[test]
    fn units_that_do_not_divide_go_to_the_first_in_order() {
        assert_eq!(counts(8, &[2, 0, 1], &[]), [3, 2, 3]);
        assert_eq!(level(8, &[2, 0, 1], &[]), [0..3, 3..5, 5..8]);
        assert_eq!(counts(6, &[2, 0, 1], &[0; 3]), [2; 3]);
    }

    #[test]
    fn who_is_charged_gets_fewer_and_all_units_are_dealt() {
        assert_eq!(counts(12, &[0, 1, 2, 3], &[2, 0, 2, 0]), [2, 4, 2, 4]);
        assert_eq!(counts(13, &[3, 0, 1, 2], &[2, 0, 2, 0]), [2, 4, 2, 5]);
        assert_eq!(counts(4, &[0, 1, 2, 3], &[9, 0, 9, 0]), [0, 2, 0, 2], "more than there is");
        assert_eq!(counts(5, &[0, 1], &[7, 7]), [3, 2], "all alike");
        for units in 0..40 {
            assert_eq!(counts(units, &[1, 0, 2], &[3, 1, 0]).iter().sum::<u32>(), units);
        }
    }
}

//! Assignment: which worker runs which task. Queues keep the eager order, so they never oppose a
//! dependency.

use super::tile::TiledOp;
use crate::TaskId;
use crate::program::{BufferKind, Program, Queues, Task};
use crate::schedule::{Assign, QueuePolicy, Schedule};
use std::collections::BTreeSet;

pub(super) fn assign(program: &Program, ops: &[TiledOp], schedule: &Schedule) -> Queues {
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

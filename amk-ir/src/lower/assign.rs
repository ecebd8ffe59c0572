//! Assignment: which worker runs which task. Queues keep the eager order, so they never oppose a dependency.

use super::tile::TiledOp;
use crate::TaskId;
use crate::program::{BufferKind, Program, Queues, Task};
use crate::schedule::{Assign, QueuePolicy, Schedule};

pub(super) fn assign(program: &Program, ops: &[TiledOp], schedule: &Schedule) -> Queues {
    let all = || (0..program.tasks.len()).map(TaskId::from);
    if schedule.queue == QueuePolicy::Ticket {
        return Queues::Ticket { workers: schedule.workers, order: all().collect() };
    }
    let mut queues = vec![Vec::new(); schedule.workers as usize];
    let mut bytes = vec![0u64; schedule.workers as usize];
    for op in ops {
        for (number, task) in op.tasks.clone().enumerate() {
            let worker = match schedule.assign {
                Assign::RoundRobin => number % queues.len(),
                Assign::Balanced => least(&bytes, number),
            };
            bytes[worker] += weight_bytes(program, &program.tasks[task]);
            queues[worker].push(TaskId::from(task));
        }
    }
    Queues::Static(queues)
}

/// The worker with the fewest bytes; ties go round.
fn least(bytes: &[u64], start: usize) -> usize {
    let order = (0..bytes.len()).map(|i| (start + i) % bytes.len());
    order.min_by_key(|&worker| bytes[worker]).unwrap_or(0)
}

fn weight_bytes(program: &Program, task: &Task) -> u64 {
    let operands = task.calls.iter().flat_map(|call| &call.operands);
    let weights = operands.filter_map(|operand| {
        let buffer = program.buffers.get(operand.buffer.index())?;
        (buffer.kind == BufferKind::Weight).then(|| operand.region.len_at(0) * u64::from(buffer.dtype.bytes()))
    });
    1 + weights.sum::<u64>()
}

//! Chains that order two tasks across steps: a row is written some positions before it is read, and
//! only packets, waits and queues of the steps between say that the one comes before the other.

use super::Draft;
use super::sync::Closing;
use amk_ir::{Access, Bound, Buffer, BufferKind, DType, Exchange, Interval, Queues, Task, TaskId};

impl Draft<'_> {
    /// The tasks, on two to four workers: the first writes ahead, the last reads, and each hands on
    /// to the next.
    pub(super) fn relay(&mut self) {
        let workers = self.rng.between(2, 4) as usize;
        let mut queues: Vec<Vec<TaskId>> = vec![Vec::new(); workers];
        let ahead = self.rng.between(1, 3);
        let positions = self.program.positions;
        let rows = self.buffer_of(BufferKind::State, positions + ahead, Exchange::Counter);
        let row = |offset| Interval { lo: Bound::at_pos(offset), hi: Bound::at_pos(offset + 1) };
        let write = self.operand(rows, row(ahead), Access::Write);
        let (mut links, mut late) = (Vec::new(), Vec::new());
        if self.rng.chance(50) {
            // The signals of this task, which it sends in the step after the write.
            self.task(&mut queues[0], Vec::new());
        }
        let first = self.task(&mut queues[0], vec![write]);
        let mut last = first;
        for worker in 1..workers {
            if self.rng.chance(60) {
                last = self.packets(&mut queues, worker);
            } else {
                let from = *self.rng.pick(&queues[worker - 1]).unwrap_or(&first);
                if worker + 1 < workers && self.rng.chance(60) {
                    late.push((from, worker));
                } else {
                    last = self.task(&mut queues[worker], Vec::new());
                    links.push((from, last));
                }
            }
        }
        let read = self.operand(rows, row(0), Access::Read);
        if self.rng.chance(60) {
            let mut calls = core::mem::take(&mut self.program.tasks[last.index()].calls);
            self.push(&mut calls, vec![read]);
            self.program.tasks[last.index()].calls = calls;
        } else {
            last = self.task(&mut queues[workers - 1], vec![read]);
        }
        for (from, worker) in late {
            links.push((from, self.task(&mut queues[worker], Vec::new())));
        }
        for worker in 0..workers - 1 {
            let from = if self.rng.chance(60) { Some(&last) } else { self.rng.pick(&queues[worker + 1]) };
            if let Some(&from) = from.filter(|_| self.rng.chance(85)) {
                let fence = self.task(&mut queues[worker], Vec::new());
                links.push((from, fence));
                if worker > 0 && self.rng.chance(60) {
                    let before = *self.rng.pick(&queues[worker - 1]).unwrap_or(&first);
                    links.push((before, fence));
                }
            }
        }
        self.program.queues = Queues::Static(queues);
        let closing = if self.rng.chance(80) { Closing::Open } else { Closing::Fences };
        self.synchronise(closing, &links);
    }

    /// A packet buffer in pieces, mostly of the worker before, that a worker reads.
    fn packets(&mut self, queues: &mut [Vec<TaskId>], worker: usize) -> TaskId {
        let extent = self.program.positions + self.rng.below(2);
        let slots = *self.rng.pick(&[1, 1, 2, 3]).unwrap_or(&1);
        let buffer = self.buffer_of(BufferKind::Activation, extent, Exchange::Packet { slots });
        for piece in self.pieces(extent, false) {
            let by = if self.rng.chance(65) { worker - 1 } else { self.rng.below(queues.len() as u32) as usize };
            let write = self.operand(buffer, piece, Access::Write);
            self.task(&mut queues[by], vec![write]);
        }
        let tile = self.moving(extent);
        let read = self.operand(buffer, tile, Access::Read);
        self.task(&mut queues[worker], vec![read])
    }

    fn buffer_of(&mut self, kind: BufferKind, extent: u32, exchange: Exchange) -> amk_ir::BufferId {
        let (name, dtype, shape) = (String::new(), DType::F32, vec![extent]);
        self.add(Buffer { name, kind, dtype, shape, exchange, place: None })
    }

    /// A task behind a queue.
    fn task(&mut self, queue: &mut Vec<TaskId>, operands: Vec<amk_ir::Operand>) -> TaskId {
        let (id, mut calls) = (TaskId::from(self.program.tasks.len()), Vec::new());
        if !operands.is_empty() {
            self.push(&mut calls, operands);
        }
        self.program.tasks.push(Task { calls, ..Task::default() });
        queue.push(id);
        id
    }
}

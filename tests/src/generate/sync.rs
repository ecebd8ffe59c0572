//! Counters for the conflicts that the queues do not order.

use super::{Draft, intersects};
use amk_ir::{
    Access, Buffer, BufferKind, DType, Element, EventId, EventTensor, Exchange, Interval, Operand, Program, Queues,
    Region, Task, TaskId, Wait,
};

/// Tasks as a set.
type Set = u128;

/// Counters before they are elements of event tensors.
#[derive(Default)]
struct Counters {
    /// Of each counter: who signals it.
    signals: Vec<Set>,
    /// Task, counter, and the threshold; `None` is the fan-in.
    waits: Vec<(usize, usize, Option<u32>)>,
    /// Of each worker: the counter that all its tasks signal, once somebody waits for it.
    progress: Vec<Option<usize>>,
}

/// The mechanism that keeps workers from overtaking others by a step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Closing {
    /// Nothing.
    Open,
    /// Every worker waits for all.
    Whole,
    /// Some workers wait for some.
    Fences,
}

impl Draft<'_> {
    /// Waits for all conflicts that nothing else orders, and of the second task of each link for
    /// the first.
    pub(super) fn synchronise(&mut self, closing: Closing, links: &[(TaskId, TaskId)]) {
        let mut counters = Counters::default();
        let tasks = self.program.tasks.len();
        let mut ordered: Vec<Set> = Vec::new();
        for task in 0..tasks {
            let mut before = ordered_by_queue(&self.program, &ordered, task);
            for (other, earlier) in ordered.iter().enumerate() {
                if passes_packet(&self.program, other, task) {
                    before |= earlier | 1 << other;
                }
            }
            let mut producers = Vec::new();
            for other in (0..task).rev() {
                if before >> other & 1 == 0 && conflict(&self.program, other, task) {
                    before |= ordered[other] | 1 << other;
                    producers.push(other);
                }
            }
            let forgotten = !producers.is_empty() && self.careless && self.rng.chance(6);
            if !producers.is_empty() && !forgotten {
                self.wait_for(&mut counters, task, &producers);
            }
            ordered.push(before);
        }
        for (from, to) in links {
            self.wait_for(&mut counters, to.index(), &[from.index()]);
        }
        self.spare(&mut counters);
        match closing {
            Closing::Open => {}
            Closing::Whole => self.close(&mut counters),
            Closing::Fences => self.fences(&mut counters),
        }
        self.lay_out(&counters);
    }

    /// Makes a task wait for its producers.
    fn wait_for(&mut self, counters: &mut Counters, task: usize, producers: &[usize]) {
        let all = producers.iter().fold(0, |set, &producer| set | 1 << producer);
        match self.rng.below(100) {
            // One counter for the group.
            0..45 => {
                counters.signals.push(all);
                counters.waits.push((task, counters.signals.len() - 1, None));
            }
            // A counter that others signal and await too; its later signals make this a partial
            // wait.
            45..57 if self.careless && !counters.signals.is_empty() => {
                let counter = self.rng.below(counters.signals.len() as u32) as usize;
                counters.signals[counter] |= all;
                let threshold = self.rng.chance(50).then(|| counters.signals[counter].count_ones());
                counters.waits.push((task, counter, threshold));
            }
            // Counters of progress: how many tasks of its queue a worker has done.
            57..75 if matches!(self.program.queues, Queues::Static(_)) => {
                for &producer in producers {
                    self.wait_for_progress(counters, task, producer);
                }
            }
            // A counter of each producer, or one it signals anyway.
            _ => {
                for &producer in producers {
                    let known = counters.signals.iter().position(|&set| set >> producer & 1 == 1 && set >> task == 0);
                    let counter = known.unwrap_or(counters.signals.len());
                    if counter == counters.signals.len() {
                        counters.signals.push(1 << producer);
                    }
                    if !counters.waits.iter().any(|&(by, on, _)| (by, on) == (task, counter)) {
                        counters.waits.push((task, counter, None));
                    }
                }
            }
        }
    }

    fn wait_for_progress(&mut self, counters: &mut Counters, task: usize, producer: usize) {
        let Queues::Static(queues) = &self.program.queues else { return };
        let found = queues.iter().enumerate().find_map(|(worker, queue)| {
            queue.iter().position(|id| id.index() == producer).map(|rank| (worker, rank as u32 + 1))
        });
        let Some((worker, threshold)) = found else { return };
        counters.progress.resize(queues.len(), None);
        let counter = *counters.progress[worker].get_or_insert_with(|| {
            counters.signals.push(queues[worker].iter().fold(0, |set, id| set | 1 << id.0));
            counters.signals.len() - 1
        });
        match counters.waits.iter_mut().find(|(by, on, _)| (*by, *on) == (task, counter)) {
            Some((_, _, known)) => *known = known.map(|known| known.max(threshold)),
            None => counters.waits.push((task, counter, Some(threshold))),
        }
    }

    /// Now and then a signal that nobody needs, or a wait.
    fn spare(&mut self, counters: &mut Counters) {
        let tasks = self.program.tasks.len() as u32;
        if self.rng.chance(10) {
            counters.signals.push(1 << self.rng.below(tasks));
        }
        if self.careless && self.rng.chance(20) && !counters.signals.is_empty() {
            let (task, counter) =
                (self.rng.below(tasks) as usize, self.rng.below(counters.signals.len() as u32) as usize);
            if !counters.waits.iter().any(|&(by, on, _)| (by, on) == (task, counter)) {
                counters.waits.push((task, counter, None));
            }
        }
    }

    /// A last task on every worker that waits for the others: none is a step ahead.
    fn close(&mut self, counters: &mut Counters) {
        let Queues::Static(queues) = self.program.queues.clone() else { return };
        let arrivals = queues.iter().filter_map(|queue| queue.last()).fold(0, |set, task| set | 1 << task.0);
        counters.signals.push(arrivals);
        let shape = vec![queues.len() as u32];
        let (kind, exchange) = (BufferKind::State, Exchange::Counter);
        let buffer = self.add(Buffer { name: String::new(), kind, dtype: DType::U8, shape, exchange, place: None });
        for worker in 0..queues.len() as u32 {
            if self.careless && self.rng.chance(12) {
                continue;
            }
            let cell = Region::new(&[Interval::fixed(worker, worker + 1)]).unwrap_or(Region::full(&[]));
            let operands = vec![Operand { buffer, region: cell, access: Access::Update, early: false, routed: None }];
            let instruction = self.instruction(&[Access::Update]);
            let task = TaskId::from(self.program.tasks.len());
            let calls = vec![amk_ir::Call { instruction, operands, params: Vec::new(), rows: None }];
            self.program.tasks.push(Task { calls, ..Task::default() });
            counters.waits.push((task.index(), counters.signals.len() - 1, None));
            if let Queues::Static(queues) = &mut self.program.queues {
                queues[worker as usize].push(task);
            }
        }
    }

    /// Tasks without calls, mostly the last of their queues, that wait for some tasks of other
    /// workers.
    fn fences(&mut self, counters: &mut Counters) {
        let Queues::Static(queues) = self.program.queues.clone() else { return };
        let (ring, all) = (self.rng.chance(30), self.rng.chance(30));
        for worker in (0..queues.len()).filter(|_| queues.len() > 1) {
            if self.rng.chance(if self.careless { 25 } else { 8 }) {
                continue;
            }
            let mut arrivals: Set = 0;
            for (other, queue) in queues.iter().enumerate() {
                let next = other == (worker + 1) % queues.len();
                let chosen = if ring { next } else { other != worker && (all || self.rng.chance(60)) };
                let last = if self.rng.chance(75) { queue.last() } else { self.rng.pick(queue) };
                arrivals |= last.filter(|_| chosen).map_or(0, |task| 1 << task.0);
            }
            if arrivals != 0 {
                self.fence(counters, worker, arrivals);
            }
        }
        if self.rng.chance(15)
            && let Some((task, counter, threshold)) = self.rng.pick(&counters.waits).copied()
        {
            counters.signals.push(counters.signals[counter]);
            counters.waits.push((task, counters.signals.len() - 1, threshold));
        }
    }

    fn fence(&mut self, counters: &mut Counters, worker: usize, arrivals: Set) {
        let known = counters.signals.iter().position(|&signals| signals == arrivals).filter(|_| self.rng.chance(50));
        let counter = known.unwrap_or_else(|| {
            counters.signals.push(arrivals);
            counters.signals.len() - 1
        });
        let task = TaskId::from(self.program.tasks.len());
        let threshold = self.rng.chance(10).then(|| self.rng.between(1, arrivals.count_ones()));
        self.program.tasks.push(Task::default());
        counters.waits.push((task.index(), counter, threshold));
        if let Queues::Static(queues) = &mut self.program.queues {
            let queue = &mut queues[worker];
            let last = queue.len() as u32;
            let at = if self.rng.chance(90) { last } else { self.rng.below(last + 1) };
            queue.insert(at as usize, task);
        }
    }

    /// Makes the counters elements of event tensors.
    fn lay_out(&mut self, counters: &Counters) {
        let mut elements = Vec::new();
        while elements.len() < counters.signals.len() {
            let left = (counters.signals.len() - elements.len()) as u32;
            let event = EventId::from(self.program.events.len());
            let shape = match self.rng.below(3) {
                0 => vec![],
                1 => vec![self.rng.between(1, left)],
                _ => vec![left.div_ceil(2), 2],
            };
            let tensor = EventTensor { name: format!("n{}", event.0), shape };
            elements.extend((0..tensor.len() as u32).map(|index| Element { event, index }));
            self.program.events.push(tensor);
        }
        for (counter, &signals) in counters.signals.iter().enumerate() {
            for (_, task) in self.program.tasks.iter_mut().enumerate().filter(|(n, _)| signals >> n & 1 == 1) {
                task.signals.push(elements[counter]);
            }
        }
        for &(task, counter, threshold) in &counters.waits {
            let threshold = threshold.unwrap_or(counters.signals[counter].count_ones());
            self.program.tasks[task].waits.push(Wait { on: elements[counter], threshold });
        }
    }
}

/// The tasks that the queue alone puts before a task, if queues are in eager order.
fn ordered_by_queue(program: &Program, ordered: &[Set], task: usize) -> Set {
    let alone = |list: &[TaskId]| {
        let at = list.iter().position(|id| id.index() == task)?;
        let earlier = list[..at].iter().filter(|id| id.index() < task);
        Some(earlier.fold(0, |set, id| set | 1 << id.0 | ordered[id.index()]))
    };
    match &program.queues {
        Queues::Static(queues) => queues.iter().find_map(|queue| alone(queue)).unwrap_or(0),
        Queues::Ticket { workers: 1, order } => alone(order).unwrap_or(0),
        Queues::Ticket { .. } => 0,
    }
}

fn operands(program: &Program, task: usize) -> impl Iterator<Item = &Operand> {
    program.tasks[task].calls.iter().flat_map(|call| &call.operands)
}

/// Whether two tasks touch the same memory, one of them writing.
fn conflict(program: &Program, one: usize, other: usize) -> bool {
    let range = |operand: &Operand| {
        let buffer = &program.buffers[operand.buffer.index()];
        buffer.place.map(|place| place..place + buffer.bytes())
    };
    operands(program, one).any(|a| {
        operands(program, other).filter(|b| a.access.writes() || b.access.writes()).any(|b| {
            let same = a.buffer == b.buffer && intersects(&a.region, &b.region, program.positions);
            let alias = matches!((range(a), range(b)), (Some(a), Some(b)) if a.start < b.end && b.start < a.end);
            same || (alias && a.buffer != b.buffer)
        })
    })
}

/// Whether a task reads a packet of an earlier one.
fn passes_packet(program: &Program, from: usize, to: usize) -> bool {
    let packet = |operand: &&Operand| program.buffers[operand.buffer.index()].exchange != Exchange::Counter;
    operands(program, from).filter(packet).filter(|a| a.access.writes()).any(|a| {
        let reads = operands(program, to).filter(|b| b.buffer == a.buffer && b.access.reads());
        reads.into_iter().any(|b| intersects(&a.region, &b.region, program.positions))
    })
}

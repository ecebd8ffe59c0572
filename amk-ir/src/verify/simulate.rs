//! Runs a program without its data: each worker proceeds as far as its waits allow.
//!
//! Waits are monotone: a signal never makes a wait fail. So the tasks that can run at all, and the
//! tasks that can run although one of them never finishes, do not depend on the order of the
//! simulation.

use super::sync::{Mode, Order, Sync};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Parameters of a run.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Run {
    /// Steps, one after the other in each queue, or in the list of tickets.
    pub(super) copies: u32,
    /// Whether a worker that has done all copies counts as able to go on forever.
    pub(super) endless: bool,
    /// A task and a step that never finishes.
    pub(super) avoid: Option<(u32, u32)>,
}

/// Counts more than any threshold, however many of them are added up.
const FOREVER: u64 = u64::MAX;

/// Reusable memory of simulations.
#[derive(Default)]
pub(super) struct Simulation {
    /// Signals per counter, then writers done per packet set of each copy.
    counts: Vec<u64>,
    /// First key of the packet sets of each copy.
    packet_keys: Vec<u32>,
    /// The slots that wait for a key, after the counts that they wait for.
    waiting: Vec<BinaryHeap<Reverse<(u64, u32)>>>,
    /// Place of each slot in its queue, over all copies; the ticket it holds.
    heads: Vec<u64>,
    /// How many waits of its next task are known to hold. They never fail again.
    held: Vec<u32>,
    ready: Vec<u32>,
    next_ticket: u64,
}

impl Simulation {
    /// Calls `visit` for each task and step that runs, in an order in which they can.
    pub(super) fn run(&mut self, order: Order<'_>, run: Run, mut visit: impl FnMut(u32, u32)) {
        let sync = order.sync;
        let slots = match sync.mode {
            Mode::Queues => sync.queues.rows(),
            Mode::Tickets(workers) => u64::from(workers).min(u64::from(sync.tasks) * u64::from(run.copies)) as u32,
        };
        self.reset(order, run, slots);
        while let Some(slot) = self.ready.pop() {
            self.advance(order, run, slot, &mut visit);
        }
    }

    fn reset(&mut self, order: Order<'_>, run: Run, slots: u32) {
        let mut keys = order.sync.counters();
        self.packet_keys.clear();
        for step in 0..run.copies {
            self.packet_keys.push(keys);
            keys += order.packets(step).writers.rows();
        }
        self.counts.clear();
        self.counts.resize(keys as usize, 0);
        self.waiting.iter_mut().for_each(BinaryHeap::clear);
        self.waiting.resize_with(keys as usize, BinaryHeap::new);
        self.held.clear();
        self.held.resize(slots as usize, 0);
        self.heads.clear();
        self.ready.clear();
        self.next_ticket = 0;
        for slot in 0..slots {
            if let Mode::Tickets(_) = order.sync.mode {
                self.next_ticket += 1;
                self.heads.push(u64::from(slot));
            } else {
                self.heads.push(0);
            }
        }
        self.ready.extend((0..slots).rev());
    }

    /// Runs one slot until it is blocked or done.
    fn advance(&mut self, order: Order<'_>, run: Run, slot: u32, visit: &mut impl FnMut(u32, u32)) {
        let sync = order.sync;
        let queue = match sync.mode {
            Mode::Queues => sync.queues.row(slot),
            Mode::Tickets(_) => sync.queues.row(0),
        };
        let end = queue.len() as u64 * u64::from(run.copies);
        while self.heads[slot as usize] < end {
            let head = self.heads[slot as usize];
            let (task, step) = (queue[(head % queue.len() as u64) as usize], (head / queue.len() as u64) as u32);
            if let Some((key, target)) = self.unsatisfied(order, slot, task, step) {
                self.waiting[key as usize].push(Reverse((target, slot)));
                return;
            }
            self.held[slot as usize] = 0;
            if run.avoid == Some((task, step)) {
                return;
            }
            visit(task, step);
            self.finish(order, run, task, step);
            self.heads[slot as usize] = match sync.mode {
                Mode::Queues => head + 1,
                Mode::Tickets(_) => {
                    self.next_ticket += 1;
                    self.next_ticket - 1
                }
            };
        }
    }

    /// The first wait of a slot's next task that does not hold.
    fn unsatisfied(&mut self, order: Order<'_>, slot: u32, task: u32, step: u32) -> Option<(u32, u64)> {
        let (sync, packets) = (order.sync, order.packets(step));
        let (waits, reads) = (sync.waits.row(task), packets.reads.row(task));
        let held = &mut self.held[slot as usize];
        while let at = *held as usize
            && at < waits.len() + reads.len()
        {
            let (key, target) = match (waits.get(at), at.checked_sub(waits.len())) {
                (Some(wait), _) => (wait.counter, target(sync, wait.counter, wait.threshold, step)),
                (None, read) => {
                    let set = reads[read.unwrap_or_default()];
                    (self.packet_keys[step as usize] + set, packets.writers.row(set).len() as u64)
                }
            };
            if self.counts[key as usize] < target {
                return Some((key, target));
            }
            *held += 1;
        }
        None
    }

    fn finish(&mut self, order: Order<'_>, run: Run, task: u32, step: u32) {
        let endless = run.endless && step + 1 == run.copies;
        for &counter in order.sync.signals.row(task) {
            self.signal(counter, if endless { FOREVER } else { 1 });
        }
        for &set in order.packets(step).writes.row(task) {
            self.signal(self.packet_keys[step as usize] + set, 1);
        }
    }

    fn signal(&mut self, key: u32, signals: u64) {
        let count = &mut self.counts[key as usize];
        *count = count.saturating_add(signals);
        let (first, waiting) = (self.ready.len(), &mut self.waiting[key as usize]);
        while let Some(&Reverse((target, slot))) = waiting.peek()
            && target <= *count
        {
            waiting.pop();
            self.ready.push(slot);
        }
        self.ready[first..].reverse(); // low targets and numbers go first
    }
}

/// Signals that a wait of a step needs since the start of the launch.
pub(super) fn target(sync: &Sync, counter: u32, threshold: u32, step: u32) -> u64 {
    u64::from(sync.fan_in(counter)) * u64::from(step) + u64::from(threshold)
}

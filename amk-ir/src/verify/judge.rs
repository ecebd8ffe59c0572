//! Decides exactly whether one task always finishes before another starts, and if not, why not.

use super::budget::Budget;
use super::clocks::Clocks;
use super::found::Found;
use super::routing::RoutedOrder;
use super::simulate::{Run, Simulation};
use super::storage::Access;
use super::sync::{Mode, Order, task};
use super::violation::{Conflict, Occurrence, Party, Race, Site, TooMuch, Unordered, Violation};
use crate::{Program, Wait};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

/// After this many races the search stops.
const MOST_RACES: usize = 64;
/// An access in a step of the launch.
#[derive(Clone, Copy)]
pub(super) struct Event<'a> {
    pub(super) access: &'a Access,
    pub(super) step: u32,
}

/// Decides on orders in one run, and caches the results.
pub(super) struct Judge<'a> {
    pub(super) program: &'a Program,
    pub(super) order: Order<'a>,
    pub(super) clocks: &'a Clocks,
    pub(super) simulation: &'a mut Simulation,
    pub(super) found: &'a mut Found,
    pub(super) budget: &'a mut Budget,
    /// The order that tables establish, if there are any.
    pub(super) routing: Option<&'a mut RoutedOrder>,
    /// Steps of the longest launch.
    pub(super) longest: u32,
    pub(super) runs: HashMap<Run, Vec<(u32, u32)>>,
    pub(super) seen: HashSet<[u32; 8]>,
    /// Number of copies of the step that a simulation may take to follow how far workers run ahead.
    pub(super) horizon: u32,
    /// Number of copies of the step that the clocks cover.
    pub(super) clock_copies: u32,
    pub(super) races: usize,
}

impl<'a> Judge<'a> {
    /// Steps further apart are treated as this far apart: what is ordered then stays ordered later
    /// (L4).
    fn furthest(&self) -> u32 {
        self.horizon.saturating_sub(2).max(1)
    }

    /// Whether enough races have been found to stop looking, or the budget is spent.
    pub(super) fn is_done(&self) -> bool {
        self.races >= MOST_RACES || self.budget.is_spent()
    }

    /// Notes a race unless `first` has always finished when `second` starts.
    pub(super) fn require(&mut self, first: Event<'_>, second: Event<'_>, position: u32) {
        let (a, b) = (first.access.task(), second.access.task());
        // Two accesses of a later step are accesses of the first step of another launch.
        if first.step > 0 {
            return;
        }
        // An order within one step holds in each later step.
        let known = second.step.min(self.clock_copies - 1);
        if self.is_done() || self.clocks.before(a, first.step, b, known) {
            return;
        }
        const PER_PAIR: u64 = 100;
        if !self.budget.spend(PER_PAIR, TooMuch::Orders { task: task(a) }) {
            return;
        }
        let distance = second.step.saturating_sub(first.step);
        let Some(copies) = self.fails(a, b, distance) else { return };
        let given =
            match self.routing.as_mut().map(|order| order.holds(self.clocks, first.access, second.access, self.budget))
            {
                Some(Ok(())) => return,
                Some(Err(given)) => given,
                None => None,
            };
        let simulated = distance.min(self.furthest());
        let (s, t) = (first.access.site, second.access.site);
        if !self.seen.insert([0, s.task.0, s.call, s.operand, t.task.0, t.call, t.operand, distance]) {
            return;
        }
        self.races += 1;
        let (first, second) = (first.access.party(0), second.access.party(distance));
        let conflict = self.conflict(&first, &second);
        let because = self.because(a, b, simulated, copies);
        let witness = self.witness(a, b, simulated, copies);
        self.found.push(Violation::Race(Box::new(Race { conflict, first, second, position, because, given, witness })));
    }

    /// Notes a violation of another kind, once for all positions.
    pub(super) fn note(&mut self, violation: Violation) {
        let key = |site: Site, other: Site| {
            [site.task.0, site.call, site.operand, other.task.0, other.call, other.operand, 0]
        };
        let none = Site { task: task(0), call: 0, operand: 0 };
        let rest = match &violation {
            Violation::Uninitialised { site, .. } => key(*site, none),
            Violation::Overwritten { read, write, .. } => key(read.site, write.site),
            Violation::PacketTwice { first, second, .. } => key(first.site, second.site),
            Violation::SameCall { first, second, .. } => key(first.site, second.site),
            Violation::Early { read, write, .. } => key(read.site, write.site),
            Violation::OutputNotWritten { buffer, .. } => [buffer.0, 0, 0, 0, 0, 0, 1],
            Violation::SharedPlace { buffer, other, .. } => [buffer.0, other.0, 0, 0, 0, 0, 2],
            _ => [0; 7],
        };
        let [a, b, c, d, e, f, g] = rest;
        if self.seen.insert([violation.code().0.into(), a, b, c, d, e, f, g]) {
            self.found.push(violation);
        }
    }

    fn conflict(&self, first: &Party, second: &Party) -> Conflict {
        let packet = self
            .program
            .buffers
            .get(first.buffer.index())
            .is_some_and(|buffer| buffer.exchange != crate::Exchange::Counter);
        if first.buffer != second.buffer {
            Conflict::SharedBytes
        } else if second.step > 0 {
            if packet { Conflict::PacketReuse } else { Conflict::AcrossSteps }
        } else if !first.access.writes() {
            Conflict::WriteAfterRead
        } else if second.access.reads() {
            Conflict::ReadAfterWrite
        } else {
            Conflict::WriteAfterWrite
        }
    }

    /// Whether `first` has always finished when `second` of `distance` steps later starts.
    pub(super) fn is_ordered(&mut self, first: &Access, second: &Access, distance: u32) -> bool {
        let (a, b) = (first.task(), second.task());
        self.clocks.before(a, 0, b, distance.min(self.clock_copies - 1)) || self.fails(a, b, distance).is_none()
    }

    /// Whether `b`, `distance` steps later, can start although `a` never finishes; returns the
    /// number of copies that show it.
    ///
    /// The first step of a launch decides for all: an execution of later steps, without the
    /// preceding ones, is an execution from the first.
    fn fails(&mut self, a: u32, b: u32, distance: u32) -> Option<u32> {
        let distance = distance.min(self.furthest());
        // A worker can be ahead of another by at most one step for each worker between them, or
        // without bound.
        let workers = self.order.sync.queues.rows();
        let most = workers.saturating_add(2).min(self.horizon).max(distance + 2).min(self.longest);
        let pipelined = self.longest > 1;
        let mut copies = if pipelined { (distance + 2).min(most) } else { 1 };
        loop {
            // Beyond the budget the program is refused for that reason alone.
            if !self.starts_without(a, b, distance, copies)? {
                return None;
            }
            if copies >= most {
                return Some(copies);
            }
            copies = (copies * 2).min(most);
        }
    }

    fn starts_without(&mut self, a: u32, b: u32, distance: u32, copies: u32) -> Option<bool> {
        Some(self.run_without(a, copies)?.binary_search(&(b, distance)).is_ok())
    }

    /// The tasks and steps that run although `a` of the first step never finishes, sorted; `None`
    /// beyond the budget.
    fn run_without(&mut self, a: u32, copies: u32) -> Option<&[(u32, u32)]> {
        let (order, simulation) = (self.order, &mut *self.simulation);
        let run = run(a, copies, self.longest);
        let work = u64::from(order.sync.tasks) * u64::from(copies);
        const KEPT: u64 = 1 << 24;
        if self.runs.len() as u64 * work > KEPT {
            self.runs.clear();
        }
        if let Entry::Vacant(vacant) = self.runs.entry(run) {
            const PER_TASK: u64 = 60;
            const PER_WAIT: u64 = 20; // and signal
            let (counters, sync) = (u64::from(order.sync.counters()), order.sync);
            let waits = (sync.waits.items() + sync.signals.items()) * u64::from(copies);
            let units = work * PER_TASK + waits * PER_WAIT + counters;
            if !self.budget.spend(units, TooMuch::Orders { task: task(a) }) {
                return None;
            }
            let mut ran = Vec::new();
            simulation.run(order, run, |task, step| ran.push((task, step)));
            ran.sort_unstable();
            vacant.insert(ran);
        }
        self.runs.get(&run).map(Vec::as_slice)
    }

    fn because(&mut self, a: u32, b: u32, distance: u32, copies: u32) -> Unordered {
        let sync = self.order.sync;
        if distance == 0 && sync.mode == Mode::Queues {
            let (x, y) = (sync.place[a as usize], sync.place[b as usize]);
            if x.0 == y.0 && y.1 < x.1 {
                return Unordered::QueueReversed;
            }
        }
        if distance == 0 && self.clocks.before(b, 0, a, 0) {
            return Unordered::Reversed;
        }
        let ran = self.run_without(a, copies).unwrap_or_default().to_vec();
        for wait in sync.waits.row(b) {
            let signallers = sync.signallers.row(wait.counter);
            if !signallers.contains(&a) {
                continue;
            }
            let others = signallers.iter().filter(|&&t| ran.binary_search(&(t, distance)).is_ok()).count() as u32;
            let fan_in = signallers.len() as u32;
            let wait = Wait { on: sync.element(wait.counter), threshold: wait.threshold };
            return match distance == 0 && others >= wait.threshold {
                true => Unordered::Partial { wait, fan_in, others },
                false => Unordered::RunsAhead { wait, fan_in },
            };
        }
        Unordered::NoPath
    }

    /// Returns the instances that have to run so that `b` starts, in an execution in which `a`
    /// never finishes.
    fn witness(&mut self, a: u32, b: u32, distance: u32, copies: u32) -> Vec<Occurrence> {
        const LONGEST: usize = 16;
        const PER_TASK: u64 = 200;
        let work = u64::from(self.order.sync.tasks) * u64::from(copies) * PER_TASK;
        if !self.budget.spend(work, TooMuch::Orders { task: task(a) }) {
            return Vec::new();
        }
        let order = self.order;
        let mut ran: HashMap<(u32, u32), usize> = HashMap::new();
        let mut when = 0;
        self.simulation.run(order, run(a, copies, self.longest), |task, step| {
            ran.insert((task, step), when);
            when += 1;
        });
        let mut needed: Vec<(usize, u32, u32)> = Vec::new();
        let mut known: HashSet<(u32, u32)> = HashSet::from([(b, distance)]);
        let mut work = vec![(b, distance)];
        while let Some((task, step)) = work.pop() {
            let before = order.sync.before_in_launch(task, step);
            let signallers = order.sync.waits.row(task).iter().flat_map(|w| order.sync.signallers.row(w.counter));
            let packets = order.packets(step);
            let writers = packets.reads.row(task).iter().flat_map(|&set| packets.writers.row(set));
            let same_step: Vec<(u32, u32)> = signallers.chain(writers).map(|&t| (t, step)).collect();
            const PER_SIGNAL: u64 = 40;
            if !self.budget.spend(same_step.len() as u64 * PER_SIGNAL, TooMuch::Orders { task: self::task(a) }) {
                break;
            }
            for next in before.filter(|_| order.sync.mode == Mode::Queues).into_iter().chain(same_step) {
                if let Some(&when) = ran.get(&next)
                    && when < ran.get(&(task, step)).copied().unwrap_or(usize::MAX)
                    && known.insert(next)
                {
                    needed.push((when, next.0, next.1));
                    work.push(next);
                }
            }
        }
        needed.sort_unstable();
        let skipped = needed.len().saturating_sub(LONGEST);
        needed.into_iter().skip(skipped).map(|(_, t, step)| Occurrence { task: task(t), step }).collect()
    }
}

fn run(a: u32, copies: u32, longest: u32) -> Run {
    Run { copies, endless: longest > copies, avoid: Some((a, 0)) }
}

//! Happens-before by vector clocks over the queues.
//!
//! The clock of a task states how many tasks of each queue, over all steps, have finished whenever
//! it starts. A wait for all signals of a counter gives the componentwise maximum over the tasks
//! that signal it; a wait for `t` of `n` gives the `t`-th smallest in each component. Tasks with
//! the same waits share one clock, so memory and time grow with counters rather than with tasks.
//!
//! Clocks never claim an order that does not exist. They miss some: orders that follow from cycles
//! of partial waits, from counters that later steps can confuse, and from ticket workers that are
//! all blocked; these are decided by [`simulation`](super::simulate) if a race depends on them.

use super::simulate::{Run, Simulation};
use super::sync::{Mode, Order, Sync};
use crate::TaskId;
use crate::certificate::Proof;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

/// A task's place: its chain and how many tasks of the chain, over all steps, come before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) chain: u32,
    pub(super) position: u32,
}

/// The place of a task that has not been reached yet: no chain has it.
const NOWHERE: Place = Place { chain: NONE, position: 0 };

/// Index of a stored clock.
pub(super) type ClockId = u32;

/// The clock in which nothing has finished.
const ZERO: ClockId = 0;
const NONE: u32 = u32::MAX;

/// Reusable memory of clocks.
#[derive(Default)]
pub(super) struct Clocks {
    tasks: u32,
    /// Components of all stored clocks, and where each starts and ends.
    data: Vec<u32>,
    spans: Vec<(usize, usize)>,
    /// The clock of each task of each copy; its own chain is left to its place.
    bases: Vec<ClockId>,
    places: Vec<Place>,
    chains: u32,
    /// The order in which tasks of one step can run.
    topological: Vec<u32>,
    /// The contribution of the signals of each counter, then of each packet set, in the current
    /// copy.
    joins: Vec<Join>,
    /// Counters whose signals of two steps can mix.
    confusable: Vec<bool>,
    /// Numbers that `data` may hold.
    most: usize,
    /// Numbers that partial waits have examined.
    partial_work: u64,
    /// The last task of each chain, for tickets; and chains with their last task at that time,
    /// least recently continued first.
    tails: Vec<u32>,
    idle: VecDeque<(u32, u32)>,
    /// Recent joins of two clocks.
    memo: Vec<(ClockId, ClockId, ClockId)>,
    column: Vec<u32>,
}

/// The joined clocks of a counter's signals so far.
#[derive(Clone, Copy)]
struct Join {
    clock: ClockId,
    /// The base that was joined last.
    last: ClockId,
    signals: u32,
    /// The next signaller whose chain a waiter may continue.
    next_tail: u32,
}

const NO_JOIN: Join = Join { clock: NONE, last: NONE, signals: 0, next_tail: 0 };
const MEMO: usize = 64;
/// Limit on the numbers that the partial waits of a program may examine.
const MOST_PARTIAL_WORK: u64 = 1 << 26;

impl Clocks {
    /// Takes every counter to keep its steps apart, until `compute` finds that one does not.
    pub(super) fn trust_counters(&mut self, sync: &Sync) {
        self.confusable.clear();
        self.confusable.resize(sync.counters() as usize, false);
        self.partial_work = 0;
    }

    /// Finds counters whose steps are not separated by waits and queues alone: packets may differ
    /// from step to step.
    pub(super) fn distrust_by_steps(&mut self, sync: &Sync, copies: u32, simulation: &mut Simulation, most: usize) {
        self.trust_counters(sync);
        let packets = [Rc::default()];
        self.compute(Order { sync, packets: &packets }, copies, simulation, most);
    }

    /// Computes the clocks of `copies` consecutive steps, in at most `most` numbers. Several ticket
    /// workers keep no order from step to step.
    pub(super) fn compute(&mut self, order: Order<'_>, copies: u32, simulation: &mut Simulation, most: usize) {
        self.tasks = order.sync.tasks;
        self.most = most;
        self.topological.clear();
        match order.sync.mode {
            Mode::Queues => {
                let topological = &mut self.topological;
                simulation.run(order, Run { copies: 1, endless: false, avoid: None }, |task, _| topological.push(task));
            }
            Mode::Tickets(_) => self.topological.extend_from_slice(order.sync.queues.row(0)),
        }
        self.pass(order, copies);
        // Dropping the order of one counter can make another one confusable. Long chains of such
        // effects are truncated.
        const ROUNDS: u32 = 8;
        for round in 0.. {
            if copies == 1 || order.sync.mode != Mode::Queues || !self.mark_confusable(order) {
                break;
            }
            if round == ROUNDS {
                self.confusable.fill(true);
            }
            self.pass(order, copies);
        }
    }

    /// Whether the clocks exceeded their budget of numbers, in which case they are incomplete.
    pub(super) fn is_full(&self) -> bool {
        self.data.len() > self.most
    }

    fn pass(&mut self, order: Order<'_>, copies: u32) {
        let sync = order.sync;
        self.data.clear();
        self.spans.clear();
        self.bases.clear();
        self.places.clear();
        self.tails.clear();
        self.idle.clear();
        self.memo.clear();
        self.memo.resize(MEMO, (NONE, NONE, NONE));
        let instances = sync.tasks as usize * copies as usize;
        self.bases.resize(instances, ZERO);
        self.places.resize(instances, NOWHERE);
        self.chains = match sync.mode {
            Mode::Queues => sync.queues.rows(),
            Mode::Tickets(_) => 0,
        };
        self.spans.push((0, 0));
        if copies > 1 && sync.mode != Mode::Queues {
            return;
        }
        for step in 0..copies {
            self.joins.clear();
            self.joins.resize((sync.counters() + order.packets(step).writers.rows()) as usize, NO_JOIN);
            for n in 0..self.topological.len() {
                let task = self.topological[n];
                if self.is_full() {
                    return;
                }
                self.start(order, task, step);
                self.finish(order, task, step);
            }
        }
    }

    fn instance(&self, task: u32, step: u32) -> usize {
        step as usize * self.tasks as usize + task as usize
    }

    /// Sets place and clock of a task from its queue and its waits.
    fn start(&mut self, order: Order<'_>, task: u32, step: u32) {
        let sync = order.sync;
        let packets = order.packets(step);
        let (queue, n) = sync.place[task as usize];
        let mut base = ZERO;
        if sync.mode == Mode::Queues {
            let list = sync.queues.row(queue);
            let position = step * list.len() as u32 + n;
            if n > 0 {
                base = self.bases[self.instance(list[n as usize - 1], step)];
            } else if let (Some(previous), Some(&last)) = (step.checked_sub(1), list.last()) {
                base = self.bases[self.instance(last, previous)];
            }
            let instance = self.instance(task, step);
            self.places[instance] = Place { chain: queue, position };
        }
        let mut chain = None;
        for wait in sync.waits.row(task) {
            if self.confusable[wait.counter as usize] || self.is_full() {
                continue;
            }
            let signallers = sync.signallers.row(wait.counter);
            let join = self.joins[wait.counter as usize];
            if wait.threshold as usize == signallers.len() && join.signals as usize == signallers.len() {
                base = self.join(base, join.clock);
                chain = chain.or_else(|| self.free_tail(wait.counter, signallers));
            } else if let Some(clock) = self.partial(signallers, wait.threshold, step) {
                base = self.join(base, clock);
            }
        }
        for &set in packets.reads.row(task) {
            let join = self.joins[(sync.counters() + set) as usize];
            if !self.is_full() && join.clock != NONE && join.signals as usize == packets.writers.row(set).len() {
                base = self.join(base, join.clock);
                chain = chain.or_else(|| self.free_tail(sync.counters() + set, packets.writers.row(set)));
            }
        }
        let instance = self.instance(task, step);
        if sync.mode != Mode::Queues {
            let chain = chain.or_else(|| self.idle_tail(base));
            self.places[instance] = self.continue_chain(chain, task);
        }
        self.bases[instance] = base;
    }

    /// A signaller that is the last of its chain.
    fn free_tail(&mut self, key: u32, signallers: &[u32]) -> Option<u32> {
        let join = &mut self.joins[key as usize];
        while let Some(&task) = signallers.get(join.next_tail as usize) {
            join.next_tail += 1;
            if self.tails.get(self.places[task as usize].chain as usize) == Some(&task) {
                return Some(task);
            }
        }
        None
    }

    /// Returns the last task of a chain if it has finished in the clock `base`, for the least
    /// recently continued chain.
    fn idle_tail(&mut self, base: ClockId) -> Option<u32> {
        loop {
            let &(chain, task) = self.idle.front()?;
            if self.tails.get(chain as usize) == Some(&task) {
                return self.in_base(self.places[task as usize], base).then_some(task);
            }
            self.idle.pop_front();
        }
    }

    /// The place after `previous` in its chain, or at the start of a new one.
    fn continue_chain(&mut self, previous: Option<u32>, task: u32) -> Place {
        let place = match previous {
            Some(previous) => {
                let Place { chain, position } = self.places[previous as usize];
                Place { chain, position: position + 1 }
            }
            None => {
                self.tails.push(task);
                self.chains += 1;
                Place { chain: self.chains - 1, position: 0 }
            }
        };
        self.tails[place.chain as usize] = task;
        self.idle.push_back((place.chain, task));
        place
    }

    /// Adds a finished task to the contribution of its signals.
    fn finish(&mut self, order: Order<'_>, task: u32, step: u32) {
        let counters = order.sync.counters();
        let signals = order.sync.signals.row(task).iter().copied();
        let packets = order.packets(step).writes.row(task).iter().map(|&set| counters + set);
        for key in signals.chain(packets) {
            if self.is_full() {
                return;
            }
            self.signal(key, task, step);
        }
    }

    fn signal(&mut self, key: u32, task: u32, step: u32) {
        let instance = self.instance(task, step);
        let (base, place) = (self.bases[instance], self.places[instance]);
        let mut join = self.joins[key as usize];
        if join.clock == NONE {
            join.clock = self.allocate();
        }
        if join.last != base {
            join.clock = self.raise(join.clock, base);
            join.last = base;
        }
        let (into, end) = self.spans[join.clock as usize];
        if place.chain as usize >= end - into {
            join.clock = self.widen(join.clock);
        }
        let own = self.spans[join.clock as usize].0 + place.chain as usize;
        self.data[own] = self.data[own].max(place.position + 1);
        join.signals += 1;
        self.joins[key as usize] = join;
    }

    fn allocate(&mut self) -> ClockId {
        let start = self.data.len();
        self.data.resize(start + self.chains as usize, 0);
        self.spans.push((start, self.data.len()));
        self.spans.len() as u32 - 1
    }

    /// Returns a copy of a clock with components for all existing chains.
    fn widen(&mut self, clock: ClockId) -> ClockId {
        let (start, end) = self.spans[clock as usize];
        let wider = self.allocate();
        let (into, _) = self.spans[wider as usize];
        self.data.copy_within(start..end, into);
        wider
    }

    /// Raises a clock to at least `from` in each component; returns the clock, which may have moved
    /// to grow.
    fn raise(&mut self, clock: ClockId, from: ClockId) -> ClockId {
        let (from_start, from_end) = self.spans[from as usize];
        let (start, end) = self.spans[clock as usize];
        let clock = if end - start < from_end - from_start { self.widen(clock) } else { clock };
        let (start, _) = self.spans[clock as usize];
        let len = from_end - from_start;
        if from_start < start {
            let (old, new) = self.data.split_at_mut(start);
            max_into(&mut new[..len], &old[from_start..from_end]);
        } else {
            let (old, new) = self.data.split_at_mut(from_start);
            max_into(&mut old[start..start + len], &new[..len]);
        }
        clock
    }

    fn clock(&self, id: ClockId) -> &[u32] {
        let (start, end) = self.spans[id as usize];
        &self.data[start..end]
    }

    /// The componentwise maximum of two clocks.
    fn join(&mut self, a: ClockId, b: ClockId) -> ClockId {
        if a == b || b == ZERO {
            return a;
        }
        if a == ZERO {
            return b;
        }
        let slot = (a.wrapping_mul(31) ^ b) as usize % MEMO;
        if let (x, y, joined) = self.memo[slot]
            && (x, y) == (a, b)
        {
            return joined;
        }
        let joined = if below(self.clock(a), self.clock(b)) {
            b
        } else if below(self.clock(b), self.clock(a)) {
            a
        } else {
            let joined = self.allocate();
            self.raise(joined, a);
            self.raise(joined, b)
        };
        self.memo[slot] = (a, b, joined);
        joined
    }

    /// Returns the clock that a wait for `threshold` signals establishes: in each component the
    /// `threshold`-th smallest over the signallers. A signaller not reached yet contributes
    /// nothing, nor does a wait beyond the budget.
    fn partial(&mut self, signallers: &[u32], threshold: u32, step: u32) -> Option<ClockId> {
        let rank = (threshold as usize).checked_sub(1)?;
        self.partial_work += signallers.len() as u64 * u64::from(self.chains);
        if rank >= signallers.len() || self.partial_work > MOST_PARTIAL_WORK {
            return None;
        }
        let clock = self.allocate();
        let (into, end) = self.spans[clock as usize];
        let mut column = std::mem::take(&mut self.column);
        for chain in 0..(end - into) as u32 {
            column.clear();
            for &task in signallers {
                let instance = self.instance(task, step);
                column.push(self.finished(instance, chain));
            }
            let (_, &mut value, _) = column.select_nth_unstable(rank);
            self.data[into + chain as usize] = value;
        }
        self.column = column;
        Some(clock)
    }

    /// The number of tasks of a chain that have finished when this instance has; 0 as long as it
    /// has no place.
    fn finished(&self, instance: usize, chain: u32) -> u32 {
        let base = self.clock(self.bases[instance]).get(chain as usize).copied().unwrap_or(0);
        let place = self.places[instance];
        if place.chain == chain { base.max(place.position + 1) } else { base }
    }

    /// Marks counters for which a signal of a step can precede some signals of the previous step;
    /// returns whether there are new ones.
    ///
    /// Until the first such signal of an execution, every wait means what the clocks assume. So if
    /// the clocks order all signals of a step before each signal of the next, there is no first
    /// one.
    fn mark_confusable(&mut self, order: Order<'_>) -> bool {
        let mut new = false;
        for counter in 0..order.sync.counters() {
            if !self.confusable[counter as usize] && !self.steps_apart(order.sync.signallers.row(counter)) {
                self.confusable[counter as usize] = true;
                new = true;
            }
        }
        new
    }

    /// Whether all tasks of step 0 have finished whenever one of them starts in step 1.
    fn steps_apart(&mut self, tasks: &[u32]) -> bool {
        // Instances held up by a cycle of waits have no place.
        if tasks.iter().any(|&task| self.place(task, 0).chain == NONE) {
            return false;
        }
        let mut last = std::mem::take(&mut self.column);
        last.clear();
        last.resize(self.chains as usize, NONE);
        for &task in tasks {
            let place = self.place(task, 0);
            let latest = &mut last[place.chain as usize];
            *latest = if *latest == NONE { place.position } else { (*latest).max(place.position) };
        }
        let places = last.iter().enumerate().filter(|(_, position)| **position != NONE);
        let front: Vec<Place> = places.map(|(n, &position)| Place { chain: n as u32, position }).collect();
        self.column = last;
        tasks.iter().all(|&late| {
            let (base, at) = (self.base(late, 1), self.place(late, 1));
            front.iter().all(|&place| self.reaches(place, base, at))
        })
    }

    /// Whether task `a` of copy `step_a` has finished whenever `b` of copy `step_b` starts. `false`
    /// means: not known.
    pub(super) fn before(&self, a: u32, step_a: u32, b: u32, step_b: u32) -> bool {
        let place = self.place(a, step_a);
        self.reaches(place, self.base(b, step_b), self.place(b, step_b))
    }

    pub(super) fn place(&self, task: u32, step: u32) -> Place {
        self.places[self.instance(task, step)]
    }

    pub(super) fn base(&self, task: u32, step: u32) -> ClockId {
        self.bases[self.instance(task, step)]
    }

    /// Whether the task at `place` has finished in the clock `base` of a task at `at`.
    pub(super) fn reaches(&self, place: Place, base: ClockId, at: Place) -> bool {
        self.in_base(place, base) || (place.chain == at.chain && place.position < at.position)
    }

    /// Like `reaches`, for every task with the clock.
    pub(super) fn in_base(&self, place: Place, base: ClockId) -> bool {
        self.clock(base).get(place.chain as usize).is_some_and(|&finished| finished > place.position)
    }

    pub(super) fn chains(&self) -> u32 {
        self.chains
    }

    /// Counters that may mix the signals of two steps.
    pub(super) fn mixed(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.confusable).filter(|(_, mixed)| **mixed).map(|(counter, _)| counter)
    }

    /// Writes chains, clocks, and the clock of each task in each of `copies` steps into a proof.
    pub(super) fn write_down(&self, copies: u32, proof: &mut Proof) {
        proof.chains.resize(self.chains as usize, Vec::new());
        let mut places: Vec<(Place, u32)> = (0..self.tasks).map(|id| (self.place(id, 0), id)).collect();
        places.sort_unstable_by_key(|(place, _)| (place.chain, place.position));
        for (place, id) in places {
            if let Some(chain) = proof.chains.get_mut(place.chain as usize) {
                chain.push(TaskId(id));
            }
        }
        let mut numbers = HashMap::new();
        let mut number = |clock: ClockId| {
            *numbers.entry(clock).or_insert_with(|| {
                proof.clocks.push(self.clock(clock).to_vec());
                proof.clocks.len() as u32 - 1
            })
        };
        for step in 0..copies {
            proof.steps.push((0..self.tasks).map(|id| number(self.base(id, step))).collect());
        }
    }
}

fn max_into(into: &mut [u32], from: &[u32]) {
    for (into, &from) in into.iter_mut().zip(from) {
        *into = (*into).max(from);
    }
}

/// Whether `a` is at most `b` in each component; missing components of a shorter clock are zero.
fn below(a: &[u32], b: &[u32]) -> bool {
    let (common, rest) = a.split_at(a.len().min(b.len()));
    common.iter().zip(b).all(|(a, b)| a <= b) && rest.iter().all(|&a| a == 0)
}

//! Clocks: how many tasks of each chain have finished whenever a task starts (L6).

use crate::budget::Budget;
use crate::launch::{Launch, Place};
use crate::refusal::{Counter, Ill, Refusal};
use crate::structure;
use amk_ir::certificate::Proof;
use amk_ir::{Element, TaskId};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Numbers of the inequality that are kept at a time.
const KEPT: usize = 1 << 24;

/// The clocks of a proof.
#[derive(Debug)]
pub(crate) struct Clocks<'a> {
    launch: &'a Launch<'a>,
    proof: &'a Proof,
    /// By task: its chain, and its place in it.
    chains: Vec<Option<Place>>,
    mixed: HashSet<Element>,
}

impl<'a> Clocks<'a> {
    /// The clocks of a proof, as it states them.
    pub(crate) fn new(launch: &'a Launch<'a>, proof: &'a Proof) -> Result<Self, Ill> {
        let chains = chains(launch, proof)?;
        if let Some(clock) = proof.clocks.iter().position(|clock| clock.len() > proof.chains.len()) {
            return Err(Ill::Clock(clock));
        }
        let names_clocks =
            |step: &Vec<u32>| step.len() == chains.len() && step.iter().all(|&id| (id as usize) < proof.clocks.len());
        if let Some(step) = proof.steps.iter().position(|step| !names_clocks(step)) {
            return Err(Ill::Step(step));
        }
        if let Some(&on) = proof.mixed.iter().find(|&&on| !structure::exists(launch.program, on)) {
            return Err(Ill::Mixed(Counter(on)));
        }
        Ok(Self { launch, proof, chains, mixed: proof.mixed.iter().copied().collect() })
    }

    /// Number of steps with separate clocks in the longest launch.
    pub(crate) fn steps(&self) -> u64 {
        self.launch.steps(self.proof.starts.first).min(self.proof.steps.len() as u64)
    }

    /// Whether the clocks show that `first` of the first step finishes before `second` starts,
    /// `distance` steps later.
    pub(crate) fn shows(&self, first: TaskId, second: TaskId, distance: u64) -> bool {
        self.chains[first.index()].is_some_and(|own| self.before(second, distance, own.queue) > own.index as u64)
    }

    /// The clock, as it is written down; the last step's clock continues (L4).
    fn written(&self, task: TaskId, step: u64) -> &[u32] {
        let steps = &self.proof.steps;
        let step = usize::try_from(step).unwrap_or(usize::MAX).min(steps.len().saturating_sub(1));
        steps.get(step).map_or(&[], |clocks| &self.proof.clocks[clocks[task.index()] as usize])
    }

    /// Place in the own chain, over all steps.
    fn place(&self, task: TaskId, step: u64) -> Option<(usize, u64)> {
        let own = self.chains[task.index()]?;
        Some((
            own.queue,
            step.saturating_mul(self.proof.chains[own.queue].len() as u64).saturating_add(own.index as u64),
        ))
    }

    /// `C`: tasks of a chain that have finished when an instance starts.
    fn before(&self, task: TaskId, step: u64, chain: usize) -> u64 {
        let written = self.written(task, step).get(chain).copied().unwrap_or(0).into();
        match self.place(task, step) {
            Some((own, place)) if own == chain => place.max(written),
            _ => written,
        }
    }

    /// `D`: tasks of a chain that have finished when an instance has.
    fn after(&self, task: TaskId, step: u64, chain: usize) -> u64 {
        let before = self.before(task, step, chain);
        match self.place(task, step) {
            Some((own, place)) if own == chain => before.max(place + 1),
            _ => before,
        }
    }

    /// Whether all signals of a step come after all signals of the step before, in launches from
    /// these positions.
    fn keeps_steps_apart(&self, counter: usize) -> bool {
        self.launch.steps(self.proof.starts.first) == 1
            || self.claims() && !self.mixed.contains(&self.launch.counters[counter].on.0)
    }

    /// Whether clocks can claim anything.
    fn claims(&self) -> bool {
        !self.proof.steps.is_empty() && !self.proof.chains.is_empty()
    }

    /// Whether the inequality holds for each task of each step that has a clock.
    pub(crate) fn check(&self, budget: &mut Budget) -> Result<(), Refusal> {
        self.check_mixed(budget)?;
        for step in 0..self.steps() {
            let mut shown = Shown { clocks: self, step, kept: HashMap::new(), numbers: 0 };
            for task in self.launch.tasks() {
                self.check_instance(task, &mut shown, budget)?;
            }
        }
        Ok(())
    }

    fn check_instance(&self, task: TaskId, shown: &mut Shown<'_, '_>, budget: &mut Budget) -> Result<(), Refusal> {
        let step = shown.step;
        let length = self.written(task, step).len();
        budget.take(1 + length as u64, "checking clocks")?;
        let own = self.place(task, step).map(|(chain, _)| chain).filter(|&chain| chain >= length);
        let mut waited_for = None;
        for chain in (0..length).chain(own) {
            let claimed = self.before(task, step, chain);
            let by_queue = shown.by_queue(task, chain);
            if by_queue >= claimed {
                continue;
            }
            let waited_for = match &waited_for {
                Some(waited_for) => waited_for,
                None => waited_for.insert(shown.waited_for(task, budget)?),
            };
            budget.take(waited_for.len() as u64, "checking clocks")?;
            let shown = waited_for.iter().map(|numbers| numbers[chain]).fold(by_queue, u64::max);
            if shown < claimed {
                let position = self.proof.starts.first;
                return Err(Refusal::Clock { position, task, step, chain, claimed, shown });
            }
        }
        Ok(())
    }

    /// Whether tasks of the second step that signal a counter come after all tasks of the first
    /// that do, where it is not mixed.
    fn check_mixed(&self, budget: &mut Budget) -> Result<(), Refusal> {
        let position = self.proof.starts.first;
        if self.launch.steps(position) == 1 || !self.claims() {
            return Ok(());
        }
        for (counter, signals) in self.launch.counters.iter().enumerate() {
            if !self.keeps_steps_apart(counter) {
                continue;
            }
            // The last task of each chain that signals the counter represents the earlier ones.
            let mut last: HashMap<Option<usize>, (usize, TaskId)> = HashMap::new();
            for &task in &signals.by {
                let own = self.chains[task.index()];
                let at = (own.map_or(0, |own| own.index), task);
                last.entry(own.map(|own| own.queue)).and_modify(|last| *last = at.max(*last)).or_insert(at);
            }
            for &task in &signals.by {
                budget.take(last.len() as u64, "comparing signals of two steps")?;
                if let Some(&(_, other)) = last.values().find(|(_, other)| !self.shows(*other, task, 1)) {
                    return Err(Refusal::Mixed { position, counter: signals.on, task, other });
                }
            }
        }
        Ok(())
    }

    /// Whether a step that has a clock can be the first of a launch that the other proof is of.
    pub(crate) fn reaches(&self, later: &Self) -> bool {
        let reach = u64::from(self.proof.starts.last).saturating_add(self.steps().saturating_sub(1));
        u64::from(later.proof.starts.first) <= reach
    }

    /// A wait of a step `s` rests on launches that start `s` steps later (L6): there the counter is
    /// not mixed either.
    pub(crate) fn check_later(&self, later: &Self) -> Result<(), Refusal> {
        let (position, start) = (self.proof.starts.first, later.proof.starts.first);
        let mut counters = 0..self.launch.counters.len();
        match counters.find(|&counter| self.keeps_steps_apart(counter) && !later.keeps_steps_apart(counter)) {
            Some(counter) => {
                Err(Refusal::MixedLater { position, counter: self.launch.counters[counter].on, later: start })
            }
            None => Ok(()),
        }
    }
}

/// The operands of the maximum on the right side of the inequality, other than the queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum By {
    Wait(usize, u32),
    Packets(usize),
}

/// The right sides of the inequality in one step.
struct Shown<'c, 'a> {
    clocks: &'c Clocks<'a>,
    step: u64,
    /// By chain; tasks with equal waits share an entry.
    kept: HashMap<By, Rc<[u64]>>,
    numbers: usize,
}

impl Shown<'_, '_> {
    /// Returns, by chain, the components implied by each wait and each read of packets of a task.
    fn waited_for(&mut self, task: TaskId, budget: &mut Budget) -> Result<Vec<Rc<[u64]>>, Refusal> {
        let launch = self.clocks.launch;
        let waits = launch.waits[task.index()].iter();
        let waits = waits.filter(|&&(counter, _)| self.clocks.keeps_steps_apart(counter));
        let waits = waits.map(|&(counter, threshold)| By::Wait(counter, threshold));
        let packets = launch.packets[task.index()].iter().map(|&source| By::Packets(source));
        waits.chain(packets).map(|by| self.numbers(by, budget)).collect()
    }

    /// The clock component implied by the instance's predecessor in its queue.
    fn by_queue(&self, task: TaskId, chain: usize) -> u64 {
        let launch = self.clocks.launch;
        let place = launch.places[task.index()];
        let queue = launch.queues[place.queue];
        match (place.index.checked_sub(1), self.step.checked_sub(1)) {
            // A ticket does not wait for the one before it.
            _ if launch.drawing.is_some() => 0,
            (Some(before), _) => self.clocks.after(queue[before], self.step, chain),
            (None, Some(step)) => queue.last().map_or(0, |&last| self.clocks.after(last, step, chain)),
            (None, None) => 0,
        }
    }

    fn numbers(&mut self, by: By, budget: &mut Budget) -> Result<Rc<[u64]>, Refusal> {
        if let Some(numbers) = self.kept.get(&by) {
            return Ok(numbers.clone());
        }
        let numbers: Rc<[u64]> = self.work_out(by, budget)?.into();
        self.numbers += numbers.len();
        if self.numbers > KEPT {
            self.kept.clear();
            self.numbers = numbers.len();
        }
        self.kept.insert(by, numbers.clone());
        Ok(numbers)
    }

    fn work_out(&self, by: By, budget: &mut Budget) -> Result<Vec<u64>, Refusal> {
        let Clocks { launch, proof, .. } = self.clocks;
        // Of `f` numbers the `k`-th smallest is the `f - k + 1`-st largest; of packets, all are
        // there.
        let (tasks, rank) = match by {
            By::Wait(counter, threshold) => {
                let by = &launch.counters[counter].by;
                (by.clone(), (by.len() + 1).saturating_sub(threshold as usize))
            }
            By::Packets(source) => {
                let position = launch.position(proof.starts.first, self.step);
                (launch.sources[source].at(position).collect(), 1)
            }
        };
        let chains = proof.chains.len();
        budget.take((chains * (1 + tasks.len())) as u64, "checking clocks")?;
        if rank == 0 || rank > tasks.len() {
            return Ok(vec![0; chains]);
        }
        let mut after = vec![0; tasks.len()];
        let numbers = (0..chains).map(|chain| {
            for (number, &task) in after.iter_mut().zip(&tasks) {
                *number = self.clocks.after(task, self.step, chain);
            }
            let kth = after.len() - rank;
            *after.select_nth_unstable(kth).1
        });
        Ok(numbers.collect())
    }
}

/// By task, its chain. With static queues the chains are the queues; otherwise the certificate
/// lists them.
fn chains(launch: &Launch<'_>, proof: &Proof) -> Result<Vec<Option<Place>>, Ill> {
    if launch.drawing.is_none() {
        let are_queues = proof.chains.len() == launch.queues.len()
            && proof.chains.iter().zip(&launch.queues).all(|(chain, queue)| chain == queue);
        return if are_queues { Ok(launch.places.iter().copied().map(Some).collect()) } else { Err(Ill::NotQueues) };
    }
    if launch.is_pipelined() && !proof.chains.is_empty() {
        return Err(Ill::NoChains);
    }
    let mut chains = vec![None; launch.places.len()];
    for (queue, tasks) in proof.chains.iter().enumerate() {
        for (index, &task) in tasks.iter().enumerate() {
            match chains.get_mut(task.index()) {
                Some(chain @ None) => *chain = Some(Place { queue, index }),
                _ => return Err(Ill::Chain(task)),
            }
        }
    }
    Ok(chains)
}

//! Traps: sets of instances that cannot start while an instance of the first step has not finished
//! (the trap lemma, L5).

use crate::budget::Budget;
use crate::launch::Launch;
use crate::refusal::{Ill, Refusal};
use amk_ir::TaskId;
use amk_ir::certificate::{Proof, Trap};
use std::collections::HashMap;

/// Orders that the traps of a proof show.
#[derive(Debug, Default)]
pub(crate) struct Traps {
    /// By task of the first step, and task and step of the stuck instance: the first start position
    /// from which it holds.
    stuck: HashMap<(TaskId, TaskId, u64), u32>,
    /// From which step on the second task is stuck while the first of the first step has not
    /// finished, in the same way.
    later: HashMap<(TaskId, TaskId), Vec<(u64, u32)>>,
}

impl Traps {
    /// The traps of a proof, if each is one.
    pub(crate) fn check(launch: &Launch<'_>, proof: &Proof, budget: &mut Budget) -> Result<Self, Refusal> {
        let mut traps = Self::default();
        for trap in &proof.traps {
            if trap.from < proof.starts.first || proof.starts.last < trap.from {
                return Err(Ill::From { task: trap.task, from: trap.from }.into());
            }
            Unfinished::new(launch, trap, budget)?.check(trap, budget)?;
            let last = u64::from(trap.horizon.saturating_sub(1));
            for &(task, step) in &trap.stuck {
                let from = traps.stuck.entry((trap.task, task, step.into())).or_insert(trap.from);
                *from = trap.from.min(*from);
                // An instance stuck in the last step stays stuck (L4); with tickets, after the
                // first step.
                if u64::from(step) == last && (launch.drawing.is_none() || last >= 1) {
                    traps.later.entry((trap.task, task)).or_default().push((last, trap.from));
                }
            }
        }
        Ok(traps)
    }

    /// Whether they show that `first` of the first step finishes before `second` starts, `distance`
    /// steps later, in launches that start at `position` or later.
    pub(crate) fn shows(&self, first: TaskId, second: TaskId, distance: u64, position: i64) -> bool {
        let reaches = |from: u32| i64::from(from) <= position;
        let mut later = self.later.get(&(first, second)).into_iter().flatten();
        self.stuck.get(&(first, second, distance)).is_some_and(|&from| reaches(from))
            || later.any(|&(step, from)| step <= distance && reaches(from))
    }
}

/// The unfinished instances: the trap's stuck ones and the task it is about.
struct Unfinished<'a> {
    launch: &'a Launch<'a>,
    first: u32,
    /// Number of steps considered.
    steps: u64,
    /// Step and task, in order.
    instances: Vec<(u64, TaskId)>,
    /// By queue: the first place that is not finished, over all steps.
    earliest: HashMap<usize, u64>,
    /// Places in the list of tickets, in order.
    tickets: Vec<u64>,
    /// By counter: the number of signals that do not come, and the number of tasks that send none
    /// after the steps considered.
    withheld: HashMap<usize, (u64, u64)>,
}

impl<'a> Unfinished<'a> {
    fn new(launch: &'a Launch<'a>, trap: &Trap, budget: &mut Budget) -> Result<Self, Refusal> {
        let steps = launch.steps(trap.from).min(trap.horizon.into());
        let mut instances = vec![(0, trap.task)];
        for &(stuck, step) in &trap.stuck {
            let tasks = launch.places.len();
            let exists = stuck.index() < tasks && trap.task.index() < tasks && u64::from(step) < steps;
            if !exists || (stuck, step) == (trap.task, 0) {
                return Err(Ill::Stuck { task: trap.task, stuck, step }.into());
            }
            instances.push((step.into(), stuck));
        }
        instances.sort_unstable();
        instances.dedup();
        let mut unfinished = Self {
            launch,
            first: trap.from,
            steps,
            instances: Vec::new(),
            earliest: HashMap::new(),
            tickets: Vec::new(),
            withheld: HashMap::new(),
        };
        if !trap.stuck.is_empty() {
            for &(step, task) in &instances {
                budget.take(1 + launch.signals[task.index()].len() as u64, "checking traps")?;
                unfinished.add(task, step);
            }
        }
        unfinished.tickets.sort_unstable();
        unfinished.instances = instances;
        Ok(unfinished)
    }

    fn add(&mut self, task: TaskId, step: u64) {
        let place = self.place(task, step);
        if self.launch.drawing.is_some() {
            self.tickets.push(place);
        } else {
            let earliest = self.earliest.entry(self.launch.places[task.index()].queue).or_insert(place);
            *earliest = place.min(*earliest);
        }
        // With a queue, a task that has not finished in the last step does not signal in later
        // ones. With tickets that holds after the first step, in which a later ticket may overtake.
        let holds = step + 1 == self.steps && (self.launch.drawing.is_none() || step >= 1);
        for &counter in &self.launch.signals[task.index()] {
            let (signals, tasks) = self.withheld.entry(counter).or_default();
            *signals += 1;
            *tasks += u64::from(holds);
        }
    }

    /// The place of an instance in its queue, over all steps.
    fn place(&self, task: TaskId, step: u64) -> u64 {
        let place = self.launch.places[task.index()];
        step * self.launch.queues[place.queue].len() as u64 + place.index as u64
    }

    fn has(&self, task: TaskId, step: u64) -> bool {
        self.instances.binary_search(&(step, task)).is_ok()
    }

    /// Whether each stuck instance has a reason not to be enabled when everything else has
    /// finished.
    fn check(&self, trap: &Trap, budget: &mut Budget) -> Result<(), Refusal> {
        for &(stuck, step) in &trap.stuck {
            let reasons = self.launch.waits[stuck.index()].len() + self.launch.packets[stuck.index()].len();
            budget.take(1 + reasons as u64, "checking traps")?;
            let is_held = self.is_behind(stuck, step.into())
                || self.lacks_signals(stuck, step.into())
                || self.lacks_packets(stuck, step.into(), budget)?;
            if !is_held {
                return Err(Refusal::NotStuck { position: self.first, task: trap.task, stuck, step });
            }
        }
        Ok(())
    }

    /// Something before it in its queue has not finished; of tickets, as many as there are workers.
    fn is_behind(&self, task: TaskId, step: u64) -> bool {
        let place = self.place(task, step);
        match self.launch.drawing {
            Some(workers) => self.tickets.partition_point(|&ticket| ticket < place) >= workers as usize,
            None => {
                let queue = self.launch.places[task.index()].queue;
                self.earliest.get(&queue).is_some_and(|&earliest| earliest < place)
            }
        }
    }

    /// A wait for more signals than all others can send.
    fn lacks_signals(&self, task: TaskId, step: u64) -> bool {
        let goes_on = self.launch.steps(self.first) > self.steps;
        self.launch.waits[task.index()].iter().any(|&(counter, threshold)| {
            let fan_in = self.launch.counters[counter].by.len() as u64;
            let (signals, tasks) = self.withheld.get(&counter).copied().unwrap_or_default();
            let without_end = goes_on && tasks < fan_in;
            !without_end && fan_in * self.steps - signals < fan_in * step + u64::from(threshold)
        })
    }

    /// A packet that it reads is not there.
    fn lacks_packets(&self, task: TaskId, step: u64, budget: &mut Budget) -> Result<bool, Refusal> {
        let position = self.launch.position(self.first, step);
        for &source in &self.launch.packets[task.index()] {
            let source = &self.launch.sources[source];
            budget.take(source.len() as u64, "checking traps")?;
            if source.at(position).any(|writer| self.has(writer, step)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

//! A launch: queues, counters and packets, and how many steps there are (section 1).

use crate::budget::Budget;
use crate::meet::{Meet, Span};
use crate::refusal::{Counter, Refusal};
use crate::uses::Use;
use amk_ir::certificate::Period;
use amk_ir::{Element, Exchange, Program, Queues, Region, Steps, TaskId};
use std::collections::HashMap;

/// The most writers of packets that are kept, over all reads.
const KEPT: u64 = 1 << 23;

/// The place of a task in the queues.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    pub(crate) queue: usize,
    pub(crate) index: usize,
}

/// A counter that some task waits for or signals.
#[derive(Debug)]
pub(crate) struct Signals {
    pub(crate) on: Counter,
    /// The tasks that signal it: as many as its fan-in.
    pub(crate) by: Vec<TaskId>,
}

/// The tasks that a read of packets waits for, each at some positions.
#[derive(Debug)]
pub(crate) struct Source {
    writers: Vec<(TaskId, Span)>,
}

impl Source {
    /// How many there are, at all positions together.
    pub(crate) fn len(&self) -> usize {
        self.writers.len()
    }

    /// The writers of a step at one position.
    pub(crate) fn at(&self, position: i64) -> impl Iterator<Item = TaskId> {
        self.writers.iter().filter(move |(_, positions)| positions.has(position)).map(|&(task, _)| task)
    }

    /// The writers of a step at any position of a range.
    pub(crate) fn within(&self, positions: Span) -> impl Iterator<Item = TaskId> {
        self.writers.iter().filter(move |(_, at)| at.and(positions).is_some()).map(|&(task, _)| task)
    }
}

/// The conditions that enable the instances of a program's launches.
#[derive(Debug)]
pub(crate) struct Launch<'p> {
    pub(crate) program: &'p Program,
    /// The queues; of tickets, the one list.
    pub(crate) queues: Vec<&'p [TaskId]>,
    /// By task.
    pub(crate) places: Vec<Place>,
    /// How many draw from the list, where several do.
    pub(crate) drawing: Option<u32>,
    pub(crate) counters: Vec<Signals>,
    /// By task: counters and thresholds.
    pub(crate) waits: Vec<Vec<(usize, u32)>>,
    /// By task.
    pub(crate) signals: Vec<Vec<usize>>,
    pub(crate) sources: Vec<Source>,
    /// By task: the sources of the packets that it reads.
    pub(crate) packets: Vec<Vec<usize>>,
}

impl<'p> Launch<'p> {
    pub(crate) fn new(program: &'p Program, uses: &[Vec<Use<'p>>], budget: &mut Budget) -> Result<Self, Refusal> {
        let (queues, drawing) = match &program.queues {
            Queues::Static(queues) => (queues.iter().map(Vec::as_slice).collect(), None),
            // A single worker draws the list as it would run a queue.
            Queues::Ticket { workers, order } => {
                (vec![order.as_slice()], Some(*workers).filter(|&workers| workers > 1))
            }
        };
        let mut places = vec![Place::default(); program.tasks.len()];
        for (queue, tasks) in queues.iter().enumerate() {
            for (index, task) in tasks.iter().enumerate() {
                places[task.index()] = Place { queue, index };
            }
        }
        let mut launch = Self {
            program,
            queues,
            places,
            drawing,
            counters: Vec::new(),
            waits: Vec::new(),
            signals: Vec::new(),
            sources: Vec::new(),
            packets: vec![Vec::new(); program.tasks.len()],
        };
        launch.count();
        let mut kept = Budget::of(KEPT);
        for (buffer, uses) in program.buffers.iter().zip(uses) {
            if buffer.exchange != Exchange::Counter {
                launch.exchange(uses, budget, &mut kept)?;
            }
        }
        Ok(launch)
    }

    /// Numbers the counters that are named.
    fn count(&mut self) {
        let mut numbers = HashMap::new();
        let counters = &mut self.counters;
        let mut number = |on: Element| {
            *numbers.entry(on).or_insert_with(|| {
                counters.push(Signals { on: Counter(on), by: Vec::new() });
                counters.len() - 1
            })
        };
        let tasks = &self.program.tasks;
        self.waits = tasks
            .iter()
            .map(|task| task.waits.iter().map(|wait| (number(wait.on), wait.threshold)).collect())
            .collect();
        self.signals = tasks.iter().map(|task| task.signals.iter().map(|&on| number(on)).collect()).collect();
        for (task, signals) in self.signals.iter().enumerate() {
            for &counter in signals {
                self.counters[counter].by.push(TaskId::from(task));
            }
        }
    }

    /// Adds the waits implied by reads of a packet buffer: reads of one tile after the same writes
    /// share one.
    fn exchange(&mut self, uses: &[Use<'_>], budget: &mut Budget, kept: &mut Budget) -> Result<(), Refusal> {
        if let Some(one) = uses.iter().find(|one| one.moves())
            && self.drawing.is_some()
            && self.is_pipelined()
            && self.program.positions > 1
        {
            return Err(Refusal::MovingTickets(one.at));
        }
        let writes: Vec<&Use<'_>> = uses.iter().filter(|one| one.writes()).collect();
        let mut known: HashMap<(Region, usize, Option<TaskId>), usize> = HashMap::new();
        for read in uses.iter().filter(|one| one.reads()) {
            let before = writes.partition_point(|write| write.call() < read.call());
            // A task does not wait for itself. Its own writes before the read are the last of those
            // before.
            let own = writes[..before].last().filter(|write| write.task() == read.task()).map(|write| write.task());
            let key = (read.operand.region, before, own);
            let source = match known.get(&key) {
                Some(&source) => source,
                None => {
                    budget.take(before as u64, "finding the writers of packets")?;
                    let source = self.source(&writes[..before], read);
                    kept.take(source.len() as u64, "finding the writers of packets")?;
                    self.sources.push(source);
                    known.insert(key, self.sources.len() - 1);
                    self.sources.len() - 1
                }
            };
            self.packets[read.task().index()].push(source);
        }
        Ok(())
    }

    /// The tasks, other than its own, whose writes a read of packets meets.
    fn source(&self, writes: &[&Use<'_>], read: &Use<'_>) -> Source {
        let others = writes.iter().filter(|write| write.task() != read.task());
        let writers = others.filter_map(|write| {
            let meet = Meet::of(&write.operand.region, &read.operand.region)?;
            Some((write.task(), meet.in_step(self.positions())?))
        });
        Source { writers: writers.collect() }
    }

    pub(crate) fn is_pipelined(&self) -> bool {
        self.program.steps == Steps::Pipelined
    }

    /// All positions.
    pub(crate) fn positions(&self) -> Span {
        Span::new(0, self.program.positions - 1)
    }

    /// The position of a step.
    pub(crate) fn position(&self, first: u32, step: u64) -> i64 {
        if self.program.positions == 1 { 0 } else { i64::from(first) + i64::try_from(step).unwrap_or(i64::MAX / 2) }
    }

    /// Steps of the longest launch from a position. With a barrier, a launch is as good as launches
    /// of one step.
    pub(crate) fn steps(&self, first: u32) -> u64 {
        match (self.program.steps, self.program.positions) {
            (Steps::Barrier, _) => 1,
            (Steps::Pipelined, 1) => u64::MAX,
            (Steps::Pipelined, positions) => (positions - first).into(),
        }
    }

    /// L9: in each of the first `steps` steps, packets have the same writers in all launches that
    /// start within `starts`.
    pub(crate) fn same_writers(&self, starts: Period, steps: u64, budget: &mut Budget) -> Result<(), Refusal> {
        let last = self.positions().last;
        let window = Span::new(starts.first, starts.last);
        let most = i64::try_from(steps).unwrap_or(i64::MAX / 2) - 1;
        for source in &self.sources {
            budget.take(source.writers.len() as u64, "comparing packets of launches")?;
            for &(writer, at) in &source.writers {
                // From one side of `edge` to the other, it begins or ceases to be a writer.
                for edge in [at.first, at.last + 1] {
                    let least = (edge - window.last).max(0);
                    if 0 < edge && edge <= last && least <= most.min(edge - 1 - window.first) {
                        let (first, last, step) = (starts.first, starts.last, least.unsigned_abs());
                        return Err(Refusal::Writers { first, last, step, writer });
                    }
                }
            }
        }
        Ok(())
    }

    /// All tasks.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = TaskId> + use<> {
        (0..self.places.len()).map(TaskId::from)
    }
}

/// Whether ranges of positions are `0..positions`, one after the other.
pub(crate) fn cover(ranges: impl Iterator<Item = Period>, positions: u32) -> bool {
    let mut next = 0u64;
    for Period { first, last } in ranges {
        if u64::from(first) != next || last < first {
            return false;
        }
        next = u64::from(last) + 1;
    }
    next == u64::from(positions)
}

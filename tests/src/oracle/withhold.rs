//! Programs too large for every interleaving: one execution a task, in which that task never ends.
//!
//! Whatever ends can only help others to run: counters grow, packets stay, queues go on. So of all executions that keep a task back there is
//! one that runs the most, and running greedily finds it. A task that conflicts with the one kept back, is later in eager order and
//! runs nevertheless is a race; there is no other kind. A test compares this with [`super::explore`].

use super::cells::{Cells, footprint};
use super::eager::position;
use super::launch::{Horizon, Instance, packet_writers};
use super::source::{Kind, Queues, Source};
use super::{Reason, Verdict, stages};

/// Judges a program, however many tasks it has; its memory must be small.
pub fn judge(source: &Source, horizon: Horizon) -> Verdict {
    stages(source, horizon, INSTANCES, |cells, first, steps| {
        Launch::new(source, cells, first, steps).check().map_err(Verdict::Unsafe)
    })
}

/// The most task instances of a pipelined launch.
const INSTANCES: usize = 400;

/// A launch; its task instances are numbered `step * tasks + task`, the eager order.
struct Launch {
    tasks: usize,
    /// Of each instance: conflicting instances later in eager order.
    later: Vec<Vec<usize>>,
    /// Of each instance: those whose packets it reads.
    packets: Vec<Vec<usize>>,
    /// Of each instance: counters and counts it waits for.
    waits: Vec<Vec<(usize, u64)>>,
    /// Of each task: counters it signals.
    signals: Vec<Vec<usize>>,
    counters: usize,
    queues: Queues,
}

/// A greedy execution.
struct Execution<'a> {
    launch: &'a Launch,
    ended: Vec<bool>,
    counters: Vec<u64>,
    kept: Option<usize>,
}

impl Launch {
    fn new(source: &Source, cells: &Cells, first: u64, steps: u64) -> Self {
        let tasks = source.tasks.len();
        let instances: Vec<Instance> =
            (0..steps).flat_map(|step| (0..tasks).map(move |task| Instance { task, step })).collect();
        let mut bases = vec![0];
        bases.extend(source.events.iter().scan(0, |next, shape| {
            *next += shape.iter().product::<u64>() as usize;
            Some(*next)
        }));
        let flat = |counter: &super::source::Counter| bases[counter.event] + counter.index as usize;
        let signals: Vec<Vec<usize>> =
            source.tasks.iter().map(|task| task.signals.iter().map(flat).collect()).collect();
        let mut fan_in = vec![0; bases[source.events.len()]];
        signals.iter().flatten().for_each(|&counter| fan_in[counter] += 1);
        let waits = |at: &Instance| {
            let wait = |(on, count): &(_, u64)| (flat(on), at.step * fan_in[flat(on)] + count);
            source.tasks[at.task].waits.iter().map(wait).collect()
        };
        let packets = |at: &Instance| {
            let number = |task: usize| at.step as usize * tasks + task;
            packet_writers(source, first, *at).into_iter().map(number).collect()
        };
        let repeat = |queue: &Vec<usize>| -> Vec<usize> {
            (0..steps as usize).flat_map(|step| queue.iter().map(move |task| step * tasks + task)).collect()
        };
        Self {
            tasks,
            later: conflicts(source, cells, first, &instances),
            packets: instances.iter().map(packets).collect(),
            waits: instances.iter().map(waits).collect(),
            counters: fan_in.len(),
            signals,
            queues: match &source.queues {
                Queues::Static(queues) => Queues::Static(queues.iter().map(repeat).collect()),
                Queues::Ticket { workers, order } => Queues::Ticket { workers: *workers, order: repeat(order) },
            },
        }
    }

    fn check(&self) -> Result<(), Reason> {
        let resident = match self.queues {
            Queues::Static(_) => vec![0],
            // One worker is the first to get stuck, all together are the first to race.
            Queues::Ticket { workers, .. } => vec![1, workers],
        };
        for workers in resident {
            let all = self.execute(None, workers);
            if let Some(stuck) = all.iter().position(|ended| !ended) {
                return Err(Reason::Deadlock { trace: Vec::new(), stuck: vec![self.instance(stuck)] });
            }
            for (earlier, later) in self.later.iter().enumerate().filter(|(_, later)| !later.is_empty()) {
                let ended = self.execute(Some(earlier), workers);
                if let Some(&later) = later.iter().find(|&&later| ended[later]) {
                    let (earlier, later) = (self.instance(earlier), self.instance(later));
                    return Err(Reason::Race { earlier, later, trace: Vec::new() });
                }
            }
        }
        Ok(())
    }

    fn instance(&self, number: usize) -> Instance {
        Instance { task: number % self.tasks, step: (number / self.tasks) as u64 }
    }

    /// Runs all that can run without the end of an instance; says of each whether it ended.
    fn execute(&self, kept: Option<usize>, workers: u64) -> Vec<bool> {
        let ended = vec![false; self.waits.len()];
        let mut execution = Execution { launch: self, ended, counters: vec![0; self.counters], kept };
        match &self.queues {
            Queues::Static(queues) => {
                let mut heads = vec![0; queues.len()];
                let mut moved = true;
                while moved {
                    moved = false;
                    for (queue, head) in queues.iter().zip(&mut heads) {
                        while queue.get(*head).is_some_and(|&next| execution.run(next)) {
                            *head += 1;
                            moved = true;
                        }
                    }
                }
            }
            Queues::Ticket { order, .. } => {
                let (mut held, mut tickets) = (Vec::new(), order.iter());
                loop {
                    let before = held.len();
                    held.retain(|&held| !execution.run(held));
                    let ran = held.len() < before;
                    let drawn = if (held.len() as u64) < workers { tickets.next() } else { None };
                    held.extend(drawn);
                    if !ran && drawn.is_none() {
                        break;
                    }
                }
            }
        }
        execution.ended
    }
}

impl Execution<'_> {
    /// Runs an instance if it can run.
    fn run(&mut self, number: usize) -> bool {
        let waits = &self.launch.waits[number];
        let runs = Some(number) != self.kept
            && waits.iter().all(|&(counter, count)| self.counters[counter] >= count)
            && self.launch.packets[number].iter().all(|&writer| self.ended[writer]);
        if runs {
            self.ended[number] = true;
            self.launch.signals[number % self.launch.tasks].iter().for_each(|&counter| self.counters[counter] += 1);
        }
        runs
    }
}

/// Of each instance: the later ones that touch a cell that it touches, where one of the two writes.
fn conflicts(source: &Source, cells: &Cells, first: u64, instances: &[Instance]) -> Vec<Vec<usize>> {
    let mut touched: Vec<Vec<(usize, bool)>> = vec![Vec::new(); cells.count as usize];
    for (number, at) in instances.iter().enumerate() {
        for operand in source.tasks[at.task].calls.iter().flat_map(|call| &call.operands) {
            if source.buffers[operand.buffer].kind == Kind::Local {
                continue;
            }
            for cell in footprint(source, cells, operand, position(source, first, at.step), at.step) {
                touched[cell].push((number, operand.access.writes()));
            }
        }
    }
    let mut later = vec![Vec::new(); instances.len()];
    for accesses in touched.iter().filter(|accesses| accesses.iter().any(|(_, writes)| *writes)) {
        for (at, &(earlier, writes)) in accesses.iter().enumerate() {
            let conflicting = accesses[at..].iter().filter(|(other, wrote)| *other != earlier && (writes || *wrote));
            later[earlier].extend(conflicting.map(|(other, _)| *other));
        }
    }
    for list in &mut later {
        list.sort_unstable();
        list.dedup();
    }
    later
}

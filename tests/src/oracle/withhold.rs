//! All interleavings at the price of a few: one execution a task instance, in which that instance
//! never ends.
//!
//! Whatever ends can only help others to run: counters grow, packets stay, queues go on, and
//! tickets are drawn in a fixed order. So of all executions that keep an instance back there is one
//! that runs the most, and running greedily finds it. An instance that conflicts with the one kept
//! back, is later in eager order and runs nevertheless is a race; there is no other kind. Tasks
//! left over when nothing is kept back are a deadlock. Signals of later steps can make up for
//! missing ones, so a launch that ends early is a separate execution.
//!
//! A launch from a later position is one from position 0 whose first steps are over: counters have
//! had all their signals, and whether two steps share a slot depends on their distance alone.
//!
//! The executions run side by side, 64 in a word. A test compares this with [`super::explore`],
//! which knows nothing of the argument.

use super::cells::{Cells, footprint};
use super::eager::position;
use super::launch::{Horizon, Instance, packet_writers};
use super::source::{Counter, Kind, Queues, Source};
use super::{Reason, Verdict, sequential};

/// Judges a program, however many tasks it has; its memory must be small.
pub fn judge(source: &Source, horizon: Horizon) -> Verdict {
    let steps = if source.pipelined { horizon.of(source) } else { 1 };
    if source.tasks.len() as u64 * steps > INSTANCES {
        return Verdict::TooLarge;
    }
    let checked = sequential(source, horizon).and_then(|cells| {
        let launch = |first| Launch::new(source, &cells, first, steps);
        let checked = match source.pipelined {
            true if source.positions > 1 => {
                let launch = launch(0);
                (0..steps).try_for_each(|first| launch.check(first as usize))
            }
            true => launch(0).check(0),
            false => (0..source.positions).try_for_each(|first| launch(first).check(0)),
        };
        checked.map_err(Verdict::Unsafe)
    });
    checked.err().unwrap_or(Verdict::Safe)
}

/// How far a safe program goes: the most steps by which an instance runs ahead of one that has not
/// ended, and the most steps between two that conflict. `None` where it is too large.
pub fn distances(source: &Source, horizon: Horizon) -> Option<(u64, u64)> {
    let steps = if source.pipelined { horizon.of(source) } else { 1 };
    let cells = Cells::new(source).filter(|_| source.tasks.len() as u64 * steps <= INSTANCES)?;
    let launch = Launch::new(source, &cells, 0, steps);
    let workers = if let Order::Ticket(_, workers) = launch.order { workers } else { 0 };
    let (mut ahead, mut apart) = (0, 0);
    for word in 0..launch.words {
        let ended = launch.without(word, 0, workers);
        for (later, ended) in ended.iter().enumerate() {
            let distance = |earlier: u64| match earlier {
                0 => 0,
                set => {
                    (later / launch.tasks).saturating_sub((word * 64 + set.trailing_zeros() as usize) / launch.tasks)
                }
            };
            ahead = ahead.max(distance(*ended));
            apart = apart.max(distance(launch.before[later * launch.words + word]));
        }
    }
    Some((ahead as u64, apart as u64))
}

/// The most task instances of a launch; a [`Number`] holds their count.
const INSTANCES: u64 = 4095;

/// A launch; its task instances are numbered `step * tasks + task`, the eager order.
struct Launch {
    tasks: usize,
    steps: usize,
    /// Words of a set of instances.
    words: usize,
    /// Of each instance: conflicting instances earlier in eager order, as a set.
    before: Vec<u64>,
    /// Of each instance: those whose packets it reads.
    packets: Vec<Vec<usize>>,
    /// Of each task: counters and counts it waits for.
    waits: Vec<Vec<(usize, u64)>>,
    /// Of each task: counters it signals.
    signals: Vec<Vec<usize>>,
    /// Of each counter: signals it has in a step.
    fan_in: Vec<u64>,
    order: Order,
}

/// The tasks of each worker.
enum Order {
    /// Of each instance: the one before it in its worker's queue.
    Static(Vec<Option<usize>>),
    /// Tasks in ticket order, and the largest number of workers.
    Ticket(Vec<usize>, u64),
}

impl Launch {
    fn new(source: &Source, cells: &Cells, first: u64, steps: u64) -> Self {
        let tasks = source.tasks.len();
        let mut bases = vec![0];
        bases.extend(source.events.iter().scan(0, |next, shape| {
            *next += shape.iter().product::<u64>() as usize;
            Some(*next)
        }));
        let flat = |counter: &Counter| bases[counter.event] + counter.index as usize;
        let signals: Vec<Vec<usize>> =
            source.tasks.iter().map(|task| task.signals.iter().map(flat).collect()).collect();
        let mut fan_in = vec![0; bases[source.events.len()]];
        signals.iter().flatten().for_each(|&counter| fan_in[counter] += 1);
        let waits = source.tasks.iter().map(|task| task.waits.iter().map(|(on, count)| (flat(on), *count)).collect());
        let mut launch = Self {
            tasks,
            steps: steps as usize,
            words: (tasks * steps as usize).div_ceil(64),
            before: Vec::new(),
            packets: Vec::new(),
            waits: waits.collect(),
            signals,
            fan_in,
            order: order(source, steps as usize),
        };
        for step in 0..steps {
            for task in 0..tasks {
                let writers = packet_writers(source, first, Instance { task, step }).into_iter();
                launch.packets.push(writers.map(|writer| step as usize * tasks + writer).collect());
            }
        }
        launch.conflicts(source, cells, first);
        launch
    }

    /// Finds for each instance the earlier ones that touch a cell that it touches, where one of the
    /// two writes.
    fn conflicts(&mut self, source: &Source, cells: &Cells, first: u64) {
        let words = self.words;
        let mut touched = vec![0; cells.count as usize * words];
        let mut wrote = touched.clone();
        self.before = vec![0; self.steps * self.tasks * words];
        for number in 0..self.steps * self.tasks {
            let Instance { task, step } = self.instance(number);
            let before = &mut self.before[number * words..][..words];
            let mut mine = Vec::new();
            for operand in source.tasks[task].calls.iter().flat_map(|call| &call.operands) {
                if source.buffers[operand.buffer].kind != Kind::Local {
                    let cells = footprint(source, cells, operand, position(source, first, step), step);
                    mine.extend(cells.into_iter().map(|cell| (cell, operand.access.writes())));
                }
            }
            for &(cell, writes) in &mine {
                let earlier = if writes { &touched } else { &wrote };
                before.iter_mut().zip(&earlier[cell * words..]).for_each(|(before, earlier)| *before |= earlier);
            }
            for (cell, writes) in mine {
                let word = cell * words + number / 64;
                touched[word] |= 1 << (number % 64);
                wrote[word] |= u64::from(writes) << (number % 64);
            }
        }
    }

    /// Explores the launches that begin with a step, of every length.
    fn check(&self, first: usize) -> Result<(), Reason> {
        let resident = match self.order {
            Order::Static(_) => vec![0],
            // One worker is the first to get stuck, all together are the first to race.
            Order::Ticket(_, workers) => vec![1, workers],
        };
        for workers in resident {
            self.deadlocks(first, workers)?;
            self.races(first, workers)?;
        }
        Ok(())
    }

    /// Runs launches of every length.
    fn deadlocks(&self, first: usize, workers: u64) -> Result<(), Reason> {
        for lengths in (first + 1..=self.steps).collect::<Vec<_>>().chunks(64) {
            let allowed = |number: usize| {
                let step = number / self.tasks;
                (0..).zip(lengths).fold(0, |set, (n, &end)| set | u64::from(step < end) << n)
            };
            let ended = Executions::run(self, first, workers, allowed);
            let stuck = |&number: &usize| allowed(number) & !ended[number] != 0;
            if let Some(stuck) = (first * self.tasks..self.steps * self.tasks).find(stuck) {
                return Err(Reason::Deadlock { trace: Vec::new(), stuck: vec![self.instance(stuck)] });
            }
        }
        Ok(())
    }

    /// Runs the longest launch once without each instance.
    fn races(&self, first: usize, workers: u64) -> Result<(), Reason> {
        for word in first * self.tasks / 64..self.words {
            for (later, ended) in self.without(word, first, workers).iter().enumerate().skip(first * self.tasks) {
                let raced = ended & self.before[later * self.words + word];
                let earlier = word * 64 + raced.trailing_zeros() as usize;
                if raced != 0 && earlier >= first * self.tasks {
                    let (earlier, later) = (self.instance(earlier), self.instance(later));
                    return Err(Reason::Race { earlier, later, trace: Vec::new() });
                }
            }
        }
        Ok(())
    }

    /// Of each instance: without the end of which ones of a word it ends.
    fn without(&self, word: usize, first: usize, workers: u64) -> Vec<u64> {
        let kept = |number: usize| if number / 64 == word { 1 << (number % 64) } else { 0 };
        Executions::run(self, first, workers, |number| !kept(number))
    }

    fn instance(&self, number: usize) -> Instance {
        Instance { task: number % self.tasks, step: (number / self.tasks) as u64 }
    }
}

fn order(source: &Source, steps: usize) -> Order {
    let tasks = source.tasks.len();
    match &source.queues {
        Queues::Static(queues) => {
            let mut behind = vec![None; tasks * steps];
            for queue in queues {
                let numbers = (0..steps).flat_map(|step| queue.iter().map(move |task| step * tasks + task));
                numbers.fold(None, |before, number| {
                    behind[number] = before;
                    Some(number)
                });
            }
            Order::Static(behind)
        }
        Queues::Ticket { workers, order } => Order::Ticket(order.clone(), *workers),
    }
}

/// Greedy executions side by side: a bit of each word is one of them.
struct Executions<'a> {
    launch: &'a Launch,
    first: usize,
    /// Of each instance: the executions in which it has ended.
    ended: Vec<u64>,
    /// Of each counter: the signals it had, bit by bit from the lowest, each bit a word.
    counters: Vec<Number>,
}

/// A number in each of 64 executions: bit `n` of each is in word `n`.
type Number = [u64; 12];

impl<'a> Executions<'a> {
    /// Runs the steps from `first` with so many workers drawing tickets; an instance ends only in
    /// the executions that `allowed` says.
    fn run(launch: &'a Launch, first: usize, workers: u64, allowed: impl Fn(usize) -> u64) -> Vec<u64> {
        let ended = vec![0; launch.steps * launch.tasks];
        let mut run = Self { launch, first, ended, counters: vec![[0; 12]; launch.fan_in.len()] };
        let allowed: Vec<u64> = (0..run.ended.len()).map(allowed).collect();
        while match &launch.order {
            Order::Static(behind) => run.queues(behind, &allowed),
            Order::Ticket(order, _) => run.tickets(order, workers, &allowed),
        } {}
        run.ended
    }

    /// Every instance whose turn it is in its queue runs if it can; says whether one did.
    fn queues(&mut self, behind: &[Option<usize>], allowed: &[u64]) -> bool {
        let (tasks, mut moved) = (self.launch.tasks, false);
        for number in self.first * tasks..allowed.len() {
            let turn = match behind[number] {
                Some(before) if before >= self.first * tasks => self.ended[before],
                _ => u64::MAX,
            };
            let able = turn & allowed[number] & !self.ended[number];
            if able != 0 {
                moved |= self.end(number, able & self.ready(number));
            }
        }
        moved
    }

    /// Every drawn ticket runs if it can; says whether one did.
    fn tickets(&mut self, order: &[usize], workers: u64, allowed: &[u64]) -> bool {
        let (mut moved, mut held) = (false, [0; 12]);
        for step in self.first..self.launch.steps {
            for task in order {
                let number = step * self.launch.tasks + task;
                let drawn = !at_least(&held, workers);
                moved |= self.end(number, drawn & self.ready(number) & allowed[number]);
                add(&mut held, !self.ended[number]);
            }
        }
        moved
    }

    /// The executions in which the waits and packets of an instance hold.
    fn ready(&self, number: usize) -> u64 {
        let Launch { tasks, ref packets, ref waits, ref fan_in, .. } = *self.launch;
        let step = (number / tasks - self.first) as u64;
        let sent = packets[number].iter().fold(u64::MAX, |sent, &writer| sent & self.ended[writer]);
        let waits = waits[number % tasks].iter();
        waits.fold(sent, |ready, &(on, count)| ready & at_least(&self.counters[on], step * fan_in[on] + count))
    }

    /// Lets an instance end in some executions; says whether it had not in one of them.
    fn end(&mut self, number: usize, executions: u64) -> bool {
        let new = executions & !self.ended[number];
        self.ended[number] |= new;
        if new != 0 {
            self.launch.signals[number % self.launch.tasks].iter().for_each(|&on| add(&mut self.counters[on], new));
        }
        new != 0
    }
}

/// Adds one in some executions.
fn add(number: &mut Number, mut one: u64) {
    for bit in number {
        (*bit, one) = (*bit ^ one, *bit & one);
    }
}

/// The executions in which a number is not below another.
fn at_least(number: &Number, least: u64) -> u64 {
    let (mut above, mut equal) = (0, u64::MAX);
    for (n, bit) in number.iter().enumerate().rev() {
        if least >> n & 1 == 1 {
            equal &= bit;
        } else {
            above |= equal & bit;
            equal &= !bit;
        }
    }
    if least >> number.len() == 0 { above | equal } else { 0 }
}

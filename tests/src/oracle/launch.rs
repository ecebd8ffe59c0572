//! A launch of some steps: its task instances, their dependencies, and their workers.

use super::cells::{Cells, elements, footprint};
use super::eager::position;
use super::source::{Kind, Queues, Source};
use core::fmt;

/// Steps of a pipelined launch to explore, where any number of them is at position 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Horizon {
    /// At least this many.
    pub steps: u64,
}

impl Default for Horizon {
    /// Three: a packet of two slots is written again in the third.
    fn default() -> Self {
        Self { steps: 3 }
    }
}

impl Horizon {
    /// Steps of the longest launch: as many as there are positions, or enough that signals of a
    /// step can replace an earlier step's (at most one fan-in), slots come round, and workers run
    /// ahead of each other.
    pub fn of(self, source: &Source) -> u64 {
        if source.positions > 1 {
            return source.positions;
        }
        let fan_in = |counter| source.tasks.iter().filter(|task| task.signals.contains(counter)).count() as u64;
        let widest = source.tasks.iter().flat_map(|task| &task.signals).map(fan_in).max().unwrap_or(0);
        let slots = source.buffers.iter().filter_map(|buffer| buffer.slots).max().unwrap_or(0);
        let workers = match &source.queues {
            Queues::Static(queues) => queues.len() as u64,
            Queues::Ticket { workers, .. } => *workers,
        };
        self.steps.max(widest + 1).max(slots + workers.min(8))
    }
}

/// Instances of a launch fit in a 64-bit set.
pub const MOST: usize = 64;

/// A task in a step of the launch.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Instance {
    /// The task.
    pub task: usize,
    /// The step, from 0.
    pub step: u64,
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}@{}", self.task, self.step)
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A set of instances, by their number `step * tasks + task`: the eager order.
pub type Set = u64;

/// A launch, ready to be explored.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    /// Tasks of a step.
    pub tasks: usize,
    /// Number of instances.
    pub count: usize,
    /// Of each instance: conflicting instances that are earlier in eager order.
    pub before: Vec<Set>,
    /// Of each instance: writers whose packets it reads.
    pub packets: Vec<Set>,
    /// Of each instance: signals it waits for, as the instances that signal the counter and how
    /// many of them.
    pub waits: Vec<Vec<(Set, u32)>>,
    /// Instances each worker runs in order, or all in ticket order.
    pub order: Order,
    /// Of each instance: the cells it reads and writes.
    pub touched: Vec<Touched>,
}

/// The workers of the launch and their tasks.
#[derive(Clone, Debug)]
pub enum Order {
    /// A list a worker, with its members as a set.
    Static(Vec<(Set, Vec<u8>)>),
    /// One list and the largest number of workers.
    Ticket(Vec<u8>, u64),
}

impl Default for Order {
    fn default() -> Self {
        Self::Static(Vec::new())
    }
}

impl Launch {
    /// The launch of `steps` steps from position `first`; `None` where it has too many instances.
    pub fn new(source: &Source, cells: &Cells, first: u64, steps: u64) -> Option<Self> {
        let tasks = source.tasks.len();
        let count = tasks * steps as usize;
        if count > MOST {
            return None;
        }
        let mut launch = Self { tasks, count, ..Self::default() };
        let touched: Vec<Touched> =
            (0..count).map(|n| Touched::new(source, cells, first, launch.instance(n))).collect();
        for (n, touch) in touched.iter().enumerate() {
            let earlier = (0..n).filter(|&m| touch.conflicts(&touched[m]));
            launch.before.push(earlier.fold(0, |set, m| set | 1 << m));
            let writers = packet_writers(source, first, launch.instance(n));
            launch.packets.push(writers.into_iter().fold(0, |set, task| set | 1 << (n - n % tasks + task)));
            launch.waits.push(launch.waits_of(source, launch.instance(n), steps));
        }
        launch.order = order(source, tasks, steps);
        launch.touched = touched;
        Some(launch)
    }

    /// The instance of a number.
    pub fn instance(&self, number: usize) -> Instance {
        Instance { task: number % self.tasks, step: (number / self.tasks) as u64 }
    }

    /// The instances of a set, in eager order.
    pub fn members(&self, set: Set) -> Vec<Instance> {
        (0..self.count).filter(|n| set >> n & 1 == 1).map(|n| self.instance(n)).collect()
    }

    /// All instances.
    pub fn all(&self) -> Set {
        if self.count == MOST { Set::MAX } else { (1 << self.count) - 1 }
    }

    /// Whether the waits and packets of an instance hold when `done` have ended.
    pub fn ready(&self, number: usize, done: Set) -> bool {
        self.packets[number] & !done == 0
            && self.waits[number].iter().all(|(of, count)| (of & done).count_ones() >= *count)
    }

    /// In step `n` a wait for `k` is a wait for `n * fan-in + k`, of all signals there are.
    fn waits_of(&self, source: &Source, at: Instance, steps: u64) -> Vec<(Set, u32)> {
        let wait = |(on, threshold): &(super::source::Counter, u64)| {
            let signals = |task: &usize| source.tasks[*task].signals.contains(on);
            let (mut set, mut fan_in) = (0, 0);
            for task in (0..self.tasks).filter(signals) {
                fan_in += 1;
                set |= (0..steps as usize).fold(0, |set, step| set | 1 << (step * self.tasks + task));
            }
            (set, (at.step * fan_in + threshold) as u32)
        };
        source.tasks[at.task].waits.iter().map(wait).collect()
    }
}

/// The cells that an instance reads and writes, but for its locals, as bit sets.
#[derive(Clone, Debug)]
pub struct Touched {
    /// Cells it reads.
    pub reads: Vec<u64>,
    /// Cells it writes.
    pub writes: Vec<u64>,
}

impl Touched {
    fn new(source: &Source, cells: &Cells, first: u64, at: Instance) -> Self {
        let none = vec![0; cells.count.div_ceil(64) as usize];
        let mut touched = Self { reads: none.clone(), writes: none };
        for operand in source.tasks[at.task].calls.iter().flat_map(|call| &call.operands) {
            if source.buffers[operand.buffer].kind == Kind::Local {
                continue;
            }
            for cell in footprint(source, cells, operand, position(source, first, at.step), at.step) {
                touched.reads[cell / 64] |= u64::from(operand.access.reads()) << (cell % 64);
                touched.writes[cell / 64] |= u64::from(operand.access.writes()) << (cell % 64);
            }
        }
        touched
    }

    fn conflicts(&self, other: &Self) -> bool {
        let meet = |a: &[u64], b: &[u64]| a.iter().zip(b).any(|(a, b)| a & b != 0);
        meet(&self.writes, &other.writes) || meet(&self.writes, &other.reads) || meet(&self.reads, &other.writes)
    }
}

/// The tasks that are the last writers, in this step and before the instance, of the packet
/// elements it reads.
pub fn packet_writers(source: &Source, first: u64, at: Instance) -> Vec<usize> {
    let position = position(source, first, at.step);
    let mut writers = Vec::new();
    for (call, body) in source.tasks[at.task].calls.iter().enumerate() {
        let packets = |buffer: usize| source.buffers[buffer].slots.is_some();
        for operand in body.operands.iter().filter(|o| o.access.reads() && packets(o.buffer)) {
            for element in elements(&source.buffers[operand.buffer], operand, position) {
                let writes = |task: usize, calls: usize| {
                    source.tasks[task].calls[..calls].iter().flat_map(|call| &call.operands).any(|o| {
                        o.access.writes()
                            && o.buffer == operand.buffer
                            && elements(&source.buffers[o.buffer], o, position).contains(&element)
                    })
                };
                if !writes(at.task, call) {
                    writers.extend((0..at.task).rev().find(|&task| writes(task, source.tasks[task].calls.len())));
                }
            }
        }
    }
    writers
}

fn order(source: &Source, tasks: usize, steps: u64) -> Order {
    let repeat = |queue: &[usize]| -> Vec<u8> {
        (0..steps as usize).flat_map(|step| queue.iter().map(move |task| (step * tasks + task) as u8)).collect()
    };
    match &source.queues {
        Queues::Static(queues) => {
            let set = |list: &[u8]| list.iter().fold(0, |set, &n| set | 1 << n);
            Order::Static(queues.iter().map(|queue| repeat(queue)).map(|list| (set(&list), list)).collect())
        }
        Queues::Ticket { workers, order } => Order::Ticket(repeat(order), *workers),
    }
}

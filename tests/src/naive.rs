//! Certificates of small programs, made without clocks and without the verifier: each task of each
//! position is withheld, and the tasks that cannot start are its trap. Everything follows the
//! definitions literally, instance by instance.

use amk_ir::certificate::{Certificate, Period, Proof, Trap};
use amk_ir::{Exchange, Operand, Program, Queues, Steps, TaskId};
use std::collections::{HashMap, HashSet};

/// Steps that a simulation of a pipelined launch covers.
const HORIZON: u32 = 8;

/// Task and step.
type Instance = (usize, u32);

/// The certificate of a program whose references exist: a proof for each position. It is made of
/// safe and of unsafe programs alike.
pub fn certificate(program: &Program) -> Certificate {
    let positions = || (0..program.positions).map(|position| Period { first: position, last: position });
    Certificate { periods: positions().collect(), proofs: positions().map(|at| proof(program, at)).collect() }
}

fn proof(program: &Program, starts: Period) -> Proof {
    let launch = Launch::new(program, starts.first);
    let traps = (0..program.tasks.len()).map(|task| launch.trap(task)).collect();
    let chains = match &program.queues {
        Queues::Static(queues) => queues.clone(),
        Queues::Ticket { workers: 1, order } => vec![order.clone()],
        Queues::Ticket { .. } => Vec::new(),
    };
    Proof { starts, order: launch.order(), chains, clocks: Vec::new(), steps: Vec::new(), mixed: Vec::new(), traps }
}

/// The longest launch from a position, as far as it is simulated.
struct Launch<'p> {
    program: &'p Program,
    first: u32,
    steps: u32,
    /// Whether it has more steps.
    goes_on: bool,
    /// By step and task: the writers of the packets that it reads.
    writers: Vec<Vec<HashSet<usize>>>,
}

impl<'p> Launch<'p> {
    fn new(program: &'p Program, first: u32) -> Self {
        let (steps, goes_on) = match (program.steps, program.positions) {
            (Steps::Barrier, _) => (1, false),
            (Steps::Pipelined, 1) => (HORIZON, true),
            (Steps::Pipelined, positions) => (HORIZON.min(positions - first), positions - first > HORIZON),
        };
        let position = |step| if program.positions == 1 { 0 } else { first + step };
        let writers = (0..steps).map(|step| writers(program, position(step).into())).collect();
        Self { program, first, steps, goes_on, writers }
    }

    /// An order of one step; with tickets, the list's order, so that one worker is enough.
    fn order(&self) -> Vec<TaskId> {
        if let Queues::Ticket { order, .. } = &self.program.queues {
            return order.clone();
        }
        let all = || (0..self.program.tasks.len()).map(|task| (task, 0));
        let mut finished: HashSet<Instance> = HashSet::new();
        let mut order = Vec::new();
        while let Some(next) = all().find(|next| !finished.contains(next) && self.starts(*next, &finished, false)) {
            finished.insert(next);
            order.push(TaskId::from(next.0));
        }
        // A deadlock: the checker finds that the rest cannot run.
        order.extend(all().filter(|rest| !finished.contains(rest)).map(|rest| TaskId::from(rest.0)));
        order
    }

    /// Returns the instances that never start while `task` of the first step has not finished.
    fn trap(&self, task: usize) -> Trap {
        let tasks = 0..self.program.tasks.len();
        let all: Vec<Instance> = (0..self.steps).flat_map(|step| tasks.clone().map(move |task| (task, step))).collect();
        let mut finished: HashSet<Instance> = HashSet::new();
        loop {
            let open = |next: &&Instance| **next != (task, 0) && !finished.contains(*next);
            let Some(&next) = all.iter().filter(open).find(|next| self.starts(**next, &finished, self.goes_on)) else {
                break;
            };
            finished.insert(next);
        }
        let stuck = all.into_iter().filter(|next| *next != (task, 0) && !finished.contains(next));
        let horizon = if self.goes_on { HORIZON } else { self.steps };
        Trap {
            from: self.first,
            task: TaskId::from(task),
            horizon,
            stuck: stuck.map(|(task, step)| (TaskId::from(task), step)).collect(),
        }
    }

    /// Whether an instance is enabled when these have finished; with `goes_on`, the last step's
    /// finish in all later steps, too.
    fn starts(&self, (task, step): Instance, finished: &HashSet<Instance>, goes_on: bool) -> bool {
        let open = |of: &[TaskId]| {
            let place = of.iter().position(|other| other.index() == task).unwrap_or(0);
            let before = (0..=step).flat_map(|at| of.iter().map(move |other| (other.index(), at)));
            let before = before.take(of.len() * step as usize + place);
            before.filter(|instance| !finished.contains(instance)).count()
        };
        let is_next = match &self.program.queues {
            Queues::Static(queues) => queues.iter().filter(|q| q.contains(&TaskId::from(task))).all(|q| open(q) == 0),
            Queues::Ticket { workers, order } => open(order) < *workers as usize,
        };
        let body = &self.program.tasks[task];
        let have_come = body.waits.iter().all(|wait| {
            let by: Vec<usize> =
                (0..self.program.tasks.len()).filter(|&by| self.program.tasks[by].signals.contains(&wait.on)).collect();
            let without_end = goes_on && by.iter().any(|&by| finished.contains(&(by, self.steps - 1)));
            let signals = finished.iter().filter(|(of, _)| by.contains(of)).count();
            without_end || signals >= by.len() * step as usize + wait.threshold as usize
        });
        let writers = &self.writers[step as usize][task];
        is_next && have_come && writers.iter().all(|&writer| finished.contains(&(writer, step)))
    }
}

/// By task, who writes the packets that it reads at a position: the last before it, word by word.
fn writers(program: &Program, position: u64) -> Vec<HashSet<usize>> {
    let mut last = HashMap::new();
    let mut found = vec![HashSet::new(); program.tasks.len()];
    for (task, body) in program.tasks.iter().enumerate() {
        for call in &body.calls {
            let packets = |operand: &&Operand| {
                program.buffers.get(operand.buffer.index()).is_some_and(|buffer| buffer.exchange != Exchange::Counter)
            };
            let words = |operand: &Operand| {
                words(operand, position).into_iter().map(|word| (operand.buffer, word)).collect::<Vec<_>>()
            };
            for read in call.operands.iter().filter(packets).filter(|operand| operand.access.reads()) {
                found[task].extend(words(read).iter().filter_map(|word| last.get(word)).filter(|&&by| by != task));
            }
            for write in call.operands.iter().filter(packets).filter(|operand| operand.access.writes()) {
                last.extend(words(write).into_iter().map(|word| (word, task)));
            }
        }
    }
    found
}

fn words(operand: &Operand, position: u64) -> Vec<Vec<u64>> {
    operand.region.intervals().iter().fold(vec![Vec::new()], |words, interval| {
        let along = || interval.lo.at(position)..interval.hi.at(position);
        words.iter().flat_map(|word| along().map(move |index| [word.as_slice(), &[index]].concat())).collect()
    })
}

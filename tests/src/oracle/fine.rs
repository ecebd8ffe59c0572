//! All interleavings, with starts and ends apart and a memory of values: slow, and the judge of
//! [`super::explore`].
//!
//! A task reads at its start and again at its end, and what it writes may be there, torn, from its
//! start on. So a read is good only if the value is the eager one at both moments, and a task that
//! runs in between shows.

use super::launch::{Launch, Order, Set};
use std::collections::HashSet;

/// Findings over all executions of a launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Findings {
    /// A task starts before one that conflicts and is earlier in eager order has ended.
    pub race: bool,
    /// A read or the final memory differs from the eager order.
    pub wrong_value: bool,
    /// Tasks are left and none can go on.
    pub deadlock: bool,
}

/// Who wrote a cell last, and whether that task has ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Value {
    Initial,
    Torn(usize),
    Of(usize),
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    started: Set,
    done: Set,
    drawn: usize,
    memory: Vec<Value>,
}

/// Explores a launch to the end, races or not.
pub fn explore(launch: &Launch) -> Findings {
    let cells = launch.touched.first().map_or(0, |touched| touched.reads.len() * 64);
    let eager = Eager::new(launch, cells);
    let mut findings = Findings::default();
    let most = match &launch.order {
        Order::Static(_) => 1,
        Order::Ticket(_, workers) => *workers as usize,
    };
    for workers in 1..=most {
        let start = State { started: 0, done: 0, drawn: 0, memory: vec![Value::Initial; cells] };
        let mut seen = HashSet::from([start.clone()]);
        let mut open = vec![start];
        while let Some(state) = open.pop() {
            let next = successors(launch, &eager, &state, workers, &mut findings);
            if state.done == launch.all() {
                findings.wrong_value |= state.memory != eager.last;
            } else if next.is_empty() {
                findings.deadlock = true;
            }
            open.extend(next.into_iter().filter(|state| seen.insert(state.clone())));
        }
    }
    findings
}

fn successors(launch: &Launch, eager: &Eager, state: &State, workers: usize, findings: &mut Findings) -> Vec<State> {
    let mut next = Vec::new();
    let mut held: Vec<u8> = Vec::new();
    match &launch.order {
        Order::Static(queues) => {
            held.extend(queues.iter().filter_map(|(_, queue)| queue.iter().find(|&&n| state.done >> n & 1 == 0)));
        }
        Order::Ticket(order, _) => {
            held.extend(order[..state.drawn].iter().filter(|&&n| state.done >> n & 1 == 0));
            if held.len() < workers && state.drawn < order.len() {
                next.push(State { drawn: state.drawn + 1, ..state.clone() });
            }
        }
    }
    for n in held.into_iter().map(usize::from) {
        let mut after = state.clone();
        if state.started >> n & 1 == 1 {
            findings.wrong_value |= !eager.reads_well(n, &state.memory);
            eager.write(n, &mut after.memory, Value::Of(n));
            after.done |= 1 << n;
        } else if launch.ready(n, state.done) {
            findings.race |= launch.before[n] & !state.done != 0;
            findings.wrong_value |= !eager.reads_well(n, &state.memory);
            eager.write(n, &mut after.memory, Value::Torn(n));
            after.started |= 1 << n;
        } else {
            continue;
        }
        next.push(after);
    }
    next
}

/// The values in eager order.
struct Eager {
    /// Of each instance: cells it reads and does not write, with their values.
    reads: Vec<Vec<(usize, Value)>>,
    /// Of each instance: cells it writes.
    writes: Vec<Vec<usize>>,
    /// Memory at the end.
    last: Vec<Value>,
}

impl Eager {
    fn new(launch: &Launch, cells: usize) -> Self {
        let mut eager = Self { reads: Vec::new(), writes: Vec::new(), last: vec![Value::Initial; cells] };
        let has = |set: &[u64], cell: usize| set[cell / 64] >> (cell % 64) & 1 == 1;
        for (n, touched) in launch.touched.iter().enumerate() {
            let writes = |cell: &usize| has(&touched.writes, *cell);
            let read = (0..cells).filter(|cell| has(&touched.reads, *cell) && !writes(cell));
            eager.reads.push(read.map(|cell| (cell, eager.last[cell])).collect());
            eager.writes.push((0..cells).filter(writes).collect());
            for &cell in &eager.writes[n] {
                eager.last[cell] = Value::Of(n);
            }
        }
        eager
    }

    fn reads_well(&self, n: usize, memory: &[Value]) -> bool {
        self.reads[n].iter().all(|&(cell, value)| memory[cell] == value)
    }

    fn write(&self, n: usize, memory: &mut [Value], value: Value) {
        for &cell in &self.writes[n] {
            memory[cell] = value;
        }
    }
}

//! All interleavings, with a task as one event.
//!
//! A state is the set of tasks that have ended and, for a ticket queue, how many tickets are drawn.
//! That is complete: *what may start* depends on ended tasks alone (signals and packets come with
//! the end, a queue goes on at the end), so whenever a task can start while an earlier one in
//! conflict runs, it can also start, in another execution, while that one has not begun (its worker
//! is slow) or, with tickets, sits drawn in its worker's hands. Hence the check at each start:
//! everything that conflicts with the task and is earlier in eager order has ended. [`super::fine`]
//! explores starts and ends apart, and a test compares the two.

use super::launch::{Horizon, Instance, Launch, Order, Set};
use super::source::Source;
use super::{Reason, Verdict, eager, sequential};
use rustc_hash::FxHashMap;

/// Explores programs one after the other, reusing its memory.
#[derive(Default)]
pub struct Explorer {
    /// Each state seen, and the one it was reached from.
    seen: FxHashMap<State, State>,
    open: Vec<State>,
    /// States visited so far.
    pub states: u64,
}

/// The finished instances, and the number of drawn tickets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
struct State {
    done: Set,
    drawn: u8,
}

impl Explorer {
    /// Judges a program by launches from every position and of every length, each on its own.
    pub fn judge(&mut self, source: &Source, horizon: Horizon) -> Verdict {
        let longest = if source.pipelined { horizon.of(source) } else { 1 };
        let launches = (0..source.positions).flat_map(|first| (1..=longest).map(move |steps| (first, steps)));
        let judged = sequential(source, horizon).and_then(|cells| {
            launches.filter(|(first, steps)| source.positions == 1 || first + steps <= source.positions).try_for_each(
                |(first, steps)| {
                    eager::run(source, &cells, first, steps).map_err(Verdict::Unsafe)?;
                    let launch = Launch::new(source, &cells, first, steps).ok_or(Verdict::TooLarge)?;
                    self.explore(&launch).map_err(Verdict::Unsafe)
                },
            )
        });
        judged.err().unwrap_or(Verdict::Safe)
    }

    /// Visits every reachable state of a launch.
    ///
    /// # Errors
    /// The first race or deadlock, with the way to it.
    pub fn explore(&mut self, launch: &Launch) -> Result<(), Reason> {
        match &launch.order {
            Order::Static(queues) => self.visit(launch, queues.len()),
            Order::Ticket(_, workers) => {
                (1..=(*workers).min(launch.count as u64)).try_for_each(|resident| self.visit(launch, resident as usize))
            }
        }
    }

    fn visit(&mut self, launch: &Launch, workers: usize) -> Result<(), Reason> {
        let start = State::default();
        self.seen.clear();
        self.seen.insert(start, start);
        self.open.clear();
        self.open.push(start);
        while let Some(state) = self.open.pop() {
            self.states += 1;
            let mut moved = false;
            for choice in 0..=workers {
                let Some((next, started)) = successor(launch, state, workers, choice) else { continue };
                moved = true;
                let running = started.map_or(0, |n| launch.before[usize::from(n)] & !state.done);
                if let (Some(later), true) = (started, running != 0) {
                    let earlier = launch.instance(running.trailing_zeros() as usize);
                    let later = launch.instance(usize::from(later));
                    return Err(Reason::Race { earlier, later, trace: self.trace(launch, state) });
                }
                if let std::collections::hash_map::Entry::Vacant(entry) = self.seen.entry(next) {
                    entry.insert(state);
                    self.open.push(next);
                }
            }
            if !moved && state.done != launch.all() {
                return Err(Reason::Deadlock { trace: self.trace(launch, state), stuck: stuck(launch, state) });
            }
        }
        Ok(())
    }

    /// The tasks that ended on the way to a state.
    fn trace(&self, launch: &Launch, mut state: State) -> Vec<Instance> {
        let mut trace = Vec::new();
        while let Some(&from) = self.seen.get(&state).filter(|&&from| from != state) {
            trace.extend(launch.members(state.done & !from.done));
            state = from;
        }
        trace.reverse();
        trace
    }
}

/// The state after a choice, and the task that runs in it: the next of a worker's queue, or (for
/// choice 0) a drawn ticket, or the `choice`-th of the drawn ones that have not ended.
fn successor(launch: &Launch, state: State, workers: usize, choice: usize) -> Option<(State, Option<u8>)> {
    let number = match &launch.order {
        Order::Static(queues) => {
            let (members, queue) = queues.get(choice)?;
            *queue.get((state.done & members).count_ones() as usize)?
        }
        Order::Ticket(order, _) => {
            let mut held = order[..usize::from(state.drawn)].iter().filter(|&&n| state.done >> n & 1 == 0);
            if choice == 0 {
                let free = usize::from(state.drawn) < order.len() && held.count() < workers;
                return free.then_some((State { drawn: state.drawn + 1, ..state }, None));
            }
            *held.nth(choice - 1)?
        }
    };
    let next = State { done: state.done | 1 << number, ..state };
    launch.ready(usize::from(number), state.done).then_some((next, Some(number)))
}

/// The instances at which the workers are stuck.
fn stuck(launch: &Launch, state: State) -> Vec<Instance> {
    let numbers: Vec<u8> = match &launch.order {
        Order::Static(queues) => {
            let head =
                |(members, queue): &(Set, Vec<u8>)| queue.get((state.done & members).count_ones() as usize).copied();
            queues.iter().filter_map(head).collect()
        }
        Order::Ticket(order, _) => {
            order[..usize::from(state.drawn)].iter().copied().filter(|&n| state.done >> n & 1 == 0).collect()
        }
    };
    numbers.into_iter().map(|number| launch.instance(usize::from(number))).collect()
}

//! AMK02xx: every task runs.
//!
//! One step is enough: when all tasks of the previous steps have run, their signals bring each
//! counter to its state at the start of a launch, and early signals can only help. Packets wait for
//! the words of their own step.

use super::found::{Found, KEPT_PER_CODE};
use super::simulate::{Run, Simulation};
use super::sync::{Order, Sync, task};
use super::violation::{Link, Violation, WaitsOn};
use crate::{Program, Queues, Steps, Wait};
use std::collections::VecDeque;

/// Thresholds and fan-in.
pub(super) fn check_thresholds(program: &Program, sync: &Sync, found: &mut Found) {
    for id in 0..sync.tasks {
        for (wait, &on) in sync.waits.row(id).iter().zip(&program.tasks[id as usize].waits) {
            let fan_in = sync.fan_in(wait.counter);
            if wait.threshold == 0 || wait.threshold > fan_in {
                found.push(Violation::Unsatisfiable { task: task(id), wait: on, fan_in });
            }
        }
    }
    for counter in 0..sync.counters() {
        let fan_in = u64::from(sync.fan_in(counter));
        if wraps(fan_in, program) {
            found.push(Violation::WrapAround { element: sync.element(counter), fan_in });
        }
    }
}

/// Counts are compared by their wrapping difference, which the signals of a launch must not exceed;
/// if its steps wait for each other, or the VM bounds their number, the signals of two steps must
/// not.
fn wraps(fan_in: u64, program: &Program) -> bool {
    fan_in.saturating_mul(steps_that_count(program).into()) >= 1 << 31
}

/// The number of steps whose signals may have arrived when a count is compared.
pub(super) fn steps_that_count(program: &Program) -> u32 {
    if program.steps == Steps::Pipelined { program.positions.max(2) } else { 2 }
}

/// Reusable memory of the family.
#[derive(Default)]
pub(super) struct Deadlock {
    ran: Vec<bool>,
    signalled: Vec<u32>,
}

impl Deadlock {
    /// Whether every task runs at `position`.
    pub(super) fn check(
        &mut self,
        program: &Program,
        order: Order<'_>,
        simulation: &mut Simulation,
        position: u32,
        found: &mut Found,
    ) -> bool {
        self.ran.clear();
        self.ran.resize(order.sync.tasks as usize, false);
        if matches!(program.queues, Queues::Ticket { .. }) {
            return self.check_tickets(order, position, found);
        }
        let ran = &mut self.ran;
        let mut count = 0;
        simulation.run(order, Run { copies: 1, endless: false, avoid: None }, |task, _| {
            ran[task as usize] = true;
            count += 1;
        });
        if count == order.sync.tasks {
            return true;
        }
        let cycle = self.shortest_cycle(order).unwrap_or_default();
        found.push(Violation::Deadlock { cycle, stuck: order.sync.tasks - count, position });
        false
    }

    /// With one resident worker each wait must be satisfied by earlier tickets; then it is for any
    /// number of workers.
    fn check_tickets(&mut self, order: Order<'_>, position: u32, found: &mut Found) -> bool {
        let mut holds = true;
        let mut reported = 0;
        self.signalled.clear();
        self.signalled.resize(order.sync.counters() as usize, 0);
        for &id in order.sync.queues.row(0) {
            if !self.can_start(order, id) {
                // A wait that does not hold lacks a signal or a packet of a task that has not run.
                let own = Link { task: task(id), on: WaitsOn::Queue, for_task: task(id) };
                let link = self.first_link(order, id).filter(|_| reported < KEPT_PER_CODE).unwrap_or(own);
                reported += 1;
                found.push(Violation::TicketOrder { task: task(id), link, position });
                holds = false;
            }
            self.ran[id as usize] = true;
            order.sync.signals.row(id).iter().for_each(|&counter| self.signalled[counter as usize] += 1);
        }
        holds
    }

    fn can_start(&self, order: Order<'_>, id: u32) -> bool {
        let packets = order.packets(0);
        let waits = order.sync.waits.row(id);
        waits.iter().all(|wait| self.signalled[wait.counter as usize] >= wait.threshold)
            && packets.reads.row(id).iter().all(|&set| packets.writers.row(set).iter().all(|&t| self.ran[t as usize]))
    }

    /// The reasons why `id` cannot start yet: one link for each task that could satisfy an
    /// unsatisfied wait. The counters, and then the packet sets, that are already in `expanded`
    /// lead to no new task.
    fn links(&self, order: Order<'_>, id: u32, expanded: &mut [bool]) -> Vec<Link> {
        let (sync, packets) = (order.sync, order.packets(0));
        let mut links = Vec::new();
        let mut add = |on, tasks: &[u32]| {
            let missing = tasks.iter().filter(|&&t| !self.ran[t as usize]);
            links.extend(missing.map(|&t| Link { task: task(id), on, for_task: task(t) }));
        };
        for wait in sync.waits.row(id) {
            let signallers = sync.signallers.row(wait.counter);
            if !expanded[wait.counter as usize] && self.signalled[wait.counter as usize] < wait.threshold {
                expanded[wait.counter as usize] = true;
                add(WaitsOn::Counter(Wait { on: sync.element(wait.counter), threshold: wait.threshold }), signallers);
            }
        }
        for &set in packets.reads.row(id) {
            if !std::mem::replace(&mut expanded[(sync.counters() + set) as usize], true) {
                add(WaitsOn::Packet(packets.buffers[set as usize]), packets.writers.row(set));
            }
        }
        links
    }

    /// The first of the links, with the signals that have come in `signalled`.
    fn first_link(&self, order: Order<'_>, id: u32) -> Option<Link> {
        let (sync, packets) = (order.sync, order.packets(0));
        let missing = |tasks: &[u32]| tasks.iter().copied().find(|&t| !self.ran[t as usize]);
        let link = |on, to| Link { task: task(id), on, for_task: task(to) };
        let unmet = sync.waits.row(id).iter().filter(|wait| self.signalled[wait.counter as usize] < wait.threshold);
        let waits = unmet.filter_map(|wait| {
            let on = WaitsOn::Counter(Wait { on: sync.element(wait.counter), threshold: wait.threshold });
            Some(link(on, missing(sync.signallers.row(wait.counter))?))
        });
        let sets = packets.reads.row(id).iter().filter_map(|&set| {
            Some(link(WaitsOn::Packet(packets.buffers[set as usize]), missing(packets.writers.row(set))?))
        });
        let before = sync.before(id).filter(|&t| !self.ran[t as usize]);
        waits.chain(sets).chain(before.map(|t| link(WaitsOn::Queue, t))).next()
    }

    /// All links, the one to the queue included.
    fn all_links(&self, order: Order<'_>, id: u32, expanded: &mut [bool]) -> Vec<Link> {
        let mut links = self.links(order, id, expanded);
        let before = order.sync.before(id).filter(|&t| !self.ran[t as usize]);
        links.extend(before.map(|t| Link { task: task(id), on: WaitsOn::Queue, for_task: task(t) }));
        links
    }

    /// The shortest cycle through a task that is found to be on one; there is one, as each wait can
    /// hold.
    fn shortest_cycle(&mut self, order: Order<'_>) -> Option<Vec<Link>> {
        const TRIES: usize = 16;
        self.signalled.clear();
        self.signalled.resize(order.sync.counters() as usize, 0);
        for id in (0..order.sync.tasks).filter(|&t| self.ran[t as usize]) {
            order.sync.signals.row(id).iter().for_each(|&counter| self.signalled[counter as usize] += 1);
        }
        let next = |id| self.first_link(order, id).map(|link| link.for_task.0);
        let mut walk = (0..order.sync.tasks).find(|&t| !self.ran[t as usize])?;
        let mut seen = vec![false; self.ran.len()];
        while !std::mem::replace(&mut seen[walk as usize], true) {
            walk = next(walk)?;
        }
        let mut on_cycle = vec![walk];
        let mut at = next(walk)?;
        while at != walk {
            on_cycle.push(at);
            at = next(at)?;
        }
        let cycles = on_cycle.into_iter().take(TRIES).filter_map(|start| self.cycle_through(order, start));
        cycles.min_by_key(Vec::len)
    }

    /// The shortest cycle through `start`, by breadth-first search.
    fn cycle_through(&self, order: Order<'_>, start: u32) -> Option<Vec<Link>> {
        let mut reached: Vec<Option<Link>> = vec![None; self.ran.len()];
        let mut expanded = nothing_expanded(order);
        let mut work = VecDeque::from([start]);
        while let Some(at) = work.pop_front() {
            for link in self.all_links(order, at, &mut expanded) {
                let to = link.for_task.0;
                if to == start {
                    return Some(backtrack(&reached, start, link));
                }
                if reached[to as usize].is_none() {
                    reached[to as usize] = Some(link);
                    work.push_back(to);
                }
            }
        }
        None
    }
}

/// One flag for each counter and each packet set.
fn nothing_expanded(order: Order<'_>) -> Vec<bool> {
    vec![false; (order.sync.counters() + order.packets(0).writers.rows()) as usize]
}

/// The links from `start` to the one that closes the cycle.
fn backtrack(reached: &[Option<Link>], start: u32, closing: Link) -> Vec<Link> {
    let mut links = vec![closing];
    let mut at = closing.task.0;
    while at != start {
        let Some(link) = reached[at as usize] else { break };
        links.push(link);
        at = link.task.0;
    }
    links.reverse();
    links
}

#[cfg(test)]
mod tests {
    use super::wraps;
    use crate::{Program, Steps};

    #[test]
    fn signals_of_a_launch_stay_below_half_of_the_range() {
        let program = |positions, steps| Program { positions, steps, ..Program::default() };
        let (barrier, pipelined) = (program(4096, Steps::Barrier), program(4096, Steps::Pipelined));
        assert!(!wraps((1 << 30) - 1, &barrier) && wraps(1 << 30, &barrier));
        assert!(!wraps((1 << 19) - 1, &pipelined) && wraps(1 << 19, &pipelined));
        assert!(wraps(1 << 30, &program(1, Steps::Pipelined)));
    }
}

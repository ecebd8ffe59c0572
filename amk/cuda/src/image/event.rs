//! What tasks wait for besides packets: counters behind the packets. Mirrors `vm/exchange.cuh`.

use super::{ALIGN, Image, Record};
use crate::error::CudaError;
use crate::plan::{Phase, Plan};
use crate::schedule::DeviceExchange;
use amk_ir::{Access, BufferId, Exchange, Operand, Program};
use std::collections::HashMap;

/// A counter that is full when all that a phase publishes is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The phase.
    pub phase: usize,
    /// A buffer that it publishes.
    pub buffer: BufferId,
    /// Packet offset of the counter.
    pub at: u32,
    /// Arrivals a step: the phase's tasks, or all workers at a barrier.
    pub arrivals: u32,
}

/// The counters of a program; none where packets are all that tasks wait for.
#[derive(Clone, Debug, Default)]
pub struct Events {
    /// In the order of the phases.
    pub list: Vec<Event>,
    /// By phase: the last phase before it whose counter tells of packets that it reads.
    pub(crate) awaited: HashMap<usize, Event>,
}

impl Events {
    /// Counters behind `packets` packets, which grow by them.
    pub(super) fn place(plan: &Plan, packets: &mut u32) -> Self {
        if plan.schedule.exchange == DeviceExchange::Packets {
            return Self::default();
        }
        let mut events = Self::default();
        let mut of_buffers: HashMap<BufferId, Event> = HashMap::new();
        for (phase, _) in plan.phases.iter().enumerate().filter(|(_, of_phase)| counted(of_phase)) {
            let tasks = || plan.tasks.iter().zip(&plan.program.tasks).filter(|((of, ..), _)| *of == phase);
            let operands = || tasks().flat_map(|(_, task)| &task.calls).flat_map(|call| &call.operands);
            let last = operands().filter(|operand| operand.access != Access::Write);
            let last = last.filter_map(|operand| of_buffers.get(&operand.buffer)).max_by_key(|event| event.phase);
            events.awaited.extend(last.map(|event| (phase, *event)));
            let written: Vec<BufferId> =
                operands().filter(|o| publishes(&plan.program, o)).map(|operand| operand.buffer).collect();
            let Some(&buffer) = written.first() else { continue };
            let arrivals = match plan.schedule.exchange {
                DeviceExchange::Barrier => plan.schedule.workers,
                _ => tasks().count() as u32,
            };
            let event = Event { phase, buffer, at: *packets, arrivals };
            *packets += ALIGN;
            events.list.push(event);
            of_buffers.extend(written.into_iter().map(|buffer| (buffer, event)));
        }
        events
    }

    /// The event whose counter is at a packet offset.
    pub(crate) fn at(&self, place: u32) -> Option<&Event> {
        self.list.iter().find(|event| event.at == place)
    }

    /// The counters of a task of `phase`; `before`: the phase that its worker comes from.
    pub(super) fn encode(&self, plan: &Plan, phase: usize, before: &mut usize, record: &mut Record) {
        if !plan.phases.get(phase).is_some_and(counted) {
            return;
        }
        match plan.schedule.exchange {
            DeviceExchange::Packets => {}
            DeviceExchange::Counters => {
                let own = self.list.iter().find(|event| event.phase == phase);
                record.signal = own.map_or(0, |event| event.at);
                if let Some(event) = self.awaited.get(&phase) {
                    (record.wait, record.arrivals) = (event.at, event.arrivals);
                }
            }
            DeviceExchange::Barrier => {
                let mut passed = self.list.iter().filter(|event| (*before..phase).contains(&event.phase));
                if let Some(first) = passed.next() {
                    let last = passed.next_back().unwrap_or(first);
                    (record.signal, record.wait, record.arrivals) = (first.at, last.at, last.arrivals);
                }
            }
        }
        *before = phase;
    }
}

impl Image {
    /// Checks that every wait ends, and is for what the verified task reads.
    pub(super) fn check_events(&self, plan: &Plan) -> Result<(), CudaError> {
        match plan.schedule.exchange {
            DeviceExchange::Packets => {
                let free = |record: &&Record| record.counters() != (0, 0, 0);
                self.records.iter().find(free).map_or(Ok(()), |record| Err(fail(record, "a task has a counter")))
            }
            DeviceExchange::Counters => self.check_counters(plan),
            DeviceExchange::Barrier => self.check_barriers(plan),
        }
    }

    /// Tasks arrive at the counter of what they publish, and wait for one of an earlier phase that publishes what they read.
    fn check_counters(&self, plan: &Plan) -> Result<(), CudaError> {
        let mut arrivals: HashMap<u32, u32> = HashMap::new();
        let mut writers: HashMap<u32, usize> = HashMap::new();
        let mut of_buffers: HashMap<BufferId, u32> = HashMap::new();
        for record in self.records.iter().filter(|record| record.signal != 0) {
            let (phase, operands) = task_of(plan, record)?;
            *arrivals.entry(record.signal).or_default() += 1;
            if *writers.entry(record.signal).or_insert(phase) != phase {
                return Err(fail(record, "two phases arrive at a counter"));
            }
            let written = operands.into_iter().filter(|operand| publishes(&plan.program, operand));
            of_buffers.extend(written.map(|operand| (operand.buffer, record.signal)));
        }
        for record in &self.records {
            let (phase, operands) = task_of(plan, record)?;
            let published = operands.iter().any(|operand| publishes(&plan.program, operand));
            let is_counted = plan.phases.get(phase).is_some_and(counted);
            if (record.signal != 0) != (published && is_counted) {
                return Err(fail(record, "a task that publishes does not arrive, or one that does not does"));
            }
            let read = operands.iter().filter(|operand| operand.access != Access::Write);
            let last = read.filter_map(|operand| of_buffers.get(&operand.buffer)).max_by_key(|at| writers.get(at));
            let wanted = last.filter(|_| is_counted).map_or((0, 0), |at| (*at, arrivals[at]));
            if (record.wait, record.arrivals) != wanted {
                return Err(fail(record, "a task waits for another counter than that of what it reads"));
            }
            if writers.get(&record.wait).is_some_and(|&writer| writer >= phase) {
                return Err(fail(record, "a task waits for a later phase"));
            }
        }
        Ok(())
    }

    /// Every worker passes every barrier once a step, in their order, after its task of the phase and before those of later ones.
    fn check_barriers(&self, plan: &Plan) -> Result<(), CudaError> {
        for bounds in self.record_at.windows(2) {
            let mut ahead = self.events.list.iter().peekable();
            for record in &self.records[bounds[0] as usize..bounds[1] as usize] {
                let (phase, _) = task_of(plan, record)?;
                if record.wait == 0 && record.counters() != (0, 0, 0) {
                    return Err(fail(record, "a task without a barrier has a counter"));
                }
                let passed = (record.signal..=record.wait).step_by(ALIGN as usize).filter(|_| record.wait != 0);
                for at in passed {
                    let next = ahead.next().filter(|event| event.at == at && event.phase < phase);
                    if next.is_none() || record.arrivals != plan.schedule.workers {
                        return Err(fail(record, "a worker passes another barrier than the next"));
                    }
                }
                let late = ahead.peek().is_some_and(|event| event.phase < phase);
                if late && plan.phases.get(phase).is_some_and(counted) {
                    return Err(fail(record, "a worker leaves out a barrier"));
                }
            }
            if ahead.next().is_some() {
                return Err(CudaError::Image { task: 0, what: "a worker leaves out a barrier" });
            }
        }
        Ok(())
    }
}

/// Whether the tasks of a phase run in every step: the looks of a filtered draw do not.
fn counted(phase: &Phase) -> bool {
    !matches!(phase, Phase::Probe { .. })
}

fn publishes(program: &Program, operand: &Operand) -> bool {
    let buffer = program.buffers.get(operand.buffer.index());
    operand.access != Access::Read && buffer.is_some_and(|buffer| buffer.exchange != Exchange::Counter)
}

/// Phase and operands of a record's verified task.
fn task_of<'p>(plan: &'p Plan, record: &Record) -> Result<(usize, Vec<&'p Operand>), CudaError> {
    let task = plan.program.tasks.get(record.task as usize).ok_or_else(|| fail(record, "the task does not exist"))?;
    let phase = task.op.ok_or_else(|| fail(record, "the task is of no phase"))?.index();
    Ok((phase, task.calls.iter().flat_map(|call| &call.operands).collect()))
}

fn fail(record: &Record, what: &'static str) -> CudaError {
    CudaError::Image { task: record.task, what }
}

#[cfg(test)]
mod tests;

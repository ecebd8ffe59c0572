//! Counters and barriers between phases: one event for each phase that publishes.

use super::Plan;
use amk_ir::lower::exchange::{add_event, add_signal, add_wait};
use amk_ir::schedule::ExchangeBy;
use amk_ir::{BufferId, BufferKind, EventId, Operand};
use std::collections::HashMap;

impl Plan {
    /// Adds the events that the schedule's exchange requires, with their signals and waits.
    ///
    /// A task that publishes signals its phase's event. Neighbouring phases that wait for the same
    /// event share one, since a task can wait for only one and may read the values of several. With
    /// counters, a task waits until the last phase that it reads from, or that wrote a state that
    /// it writes, has published; with barriers, until the last phase before its own has. With rows
    /// and packets, only buffers without packets (states and logits) have events. Phases that most
    /// steps skip neither signal nor wait.
    pub(super) fn exchange(&mut self) {
        let mut events = Events::default();
        for phase in 0..self.phases.len() {
            let only_packets = self.schedule.exchange == ExchangeBy::Packets && self.rows().is_none();
            if only_packets || self.phases[phase].kind().skipped() {
                continue;
            }
            let tasks: Vec<usize> = (0..self.tasks.len()).filter(|&task| self.tasks[task].0 == phase).collect();
            let mut awaited: Vec<Option<EventId>> = tasks.iter().map(|&task| self.awaited(&events, task)).collect();
            let before = events.last;
            events.publish(self, &tasks, awaited.iter().flatten().max().copied());
            if events.last != before && self.rows().is_some() && !self.has_row_packets() {
                self.chain(&tasks, &mut awaited, before);
            }
            for (&task, event) in tasks.iter().zip(awaited) {
                let signalled = event.and_then(|event| Some((event, *events.signals.get(event.index())?)));
                if let Some((event, signals)) = signalled {
                    add_wait(&mut self.program, task, event, 0, signals);
                    events.complete = events.complete.max(Some(event));
                }
            }
        }
    }

    /// Makes a task of a phase with an event of its own wait for the preceding event, if none of
    /// them does. Values in plain memory do not arrive as packets, and a task that reads several of
    /// them waits only for the last event, which must therefore imply that the earlier phases are
    /// complete.
    fn chain(&self, tasks: &[usize], awaited: &mut [Option<EventId>], before: Option<EventId>) {
        let publishes = |&(&task, _): &(&usize, &mut Option<EventId>)| self.published(task).next().is_some();
        let mut publishers: Vec<_> = tasks.iter().zip(awaited).filter(publishes).map(|(_, event)| event).collect();
        if publishers.iter().all(|event| **event != before)
            && let Some(first) = publishers.first_mut()
        {
            **first = before;
        }
    }

    /// The event that a task waits for, of the phases before its own.
    fn awaited(&self, events: &Events, task: usize) -> Option<EventId> {
        match self.schedule.exchange {
            ExchangeBy::Packets | ExchangeBy::Counters => {
                let read = self.operands(task).filter(|operand| operand.access.reads() || self.keeps(operand));
                read.filter_map(|operand| events.publishers.get(&operand.buffer)).max().copied()
            }
            ExchangeBy::Barrier => events.last,
        }
    }

    /// Whether an operand is of a state, whose writes must keep their order.
    fn keeps(&self, operand: &Operand) -> bool {
        self.program.buffers[operand.buffer.index()].kind == BufferKind::State
    }

    fn operands(&self, task: usize) -> impl Iterator<Item = &Operand> {
        self.program.tasks[task].calls.iter().flat_map(|call| &call.operands)
    }

    /// The buffers that a task publishes by its phase's event.
    fn published(&self, task: usize) -> impl Iterator<Item = BufferId> {
        let by_event = |buffer: BufferId| {
            let packet = self.program.buffers[buffer.index()].is_packet();
            if self.rows().is_some() { self.exchanged.contains(&buffer) && !packet } else { packet }
        };
        let written = self.operands(task).filter(|operand| operand.access.writes());
        written.map(|operand| operand.buffer).filter(move |&buffer| by_event(buffer))
    }
}

/// The events of the phases so far.
#[derive(Default)]
struct Events {
    /// The last event that publishes each buffer.
    publishers: HashMap<BufferId, EventId>,
    /// Tasks that signal each event.
    signals: Vec<u32>,
    last: Option<EventId>,
    /// The event that the tasks that signal the last one wait for.
    before_last: Option<EventId>,
    /// The last event that tasks already wait for.
    complete: Option<EventId>,
}

impl Events {
    /// Adds the event of a phase with these tasks, which wait for `awaited`, if one of them
    /// publishes.
    fn publish(&mut self, plan: &mut Plan, tasks: &[usize], awaited: Option<EventId>) {
        let written: Vec<BufferId> = tasks.iter().flat_map(|&task| plan.published(task)).collect();
        let Some(first) = written.first() else { return };
        let name = plan.program.buffers[first.index()].name.clone();
        let publishers: Vec<usize> =
            tasks.iter().copied().filter(|&task| plan.published(task).next().is_some()).collect();
        let shared = self.last.filter(|&last| Some(last) > self.complete && self.before_last == awaited);
        let event = shared.unwrap_or_else(|| add_event(&mut plan.program, name, 1, []));
        publishers.iter().for_each(|&task| add_signal(&mut plan.program, task, event, 0));
        self.publishers.extend(written.into_iter().map(|buffer| (buffer, event)));
        self.signals.resize(event.index() + 1, 0);
        self.signals[event.index()] += publishers.len() as u32;
        (self.last, self.before_last) = (Some(event), awaited);
    }
}

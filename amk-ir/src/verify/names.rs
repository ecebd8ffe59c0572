//! Names of a program's entities in messages: the user's names first, ids in parentheses.

use super::routing::Given;
use super::violation::{Link, Party, Site, WaitsOn};
use crate::text::{clipped, index_text, interval_text, kind_name, operands_text, param_text};
use crate::{
    Access, BufferId, Element, EventId, Operand, Program, Queues, Region, Routed, TableId, TaskId, Wait, WorkerId,
};

/// The names of a program.
#[derive(Clone, Copy)]
pub(super) struct Names<'a> {
    pub(super) program: &'a Program,
    /// Longer names are shortened in the middle.
    longest: usize,
}

impl<'a> Names<'a> {
    /// Names of at most `longest` characters.
    pub(super) fn of(program: &'a Program, longest: usize) -> Self {
        Self { program, longest }
    }

    fn clip(self, name: &str) -> String {
        clipped(name, self.longest)
    }

    fn buffer_name(self, id: BufferId) -> String {
        self.program.buffers.get(id.index()).map_or_else(|| id.to_string(), |buffer| self.clip(&buffer.name))
    }

    pub(super) fn buffer(self, id: BufferId) -> String {
        format!("`{}`", self.buffer_name(id))
    }

    pub(super) fn buffer_of(self, site: Site) -> BufferId {
        site.of(self.program).map_or(BufferId(u32::MAX), |operand| operand.buffer)
    }

    pub(super) fn site_buffer(self, site: Site) -> String {
        self.buffer(self.buffer_of(site))
    }

    fn region(self, buffer: BufferId, region: &Region, routed: Option<Routed>) -> String {
        let shape = self.program.buffers.get(buffer.index()).map_or(&[][..], |b| &b.shape);
        let mut text: Vec<String> =
            region.intervals().iter().enumerate().map(|(n, &i)| interval_text(i, shape.get(n).copied())).collect();
        if let (Some(first), Some(routed)) = (text.first_mut(), routed) {
            *first = match routed {
                Routed::Pick { table, entry } => self.entry_name(table, entry),
                Routed::Row { table, entry } => format!("row {}", self.entry_name(table, entry)),
                Routed::Group { table, group } => format!("rows {}[{group}]", self.table_name(table)),
            };
        }
        format!("`{}[{}]`", self.buffer_name(buffer), text.join(", "))
    }

    pub(super) fn site(self, site: Site) -> String {
        let operand = |o: &Operand| self.region(o.buffer, &o.region, o.routed);
        site.of(self.program).map_or_else(String::new, operand)
    }

    pub(super) fn tile(self, party: &Party) -> String {
        self.region(party.buffer, &party.region, self.routed(party))
    }

    pub(super) fn tile_of(self, site: Site) -> String {
        format!("{} of `{}`", self.site(site), site.task)
    }

    pub(super) fn elements(self, buffer: BufferId, elements: &[(u64, u64)]) -> String {
        let side = |&(lo, hi): &(u64, u64)| if hi == lo + 1 { lo.to_string() } else { format!("{lo}..{hi}") };
        let text: Vec<String> = elements.iter().map(side).collect();
        if text.is_empty() {
            self.buffer(buffer)
        } else {
            format!("`{}[{}]`", self.buffer_name(buffer), text.join(", "))
        }
    }

    /// The overlap of two tiles, if they are fixed tiles of one buffer; otherwise the second tile.
    /// The buffer, if a table decides.
    pub(super) fn common(self, first: &Party, second: &Party) -> String {
        let routed = [first, second].iter().any(|party| self.routed(party).is_some());
        if routed {
            return self.buffer(second.buffer);
        }
        if first.buffer != second.buffer || self.moves(first) || self.moves(second) {
            return self.tile(second);
        }
        let pairs = first.region.intervals().iter().zip(second.region.intervals());
        let meet: Vec<(u64, u64)> =
            pairs.map(|(a, b)| (a.lo.base.max(b.lo.base).into(), a.hi.base.min(b.hi.base).into())).collect();
        let shape = self.program.buffers.get(first.buffer.index()).map_or(&[][..], |b| &b.shape);
        if meet.iter().zip(shape).all(|(side, &extent)| *side == (0, extent.into())) {
            return self.buffer(first.buffer);
        }
        self.elements(first.buffer, &meet)
    }

    fn routed(self, party: &Party) -> Option<Routed> {
        party.site.of(self.program)?.routed
    }

    pub(super) fn moves(self, party: &Party) -> bool {
        party.region.intervals().iter().any(|interval| interval.moves())
    }

    pub(super) fn shape_of(self, site: Site) -> String {
        let buffer = self.buffer_of(site);
        let Some(buffer) = self.program.buffers.get(buffer.index()) else { return String::new() };
        let shape: Vec<String> = buffer.shape.iter().map(u32::to_string).collect();
        format!("`{} {}[{}]`", kind_name(buffer.kind), buffer.dtype, shape.join(", "))
    }

    pub(super) fn extent(self, site: Site, dim: u32) -> u32 {
        let buffer = self.program.buffers.get(self.buffer_of(site).index());
        buffer.and_then(|buffer| buffer.shape.get(dim as usize)).copied().unwrap_or(0)
    }

    fn callee_name(self, task: TaskId, call: u32) -> String {
        let call = self.program.tasks.get(task.index()).and_then(|task| task.calls.get(call as usize));
        let instruction = call.and_then(|call| self.program.instructions.get(call.instruction.index()));
        instruction.map_or_else(|| task.to_string(), |instruction| self.clip(&instruction.name))
    }

    pub(super) fn callee(self, task: TaskId, call: u32) -> String {
        format!("`{}`", self.callee_name(task, call))
    }

    pub(super) fn call(self, site: Site) -> String {
        self.callee(site.task, site.call)
    }

    pub(super) fn operand_name(self, task: TaskId, call: u32, operand: u32) -> String {
        let call = self.program.tasks.get(task.index()).and_then(|task| task.calls.get(call as usize));
        let instruction = call.and_then(|call| self.program.instructions.get(call.instruction.index()));
        let spec = instruction.and_then(|instruction| instruction.operands.get(operand as usize));
        spec.map_or_else(|| operand.to_string(), |spec| self.clip(&spec.name))
    }

    /// A parameter by its name in the declaration.
    pub(super) fn param_name(self, task: TaskId, call: u32, param: u32) -> String {
        let call = self.program.tasks.get(task.index()).and_then(|task| task.calls.get(call as usize));
        let instruction = call.and_then(|call| self.program.instructions.get(call.instruction.index()));
        let name = instruction.and_then(|instruction| instruction.params.get(param as usize));
        format!("`{}`", name.map_or_else(|| param.to_string(), |name| self.clip(name)))
    }

    /// A call's argument for a parameter, as in the text format.
    pub(super) fn param(self, task: TaskId, call: u32, param: u32) -> String {
        let call = self.program.tasks.get(task.index()).and_then(|task| task.calls.get(call as usize));
        let param = call.and_then(|call| call.params.get(param as usize));
        format!("`{}`", param.map_or_else(String::new, param_text))
    }

    /// The declaration of a call's instruction, as in the text format.
    pub(super) fn declaration(self, task: TaskId, call: u32) -> String {
        let call = self.program.tasks.get(task.index()).and_then(|task| task.calls.get(call as usize));
        let instruction = call.and_then(|call| self.program.instructions.get(call.instruction.index()));
        instruction.map_or_else(String::new, operands_text)
    }

    /// The last instruction of a task and its id.
    pub(super) fn task(self, id: TaskId) -> String {
        let call = self.program.tasks.get(id.index()).and_then(|task| task.calls.last());
        match call.and_then(|call| self.program.instructions.get(call.instruction.index())) {
            Some(instruction) => format!("`{}` ({id})", self.clip(&instruction.name)),
            None => format!("`{id}`"),
        }
    }

    pub(super) fn doing(self, party: &Party) -> String {
        let what = match party.access {
            Access::Read => "the read",
            Access::Write => "the write",
            Access::Update => "the update",
        };
        format!("{what} in {}", self.call(party.site))
    }

    /// Task and tile of a party.
    pub(super) fn place(self, party: &Party) -> String {
        let op = self.program.tasks.get(party.site.task.index()).and_then(|task| task.op);
        let label = op.and_then(|op| self.program.ops.get(op.index()));
        let label = label.map_or_else(String::new, |label| format!(" of `{}`", self.clip(label)));
        format!("{} in `{}`{label}", self.tile(party), party.site.task)
    }

    fn table_name(self, id: TableId) -> String {
        self.program.tables.get(id.index()).map_or_else(|| id.to_string(), |table| self.clip(&table.name))
    }

    pub(super) fn table(self, id: TableId) -> String {
        format!("`{}`", self.table_name(id))
    }

    fn entry_name(self, id: TableId, entry: u32) -> String {
        let table = self.program.tables.get(id.index());
        let shape = table.and_then(|table| table.buffer(self.program)).map_or(&[][..], |buffer| &buffer.shape);
        format!("{}{}", self.table_name(id), index_text(shape, entry))
    }

    pub(super) fn entry(self, id: TableId, entry: u32) -> String {
        format!("`{}`", self.entry_name(id, entry))
    }

    pub(super) fn given(self, given: Given) -> String {
        format!("where {} is {}", self.entry(given.table, given.entry), given.value)
    }

    pub(super) fn event(self, id: EventId) -> String {
        self.program
            .events
            .get(id.index())
            .map_or_else(|| format!("`{id}`"), |event| format!("`{}`", self.clip(&event.name)))
    }

    pub(super) fn counters(self, id: EventId) -> u64 {
        self.program.events.get(id.index()).map_or(0, crate::EventTensor::len)
    }

    fn counter_name(self, element: Element) -> String {
        let Some(event) = self.program.events.get(element.event.index()) else { return self.raw_counter(element) };
        match event.len() {
            1 => self.clip(&event.name),
            _ => format!("{}[{}]", self.clip(&event.name), element.index),
        }
    }

    pub(super) fn counter(self, element: Element) -> String {
        format!("`{}`", self.counter_name(element))
    }

    pub(super) fn raw_counter(self, element: Element) -> String {
        format!("{}[{}]", element.event, element.index)
    }

    pub(super) fn wait(self, wait: Wait) -> String {
        format!("`{} >= {}`", self.counter_name(wait.on), wait.threshold)
    }

    /// A counter that a task signals and the wait for all its signals.
    pub(super) fn signal_of(self, task: TaskId) -> Option<Wait> {
        let on = *self.program.tasks.get(task.index())?.signals.first()?;
        let signals = self.program.tasks.iter().filter(|task| task.signals.contains(&on)).count();
        Some(Wait { on, threshold: signals as u32 })
    }

    /// The wait for the count of a value, if a task signals an entry that may have it.
    pub(super) fn count_of(self, task: TaskId, given: Given) -> Option<String> {
        let signals = &self.program.tasks.get(task.index())?.routed_signals;
        let signal = signals.iter().find(|signal| (signal.table, signal.entry) == (given.table, given.entry))?;
        let counter = self.counter_name(Element { event: signal.event, index: given.value });
        Some(format!("`{counter} >= count {}`", self.table_name(given.table)))
    }

    /// The queue of a task.
    pub(super) fn queue(self, task: TaskId) -> String {
        match &self.program.queues {
            Queues::Static(queues) => {
                let worker = queues.iter().position(|queue| queue.contains(&task)).map_or(WorkerId(0), WorkerId::from);
                format!("the queue of `{worker}`")
            }
            Queues::Ticket { .. } => "the order of tickets".into(),
        }
    }

    /// The wait of a task, as a link of a chain.
    pub(super) fn link(self, link: &Link) -> String {
        let task = link.task;
        match link.on {
            WaitsOn::Counter(wait) => format!("{task} waits for {}", self.wait(wait)),
            WaitsOn::Packet(buffer) => format!("{task} reads packet {}", self.buffer(buffer)),
            WaitsOn::Queue => format!("{task} behind {} in {}", link.for_task, self.queue(task)),
        }
    }

    /// Empty if all positions are alike.
    pub(super) fn at_position(self, position: u32) -> String {
        if self.program.positions > 1 { format!(" (at position {position})") } else { String::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_between_their_parts() {
        let program = Program::default();
        let clip = |name: &str| Names::of(&program, 30).clip(name);
        assert_eq!(clip("mem.layers[0].k"), "mem.layers[0].k");
        assert_eq!(clip("weights.decoder.layers[17].attention.output"), "weights..attention.output");
        assert_eq!(clip(&"x".repeat(40)), format!("{}..{}", "x".repeat(7), "x".repeat(21)));
    }
}

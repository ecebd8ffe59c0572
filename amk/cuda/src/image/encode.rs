//! The encoder: turns the tasks of a plan into records. The decoder uses nothing from here.

use super::abi::{FIRST_BODY, Record};
use super::tile::{GenericTask, Plain};
use crate::plan::{Plan, UNIT, Work};
use crate::set::record_kinds;
use amk_ir::{BufferId, EventId, Task};
use std::collections::HashMap;

/// The layout of a plan's buffers.
pub struct Encoder<'a> {
    /// The plan.
    pub plan: &'a Plan,
    packet_at: HashMap<BufferId, u32>,
    constants: HashMap<BufferId, u32>,
    kinds: Vec<&'static str>,
    plain: Plain,
}

impl<'a> Encoder<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        packet_at: &HashMap<BufferId, u32>,
        constants: &[(BufferId, u32)],
        plain: Plain,
    ) -> Self {
        let kinds = record_kinds().iter().map(|kind| kind.name).collect();
        Self { plan, packet_at: packet_at.clone(), constants: constants.iter().copied().collect(), kinds, plain }
    }

    /// Returns the first packet of a buffer.
    pub fn packet(&self, buffer: BufferId) -> u32 {
        self.packet_at.get(&buffer).copied().unwrap_or(u32::MAX)
    }

    /// Returns the packet, or with rows the word, of an element of a vector. The element is the
    /// first in it.
    pub fn element(&self, buffer: BufferId, element: u32) -> u32 {
        let bytes = self.plan.program.buffers.get(buffer.index()).map_or(4, |buffer| buffer.dtype.bytes());
        let of_bytes = if self.plan.rows().is_some() { 8 } else { 4 };
        self.packet(buffer).saturating_add(element * bytes / of_bytes)
    }

    /// Returns the first element of a constant, or 0 for none.
    pub fn constant(&self, id: Option<BufferId>) -> u32 {
        id.and_then(|id| self.constants.get(&id)).copied().unwrap_or(0)
    }

    /// Returns the op of a kind of record.
    pub fn op(&self, kind: &str) -> u16 {
        self.kinds.iter().position(|&known| known == kind).map_or(u16::MAX, |at| at as u16)
    }

    /// Returns a record with the elements of a task, in units, and the rows of the step that it is
    /// for.
    pub fn of_rows(&self, kind: &str, work: &Work) -> Record {
        let Some(elements) = work.elements() else { return Record::default() };
        let units = (elements.end - elements.start).div_ceil(UNIT) as u16;
        Record { op: self.op(kind), units, row: elements.start, layer: self.block_rows(work), ..Record::default() }
    }

    /// Returns the rows of a step that a record is for, as its `layer`. 0 means all.
    pub fn block_rows(&self, work: &Work) -> u32 {
        work.rows().map_or(0, |rows| rows.start | rows.end << 16)
    }

    /// Adds words that a record's code reads. Returns the place of the first one.
    pub fn arguments(&mut self, words: impl IntoIterator<Item = u32>) -> u32 {
        self.plain.extend(words)
    }

    /// Returns the record of a task of generic bodies, whose arguments follow the previous ones.
    pub(crate) fn generic(&mut self, task: &GenericTask<'_>) -> Record {
        let input = self.plain.encode(self.plan, task);
        let piece = task.piece();
        let rows = task.rows();
        Record {
            op: FIRST_BODY as u16 + task.number as u16,
            units: rows.map_or(0, |rows| rows.len() as u16),
            input,
            row: rows.map_or(0, |rows| rows.first),
            aux: rows.map_or(0, |rows| u32::from(rows.wanted)),
            tape: piece.as_ref().map_or(0, |piece| piece.bytes() as u32),
            shape: piece.map_or(0, |piece| task.block(piece.k)),
            ..Record::default()
        }
    }

    /// Returns the record of a task, without its waits.
    pub(super) fn encode(&mut self, phase: usize, work: &Work) -> Record {
        self.plan.phases[phase].kind().record(self, work)
    }

    /// Encodes the generic tasks with their arguments.
    pub(super) fn finish(self) -> Plain {
        self.plain
    }
}

/// Sets the counters that a task signals and waits for; a record holds at most one of each.
pub(super) fn counters(events: &[u32], task: &Task, record: &mut Record) {
    let at = |event: EventId| events.get(event.index()).copied().unwrap_or(u32::MAX);
    record.signal = task.signals.first().map_or(0, |signal| at(signal.event));
    if let Some(wait) = task.waits.first() {
        (record.wait, record.arrivals) = (at(wait.on.event), wait.threshold);
    }
}

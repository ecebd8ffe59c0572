//! The encoder: from the tasks of a plan to records. Nothing here is used to decode.

use super::abi::{FIRST_BODY, Record};
use super::tile::{GenericTask, Plain};
use crate::plan::{Plan, UNIT, Work};
use crate::set::record_kinds;
use amk_ir::{BufferId, EventId, Task};
use std::collections::HashMap;
use std::ops::Range;

/// Where the buffers of a plan are.
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

    /// The first packet of a buffer.
    pub fn packet(&self, buffer: BufferId) -> u32 {
        self.packet_at.get(&buffer).copied().unwrap_or(u32::MAX)
    }

    /// The first element of a constant; 0 of none.
    pub fn constant(&self, id: Option<BufferId>) -> u32 {
        id.and_then(|id| self.constants.get(&id)).copied().unwrap_or(0)
    }

    /// The number of a kind of record.
    pub fn op(&self, kind: &str) -> u16 {
        self.kinds.iter().position(|&known| known == kind).map_or(u16::MAX, |at| at as u16)
    }

    /// A record of a kind that says which rows a task has, in units.
    pub fn of_rows(&self, kind: &str, rows: &Range<u32>) -> Record {
        let units = ((rows.end - rows.start) / UNIT) as u16;
        Record { op: self.op(kind), units, row: rows.start, ..Record::default() }
    }

    /// The record of a task of generic bodies, whose arguments follow those before.
    pub(crate) fn generic(&mut self, task: &GenericTask<'_>) -> Record {
        let input = self.plain.encode(self.plan, task);
        let piece = task.piece();
        Record {
            op: FIRST_BODY as u16 + task.number as u16,
            input,
            tape: piece.as_ref().map_or(0, |piece| piece.bytes() as u32),
            shape: piece.map_or(0, |piece| piece.layout.block(piece.k)),
            ..Record::default()
        }
    }

    /// The record of a task, without what it waits for.
    pub(super) fn encode(&mut self, phase: usize, work: &Work) -> Record {
        self.plan.phases[phase].kind().record(self, work)
    }

    /// The generic tasks, with their arguments.
    pub(super) fn finish(self) -> Plain {
        self.plain
    }
}

/// Sets the counters that a task signals and waits for; there is room for one each.
pub(super) fn counters(events: &[u32], task: &Task, record: &mut Record) {
    let at = |event: EventId| events.get(event.index()).copied().unwrap_or(u32::MAX);
    record.signal = task.signals.first().map_or(0, |signal| at(signal.event));
    if let Some(wait) = task.waits.first() {
        (record.wait, record.arrivals) = (at(wait.on.event), wait.threshold);
    }
}

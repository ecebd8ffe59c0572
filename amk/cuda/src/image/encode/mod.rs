//! The encoder: from the tasks of a plan to records. Nothing here is used to decode.

mod attention;
mod draw;
mod gemv;
mod residual;

use super::abi::{FIRST_BODY, Record};
use super::tile::{GenericTask, Plain};
use crate::plan::{Phase, Plan, UNIT, Work};
use crate::tape::Piece;
use amk_ir::{BufferId, EventId, Task};
use std::collections::HashMap;
use std::ops::Range;

/// Where the buffers of a plan are.
pub(super) struct Encoder<'a> {
    plan: &'a Plan,
    packet_at: HashMap<BufferId, u32>,
    constants: HashMap<BufferId, u32>,
}

impl<'a> Encoder<'a> {
    pub(super) fn new(plan: &'a Plan, packet_at: &HashMap<BufferId, u32>, constants: &[(BufferId, u32)]) -> Self {
        Self { plan, packet_at: packet_at.clone(), constants: constants.iter().copied().collect() }
    }

    fn packet(&self, buffer: BufferId) -> u32 {
        self.packet_at.get(&buffer).copied().unwrap_or(u32::MAX)
    }

    /// The offset of a constant; 0 of none.
    fn constant(&self, id: Option<BufferId>) -> u32 {
        id.and_then(|id| self.constants.get(&id)).copied().unwrap_or(0)
    }

    /// The record of a task, without what it waits for; appends the tiles of a generic one.
    pub(super) fn encode(&self, plain: &mut Plain, phase: usize, work: &Work) -> Record {
        let Some(task) = GenericTask::of(self.plan, phase, work) else { return self.fused(phase, work) };
        let input = plain.encode(self.plan, &task);
        let piece = task.piece();
        Record {
            op: FIRST_BODY as u16 + task.number as u16,
            input,
            tape: piece.as_ref().map_or(0, |piece| piece.bytes() as u32),
            shape: piece.map_or(0, |piece| piece.layout.block(piece.k)),
            ..Record::default()
        }
    }

    fn fused(&self, phase: usize, work: &Work) -> Record {
        match (&self.plan.phases[phase], work) {
            (Phase::Embed { .. }, Work::Rows(rows)) => residual::embed(rows),
            (&Phase::Adopt { from, .. }, Work::Rows(rows)) => residual::adopt(self, from, rows),
            (Phase::Gemv(gemv), Work::Rows(rows)) => gemv::encode(self, gemv, rows),
            (&Phase::Attend { layer }, &Work::Split { head, split }) => attention::attend(self, layer, head, split),
            (&Phase::Combine { layer }, Work::Rows(slices)) => attention::combine(self, layer, slices),
            (Phase::Best, Work::Rows(rows)) => draw::best(self, rows),
            (&Phase::Probe { round }, Work::Rows(rows)) => draw::probe(self, round, rows),
            _ => draw::choose(self),
        }
    }
}

/// A task's piece of its worker's tape; `None` where it takes nothing.
pub(super) fn piece(plan: &Plan, phase: usize, work: &Work) -> Option<Piece> {
    match GenericTask::of(plan, phase, work) {
        Some(task) => task.piece(),
        None => gemv::piece(plan, phase, work),
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

/// A record that says which rows a task has.
fn of_rows(op: u32, rows: &Range<u32>) -> Record {
    Record { op: op as u16, units: ((rows.end - rows.start) / UNIT) as u16, row: rows.start, ..Record::default() }
}

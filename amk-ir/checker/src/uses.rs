//! The operands of all calls.

use crate::refusal::At;
use amk_ir::{Operand, Program, Region, TaskId};

/// An operand of a call, in its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use<'p> {
    pub(crate) at: At,
    pub(crate) operand: &'p Operand,
}

impl Use<'_> {
    pub(crate) fn task(&self) -> TaskId {
        self.at.task
    }

    pub(crate) fn reads(&self) -> bool {
        self.operand.access.reads()
    }

    pub(crate) fn writes(&self) -> bool {
        self.operand.access.writes()
    }

    /// The call, in eager order.
    pub(crate) fn call(&self) -> (TaskId, u32) {
        (self.at.task, self.at.call)
    }

    pub(crate) fn moves(&self) -> bool {
        moves(&self.operand.region)
    }
}

/// Whether a tile depends on the position.
pub(crate) fn moves(region: &Region) -> bool {
    region.intervals().iter().any(|interval| interval.moves())
}

/// All operands, in eager order.
pub(crate) fn all(program: &Program) -> impl Iterator<Item = Use<'_>> {
    (0u32..).zip(&program.tasks).flat_map(|(task, body)| {
        (0u32..).zip(&body.calls).flat_map(move |(call, body)| {
            (0u32..).zip(&body.operands).map(move |(index, operand)| {
                let (buffer, region) = (operand.buffer, operand.region);
                Use { at: At { task: TaskId(task), call, operand: index, buffer, region }, operand }
            })
        })
    })
}

/// By buffer, its operands in eager order.
pub(crate) fn by_buffer(program: &Program) -> Vec<Vec<Use<'_>>> {
    let mut uses = vec![Vec::new(); program.buffers.len()];
    for one in all(program) {
        uses[one.at.buffer.index()].push(one);
    }
    uses
}

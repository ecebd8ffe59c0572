//! The dynamic shared memory of a worker: the slots of its ring and, in narrow steps of rows, the
//! sums behind them.

use super::image::abi::{CHUNK, GROUP_UNITS, NARROW_ROWS, UNIT, WARPS};
use super::plan::Plan;

/// Units that a narrow step of rows reduces together where its weights are not decoded.
const ROW_UNITS: u32 = 8;

/// Bytes of the sums of a unit, one for each warp, for all rows of a narrow step.
const UNIT_SUMS: u32 = UNIT * WARPS * NARROW_ROWS * 4;

/// Returns the bytes of the sums of steps of up to `rows` rows, beside a ring of the schedule's
/// slots. Wide steps have the ring's memory.
pub(super) fn row_scratch(rows: u32) -> u32 {
    if (1..=NARROW_ROWS).contains(&rows) { ROW_UNITS * UNIT_SUMS } else { 0 }
}

/// How a plan shares out the memory.
pub(super) struct RingMemory {
    /// Slots of the ring.
    pub(super) slots: u32,
    /// Units that a narrow step of rows reduces together, at most a group.
    pub(super) row_units: u32,
    /// Bytes of their sums.
    pub(super) row_scratch: u32,
}

impl RingMemory {
    /// The memory of a plan.
    ///
    /// With fewer units together a step waits for its inputs more often, which a longer ring makes
    /// up for unless weights are decoded: there a slot's memory has the sums of a whole group.
    pub(super) fn of(plan: &Plan) -> Self {
        const { assert!((GROUP_UNITS - ROW_UNITS) * UNIT_SUMS == CHUNK, "a slot has the sums of the others") };
        let (ring, row_scratch) = (plan.schedule.ring, row_scratch(plan.rows().unwrap_or(0)));
        if row_scratch > 0 && !plan.forms.encodings.is_empty() && ring.slots > ring.in_flight {
            return Self { slots: ring.slots - 1, row_units: GROUP_UNITS, row_scratch: row_scratch + CHUNK };
        }
        Self { slots: ring.slots, row_units: ROW_UNITS, row_scratch }
    }
    /// Returns the bytes of all of it.
    pub(super) fn bytes(&self) -> u32 {
        self.slots * CHUNK + self.row_scratch
    }
}

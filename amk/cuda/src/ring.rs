//! The dynamic shared memory of a worker: the slots of its ring and, in narrow steps of rows, the
//! sums after them.

use super::image::abi::{CHUNK, GROUP_UNITS, UNIT, WARPS};
use super::plan::Plan;

/// Returns the bytes of the sums of a unit, one for each warp, for all rows of a narrow step.
fn unit_sums(rows: u32) -> u32 {
    UNIT * WARPS * rows.next_multiple_of(8) * 4
}

/// The number of slots of a ring with which narrow steps reduce one unit at a time, because GPUs
/// with little shared memory cannot hold more sums.
pub(super) const SHORT_RING: u32 = 2;

/// Returns the bytes of the sums of narrow steps of up to `rows` rows, beside a ring of `slots`
/// slots. Wide steps use the ring's memory.
pub fn row_scratch(rows: u32, slots: u32) -> u32 {
    match rows {
        0 => 0,
        _ if slots <= SHORT_RING => unit_sums(rows),
        _ => CHUNK,
    }
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
    /// up for unless weights are decoded: there a slot's memory has the sums of twice as many.
    pub(super) fn of(plan: &Plan) -> Self {
        let (ring, rows) = (plan.schedule.ring, plan.rows().filter(|_| !plan.is_wide()).unwrap_or(0));
        let (slots, row_scratch) = match row_scratch(rows, ring.slots) {
            some @ 1.. if !plan.forms.encodings.is_empty() && ring.slots > ring.in_flight => {
                (ring.slots - 1, some + CHUNK)
            }
            scratch => (ring.slots, scratch),
        };
        let row_units = if row_scratch == 0 { GROUP_UNITS } else { row_scratch / unit_sums(rows) };
        Self { slots, row_units: row_units.min(GROUP_UNITS), row_scratch }
    }
    /// Returns the bytes of all of it.
    pub(super) fn bytes(&self) -> u32 {
        self.slots * CHUNK + self.row_scratch
    }
}

//! The dynamic shared memory of a worker: the slots of its ring and, in narrow steps of rows, the
//! sums after them.

use super::image::abi::{CHUNK, GROUP_UNITS, UNIT, WARPS};
use super::plan::Plan;
use std::collections::BTreeMap;

/// Bytes of the longest slot.
pub const LONGEST_SLOT: u32 = CHUNK + CHUNK / 8;

/// Alignment of slots.
pub const SLOT_ALIGNED: u32 = 128;

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
    /// Bytes of a slot.
    pub(super) slot_bytes: u32,
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
        let (slots, slot_bytes) = cut(slots, plan);
        let row_units = if row_scratch == 0 { GROUP_UNITS } else { row_scratch / unit_sums(rows) };
        Self { slots, slot_bytes, row_units: row_units.min(GROUP_UNITS), row_scratch }
    }
    /// Returns the bytes of all of it.
    pub(super) fn bytes(&self) -> u32 {
        self.slots * self.slot_bytes + self.row_scratch
    }
}

/// Cuts the memory of `slots` slots of [`CHUNK`] bytes: into slots of the length that suits most of
/// a plan's weights, unless too few remain to keep some full while others are in flight.
fn cut(slots: u32, plan: &Plan) -> (u32, u32) {
    let fit = slots * CHUNK / plan.suited_slot;
    if plan.is_wide() || fit <= plan.schedule.ring.in_flight { (slots, CHUNK) } else { (fit, plan.suited_slot) }
}

/// Returns the length of slots that suits most of a plan's weights.
pub(super) fn suited_slot(plan: &Plan) -> u32 {
    let mut weights = BTreeMap::new();
    for kind in plan.phases.iter().map(|phase| phase.kind()) {
        *weights.entry(kind.slot_bytes()).or_insert(0) += kind.weight_bytes(plan);
    }
    let most = weights.into_iter().rev().max_by_key(|&(_, bytes)| bytes);
    most.map_or(CHUNK, |(slot, _)| slot.clamp(CHUNK, LONGEST_SLOT))
}

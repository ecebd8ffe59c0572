//! Values of a schedule that every VM refuses.

use super::{Assign, PartialSchedule, QueuePolicy, Schedule};
use crate::DType;
use crate::program::Steps;
use std::ops::RangeInclusive;

/// Element types in which a cache can be kept.
pub const CACHES: [DType; 3] = [DType::F32, DType::BF16, DType::E4M3];
/// Slots of the deepest ring.
pub const MOST_RING_SLOTS: u32 = 6;
/// KiB that a worker is charged at most.
const MOST_LATE: u32 = 4096;
/// Maximum value of `split_k`, in KiB.
const MOST_SPLIT_K: u32 = 4096;
/// KiB that the L2 cache holds for a worker at most.
const MOST_LOOKAHEAD: u32 = 512;
/// The slowest pace: a worker's share of the smallest bandwidth.
const MOST_PACE: u32 = 4096;

/// The values that a device's field may have on any of them; a device may allow fewer. `None` for
/// fields without such a range.
pub fn range(field: &str) -> Option<RangeInclusive<u32>> {
    Some(match field {
        "rows" => 1..=2048,
        "splits" => 1..=u32::MAX,
        "run" => 2..=1 << 10,
        "late" => 0..=MOST_LATE,
        "split_k" => 0..=MOST_SPLIT_K,
        "ring.slots" => 2..=MOST_RING_SLOTS,
        "ring.in_flight" => 1..=MOST_RING_SLOTS,
        "ring.pace" => 0..=MOST_PACE,
        "ring.lookahead" => 0..=MOST_LOOKAHEAD,
        _ => return None,
    })
}

impl PartialSchedule {
    /// Returns a field that only the CPU VM honours and one that only devices honour, if both are
    /// set: no VM runs such a schedule.
    pub fn for_no_vm(&self) -> Option<(&'static str, &'static str)> {
        let Self { tiles, queue, assign, steps, weights, fuse, .. } = self;
        let on_a_cpu = [
            ("tiles", !tiles.is_empty()),
            ("queue", *queue == Some(QueuePolicy::Ticket)),
            ("assign", *assign == Some(Assign::Balanced)),
            ("steps", *steps == Some(Steps::Barrier)),
            ("weights", weights.is_some_and(|weights| weights != DType::BF16)),
            ("fuse", !fuse.is_empty()),
        ];
        let own = Schedule::default();
        let on_a_device = self.over(own.clone()).unhonoured(&own, &crate::lower::HONOURED)?.field;
        on_a_cpu.into_iter().find(|(_, set)| *set).map(|(field, _)| (field, on_a_device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{ExchangeBy, PartialRing};

    #[test]
    fn fields_of_a_cpu_and_of_a_device_exclude_one_another() {
        let set = PartialSchedule::default;
        let splits = PartialSchedule { splits: Some(4), workers: Some(3), fusion: Some(false), ..set() };
        assert_eq!(splits.for_no_vm(), None);
        let ring = PartialRing { pace: Some(190), ..PartialRing::default() };
        let cases = [
            (PartialSchedule { queue: Some(QueuePolicy::Ticket), ..splits.clone() }, Some(("queue", "splits"))),
            (PartialSchedule { queue: Some(QueuePolicy::Static), ..splits }, None),
            (PartialSchedule { weights: Some(DType::F32), ring, ..set() }, Some(("weights", "ring.pace"))),
            // Counters are the CPU's own way.
            (PartialSchedule { assign: Some(Assign::Balanced), exchange: Some(ExchangeBy::Counters), ..set() }, None),
        ];
        for (fields, expected) in cases {
            assert_eq!(fields.for_no_vm(), expected, "{fields:?}");
        }
    }
}

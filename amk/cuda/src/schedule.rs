//! The schedule of a decoder on a GPU: data, never code. It cannot change results, only speed.

use super::image::abi::CHUNK;
use super::target::GpuTarget;
use serde::{Deserialize, Serialize};

/// How a decoder runs on a GPU. Every target has its own ([`GpuTarget::schedule`]); a search may
/// find a better one for a model.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSchedule {
    /// Workers: thread blocks, at most one a multiprocessor.
    pub workers: u32,
    /// Blocks of 64 positions of the cache that one split takes before the next takes its turn; an
    /// even number.
    pub run: u32,
    /// Splits of a key head's cache at most; there are no more than the workers allow.
    pub splits: u32,
    /// Slots of 32 KiB of the ring: how far ahead of the tasks their weights are fetched.
    pub ring_slots: u32,
    /// Slots that a worker has on their way at most.
    pub in_flight: u32,
    /// Clock cycles that 4 KiB of a tape take at least: the worker's share of the bandwidth. More
    /// would only queue up before the packets. 0: no pace.
    pub pace: u32,
    /// KiB of a tape that are brought into the L2 cache ahead of the ring; 0: none.
    pub lookahead: u32,
    /// Groups of calls run as one task each. False: every call is a generic task, to see what that
    /// is worth.
    pub fusion: bool,
    /// How tasks wait for one another. Other than packets: to see what these are worth.
    #[serde(default)]
    pub exchange: DeviceExchange,
}

/// How the tasks of different workers wait for one another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceExchange {
    /// Every word carries its epoch: a reader looks at the words themselves.
    #[default]
    Packets = 0,
    /// A task waits for the counter of the last phase it reads of, at which each task of that phase
    /// has arrived; see `vm/exchange.cuh`. What a filtered draw exchanges keeps to packets.
    Counters = 1,
    /// All workers meet after every phase that publishes, but for those of a filtered draw.
    Barrier = 2,
}

impl DeviceExchange {
    /// As JSON names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Counters => "counters",
            Self::Barrier => "barrier",
        }
    }
}

/// Why a schedule does not fit a GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScheduleError {
    /// A field is outside what the device code or the GPU allows.
    #[error("the device schedule's `{field}` is {found}; on {target} it must be in {least}..={most}")]
    Range {
        /// The field.
        field: &'static str,
        /// Its value.
        found: u32,
        /// The smallest legal value.
        least: u32,
        /// The largest legal value.
        most: u32,
        /// The GPU.
        target: &'static str,
    },
    /// A run is no even number of blocks: a slot of the ring would cross it.
    #[error("the device schedule's `run` is {0}; it must be even")]
    OddRun(u32),
}

/// Shared memory that a worker needs beside its ring, bytes.
const BESIDE_THE_RING: u32 = 33 << 10;
/// KiB that the L2 cache holds for a worker at most.
const MOST_LOOKAHEAD: u32 = 512;
/// The deepest ring: every tape has at least as many pieces, which `Image::build` checks.
pub const MOST_RING_SLOTS: u32 = 6;

impl DeviceSchedule {
    /// Checks every field against a GPU.
    ///
    /// # Errors
    /// The first field that is out of range.
    pub fn check(&self, target: &GpuTarget) -> Result<(), ScheduleError> {
        let ring = (target.shared_bytes.saturating_sub(BESIDE_THE_RING) / CHUNK).min(MOST_RING_SLOTS);
        for (field, found, least, most) in [
            ("workers", self.workers, 1, target.multiprocessors),
            ("run", self.run, 2, 1 << 10),
            ("splits", self.splits, 1, target.multiprocessors),
            ("ring_slots", self.ring_slots, 2, ring),
            ("in_flight", self.in_flight, 1, self.ring_slots),
            ("pace", self.pace, 0, 4096),
            ("lookahead", self.lookahead, 0, MOST_LOOKAHEAD),
        ] {
            if !(least..=most).contains(&found) {
                return Err(ScheduleError::Range { field, found, least, most, target: target.name });
            }
        }
        if !self.run.is_multiple_of(2) {
            return Err(ScheduleError::OddRun(self.run));
        }
        Ok(())
    }

    /// What differs from another schedule, field by field: `pace 205 -> 190`.
    pub fn changes(&self, from: &Self) -> Vec<String> {
        let Self { workers, run, splits, ring_slots, in_flight, pace, lookahead, fusion, exchange } = *self;
        let fields = [
            ("workers", from.workers, workers),
            ("run", from.run, run),
            ("splits", from.splits, splits),
            ("ring_slots", from.ring_slots, ring_slots),
            ("in_flight", from.in_flight, in_flight),
            ("pace", from.pace, pace),
            ("lookahead", from.lookahead, lookahead),
            ("fusion", from.fusion.into(), fusion.into()),
        ];
        let changed = fields.iter().filter(|(_, before, after)| before != after);
        let exchanges =
            (from.exchange != exchange).then(|| format!("exchange {} -> {}", from.exchange.name(), exchange.name()));
        changed.map(|(field, before, after)| format!("{field} {before} -> {after}")).chain(exchanges).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::target::TARGETS;
    use super::*;

    #[test]
    fn the_targets_own_schedules_fit_them() {
        for target in &TARGETS {
            assert_eq!(target.schedule.check(target), Ok(()));
        }
    }

    #[test]
    fn a_ring_that_exceeds_the_shared_memory_is_refused() {
        let target = GpuTarget::of_device("NVIDIA L40S").expect("a record");
        let wide = DeviceSchedule { ring_slots: 3, ..target.schedule };
        assert_eq!(
            wide.check(target).map_err(|error| error.to_string()),
            Err("the device schedule's `ring_slots` is 3; on l40s it must be in 2..=2".to_owned())
        );
        assert!(DeviceSchedule { in_flight: 3, ..target.schedule }.check(target).is_err());
        assert_eq!(DeviceSchedule { run: 3, ..target.schedule }.check(target), Err(ScheduleError::OddRun(3)));
        assert!(DeviceSchedule { workers: 143, ..target.schedule }.check(target).is_err());
    }

    #[test]
    fn changes_name_the_fields() {
        let own = TARGETS[0].schedule;
        let next = DeviceSchedule { pace: 190, run: 8, exchange: DeviceExchange::Barrier, ..own };
        assert_eq!(next.changes(&own), ["run 4 -> 8", "pace 0 -> 190", "exchange packets -> barrier"]);
        assert!(own.changes(&own).is_empty());
    }

    #[test]
    fn json_gives_the_schedule_back_and_refuses_unknown_fields() {
        let schedule = TARGETS[0].schedule;
        let text = serde_json::to_string(&schedule).expect("it should be written");
        assert_eq!(serde_json::from_str::<DeviceSchedule>(&text).ok(), Some(schedule));
        assert!(serde_json::from_str::<DeviceSchedule>(&text.replace("pace", "haste")).is_err());
        let old = text.replace(r#","exchange":"packets""#, "");
        assert_ne!(old, text);
        assert_eq!(serde_json::from_str::<DeviceSchedule>(&old).ok(), Some(schedule), "of before the field was there");
        for exchange in [DeviceExchange::Counters, DeviceExchange::Barrier] {
            let text = text.replace("packets", exchange.name());
            let read = serde_json::from_str::<DeviceSchedule>(&text).ok();
            assert_eq!(read, Some(DeviceSchedule { exchange, ..schedule }));
        }
    }
}

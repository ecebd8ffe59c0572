//! The fields of a schedule that a GPU honours, and their ranges.

use super::image::abi::{CHUNK, NARROW_ROWS};
use super::ring::{SHORT_RING, row_scratch};
use super::target::GpuTarget;
use amk_ir::Steps;
pub use amk_ir::schedule::MOST_RING_SLOTS;
use amk_ir::schedule::{CACHES, Changed, ExchangeBy, PartialSchedule, Ring, RowSchedule, Schedule, range};

/// The reasons why a schedule does not fit a GPU.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScheduleError {
    /// A field is outside the range that the device code or the GPU allows.
    #[error("the schedule's `{field}` is {found}; on {target} it must be in {least}..={most}")]
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
    /// A block has too little shared memory for the shortest ring.
    #[error("{target} has {found} KiB of shared memory for a worker; such steps need {needed} KiB")]
    Memory {
        /// KiB that a block of the GPU can have.
        found: u32,
        /// KiB of the shortest ring and of what the steps need beside it.
        needed: u32,
        /// The GPU.
        target: &'static str,
    },
    /// A run is not an even number of blocks: a slot of the ring would cross its end.
    #[error("the schedule's `run` is {0}; it must be even")]
    OddRun(u32),
    /// The CUDA VM supports only one value.
    #[error("the CUDA VM cannot honour the schedule's `{field}` = {found}; leave it out: it is {own}")]
    Unhonoured {
        /// The field.
        field: &'static str,
        /// Its value.
        found: String,
        /// The value of the VM.
        own: String,
    },
}

/// The fields of a schedule that the VM honours.
const HONOURED: [&str; 13] = [
    "workers",
    "rows",
    "run",
    "splits",
    "late",
    "split_k",
    "ring.slots",
    "ring.in_flight",
    "ring.pace",
    "ring.lookahead",
    "cache",
    "fusion",
    "exchange",
];

/// Shared memory that a worker needs in addition to its ring, in bytes.
const SHARED_OUTSIDE_RING: u32 = 33 << 10;

/// The same for narrow steps of up to [`NARROW_ROWS`] rows, except their sums.
const SHARED_OUTSIDE_ROWS: u32 = 31 << 10;

/// The same for wide steps.
const SHARED_OUTSIDE_WIDE: u32 = 32 << 10;

/// Rows of a step up to which weights may come through the ring.
const MOST_NARROW_ROWS: u32 = 2 * NARROW_ROWS;

/// Whether a schedule's steps are wide: weights do not come through the ring, whose memory the
/// bodies use. This is so for steps of more than [`NARROW_ROWS`] rows, unless they have at most
/// twice as many and exchange packets.
pub fn is_wide(schedule: &Schedule) -> bool {
    is_wide_by(schedule.rows.map_or(0, |rows| rows.most), schedule.exchange)
}

fn is_wide_by(rows: u32, exchange: ExchangeBy) -> bool {
    rows > MOST_NARROW_ROWS || (rows > NARROW_ROWS && exchange != ExchangeBy::Packets)
}

/// The number of ring slots whose memory the bodies of wide steps need at least.
const WIDE_SLOTS: u32 = 5;

impl GpuTarget {
    /// Checks every field of a schedule against this GPU.
    ///
    /// # Errors
    /// The first field that the VM cannot honour or that is out of range.
    pub fn check(&self, schedule: &Schedule) -> Result<(), ScheduleError> {
        let own = schedule.rows.map_or_else(|| self.schedule(), |rows| self.row_schedule(rows.most));
        if let Some(Changed { field, from, to }) = schedule.unhonoured(&own, &HONOURED) {
            return Err(ScheduleError::Unhonoured { field, found: to, own: from });
        }
        if let Some(cache) = schedule.cache.filter(|cache| !CACHES.contains(cache)) {
            let own = "f32, bf16 or e4m3".to_owned();
            return Err(ScheduleError::Unhonoured { field: "cache", found: cache.to_string(), own });
        }
        let rows = schedule.rows.map_or(0, |rows| rows.most);
        let wide = is_wide(schedule);
        if wide && schedule.exchange == ExchangeBy::Packets {
            let (found, own) = (schedule.exchange.name().to_owned(), own.exchange.name().to_owned());
            return Err(ScheduleError::Unhonoured { field: "exchange", found, own });
        }
        // Every tape has at least as many pieces as the deepest ring, which `Image::build` checks.
        let deepest = self.deepest_ring(rows, wide);
        let ring = schedule.ring;
        let most_rows = if self.deepest_ring(rows, true) < WIDE_SLOTS { NARROW_ROWS } else { u32::MAX };
        for (field, found, most_here) in [
            ("workers", schedule.workers, self.multiprocessors),
            ("rows", schedule.rows.map_or(1, |rows| rows.most), most_rows),
            ("run", schedule.run, u32::MAX),
            ("splits", schedule.splits, self.multiprocessors),
            ("late", schedule.late, u32::MAX),
            ("split_k", schedule.split_k, u32::MAX),
            ("ring.slots", ring.slots, deepest),
            ("ring.in_flight", ring.in_flight, ring.slots),
            ("ring.pace", ring.pace, u32::MAX),
            ("ring.lookahead", ring.lookahead, u32::MAX),
        ] {
            let (mut least, most) = range(field).unwrap_or(1..=u32::MAX).into_inner();
            if field == "ring.slots" && wide {
                least = WIDE_SLOTS;
            }
            let most = most.min(most_here);
            if field == "ring.slots" && most < least {
                let (found, needed) = (self.shared_bytes >> 10, least_memory(rows, least).div_ceil(1 << 10));
                return Err(ScheduleError::Memory { found, needed, target: self.name });
            }
            if !(least..=most).contains(&found) {
                return Err(ScheduleError::Range { field, found, least, most, target: self.name });
            }
        }
        if let Some(block) = schedule.rows.and_then(|rows| rows.block) {
            let own = "a task for all rows".to_owned();
            return Err(ScheduleError::Unhonoured { field: "rows.block", found: block.to_string(), own });
        }
        if !schedule.run.is_multiple_of(2) {
            return Err(ScheduleError::OddRun(schedule.run));
        }
        Ok(())
    }

    /// The number of slots of the deepest ring beside the memory that a step of this many rows
    /// needs.
    fn deepest_ring(&self, rows: u32, wide: bool) -> u32 {
        let beside = |others: u32| self.shared_bytes.saturating_sub(others) / CHUNK;
        if wide {
            return beside(SHARED_OUTSIDE_WIDE);
        }
        let deepest = beside(SHARED_OUTSIDE_RING + row_scratch(rows, u32::MAX));
        if rows == 0 || deepest > SHORT_RING {
            return deepest;
        }
        beside(SHARED_OUTSIDE_ROWS + row_scratch(rows, SHORT_RING)).min(SHORT_RING)
    }

    /// The GPU's default schedule for steps of up to `rows` rows.
    pub fn row_schedule(&self, rows: u32) -> Schedule {
        let own = self.schedule().exchange;
        self.row_schedule_by(rows, if rows > NARROW_ROWS { ExchangeBy::Counters } else { own })
    }

    /// The same with this exchange.
    fn row_schedule_by(&self, rows: u32, exchange: ExchangeBy) -> Schedule {
        let own = self.schedule();
        let deepest = self.deepest_ring(rows, is_wide_by(rows, exchange));
        Schedule {
            rows: Some(RowSchedule { most: rows, block: None }),
            steps: Steps::Barrier,
            exchange,
            ring: Ring { slots: own.ring.slots.min(deepest), ..own.ring },
            ..own
        }
    }

    /// Fills in fields from the GPU's default schedule, with rows if the fields have any.
    pub fn complete(&self, fields: &PartialSchedule) -> Schedule {
        let of_rows = |rows: RowSchedule| match fields.exchange {
            Some(exchange) => self.row_schedule_by(rows.most, exchange),
            None => self.row_schedule(rows.most),
        };
        fields.over(fields.rows.map_or_else(|| self.schedule(), of_rows))
    }
}

/// The bytes of shared memory with which narrow steps of up to `rows` rows have a ring of `slots`
/// slots, at most [`SHORT_RING`]; 0 rows: a step is one call of the function.
fn least_memory(rows: u32, slots: u32) -> u32 {
    let outside = if rows == 0 { SHARED_OUTSIDE_RING } else { SHARED_OUTSIDE_ROWS };
    outside + row_scratch(rows, SHORT_RING) + slots * CHUNK
}

#[cfg(test)]
mod tests {
    use super::super::target::TARGETS;
    use super::*;
    use amk_ir::schedule::{Assign, QueuePolicy, Tile};
    use amk_ir::{DType, Limits};

    #[test]
    fn the_targets_own_schedules_fit_them() {
        for target in &TARGETS {
            assert_eq!(target.check(&target.schedule()), Ok(()));
            for rows in 1..=NARROW_ROWS {
                let own = target.row_schedule(rows);
                assert_eq!(target.check(&own), Ok(()), "{rows} rows");
                let scratch = row_scratch(rows, own.ring.slots);
                assert!(own.ring.slots * CHUNK + scratch + SHARED_OUTSIDE_ROWS <= target.shared_bytes);
            }
        }
    }

    #[test]
    fn a_ring_that_exceeds_the_shared_memory_is_refused() {
        let target = GpuTarget::of_device("NVIDIA L40S").expect("a record");
        let own = target.schedule();
        let wide = Schedule { ring: Ring { slots: 3, ..own.ring }, ..own.clone() };
        assert_eq!(
            target.check(&wide).map_err(|error| error.to_string()),
            Err("the schedule's `ring.slots` is 3; on l40s it must be in 2..=2".to_owned())
        );
        let flying = Schedule { ring: Ring { in_flight: 3, ..own.ring }, ..own.clone() };
        assert!(target.check(&flying).is_err());
        assert_eq!(target.check(&Schedule { run: 3, ..own.clone() }), Err(ScheduleError::OddRun(3)));
        assert!(target.check(&Schedule { workers: 143, ..own.clone() }).is_err());
    }

    #[test]
    fn gpus_without_memory_for_a_ring_are_refused_with_what_is_needed() {
        let with = |kib: u32| GpuTarget { name: "small", shared_bytes: kib << 10, ..TARGETS[0] };
        for rows in [0, 1, NARROW_ROWS] {
            let own = |target: &GpuTarget| if rows == 0 { target.schedule() } else { target.row_schedule(rows) };
            let of = |kib: u32| {
                let target = GpuTarget { ring: Ring { slots: 2, ..TARGETS[0].ring }, ..with(kib) };
                target.check(&own(&target))
            };
            let needed = least_memory(rows, SHORT_RING).div_ceil(1 << 10);
            for found in [0, 48, 64, needed - 1] {
                assert_eq!(of(found), Err(ScheduleError::Memory { found, needed, target: "small" }), "{rows} rows");
            }
            assert_eq!(of(needed), Ok(()), "{rows} rows");
        }
    }

    #[test]
    fn wide_steps_need_the_memory_of_a_deep_ring() {
        let target = GpuTarget::of_device("NVIDIA H100 80GB HBM3").expect("a record");
        let own = target.row_schedule(128);
        assert_eq!(target.check(&own), Ok(()));
        let shallow = Schedule { ring: Ring { slots: WIDE_SLOTS - 1, ..own.ring }, ..own };
        let refused = target.check(&shallow);
        assert!(matches!(refused, Err(ScheduleError::Range { field: "ring.slots", .. })), "{refused:?}");
        let small = GpuTarget::of_device("NVIDIA L40S").expect("a record");
        let refused = small.check(&small.row_schedule(128));
        assert!(matches!(refused, Err(ScheduleError::Range { field: "rows", .. })), "{refused:?}");
    }

    #[test]
    fn a_field_that_the_vm_cannot_honour_is_refused_by_name() {
        let target = &TARGETS[0];
        let set = PartialSchedule::default;
        let cases = [
            ("queue", PartialSchedule { queue: Some(QueuePolicy::Ticket), ..set() }),
            ("steps", PartialSchedule { steps: Some(Steps::Barrier), ..set() }),
            ("assign", PartialSchedule { assign: Some(Assign::Balanced), ..set() }),
            ("weights", PartialSchedule { weights: Some(DType::F32), ..set() }),
            ("cache", PartialSchedule { cache: Some(DType::I8), ..set() }),
            ("tiles", PartialSchedule { tiles: [("project".to_owned(), Tile::Size(16))].into(), ..set() }),
            ("limits", PartialSchedule { limits: Some(Limits { workers: 4, ..Limits::default() }), ..set() }),
        ];
        for (name, fields) in cases {
            let refused = target.check(&fields.over(target.schedule()));
            assert!(matches!(refused, Err(ScheduleError::Unhonoured { field, .. }) if field == name), "{refused:?}");
        }
        let alike = PartialSchedule { queue: Some(QueuePolicy::Static), steps: Some(Steps::Pipelined), ..set() };
        assert_eq!(target.check(&alike.over(target.schedule())), Ok(()));
        let counters = PartialSchedule { exchange: Some(ExchangeBy::Counters), ..set() };
        assert_eq!(target.check(&counters.over(target.schedule())), Ok(()));
    }
}

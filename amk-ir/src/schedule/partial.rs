//! Schedules with unset fields, and the differences between two schedules.

use super::{Assign, ExchangeBy, Fusion, QueuePolicy, Ring, RowSchedule, Schedule, Tile};
use crate::DType;
use crate::program::{Limits, Steps};
use core::fmt::{self, Debug, Display, Formatter};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The fields of a [`Schedule`] that have been set; the others are the VM's own. `schedule(..)` of
/// a function or an instance and a schedule in JSON have this form.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PartialSchedule {
    /// Workers: thread blocks or CPU threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    /// Tile of each op, by the instruction's name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "super::tile::by_name")]
    pub tiles: BTreeMap<String, Tile>,
    /// One queue per worker, or a single one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueuePolicy>,
    /// The assignment of an op's tasks to workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assign: Option<Assign>,
    /// How one step follows the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<Steps>,
    /// The rows of a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<RowSchedule>,
    /// Element type in which weights are stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<DType>,
    /// Element type of caches: f32, bf16 or e4m3, also written fp8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<DType>,
    /// Whether calls run together in one task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fusion: Option<bool>,
    /// Ops fused into their producer's or consumer's task.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fuse: Vec<Fusion>,
    /// Splits of a cache at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub splits: Option<u32>,
    /// Number of consecutive blocks of 64 positions that go to one split.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<u32>,
    /// KiB charged to a worker that attends in the layer's next projection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late: Option<u32>,
    /// KiB by which splitting columns must shorten the longest task; 0: no splits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split_k: Option<u32>,
    /// The ring of streamed weights.
    #[serde(skip_serializing_if = "PartialRing::is_empty")]
    pub ring: PartialRing,
    /// How tasks of different workers wait for each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exchange: Option<ExchangeBy>,
    /// Resource limits of the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
}

/// The fields of a [`Ring`] that have been set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PartialRing {
    /// Slots of 32 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// Slots on their way at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u32>,
    /// Minimum number of clock cycles per 4 KiB; 0: no pace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace: Option<u32>,
    /// KiB that are brought into the L2 cache ahead of the ring; 0: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lookahead: Option<u32>,
}

impl PartialRing {
    /// Whether no field is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn over(self, own: Ring) -> Ring {
        Ring {
            slots: self.slots.unwrap_or(own.slots),
            in_flight: self.in_flight.unwrap_or(own.in_flight),
            pace: self.pace.unwrap_or(own.pace),
            lookahead: self.lookahead.unwrap_or(own.lookahead),
        }
    }
}

impl PartialSchedule {
    /// These fields over a VM's own schedule.
    pub fn over(&self, own: Schedule) -> Schedule {
        let Self { workers, tiles, queue, assign, steps, weights, fusion, fuse, .. } = self;
        Schedule {
            workers: workers.unwrap_or(own.workers),
            tiles: if tiles.is_empty() { own.tiles } else { tiles.clone() },
            queue: queue.unwrap_or(own.queue),
            assign: assign.unwrap_or(own.assign),
            steps: steps.unwrap_or(own.steps),
            rows: self.rows.or(own.rows),
            weights: weights.unwrap_or(own.weights),
            cache: self.cache.or(own.cache),
            fusion: fusion.unwrap_or(own.fusion),
            fuse: if fuse.is_empty() { own.fuse } else { fuse.clone() },
            splits: self.splits.unwrap_or(own.splits),
            run: self.run.unwrap_or(own.run),
            late: self.late.unwrap_or(own.late),
            split_k: self.split_k.unwrap_or(own.split_k),
            ring: self.ring.over(own.ring),
            exchange: self.exchange.unwrap_or(own.exchange),
            limits: self.limits.clone().unwrap_or(own.limits),
        }
    }

    /// Returns the schedule without the fields that only a device honours: the part of a function's
    /// schedule that a build verifies.
    pub fn without_device_fields(&self) -> Self {
        let (late, split_k) = (None, None);
        Self { splits: None, run: None, late, split_k, ring: PartialRing::default(), exchange: None, ..self.clone() }
    }
}

impl From<PartialSchedule> for Schedule {
    fn from(fields: PartialSchedule) -> Self {
        fields.over(Self::default())
    }
}

impl From<Schedule> for PartialSchedule {
    fn from(schedule: Schedule) -> Self {
        let Schedule { workers, tiles, queue, assign, steps, weights, fusion, fuse, splits, run, ring, .. } = schedule;
        Self {
            workers: Some(workers),
            tiles,
            queue: Some(queue),
            assign: Some(assign),
            steps: Some(steps),
            rows: schedule.rows,
            weights: Some(weights),
            cache: schedule.cache,
            fusion: Some(fusion),
            fuse,
            splits: Some(splits),
            run: Some(run),
            late: Some(schedule.late),
            split_k: Some(schedule.split_k),
            ring: PartialRing {
                slots: Some(ring.slots),
                in_flight: Some(ring.in_flight),
                pace: Some(ring.pace),
                lookahead: Some(ring.lookahead),
            },
            exchange: Some(schedule.exchange),
            limits: (schedule.limits != Limits::default()).then_some(schedule.limits),
        }
    }
}

/// A field in which two schedules differ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changed {
    /// The field: `workers`, `ring.pace`.
    pub field: &'static str,
    /// Its value in the first.
    pub from: String,
    /// Its value in the second.
    pub to: String,
}

impl Display for Changed {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} -> {}", self.field, self.from, self.to)
    }
}

impl Schedule {
    /// The fields that differ from another schedule's, in order.
    pub fn changes(&self, from: &Self) -> Vec<Changed> {
        let (mut found, ring) = (Vec::new(), &self.ring);
        let mut add = |field, from: String, to: String| {
            if from != to {
                found.push(Changed { field, from, to });
            }
        };
        add("workers", shown(&from.workers), shown(&self.workers));
        add("tiles", shown(&from.tiles), shown(&self.tiles));
        add("queue", shown(&from.queue), shown(&self.queue));
        add("assign", shown(&from.assign), shown(&self.assign));
        add("steps", shown(&from.steps), shown(&self.steps));
        add("rows", shown(&from.rows), shown(&self.rows));
        add("weights", shown(&from.weights), shown(&self.weights));
        add("cache", shown(&from.cache), shown(&self.cache));
        add("run", shown(&from.run), shown(&self.run));
        add("splits", shown(&from.splits), shown(&self.splits));
        add("late", shown(&from.late), shown(&self.late));
        add("split_k", shown(&from.split_k), shown(&self.split_k));
        add("ring.slots", shown(&from.ring.slots), shown(&ring.slots));
        add("ring.in_flight", shown(&from.ring.in_flight), shown(&ring.in_flight));
        add("ring.pace", shown(&from.ring.pace), shown(&ring.pace));
        add("ring.lookahead", shown(&from.ring.lookahead), shown(&ring.lookahead));
        add("fusion", shown(&from.fusion), shown(&self.fusion));
        add("fuse", shown(&from.fuse), shown(&self.fuse));
        add("exchange", shown(&from.exchange), shown(&self.exchange));
        add("limits", shown(&from.limits), shown(&self.limits));
        found
    }

    /// Returns the first field outside `honoured` that differs from a VM's own schedule, which the
    /// VM must refuse.
    pub fn unhonoured(&self, own: &Self, honoured: &[&str]) -> Option<Changed> {
        self.changes(own).into_iter().find(|changed| !honoured.contains(&changed.field))
    }
}

/// A value as JSON has it, without quotes around words.
fn shown(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_default();
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::read_json;

    #[test]
    fn fields_replace_a_vms_own_and_the_others_stay() {
        let own = Schedule {
            workers: 132,
            ring: Ring { slots: 6, in_flight: 2, pace: 205, lookahead: 0 },
            ..Schedule::default()
        };
        let fields: PartialSchedule =
            read_json(r#"{"splits": 4, "ring": {"pace": 190}, "exchange": "barrier"}"#).expect("fields");
        let found = fields.over(own.clone());
        let changes: Vec<String> = found.changes(&own).iter().map(ToString::to_string).collect();
        assert_eq!(changes, ["splits 1 -> 4", "ring.pace 205 -> 190", "exchange counters -> barrier"]);
        assert_eq!(PartialSchedule::default().over(own.clone()), own);
        assert_eq!(PartialSchedule::from(found.clone()).over(Schedule::default()), found);
    }

    #[test]
    fn json_has_the_fields_that_are_set_and_refuses_others() {
        let ring = PartialRing { pace: Some(190), ..PartialRing::default() };
        let fields = PartialSchedule { ring, fusion: Some(false), ..PartialSchedule::default() };
        let text = serde_json::to_string(&fields).expect("it should be written");
        assert_eq!(text, r#"{"fusion":false,"ring":{"pace":190}}"#);
        assert_eq!(read_json::<PartialSchedule>(&text).ok(), Some(fields));
        for text in [r#"{"haste": 1}"#, r#"{"ring": {"haste": 1}}"#, r#"{"ring_slots": 6}"#] {
            let error = read_json::<PartialSchedule>(text).expect_err("an unknown field").to_string();
            assert!(error.contains("unknown field"), "{error}");
        }
    }

    #[test]
    fn tiles_and_names_are_read_as_the_macro_spells_them() {
        let spelt = r#"{"tiles": {"a": 16, "b": "per_worker", "c": "whole"}, "assign": "round_robin"}"#;
        let fields: PartialSchedule = read_json(spelt).expect("fields");
        let tiles = [("a", Tile::Size(16)), ("b", Tile::PerWorker), ("c", Tile::Whole)];
        assert_eq!(fields.tiles, tiles.map(|(name, tile)| (name.to_owned(), tile)).into());
        assert_eq!(fields.assign, Some(Assign::RoundRobin));
        let written = serde_json::to_string(&fields).expect("it should be written");
        assert_eq!(read_json::<PartialSchedule>(&written).ok(), Some(fields));
        for (tiles, wrong) in [
            (r#"{"a": "wide"}"#, "expected a number of elements, `\"per_worker\"` or `\"whole\"`"),
            (r#"{"a": {"size": 16, "b": 8}}"#, "unknown field `b`"),
            (r#"{"a": 16, "b": 8, "a": 4}"#, "`a` has two tiles"),
            ("[16]", "tiles by the names of instructions"),
        ] {
            let error = read_json::<PartialSchedule>(&format!(r#"{{"tiles": {tiles}}}"#)).expect_err(tiles).to_string();
            assert!(error.contains(wrong), "{error}");
        }
    }

    #[test]
    fn what_a_device_alone_honours_can_be_left_out() {
        let all =
            PartialSchedule::from(Schedule { splits: 9, run: 8, exchange: ExchangeBy::Packets, ..Schedule::default() });
        let fields = all.without_device_fields();
        assert_eq!(fields.over(Schedule::default()), Schedule::default());
        assert_eq!(fields.workers, Some(8));
    }
}

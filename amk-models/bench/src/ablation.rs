//! Ablation of a schedule: each part's effect, measured by timing the schedule without it in turn
//! with the whole.

use super::report::Quantiles;
use amk::ir::schedule::{ExchangeBy, Ring, Schedule};

use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use serde::Serialize;

/// The schedule without one of its parts each: other exchanges, no pace, shallower rings, one
/// split, no fusion. Those that a schedule is without anyway are left out.
pub fn ablations(own: &Schedule) -> Vec<Schedule> {
    let ring = |ring| Schedule { ring, ..own.clone() };
    let slots = |slots| ring(Ring { slots, in_flight: own.ring.in_flight.min(slots), ..own.ring });
    let all = [
        Schedule { exchange: ExchangeBy::Packets, ..own.clone() },
        Schedule { exchange: ExchangeBy::Counters, ..own.clone() },
        Schedule { exchange: ExchangeBy::Barrier, ..own.clone() },
        ring(Ring { pace: 0, ..own.ring }),
        ring(Ring { lookahead: 0, ..own.ring }),
        slots(2),
        slots(4),
        Schedule { splits: 1, ..own.clone() },
        Schedule { fusion: false, ..own.clone() },
    ];
    all.into_iter().filter(|schedule| schedule != own && schedule.ring.slots <= own.ring.slots).collect()
}

/// The ablations of models on a GPU.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct AblationReport {
    /// The GPU's record.
    pub target: String,
    /// Steps per launch; a token's time is the launch's time over its steps.
    pub steps: u32,
    /// Launches timed of each variant, in turn with the whole schedule's.
    pub samples: usize,
    /// Model by model, ablation by ablation.
    pub rows: Vec<AblationRow>,
}

/// An ablation of a model at a position.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct AblationRow {
    /// The model.
    pub model: String,
    /// First position of the launches; `None` where nothing was timed.
    pub position: Option<u32>,
    /// Differences from the whole schedule.
    pub changes: Vec<String>,
    /// Time of a token by the whole schedule, microseconds.
    pub whole_us: Option<Quantiles>,
    /// Time of a token without the part, microseconds.
    pub us: Option<Quantiles>,
    /// How much longer that is: `us / whole_us`, of the medians.
    pub ratio: Option<f64>,
    /// Why nothing was timed: the GPU is too small for it, or the gate.
    pub refused: Option<String>,
}

impl AblationRow {
    /// One that was timed.
    pub fn timed(model: &str, position: u32, changes: Vec<String>, [whole, us]: [Quantiles; 2]) -> Self {
        Self {
            model: model.to_owned(),
            position: Some(position),
            changes,
            whole_us: Some(whole),
            us: Some(us),
            ratio: Some(us.median / whole.median),
            refused: None,
        }
    }

    /// One that was not.
    pub fn refused(model: &str, changes: Vec<String>, why: String) -> Self {
        Self {
            model: model.to_owned(),
            position: None,
            changes,
            whole_us: None,
            us: None,
            ratio: None,
            refused: Some(why),
        }
    }

    fn cells(&self) -> [String; 7] {
        let median = |us: Option<Quantiles>| us.map_or("-".into(), |us| format!("{:.1}", us.median));
        [
            self.model.clone(),
            self.position.map_or("-".into(), |position| position.to_string()),
            self.changes.join(", "),
            median(self.whole_us),
            median(self.us),
            self.us.map_or("-".into(), |us| format!("{:.1}..{:.1}", us.p10, us.p90)),
            match (&self.refused, self.ratio) {
                (Some(why), _) => why.clone(),
                (None, ratio) => ratio.map_or("-".into(), |ratio| format!("{ratio:.3}")),
            },
        ]
    }
}

impl AblationReport {
    /// The table as text.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(UTF8_BORDERS_ONLY);
        table.set_header(["model", "position", "ablation", "whole us", "median us", "p10..p90 us", "ratio"]);
        table.add_rows(self.rows.iter().map(AblationRow::cells));
        format!("{table}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amk::ir::schedule::Changed;
    use amk_cuda::{GpuTarget, TARGETS};

    #[test]
    fn ablations_are_legal_and_leave_out_one_part_each() {
        for target in &TARGETS {
            for schedule in ablations(&target.schedule()) {
                assert_eq!(target.check(&schedule), Ok(()));
                let parts = schedule.changes(&target.schedule());
                let parts: Vec<_> = parts.iter().filter(|part| part.field != "ring.in_flight").collect();
                assert_eq!(parts.len(), 1, "{schedule:?}");
            }
        }
        let own = GpuTarget::of_device("NVIDIA H200").expect("a record").schedule();
        let found = ablations(&own);
        let changes: Vec<Changed> = found.iter().flat_map(|schedule| schedule.changes(&own)).collect();
        let rings = changes.iter().filter(|change| change.field == "ring.slots").count();
        assert_eq!((found.len(), rings), (7, 2), "a ring of 6 slots and no lookahead are its own: {changes:?}");
    }

    #[test]
    fn the_table_shows_ratios_and_why_there_is_none() {
        let us = |median| Quantiles { p10: median - 1.0, median, p90: median + 1.0 };
        let report = AblationReport {
            target: "h200".into(),
            steps: 64,
            samples: 9,
            rows: vec![
                AblationRow::timed("m", 128, vec!["ring.pace 205 -> 0".into()], [us(200.0), us(230.0)]),
                AblationRow::refused("m", vec!["fusion true -> false".into()], "too large".into()),
            ],
        };
        let text = report.table();
        for part in ["ring.pace 205 -> 0", "1.150", "229.0..231.0", "too large"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

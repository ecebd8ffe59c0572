//! Units that do not divide evenly over the workers: their columns are split, so that no worker has
//! a whole unit more than the others.
//!
//! ```text
//! owner    its whole units, and of the split one the first passes ──┐
//! helper   the other passes: addends, in packets of f32 ────────────┴─► the owner's delivery
//! ```
//!
//! Tapes do not change: a helper's loader reads the weights from its owner's tape. Steps of rows
//! split nothing, and read the same tapes.

use super::phase::{Gemv, Input, Output, times};
use super::source::{input_shape, waits};
use crate::abi::{GEMV_DEPTH_BIT, GEMV_OUTPUT_BIT, OUT_STORE};
use amk::ir::{BufferId, DType};
use amk_cuda::cost::{CostModel, Load};
use amk_cuda::image::abi::{GROUP_UNITS, UNIT};
use amk_cuda::image::{Encoder, Record};
use amk_cuda::plan::{PhaseKind, Plan, Planner, TaskCalls, Work, early, read, same, write};
use std::ops::Range;

/// Maximum number of helpers of a unit. Four lanes deliver a pair of rows, each with the addends of
/// one helper.
pub(super) const MOST_HELPERS: u32 = 3;
/// Passes that a record can number.
const MOST_PASSES: u32 = 255;
/// A task of fewer times the bytes to be saved is short: the ring holds most of it before it
/// begins, so that it takes no longer with one unit more.
const SHORT: u64 = 8;

/// How the columns of a projection's left-over units are split.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitK {
    /// First row of each unit that is split, ascending. It is its owner's last one.
    pub units: Vec<u32>,
    /// Passes over the columns that the owner multiplies.
    pub kept: u32,
    /// Workers that share the other passes of a unit.
    pub helpers: u32,
    /// Their results: a unit's rows for each helper, `[units * helpers * UNIT]` f32.
    pub addends: BufferId,
}

/// A worker's unit that others help with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Owner {
    /// The worker.
    pub worker: u32,
    /// The first byte of its piece of the tape.
    pub tape: u64,
    /// Its units, the split one included.
    pub units: u32,
}

/// The helpers' phase: passes over the columns of others' units.
#[derive(Clone, Debug, PartialEq)]
pub struct Addends {
    /// The projection.
    pub of: Gemv,
    /// The owner of each split unit.
    pub owners: Vec<Owner>,
}

/// The split units and their helpers: the counterpart of [`SplitK`] before buffers exist.
struct Split {
    owners: Vec<usize>,
    helpers: Vec<usize>,
    each: u32,
    kept: u32,
}

impl Split {
    /// Splits the units by which some workers exceed the others, if that shortens the longest task
    /// enough.
    fn of(planner: &Planner<'_>, gemv: &Gemv, rows: &[Range<u32>]) -> Option<Self> {
        let least = u64::from(planner.plan.schedule.split_k) << 10;
        let (_, passes) = gemv.cut();
        let splits = matches!(gemv.input, Input::Packets(_)) && gemv.norm.is_none() && gemv.weights.len() == 1;
        let delivers = !matches!(gemv.output, Output::Gated { .. } | Output::Logits { .. });
        let whole = rows.iter().all(|rows| (rows.end - rows.start).is_multiple_of(UNIT));
        if least == 0 || !splits || !delivers || !whole || waits(gemv) == 1 || passes > MOST_PASSES {
            return None;
        }
        let most = rows.iter().map(Range::len).max()?;
        if most as u32 > GROUP_UNITS * UNIT || gemv.tiles.kind.bytes(most as u32, gemv.k) < SHORT * least {
            return None;
        }
        let (owners, mut helpers): (Vec<usize>, Vec<usize>) =
            (0..rows.len()).partition(|&worker| rows[worker].len() == most);
        helpers.sort_by_key(|&worker| planner.load[worker]);
        let each = (helpers.len() / owners.len()).min(MOST_HELPERS as usize).min(passes as usize - 1) as u32;
        let kept = passes.div_ceil(each + 1);
        helpers.truncate(owners.len() * each as usize);
        let split = Self { owners, helpers, each, kept };
        (each > 0 && split.moved(gemv) >= least).then_some(split)
    }

    /// Bytes that the helpers of a unit read.
    fn moved(&self, gemv: &Gemv) -> u64 {
        gemv.tiles.kind.bytes(UNIT, gemv.k - gemv.first_column(self.kept))
    }
}

/// The passes of a helper.
fn passes_of(gemv: &Gemv, split: &SplitK, helper: u32) -> Range<u32> {
    let passes = gemv.cut().1 - split.kept;
    let at = |helper: u32| split.kept + passes * helper / split.helpers;
    at(helper)..at(helper + 1)
}

/// Adds the helpers' phase of a projection whose rows are distributed, if its columns are split.
/// Its pieces of the tapes come next.
pub(super) fn plan(planner: &mut Planner<'_>, gemv: &mut Gemv, rows: &[Range<u32>]) {
    let Some(split) = Split::of(planner, gemv, rows) else { return };
    let moved = split.moved(gemv);
    split.owners.iter().for_each(|&owner| planner.load[owner] = planner.load[owner].saturating_sub(moved));
    split.helpers.iter().for_each(|&helper| planner.load[helper] += moved / u64::from(split.each));
    if planner.plan.rows().is_some() {
        return;
    }
    let owner = |&worker: &usize| Owner {
        worker: worker as u32,
        tape: planner.tape[worker],
        units: rows[worker].len() as u32 / UNIT,
    };
    let owners: Vec<Owner> = split.owners.iter().map(owner).collect();
    let len = split.helpers.len() as u32 * UNIT;
    let addends = planner.packets(&format!("addends.{}", gemv.name(&planner.plan)), DType::F32, &[len]);
    let units = split.owners.iter().map(|&owner| rows[owner].end - UNIT).collect();
    gemv.split = Some(SplitK { units, kept: split.kept, helpers: split.each, addends });
    let mut works = vec![Work::Rows(0..0); rows.len()];
    for (n, &worker) in (0..).zip(&split.helpers) {
        works[worker] = Work::Cell { row: n / split.each, column: n % split.each };
    }
    planner.phase(Addends { of: gemv.clone(), owners }, works);
}

impl SplitK {
    /// The number of the split unit at the end of some rows.
    pub(super) fn unit(&self, rows: &Range<u32>) -> Option<u32> {
        let last = rows.end.checked_sub(UNIT).filter(|&last| last >= rows.start)?;
        self.units.binary_search(&last).ok().map(|unit| unit as u32)
    }

    /// The elements that a helper of a unit computes.
    pub(super) fn of_helper(&self, unit: u32, helper: u32) -> Range<u32> {
        let first = (unit * self.helpers + helper) * UNIT;
        first..first + UNIT
    }
}

impl Addends {
    /// The number of a unit, the elements that a task computes, its split and its passes.
    fn part(&self, work: &Work) -> Option<(u32, Range<u32>, &SplitK, Range<u32>)> {
        let (&Work::Cell { row: unit, column: helper }, Some(split)) = (work, &self.of.split) else { return None };
        Some((unit, split.of_helper(unit, helper), split, passes_of(&self.of, split, helper)))
    }
}

impl PhaseKind for Addends {
    fn label(&self) -> String {
        "addends".into()
    }

    fn calls(&self, task: &mut TaskCalls<'_>, _worker: u32, work: &Work) {
        let (Some((unit, to, split, passes)), Input::Packets(x)) = (self.part(work), self.of.input) else { return };
        let Some(&row) = split.units.get(unit as usize) else { return };
        let columns = self.of.first_column(passes.start)..self.of.first_column(passes.end);
        let weight = early(self.of.weights[0], &[row..row + UNIT, columns.clone()]);
        task.call("amk_kernels::linear", vec![read(x, &[columns]), weight, write(split.addends, &[to])], Vec::new());
    }

    fn record(&self, encoder: &mut Encoder<'_>, work: &Work) -> Record {
        let (Some((unit, to, split, passes)), Input::Packets(x)) = (self.part(work), self.of.input) else {
            return Record::default();
        };
        let Some(&Owner { worker, tape, units }) = self.owners.get(unit as usize) else { return Record::default() };
        Record {
            op: encoder.op("ADDENDS"),
            units: units as u16,
            input: encoder.packet(x),
            output: encoder.element(split.addends, to.start),
            shape: input_shape(&self.of) | OUT_STORE << GEMV_OUTPUT_BIT | self.of.cut().0 << GEMV_DEPTH_BIT,
            layer: passes.start | passes.end << 8 | worker << 16,
            aux: (tape / 16) as u32,
            ..Record::default()
        }
    }

    fn load(&self, _cost: &CostModel, _plan: &Plan, work: &Work, _pos: u32) -> Option<Load> {
        let (.., passes) = self.part(work)?;
        let columns = self.of.first_column(passes.end) - self.of.first_column(passes.start);
        let bytes = self.of.tiles.kind.bytes(UNIT, columns) as f64;
        let busy = times::UNIT + f64::from(UNIT * columns) / times::PRODUCT + times::PASS;
        Some(Load { bytes, slots: passes.len() as f64, busy, unasked: 0.0 })
    }

    fn same(&self, other: &dyn PhaseKind) -> bool {
        same(self, other)
    }
}

//! Split-K: in wide steps several neighbours multiply everything that is on their tapes, each for
//! some of the columns, and then each adds up the sums of its own rows. So a worker copies only
//! part of the inputs, and its products have more units of weights at once.
//!
//! ```text
//! PartialSums   x[columns of a share] · the neighbours' rows ──► sums of the share, in memory
//! Reduce        the own rows' sums of all shares, added in order ──► the projection's delivery
//! ```

use super::blocks::neighbours;
use super::group::{Delivered, Product};
use super::phase::{Gemv, Input};
use super::source::input_shape;
use super::tile::TileKind;
use crate::abi::{
    CODED_COLUMNS, GEMV_DEPTH_BIT, GEMV_INPUT_BIT, GEMV_OUTPUT_BIT, IN_SHARE, OUT_STORE, SHARE_TILES, TILE_K,
    WIDE_UNITS,
};
use crate::linear::{blocks, phase};
use crate::{residual, rms_norm};
use amk::ir::{BufferId, DType, Operand};
use amk_cuda::cost::{CostModel, Load};
use amk_cuda::image::abi::UNIT;
use amk_cuda::image::{Encoder, Record};
use amk_cuda::plan::{PhaseKind, Plan, Planner, Share, TaskCalls, Work, early, read, same, write};
use amk_cuda::tape::Piece;
use std::ops::Range;

/// Shares of a projection's columns at most.
pub(super) const MOST_SHARES: u32 = 8;

/// A wait costs as much time as copying this many times the schedule's `split_k` in KiB. A byte of
/// a sum, which is stored and loaded, costs as much as copying this many bytes, and so does a byte
/// of weights that the memory has to read. All are fitted on an H200.
const WAIT: u64 = 8;
const SUM: u64 = 4;
const READ: u64 = 2;

/// How the columns of a projection are shared.
#[derive(Clone, Debug, PartialEq)]
pub struct Columns {
    /// The shares.
    pub shares: u32,
    /// The sums of each share, one after the other: `[shares * rows]` f32 for each row of a step.
    pub sums: BufferId,
}

/// The products of some columns.
#[derive(Clone, Debug, PartialEq)]
pub struct PartialSums {
    /// The projection.
    pub of: Gemv,
    /// How its columns are shared out.
    pub columns: Columns,
}

/// The delivery of the sums over a projection's shares.
#[derive(Clone, Debug, PartialEq)]
pub struct Reduce {
    /// The projection, with its columns shared out.
    pub of: Gemv,
}

/// Returns the number of shares of a product's columns with which a worker spends the least time on
/// copies, sums and waits. Its input must be a vector of packets.
pub(super) fn shares(product: &Product, rows: u32, planner: &Planner<'_>) -> u32 {
    let plan = &planner.plan;
    let (wait, Some(most)) = ((u64::from(plan.schedule.split_k) << 10) * WAIT, plan.rows()) else { return 1 };
    let delivers = !matches!(product.output, Delivered::Gated { .. } | Delivered::Logits { .. });
    let splits = plan.is_wide() && blocks::blocks(plan.rows()) == 1 && delivers && rows.is_multiple_of(UNIT);
    if wait == 0 || !splits || residual::embedded(plan) == Some(product.input) || is_slow(product.kind, most) {
        return 1;
    }
    let is_deferred = rms_norm::deferred(planner, product.input).is_some();
    let waits = if product.norm.is_some() && !is_deferred && !phase::is_normed(plan) { 2 } else { 1 };
    let units = (rows / UNIT).div_ceil(plan.schedule.workers);
    // Sums of all shares are stored by the workers that multiply and loaded by those that add.
    let weights = product.kind.bytes(units * UNIT, product.k);
    let bytes = |shares: u32| {
        let inputs = u64::from(most) * u64::from(product.k * 2 / shares);
        let sums = SUM * u64::from(2 * 4 * units * UNIT * shares) * u64::from(most);
        let more = if shares > 1 { sums + wait * waits } else { 0 };
        (inputs + weights).max(READ * weights) + more
    };
    let (tiles, pack) = (product.k.div_ceil(TILE_K), product.kind.pack);
    let most_shares = tiles.div_ceil(SHARE_TILES).min(plan.schedule.workers);
    let fits = |&shares: &u32| {
        let together = |shares| (rows / UNIT).div_ceil(plan.schedule.workers / shares);
        let splits = shares <= most_shares && SHARE_TILES.is_multiple_of(pack);
        shares == 1 || (splits && together(shares) <= WIDE_UNITS)
    };
    let all = (0..=MOST_SHARES.ilog2()).map(|log| 1 << log);
    all.filter(fits).min_by_key(|&shares| bytes(shares)).unwrap_or(1)
}

/// Whether products take longer than their copies, as each warp decodes for itself.
fn is_slow(kind: &TileKind, most: u32) -> bool {
    most <= CODED_COLUMNS && kind.is_coded() && !kind.teams
}

/// Adds the phases of a projection whose rows are distributed, with its columns in `shares` shares.
pub(super) fn plan(planner: &mut Planner<'_>, gemv: Gemv, parts: &[Range<u32>], shares: u32) {
    let name = format!("sums.{}", gemv.name(&planner.plan));
    let sums = planner.packets(&name, DType::F32, &[shares * gemv.rows(&planner.plan)]);
    let columns = Columns { shares, sums };
    let shared = neighbours(shares, parts, UNIT);
    let works = shared.map(|(elements, share, own)| Work::Share(Share { elements, share, own })).collect();
    planner.phase(PartialSums { of: gemv.clone(), columns: columns.clone() }, works);
    let of = Gemv { columns: Some(columns), ..gemv };
    planner.phase(Reduce { of }, parts.iter().cloned().map(Work::Rows).collect());
}

impl Columns {
    /// The tiles of a share of rows of `k` columns.
    fn tiles(&self, k: u32, share: u32) -> Range<u32> {
        let tiles = k.div_ceil(TILE_K);
        let at = |share: u32| (tiles.div_ceil(SHARE_TILES) * share / self.shares * SHARE_TILES).min(tiles);
        at(share)..at(share + 1)
    }

    /// The columns of a share of rows of `k` columns.
    fn of(&self, k: u32, share: u32) -> Range<u32> {
        let tiles = self.tiles(k, share);
        tiles.start * TILE_K..tiles.end * TILE_K
    }

    /// The sums of a share of `all` rows, for some of these.
    fn elements(&self, all: u32, share: u32, rows: &Range<u32>) -> Range<u32> {
        share * all + rows.start..share * all + rows.end
    }

    /// Adds up the sums of some of `all` rows.
    pub(super) fn add_up(&self, task: &mut TaskCalls<'_>, all: u32, rows: &Range<u32>, to: Operand) {
        let sums = |share| read(self.sums, &[self.elements(all, share, rows)]);
        let len = rows.end - rows.start;
        let mut y = sums(0);
        for share in 1..self.shares {
            let sum = if share + 1 < self.shares { write(task.local(len), &[0..len]) } else { to };
            let next = read(sum.buffer, &[0..len]);
            task.call("amk_kernels::add", vec![y, sums(share), sum], Vec::new());
            y = next;
        }
    }
}

impl PhaseKind for PartialSums {
    fn label(&self) -> String {
        "partials".into()
    }

    fn calls(&self, task: &mut TaskCalls<'_>, _worker: u32, work: &Work) {
        let (Work::Share(Share { elements, share, .. }), Input::Packets(x)) = (work, self.of.input) else { return };
        let all = self.of.rows(task.plan);
        let columns = self.columns.of(self.of.k, *share);
        for (number, rows, of_weight) in self.of.parts(task.plan, elements) {
            let weight = early(self.of.weights[number], &[of_weight, columns.clone()]);
            let to = write(self.columns.sums, &[self.columns.elements(all, *share, &rows)]);
            task.call("amk_kernels::linear", vec![read(x, std::slice::from_ref(&columns)), weight, to], Vec::new());
        }
    }

    fn record(&self, encoder: &mut Encoder<'_>, work: &Work) -> Record {
        let (Work::Share(Share { elements, share, own }), Input::Packets(x)) = (work, self.of.input) else {
            return Record::default();
        };
        let passing = self.of.passing(encoder, own);
        if elements.is_empty() {
            return passing;
        }
        let (pieces, pieces_at) = blocks::encode(encoder, &self.of.dealt, elements, |rows| self.of.units(rows));
        let tiles = self.columns.tiles(self.of.k, *share);
        let shape = input_shape(&self.of) | IN_SHARE << GEMV_INPUT_BIT | OUT_STORE << GEMV_OUTPUT_BIT;
        let first = self.columns.elements(self.of.rows(encoder.plan), *share, elements).start;
        Record {
            units: self.of.units(elements) as u16,
            input: encoder.packet(x),
            output: encoder.element(self.columns.sums, first),
            layer: tiles.start | tiles.end << 16,
            aux: pieces,
            partial: pieces_at,
            shape: shape | self.of.cut().0 << GEMV_DEPTH_BIT,
            ..passing
        }
    }

    fn piece(&self, plan: &Plan, work: &Work) -> Option<Piece> {
        self.of.piece(plan, work)
    }

    fn weight_bytes(&self, plan: &Plan) -> u64 {
        self.of.weight_bytes(plan)
    }

    fn slot_bytes(&self) -> u32 {
        self.of.slot_bytes()
    }

    fn load(&self, cost: &CostModel, plan: &Plan, work: &Work, pos: u32) -> Option<Load> {
        self.of.load(cost, plan, work, pos)
    }

    fn same(&self, other: &dyn PhaseKind) -> bool {
        same(self, other)
    }
}

impl PhaseKind for Reduce {
    fn label(&self) -> String {
        self.of.label()
    }

    fn calls(&self, task: &mut TaskCalls<'_>, worker: u32, work: &Work) {
        self.of.calls(task, worker, work);
    }

    fn record(&self, encoder: &mut Encoder<'_>, work: &Work) -> Record {
        let (Some(rows), Some(columns)) = (work.elements(), &self.of.columns) else { return Record::default() };
        let all = self.of.rows(encoder.plan);
        let first = columns.elements(all, 0, rows).start;
        let delivery = self.of.delivery(encoder, rows);
        let of_mean = if self.of.scale.is_some() { self.of.k / TILE_K } else { 0 };
        Record {
            op: encoder.op("REDUCE"),
            input: encoder.element(columns.sums, first),
            aux: columns.shares,
            partial: all,
            shape: delivery.shape | of_mean,
            ..delivery
        }
    }

    fn constants(&self, plan: &Plan) -> Vec<BufferId> {
        self.of.constants(plan)
    }

    fn same(&self, other: &dyn PhaseKind) -> bool {
        same(self, other)
    }
}

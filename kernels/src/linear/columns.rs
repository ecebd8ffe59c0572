//! Split-K: in wide steps several neighbours multiply everything that is on their tapes, each for
//! some of the columns, and then each adds up the sums of its own rows. So a worker copies only
//! part of the inputs, and its products have more units of weights at once.
//!
//! ```text
//! PartialSums   x[columns of a share] · the neighbours' rows ──► sums of the share, in memory
//! Reduce        the own rows' sums of all shares, added in order ──► the projection's delivery
//! ```
//!
//! In steps of several blocks of rows, the neighbours of each block do so among themselves.

use super::blocks::{block, neighbours};
use super::group::{Delivered, Product};
use super::phase::{Gemv, Input};
use super::source::input_shape;
use super::tile::TileKind;
use crate::abi::{
    BLOCK_ROWS, CODED_COLUMNS, GEMV_DEPTH_BIT, GEMV_INPUT_BIT, GEMV_OUTPUT_BIT, IN_SHARE, OUT_STORE, SHARE_TILES,
    TILE_K, WIDE_UNITS,
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

/// A wait costs as much time as copying this many times the schedule's `split_k` in KiB. In steps
/// of several blocks of rows there are two, as all of these have to end together. A byte of a sum,
/// which is stored and loaded, costs as much as copying this many bytes, and so does a byte of
/// weights that the memory has to read. With several blocks, copying a byte takes as long as this
/// many products of two elements; with one, weights take longer to read than to multiply. All are
/// fitted on an H200.
const WAIT: u64 = 8;
const SUM: u64 = 4;
const READ: u64 = 2;
const PRODUCTS: u64 = 36;

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
    let splits = plan.is_wide() && delivers && rows.is_multiple_of(UNIT);
    if wait == 0 || !splits || residual::embedded(plan) == Some(product.input) || is_slow(product.kind, most) {
        return 1;
    }
    let is_deferred = rms_norm::deferred(planner, product.input).is_some();
    let norms = product.norm.is_some() && !is_deferred && !phase::is_normed(plan);
    let all_workers = plan.schedule.workers;
    let blocks = blocks::blocks(plan.rows());
    let workers = (all_workers / blocks).max(1);
    let work = BlockWork { product, units: rows / UNIT, columns: most.min(BLOCK_ROWS), blocks, workers, all_workers };
    let waits = 1 + u64::from(norms) + u64::from(blocks > 1);
    let (tiles, pack) = (product.k.div_ceil(TILE_K), product.kind.pack);
    let most_shares = tiles.div_ceil(SHARE_TILES).min(workers);
    let fits = |&shares: &u32| {
        let splits = shares <= most_shares && SHARE_TILES.is_multiple_of(pack);
        shares == 1 || (splits && work.units_of(shares) <= WIDE_UNITS)
    };
    let bytes = |&shares: &u32| work.bytes(shares) + if shares > 1 { wait * waits } else { 0 };
    let all = (0..=MOST_SHARES.ilog2()).map(|log| 1 << log);
    all.filter(fits).min_by_key(bytes).unwrap_or(1)
}

/// The work of the workers of one block of rows.
struct BlockWork<'p> {
    product: &'p Product,
    /// Units of the weights.
    units: u32,
    /// The rows of the block.
    columns: u32,
    blocks: u32,
    /// Workers of the block, and of all blocks.
    workers: u32,
    all_workers: u32,
}

impl BlockWork<'_> {
    /// The units of a worker that multiplies one of so many shares.
    fn units_of(&self, shares: u32) -> u32 {
        self.units.div_ceil(self.workers / shares)
    }

    /// The bytes of the units of one of so many workers.
    fn weights(&self, workers: u32) -> u64 {
        self.product.kind.bytes(self.units.div_ceil(workers) * UNIT, self.product.k)
    }

    /// The time of a worker without waits, as the bytes that it could copy meanwhile.
    fn bytes(&self, shares: u32) -> u64 {
        let (k, columns) = (self.product.k, u64::from(self.columns));
        // Each group of units needs the inputs.
        let groups = u64::from(self.units_of(shares).div_ceil(WIDE_UNITS));
        let inputs = groups * columns * u64::from(k * 2 / shares);
        let copies = (inputs + self.weights(self.workers)).max(READ * self.weights(self.all_workers));
        let elements = u64::from(self.units_of(1) * UNIT);
        let products = if self.blocks > 1 { elements * u64::from(k) * columns / PRODUCTS } else { 0 };
        // Sums of all shares are stored by the workers that multiply and loaded by those that add.
        let sums = if shares > 1 { SUM * 2 * 4 * elements * u64::from(shares) * columns } else { 0 };
        copies.max(products) + sums
    }
}

/// Whether products take longer than their copies: each warp decodes for itself, or codes are
/// multiplied with several blocks of rows.
fn is_slow(kind: &TileKind, most: u32) -> bool {
    kind.is_coded() && (most <= CODED_COLUMNS && !kind.teams || most > BLOCK_ROWS)
}

/// Adds the phases of a projection whose rows are distributed, with its columns in `shares` shares.
pub(super) fn plan(planner: &mut Planner<'_>, gemv: Gemv, parts: &[Range<u32>], shares: u32) {
    let name = format!("sums.{}", gemv.name(&planner.plan));
    let sums = planner.packets(&name, DType::F32, &[shares * gemv.rows(&planner.plan)]);
    let columns = Columns { shares, sums };
    let rows = planner.plan.rows();
    let shared = neighbours(blocks::blocks(rows) * shares, parts, UNIT);
    let work = |(elements, number, own)| {
        Work::Share(Share { elements, share: number % shares, rows: block(rows, number / shares), own })
    };
    planner.phase(PartialSums { of: gemv.clone(), columns: columns.clone() }, shared.map(work).collect());
    let of = Gemv { columns: Some(columns), ..gemv };
    planner.phase(Reduce { of }, blocks::works(&planner.plan, parts, UNIT));
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
        let (Work::Share(Share { elements, share, own, .. }), Input::Packets(x)) = (work, self.of.input) else {
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
            row: tiles.start | tiles.end << 16,
            layer: encoder.block_rows(work),
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
            layer: encoder.block_rows(work),
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

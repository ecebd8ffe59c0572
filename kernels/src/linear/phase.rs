//! Phases of projections: the distribution of rows over workers, the calls of a task, its record,
//! and its part of the tape.

use super::blocks::{self, Dealt};
use super::columns::{self, Columns};
use super::group::{Delivered, Product};
use super::layout::cut;
use super::source::{blocks_at_once, input_shape, waits};
use super::split_k::{self, SplitK};
use super::tile::{TileKind, unit_bytes};
use crate::abi::{
    GEMV_BIAS, GEMV_DEPTH_BIT, GEMV_FLAGS_BIT, GEMV_FUNCTION_BIT, GEMV_INPUT_BIT, GEMV_OUTPUT_BIT, IN_EMBEDDING,
    IN_PACKETS, IN_SUM, OUT_GATED, OUT_LOGITS, OUT_RESIDUAL, OUT_STORE, TILE_K,
};
use crate::fused::Decoder;
use crate::residual;
use crate::rms_norm::{self, Deferred, NormBy, Scale, Sum};
use amk::ir::{BufferId, DType, Exchange, Operand};
use amk_cuda::cost::{CostModel, Load};
use amk_cuda::image::abi::{CHUNK, GROUP_UNITS, UNIT, WARPS};
use amk_cuda::image::{Encoder, Record};
use amk_cuda::plan::{PhaseKind, Plan, Planner, TaskCalls, Work, early, even, level, read, same, write};
use amk_cuda::tape::{Piece, WeightRows};
use amk_cuda::{LONGEST_SLOT, SLOT_ALIGNED};
use std::ops::Range;
use std::slice::from_ref;

/// A projection phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Gemv {
    /// The input.
    pub input: Input,
    /// Weight of the norm of the input.
    pub norm: Option<BufferId>,
    /// The scale that the input lacks, if its norm is deferred.
    pub scale: Option<Scale>,
    /// Input length.
    pub k: u32,
    /// The tiles of its weights.
    pub tiles: Tiles,
    /// The weights, concatenated by rows. With a function of two products their rows alternate.
    pub weights: Vec<BufferId>,
    /// Their biases.
    pub biases: Vec<Option<BufferId>>,
    /// Destination of the product.
    pub output: Output,
    /// How the columns of left-over units are split.
    pub split: Option<SplitK>,
    /// How the columns of all units are shared.
    pub columns: Option<Columns>,
    /// The pieces of its weights, if neighbours share them.
    pub dealt: Vec<Dealt>,
}

/// The kind of a projection's tiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tiles {
    /// Its number in the program: its place in [`Decoder::tiles`].
    pub number: u32,
    /// The kind.
    pub kind: &'static TileKind,
}

/// Input of a projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The token's row of the embedding table.
    Embedding,
    /// A packet buffer.
    Packets(BufferId),
    /// The residual and the norm of a vector, in packets. Only the norm of their sum is multiplied,
    /// in steps of one row.
    Sum(Sum),
}

/// Destination of a product.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Published, one buffer per weight.
    Store(Vec<BufferId>),
    /// Added to the residual, and published.
    Residual {
        /// The residual before.
        before: BufferId,
        /// The residual after.
        after: BufferId,
        /// What other workers read of it.
        published: Published,
        /// The number of an element-wise function of the product, whose result is added instead. 0
        /// means none.
        function: u32,
    },
    /// An element-wise function of the product, published.
    Mapped {
        /// The packets.
        to: BufferId,
        /// The number of the function.
        function: u32,
    },
    /// An element-wise function of two products, published.
    Gated {
        /// The packets.
        to: BufferId,
        /// The number of the function.
        function: u32,
    },
    /// The logits.
    Logits {
        /// Their buffer.
        to: BufferId,
        /// The number of the element-wise function. 0 means none.
        function: u32,
    },
}

/// What is published of a residual.
#[derive(Clone, Debug, PartialEq)]
pub enum Published {
    /// Its packets.
    Whole(BufferId),
    /// The parts of its norm.
    Weighted(Deferred),
}

/// The number of rows of a step from which norms before projections are phases of their own: a
/// worker then normalises one or two rows, instead of multiplying every tile by the norm's weights
/// and squaring all inputs.
const NORMED_ROWS: u32 = 65;

/// Rows of each worker in the last projection that does not add to the residual.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastRows(pub(crate) Vec<u32>);

/// Returns the rows of a vector that each worker owns.
pub(crate) fn owned(plan: &Plan, rows: u32) -> Vec<Range<u32>> {
    let units = even(rows / UNIT, plan.schedule.workers);
    units.iter().map(|units| units.start * UNIT..units.end * UNIT).collect()
}

/// Returns the rows of a product's weights.
fn rows(product: &Product, planner: &Planner<'_>) -> u32 {
    product.weights.iter().map(|&weight| planner.plan.extent(planner.known(weight))).sum()
}

/// Returns the kind of a product's tiles, depending on how many units a worker has.
pub(super) fn kind(product: &Product, planner: &Planner<'_>) -> &'static TileKind {
    product.kind.for_units(product.k, rows(product, planner) / UNIT / planner.plan.schedule.workers)
}

/// Adds the phase of a product with tiles of a kind.
pub(super) fn plan(product: &Product, kind: &'static TileKind, planner: &mut Planner<'_>) {
    let weights: Vec<BufferId> = product.weights.iter().map(|&weight| planner.known(weight)).collect();
    let rows = rows(product, planner);
    let shares = columns::shares(product, rows, planner);
    let Source { input, norm, scale } = source_of(product, planner, shares);
    let tiles = tiles(planner, kind);
    let gemv = |planner: &Planner<'_>, output| Gemv {
        tiles,
        input,
        norm,
        scale,
        k: product.k,
        weights: weights.clone(),
        biases: product.biases.iter().map(|bias| bias.map(|bias| planner.known(bias))).collect(),
        output,
        split: None,
        columns: None,
        dealt: Vec::new(),
    };
    match &product.output {
        Delivered::Store(values) => {
            let outputs = values.iter().map(|&value| planner.value(value, DType::BF16)).collect();
            let gemv = gemv(planner, Output::Store(outputs));
            spread(planner, gemv, rows, 1, shares);
        }
        &Delivered::Mapped { value, function } => {
            let to = planner.value(value, DType::BF16);
            declare(planner, product);
            let gemv = gemv(planner, Output::Mapped { to, function });
            spread(planner, gemv, rows, 1, shares);
        }
        &Delivered::Gated { value, function } => {
            let to = planner.value(value, DType::BF16);
            declare(planner, product);
            let gemv = gemv(planner, Output::Gated { to, function });
            spread(planner, gemv, rows, 2, shares);
        }
        &Delivered::Logits { function } => {
            if function != 0 {
                declare(planner, product);
            }
            let gemv = gemv(planner, Output::Logits { to: planner.plan.logits, function });
            planner.rows = spread(planner, gemv, rows, 1, shares);
        }
        &Delivered::Residual { before, after, function } => {
            let before = residual::held(planner, before, rows);
            let name = format!("residual.{}", planner.flow.tensor(after).name);
            let held = planner.activation(&name, DType::F32, &[rows], Exchange::Counter);
            residual::hold(&mut planner.plan, after, held);
            declare(planner, product);
            let owned = owned(&planner.plan, rows);
            let published = match rms_norm::defer(planner, after, &owned) {
                Some(norm) => Published::Weighted(norm),
                None => Published::Whole(planner.value(after, DType::BF16)),
            };
            let mut gemv = gemv(planner, Output::Residual { before, after: held, published, function });
            split_k::plan(planner, &mut gemv, &owned);
            gemv.dealt = blocks::dealt(planner, &owned);
            stream(planner, &owned, product.kind, product.k);
            add(planner, gemv, &owned, UNIT, shares);
        }
    }
}

/// Adds the phases of a projection whose elements, `unit` of them per unit of weights, are
/// distributed.
fn add(planner: &mut Planner<'_>, gemv: Gemv, parts: &[Range<u32>], unit: u32, shares: u32) {
    match shares {
        1 => planner.phase(gemv, blocks::works(&planner.plan, parts, unit)),
        _ => columns::plan(planner, gemv, parts, shares),
    }
}

/// Whether norms before projections are phases of their own.
pub(super) fn is_normed(plan: &Plan) -> bool {
    plan.rows() >= Some(NORMED_ROWS)
}

/// The input of a product, and what its task computes of the input's norm.
struct Source {
    input: Input,
    /// The weight of the whole norm.
    norm: Option<BufferId>,
    /// The scale of a norm whose weight the input has been multiplied by.
    scale: Option<Scale>,
}

/// Returns the source of a product with its columns in `shares` shares. A residual whose phase can
/// wait is added up here; otherwise the phases of all residuals come first.
fn source_of(product: &Product, planner: &mut Planner<'_>, shares: u32) -> Source {
    let norm = product.norm.map(|norm| planner.known(norm));
    let of = |input| Source { input, norm, scale: None };
    if let Some(sum) = rms_norm::unsettled(planner, product.input) {
        return of(Input::Sum(sum));
    }
    rms_norm::settle(planner);
    if residual::embedded(&planner.plan) == Some(product.input) {
        return of(Input::Embedding);
    }
    if let Some((weighted, scale)) = rms_norm::deferred(planner, product.input) {
        return Source { input: Input::Packets(weighted), norm: None, scale: Some(scale) };
    }
    let input = planner.known(product.input);
    match norm {
        Some(weight) if shares > 1 || is_normed(&planner.plan) => {
            Source { input: Input::Packets(rms_norm::normed(planner, input, weight)), norm: None, scale: None }
        }
        _ => of(Input::Packets(input)),
    }
}

/// Returns a kind of tiles with its number, which is assigned here if it has none.
fn tiles(planner: &mut Planner<'_>, kind: &'static TileKind) -> Tiles {
    let known = &mut planner.plan.shared.entry::<Decoder>().tiles;
    let number = known.iter().position(|&known| known == kind).unwrap_or_else(|| {
        known.push(kind);
        known.len() - 1
    });
    Tiles { number: number as u32, kind }
}

/// Declares the instructions of a product, including its function's, in the program.
fn declare(planner: &mut Planner<'_>, product: &Product) {
    for &at in &product.calls {
        planner.instruction(at);
    }
}

/// Distributes the `rows` rows of a projection, in units of which the last may be incomplete, so
/// that the tapes stay balanced in bytes. An output element has `fold` rows. Returns the parts.
fn spread(planner: &mut Planner<'_>, mut gemv: Gemv, rows: u32, fold: u32, shares: u32) -> Vec<Range<u32>> {
    let hidden = planner.plan.shared.entry::<Decoder>().hidden;
    let owned = owned(&planner.plan, hidden);
    // The next phase may be attention. It goes to workers without rows of the following residual,
    // so they get nothing before it either.
    let spared = |worker: usize| matches!(gemv.output, Output::Store(_)) && owned[worker].is_empty();
    let mut order: Vec<usize> = (0..planner.load.len()).collect();
    order.sort_by_key(|&worker| (spared(worker), planner.load[worker]));
    let charged = charged(planner, unit_bytes(gemv.tiles.kind, gemv.k));
    let units = level(rows.div_ceil(UNIT), &order, &charged);
    let of_units = |units: Range<u32>| (units.start * UNIT).min(rows)..(units.end * UNIT).min(rows);
    let rows: Vec<Range<u32>> = units.into_iter().map(of_units).collect();
    split_k::plan(planner, &mut gemv, &rows);
    let of_rows = |rows: &Range<u32>| rows.start / fold..rows.end / fold;
    let parts: Vec<Range<u32>> = rows.iter().map(of_rows).collect();
    // Few rows have wanted logits.
    let in_blocks = !matches!(gemv.output, Output::Logits { .. });
    if in_blocks {
        gemv.dealt = blocks::dealt(planner, &parts);
    }
    stream(planner, &rows, gemv.tiles.kind, gemv.k);
    if gemv.sum().is_some() {
        rms_norm::leave_scale(planner, &parts);
    }
    planner.plan.shared.set(LastRows(parts.iter().map(|rows| rows.end - rows.start).collect()));
    match in_blocks {
        true => add(planner, gemv, &parts, UNIT / fold, shares),
        false => planner.phase(gemv, parts.iter().cloned().map(Work::Rows).collect()),
    }
    parts
}

/// The workers that attend in a layer at every position, until the rows of its next projection are
/// distributed.
#[derive(Clone, Debug, Default)]
pub(crate) struct LateWorkers(pub(crate) Vec<bool>);

/// Returns the number of units of this many bytes that each worker is charged for attending.
fn charged(planner: &mut Planner<'_>, unit: u32) -> Vec<u32> {
    let units = (planner.plan.schedule.late << 10) / unit;
    let late = std::mem::take(&mut planner.plan.shared.entry::<LateWorkers>().0);
    late.into_iter().map(|late| if late { units } else { 0 }).collect()
}

/// Adds a projection's rows of `k` weights to the bytes of the tapes.
fn stream(planner: &mut Planner<'_>, rows: &[Range<u32>], kind: &TileKind, k: u32) {
    for (worker, rows) in rows.iter().enumerate() {
        planner.stream(worker, kind.bytes(rows.end - rows.start, k));
    }
}

impl PhaseKind for Gemv {
    fn label(&self) -> String {
        match self.output {
            Output::Store(_) => "project",
            Output::Residual { .. } => "residual",
            Output::Mapped { .. } => "mapped",
            Output::Gated { .. } => "gated",
            Output::Logits { .. } => "head",
        }
        .into()
    }

    fn calls(&self, task: &mut TaskCalls<'_>, worker: u32, work: &Work) {
        if let Some(rows) = work.elements().filter(|rows| !rows.is_empty()) {
            let x = self.input(task, worker);
            self.products(task, x, rows);
        }
    }

    fn record(&self, encoder: &mut Encoder<'_>, work: &Work) -> Record {
        let (Some(rows), Some(own)) = (work.elements(), work.own()) else { return Record::default() };
        let Record { op, tape, .. } = self.passing(encoder, own);
        if rows.is_empty() {
            return Record { op, tape, ..Record::default() };
        }
        let (pieces, pieces_at) = match work.rows() {
            Some(_) => blocks::encode(encoder, &self.dealt, rows, |rows| self.units(rows)),
            None => (0, 0),
        };
        let delivery = self.delivery(encoder, rows);
        let (input, from) = match self.input {
            Input::Packets(buffer) => (encoder.packet(buffer), IN_PACKETS),
            Input::Embedding => (0, IN_EMBEDDING),
            Input::Sum(sum) => (encoder.packet(sum.vector), IN_SUM),
        };
        let (sum, split) = (self.sum(), self.split_unit(rows));
        let shape = input_shape(self) | from << GEMV_INPUT_BIT | self.cut().0 << GEMV_DEPTH_BIT;
        Record {
            op,
            input,
            norm: self.norm.map_or(delivery.norm, |norm| encoder.constant(Some(norm))),
            bias: sum.map_or(delivery.bias, |sum| encoder.constant(Some(sum.weight))),
            layer: split.map_or(encoder.block_rows(work), |(split, _)| split.kept | split.helpers << 8),
            aux: pieces,
            partial: match (sum, split) {
                (Some(sum), _) => encoder.packet(sum.residual),
                (None, Some((split, unit))) => encoder.element(split.addends, split.of_helper(unit, 0).start),
                (None, None) => pieces_at,
            },
            tape,
            shape: shape | delivery.shape,
            ..delivery
        }
    }

    fn piece(&self, plan: &Plan, work: &Work) -> Option<Piece> {
        let rows = work.own().filter(|own| !own.is_empty())?;
        let interleaved = matches!(self.output, Output::Gated { .. });
        let parts = match interleaved {
            true => self.weights.iter().map(|&weight| WeightRows { weight, rows: rows.clone() }).collect(),
            false => {
                let part = |(number, _, rows): (usize, _, _)| WeightRows { weight: self.weights[number], rows };
                self.parts(plan, rows).into_iter().map(part).collect()
            }
        };
        Some(Piece { k: self.k, interleaved, layout: self.tiles.kind.layout, parts })
    }

    fn constants(&self, _plan: &Plan) -> Vec<BufferId> {
        let of_sum = self.sum().map(|sum| sum.weight);
        // In the order of steps with rows, where the sum has a phase before, and of steps whose
        // norms are not deferred.
        let norms = of_sum.into_iter().chain(self.norm);
        let deferred = match &self.output {
            Output::Residual { published: Published::Weighted(norm), .. } => Some(norm.weight),
            _ => None,
        };
        norms.chain(self.biases.iter().flatten().copied()).chain(deferred).collect()
    }

    fn weight_bytes(&self, plan: &Plan) -> u64 {
        self.weights.iter().map(|&weight| self.tiles.kind.bytes(plan.extent(weight), self.k)).sum()
    }

    fn slot_bytes(&self) -> u32 {
        slot_for(self.block_bytes(), self.tiles.kind.teams)
    }

    fn load(&self, _cost: &CostModel, plan: &Plan, work: &Work, _pos: u32) -> Option<Load> {
        let rows = work.own()?;
        let units = self.units(rows);
        let given = self.split_unit(rows).map_or(0, |(split, _)| self.k - self.first_column(split.kept));
        let weights = f64::from(units) * f64::from(UNIT * self.k) - f64::from(UNIT * given);
        let bytes = weights * f64::from(self.tiles.kind.bytes) / f64::from(UNIT * TILE_K);
        let further = f64::from(waits(self) - 1);
        let batches = f64::from(units) / f64::from(blocks_at_once(plan, self));
        let busy = batches * times::UNIT + weights / times::PRODUCT + further * times::PASS;
        Some(Load {
            bytes,
            slots: f64::from(slots(plan.slot_bytes(), self.tiles.kind.bytes, self.k, self.cut(), units)),
            busy,
            unasked: 0.0,
        })
    }

    fn same(&self, other: &dyn PhaseKind) -> bool {
        same(self, other)
    }
}

/// Adds a call of the numbered function.
fn call_function(task: &mut TaskCalls<'_>, number: u32, operands: Vec<Operand>) {
    let functions = &task.plan.shared.entry::<Decoder>().functions;
    if let Some(function) = functions.get(number as usize - 1).cloned() {
        task.call(&function.path, operands, function.params);
    }
}

impl Gemv {
    /// Tiles per warp of a block of weights, and passes: see [`cut`].
    pub(super) fn cut(&self) -> (u32, u32) {
        cut(self.k, self.tiles.kind.deep)
    }

    /// Bytes of the first pass over a unit.
    pub(super) fn block_bytes(&self) -> u32 {
        block_bytes(self.tiles.kind.bytes, self.k, self.cut().0, 0)
    }

    /// The first column of a pass, at most `k`.
    pub(super) fn first_column(&self, pass: u32) -> u32 {
        (pass * self.cut().0 * WARPS * TILE_K).min(self.k)
    }

    /// The name of its first weight.
    pub(super) fn name<'p>(&self, plan: &'p Plan) -> &'p str {
        let weight = self.weights.first().and_then(|weight| plan.program.buffers.get(weight.index()));
        weight.map_or("", |weight| &weight.name)
    }

    /// The record of a worker that only skips its piece of the tape, with these elements.
    pub(super) fn passing(&self, encoder: &Encoder<'_>, own: &Range<u32>) -> Record {
        let tape = self.units(own) * unit_bytes(self.tiles.kind, self.k);
        Record { op: encoder.op("GEMV"), tape, ..Record::default() }
    }

    /// Rows of all weights.
    pub(super) fn rows(&self, plan: &Plan) -> u32 {
        self.weights.iter().map(|&weight| plan.extent(weight)).sum()
    }

    /// Some of all rows by weight: its number, the rows among all, and among its own.
    pub(super) fn parts(&self, plan: &Plan, rows: &Range<u32>) -> Vec<(usize, Range<u32>, Range<u32>)> {
        let mut before = 0;
        let part = |(number, &weight): (usize, &BufferId)| {
            let (first, end) = (before, before + plan.extent(weight));
            before = end;
            let part = rows.start.max(first)..rows.end.min(end);
            let own = part.start.saturating_sub(first)..part.end.saturating_sub(first);
            (!part.is_empty()).then_some((number, part, own))
        };
        self.weights.iter().enumerate().filter_map(part).collect()
    }

    /// The fields of the record of some rows that describe how the products are delivered.
    pub(super) fn delivery(&self, encoder: &Encoder<'_>, rows: &Range<u32>) -> Record {
        let (kind, to) = match &self.output {
            Output::Store(outputs) => (OUT_STORE, outputs.first().copied()),
            Output::Residual { published: Published::Whole(packets), .. } => (OUT_RESIDUAL, Some(*packets)),
            Output::Residual { published: Published::Weighted(norm), .. } => (OUT_RESIDUAL, Some(norm.weighted)),
            Output::Mapped { to, .. } => (OUT_STORE, Some(*to)),
            Output::Gated { to, .. } => (OUT_GATED, Some(*to)),
            Output::Logits { .. } => (OUT_LOGITS, None),
        };
        let has_bias = self.biases.iter().all(Option::is_some);
        let flags = if has_bias { GEMV_BIAS } else { 0 } | self.function() << GEMV_FUNCTION_BIT;
        let (norm, more) = self.deferred(encoder, rows);
        Record {
            units: self.units(rows) as u16,
            output: to.map_or(0, |to| encoder.element(to, rows.start)),
            row: rows.start,
            norm,
            bias: if has_bias { encoder.constant(self.biases[0]) + rows.start } else { 0 },
            more,
            shape: kind << GEMV_OUTPUT_BIT | flags << GEMV_FLAGS_BIT,
            ..Record::default()
        }
    }

    /// The fields of the record of some rows that describe a deferred norm: of a residual the
    /// norm's weights and the sum of its squares, of products the number of sums and the first.
    fn deferred(&self, encoder: &Encoder<'_>, rows: &Range<u32>) -> (u32, u32) {
        let sums = |squares| 2 * encoder.packet(squares);
        match (&self.output, self.scale) {
            (Output::Residual { published: Published::Weighted(norm), .. }, _) => {
                (encoder.constant(Some(norm.weight)) + rows.start, sums(norm.squares) + norm.part(rows))
            }
            (_, Some(Scale { squares, parts, .. })) => (parts, sums(squares)),
            (_, None) => (0, 0),
        }
    }

    /// Returns the input, if it is a sum.
    pub(super) fn sum(&self) -> Option<Sum> {
        if let Input::Sum(sum) = self.input { Some(sum) } else { None }
    }

    /// Returns the number of the function applied to the results. 0 means none.
    fn function(&self) -> u32 {
        match self.output {
            Output::Residual { function, .. }
            | Output::Mapped { function, .. }
            | Output::Gated { function, .. }
            | Output::Logits { function, .. } => function,
            Output::Store(_) => 0,
        }
    }

    /// Returns the number of units of the elements `rows` of the output.
    pub(super) fn units(&self, rows: &Range<u32>) -> u32 {
        let fold = if matches!(self.output, Output::Gated { .. }) { 2 } else { 1 };
        ((rows.end - rows.start) * fold).div_ceil(UNIT)
    }

    /// Returns the input as the products read it.
    fn input(&self, task: &mut TaskCalls<'_>, worker: u32) -> Operand {
        let k = self.k;
        let mut x = match self.input {
            Input::Packets(buffer) => buffer,
            Input::Embedding => {
                let x = task.local(k);
                residual::look_up(task, worker, 0..k, x);
                x
            }
            Input::Sum(sum) => {
                let normed = NormBy::RootMean(sum.weight).normed(task, sum.vector, k);
                let x = task.local(k);
                let operands = vec![read(sum.residual, &[0..k]), read(normed, &[0..k]), write(x, &[0..k])];
                task.call("amk_kernels::add", operands, Vec::new());
                x
            }
        };
        if let Some(weight) = self.norm {
            x = NormBy::RootMean(weight).normed(task, x, k);
        }
        read(x, &[0..k])
    }

    fn products(&self, task: &mut TaskCalls<'_>, x: Operand, rows: &Range<u32>) {
        let n = rows.end - rows.start;
        match &self.output {
            Output::Store(outputs) => self.store(task, x, rows, outputs),
            Output::Residual { before, after, published, function } => {
                let mut y = self.product(task, x, rows);
                if *function != 0 {
                    let mapped = task.local(n);
                    call_function(task, *function, vec![read(y, &[0..n]), write(mapped, &[0..n])]);
                    y = mapped;
                }
                let sum = |task: &mut TaskCalls<'_>, to| {
                    let operands = vec![read(*before, from_ref(rows)), read(y, &[0..n]), to];
                    task.call("amk_kernels::add", operands, Vec::new());
                };
                sum(task, write(*after, from_ref(rows)));
                match published {
                    Published::Whole(packets) => sum(task, write(*packets, from_ref(rows))),
                    Published::Weighted(norm) => {
                        let local = task.local(n);
                        sum(task, write(local, &[0..n]));
                        norm.calls(task, local, rows);
                    }
                }
            }
            &Output::Mapped { to, function } => {
                let y = self.product(task, x, rows);
                call_function(task, function, vec![read(y, &[0..n]), write(to, from_ref(rows))]);
            }
            &Output::Gated { to, function } => {
                let [gate, up] = [0, 1].map(|part| {
                    let y = task.local(n);
                    self.linear(task, x, part, rows.clone(), write(y, &[0..n]));
                    y
                });
                let operands = vec![read(gate, &[0..n]), read(up, &[0..n]), write(to, from_ref(rows))];
                call_function(task, function, operands);
            }
            &Output::Logits { to, function: 0 } => self.linear(task, x, 0, rows.clone(), write(to, from_ref(rows))),
            &Output::Logits { to, function } => {
                let y = task.local(n);
                self.linear(task, x, 0, rows.clone(), write(y, &[0..n]));
                call_function(task, function, vec![read(y, &[0..n]), write(to, from_ref(rows))]);
            }
        }
    }

    /// Adds rows of the only product, with its bias. Returns the result.
    fn product(&self, task: &mut TaskCalls<'_>, x: Operand, rows: &Range<u32>) -> BufferId {
        let n = rows.end - rows.start;
        let y = task.local(n);
        self.linear(task, x, 0, rows.clone(), write(y, &[0..n]));
        let Some(bias) = self.biases[0] else { return y };
        let biased = task.local(n);
        let operands = vec![read(y, &[0..n]), early(bias, from_ref(rows)), write(biased, &[0..n])];
        task.call("amk_kernels::add_bias", operands, Vec::new());
        biased
    }

    /// Adds one result per weight, with its bias.
    fn store(&self, task: &mut TaskCalls<'_>, x: Operand, rows: &Range<u32>, outputs: &[BufferId]) {
        for (number, _, part) in self.parts(task.plan, rows) {
            let (Some(&bias), Some(&to)) = (self.biases.get(number), outputs.get(number)) else { continue };
            let Some(bias) = bias else {
                self.linear(task, x, number, part.clone(), write(to, &[part]));
                continue;
            };
            let len = part.end - part.start;
            let y = task.local(len);
            self.linear(task, x, number, part.clone(), write(y, &[0..len]));
            let operands = vec![read(y, &[0..len]), early(bias, from_ref(&part)), write(to, &[part])];
            task.call("amk_kernels::add_bias", operands, Vec::new());
        }
    }

    /// The split of the last unit of some rows, and its number.
    fn split_unit(&self, rows: &Range<u32>) -> Option<(&SplitK, u32)> {
        let split = self.split.as_ref()?;
        Some((split, split.unit(rows)?))
    }

    /// Adds rows of the product with one of the weights.
    fn linear(&self, task: &mut TaskCalls<'_>, x: Operand, number: usize, rows: Range<u32>, to: Operand) {
        let Some(scale) = self.scale else { return self.unscaled(task, x, number, rows, to) };
        let n = rows.end - rows.start;
        let y = task.local(n);
        self.unscaled(task, x, number, rows, write(y, &[0..n]));
        scale.call(task, self.k, read(y, &[0..n]), to);
    }

    /// Adds rows of the product as it is: the sums over all shares of its columns, or for a split
    /// unit the worker's own columns and the others' addends.
    fn unscaled(&self, task: &mut TaskCalls<'_>, x: Operand, number: usize, rows: Range<u32>, to: Operand) {
        if let Some(columns) = &self.columns {
            let before: u32 = self.weights[..number].iter().map(|&weight| task.plan.extent(weight)).sum();
            let all = self.rows(task.plan);
            return columns.add_up(task, all, &(before + rows.start..before + rows.end), to);
        }
        let Some((split, unit)) = self.split_unit(&rows) else {
            let weight = early(self.weights[number], &[rows, 0..self.k]);
            return task.call("amk_kernels::linear", vec![x, weight, to], Vec::new());
        };
        let first = to.region.intervals().first().map_or(0, |interval| interval.lo.base);
        let (whole, end) = (rows.end - UNIT - rows.start, first + rows.end - rows.start);
        if whole > 0 {
            let weight = early(self.weights[number], &[rows.start..rows.end - UNIT, 0..self.k]);
            task.call("amk_kernels::linear", vec![x, weight, write(to.buffer, &[first..first + whole])], Vec::new());
        }
        let columns = 0..self.first_column(split.kept);
        let weight = early(self.weights[number], &[rows.end - UNIT..rows.end, columns.clone()]);
        let mut y = task.local(UNIT);
        let operands = vec![read(x.buffer, &[columns]), weight, write(y, &[0..UNIT])];
        task.call("amk_kernels::linear", operands, Vec::new());
        for helper in 0..split.helpers {
            let sum = if helper + 1 < split.helpers { Some(task.local(UNIT)) } else { None };
            let to = sum.map_or_else(|| write(to.buffer, &[first + whole..end]), |sum| write(sum, &[0..UNIT]));
            let addend = read(split.addends, &[split.of_helper(unit, helper)]);
            task.call("amk_kernels::add", vec![read(y, &[0..UNIT]), addend, to], Vec::new());
            y = sum.unwrap_or(y);
        }
    }
}

/// Costs of projections in nanoseconds, and rates per nanosecond, fitted on an H200.
pub(super) mod times {
    /// A unit of eight rows, or several whose blocks are multiplied at once, apart from the bytes.
    pub(in crate::linear) const UNIT: f64 = 92.6;
    /// Weights that a worker multiplies.
    pub(in crate::linear) const PRODUCT: f64 = 69.2;
    /// Each further wait for part of a long input.
    pub(in crate::linear) const PASS: f64 = 345.0;
}

/// Returns the bytes of a pass over a unit, in which a warp has `depth` tiles of `tile` bytes.
fn block_bytes(tile: u32, k: u32, depth: u32, pass: u32) -> u32 {
    let most = depth * WARPS;
    k.div_ceil(TILE_K).saturating_sub(pass * most).min(most) * tile
}

/// Returns the length of a ring's slots for blocks of `block` bytes. A warp multiplies up to four
/// blocks of a slot at once if their codes are `at_once` multiplied by one scale each: two or four
/// rather than one or three, as workers often have a multiple of four units.
fn slot_for(block: u32, at_once: bool) -> u32 {
    let longer = match CHUNK / block.max(1) {
        fit @ (1 | 3) if at_once => ((fit + 1) * block).next_multiple_of(SLOT_ALIGNED),
        _ => CHUNK,
    };
    if longer > LONGEST_SLOT { CHUNK } else { longer }
}

/// Returns the ring slots of `slot` bytes for units of a projection with tiles of `tile` bytes. A
/// slot holds whole blocks of one pass over a group.
fn slots(slot: u32, tile: u32, k: u32, (depth, passes): (u32, u32), units: u32) -> u32 {
    let of_pass = |units: u32, pass: u32| {
        slot.checked_div(block_bytes(tile, k, depth, pass)).map_or(0, |blocks| units.div_ceil(blocks.max(1)))
    };
    let of_group = |units: u32| (0..passes).map(|pass| of_pass(units, pass)).sum::<u32>();
    units / GROUP_UNITS * of_group(GROUP_UNITS) + of_group(units % GROUP_UNITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::TILE;

    #[test]
    fn a_slot_has_whole_blocks_of_one_pass() {
        assert_eq!(slots(CHUNK, TILE, 896, cut(896, false), 1), 1, "a block of 14 KiB has a slot of its own");
        assert_eq!(slots(CHUNK, TILE, 896, cut(896, false), 10), 5, "two blocks a slot");
        assert_eq!(slots(CHUNK, 144, 896, cut(896, false), 10), 2, "eight blocks of 4 bits a slot");
        assert_eq!(slots(CHUNK, TILE, 4864, cut(4864, false), 1), 3, "a block in three passes");
        assert_eq!(slots(CHUNK, TILE, 4864, cut(4864, false), 0), 0);
        assert_eq!(slots(CHUNK, 144, 4096, cut(4096, false), 4), 4, "three blocks a slot, in two passes");
        assert_eq!(slots(36_864, 144, 4096, cut(4096, false), 4), 2, "four blocks a slot");
        assert_eq!(slots(CHUNK, TILE, 3072, cut(3072, false), 4), 8, "two blocks of 24 KiB a unit");
        assert_eq!(slots(CHUNK, TILE, 3072, cut(3072, true), 4), 6, "one of 32 and one of 16 KiB");
    }

    #[test]
    fn a_slot_is_longer_where_it_then_has_two_or_four_blocks_of_codes() {
        let of = |tile: u32, k: u32, at_once: bool| slot_for(block_bytes(tile, k, cut(k, false).0, 0), at_once);
        assert_eq!(of(TILE, 4096, false), CHUNK, "bf16");
        assert_eq!(of(TILE, 576, false), CHUNK, "three blocks of bf16");
        assert_eq!(of(272, 4096, true), 34_816, "two blocks of Q8_0");
        assert_eq!(of(144, 4096, true), 36_864, "four of Q4_0");
        assert_eq!(of(144, 4096, false), CHUNK, "three of Q4_K");
        assert_eq!(of(132, 3584, true), 33_792, "four of int4, and five or six of the last pass");
        assert_eq!(of(176, 4096, true), CHUNK, "two of Q5_0");
        assert_eq!(of(272, 3072, true), CHUNK, "two of 12 KiB");
        assert_eq!(of(272, 64, true), CHUNK);
        assert_eq!(slot_for(0, true), CHUNK);
        for block in (1..=LONGEST_SLOT).step_by(2) {
            let slot = slot_for(block, true);
            assert!((CHUNK..=LONGEST_SLOT).contains(&slot) && slot.is_multiple_of(SLOT_ALIGNED), "{block}");
            assert!(slot / block >= CHUNK / block, "{block}");
        }
    }
}

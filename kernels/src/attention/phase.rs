//! Phases of attention: which worker attends to which split of the cache, and which worker merges
//! the splits.

use super::form::cache_of;
use super::group::{Attention, Norms};
use crate::fused::Decoder;
use crate::linear::phase::{LastRows, LateWorkers, owned};
use crate::rms_norm::{NormBy, Vector, norm_all};
use amk::ir::program::BufferKind;
use amk::ir::{Access, BufferId, DType, Exchange, Param};
use amk_cuda::cost::{CostModel, Load, Overhead};
use amk_cuda::image::abi::{CHUNK, WARPS};
use amk_cuda::image::{Encoder, Record};
use amk_cuda::plan::{
    PhaseKind, Plan, Planner, TaskCalls, Unsupported, Work, early, even, operand, read, rotated, same, write,
};
use std::cmp::Reverse;
use std::ops::Range;

/// Positions per cache block.
pub const BLOCK: u32 = 64;
/// Number of elements of a head that one warp combines. The last slice of a head is shorter if the
/// head is not whole slices.
pub const SLICE: u32 = 32;
/// Splits per warp of a team that merges a slice.
const LOOK: u32 = 8;

/// Attention of a layer. Each worker has one kv head over one split of the cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Attend {
    /// The layer.
    pub layer: usize,
}

/// The combination of split results, weighted by their log-sum-exp, in slices of 32 head dims.
#[derive(Clone, Debug, PartialEq)]
pub struct Combine {
    /// The layer.
    pub layer: usize,
}

/// Buffers used by the attention of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerBuffers {
    /// The number of its form: which of [`Decoder::forms`].
    pub kind: usize,
    /// Packets of queries, keys and values.
    pub qkv: [BufferId; 3],
    /// The caches, one slice per split.
    pub caches: [BufferId; 2],
    /// The results of the splits, if there are several.
    pub parts: Option<Partials>,
    /// The attention output.
    pub attended: BufferId,
    /// Per-head norms of queries and keys.
    pub head_norms: Option<[BufferId; 2]>,
}

impl LayerBuffers {
    /// Returns the fields that the records of a layer's attention share.
    pub(super) fn record(&self, encoder: &Encoder<'_>, layer: usize) -> Record {
        let [queries, keys] = self.head_norms.map_or([None; 2], |norms| norms.map(Some));
        Record {
            input: encoder.packet(self.qkv[0]),
            shape: self.kind as u32,
            norm: encoder.constant(queries),
            bias: encoder.constant(keys),
            layer: Decoder::place(encoder.plan, layer),
            ..Record::default()
        }
    }
}

/// Results of the splits of a layer's caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partials {
    /// The outputs.
    pub partial: BufferId,
    /// The log-sum-exps. For one row they have no packets of their own: each packet of two output
    /// dims carries one.
    pub lse: BufferId,
}

impl Partials {
    /// Adds their buffers.
    pub(super) fn new(planner: &mut Planner<'_>, layer: usize) -> Self {
        let decoder = planner.plan.shared.entry::<Decoder>();
        let (splits, [_, heads, head_dim]) = (decoder.splits(), decoder.heads());
        Self {
            partial: planner.packets(&format!("partial.{layer}"), DType::F32, &[heads, splits, head_dim]),
            lse: planner.packets(&format!("lse.{layer}"), DType::F32, &[heads, splits]),
        }
    }
}

/// Adds the phases of an attention.
pub(super) fn plan(attention: &Attention, planner: &mut Planner<'_>) -> Result<(), Unsupported> {
    if planner.plan.rows().is_some() {
        return super::rows::plan(attention, planner);
    }
    let context = planner.plan.sizes.context;
    let decoder = planner.plan.shared.entry::<Decoder>().clone();
    let run = decoder.run();
    let (layer, splits, [kv_heads, _, head_dim]) = (decoder.layers.len(), decoder.splits(), decoder.heads());
    let name = |what: &str| format!("{what}.{layer}");
    let share = context.div_ceil(run * splits) * run;
    let shape = [kv_heads, splits, share, head_dim];
    let dtype = cache_of(&planner.plan);
    let caches =
        ["keys", "values"].map(|what| planner.buffer(&name(what), BufferKind::State, dtype, &shape, Exchange::Counter));
    let qkv = normed(attention, planner);
    let parts = Some(Partials::new(planner, layer));
    let buffers = buffers(attention, planner, qkv, caches, parts);
    planner.plan.shared.entry::<Decoder>().layers.push(buffers);
    let mut works = vec![Work::Rows(0..0); planner.load.len()];
    let order = attending(&planner.plan, layer);
    for (n, &worker) in (0..kv_heads * splits).zip(&order) {
        works[worker] = Work::Cell { row: n % kv_heads, column: n / kv_heads };
    }
    let slices = merging(&planner.plan, layer, &works);
    note_late(planner, &order);
    planner.phase(Attend { layer }, works);
    planner.phase(Combine { layer }, slices.into_iter().map(Work::Rows).collect());
    Ok(())
}

/// Returns queries, keys and values as attention reads them: if all heads of queries or of keys
/// share one norm, from the phases that compute it.
pub(super) fn normed(attention: &Attention, planner: &mut Planner<'_>) -> [BufferId; 3] {
    let from = attention.qkv.map(|value| planner.known(value));
    let Some(Norms::Whole(norms)) = attention.norms else { return from };
    let layer = planner.plan.shared.entry::<Decoder>().layers.len();
    let [q_norm, k_norm] = norms.map(|norm| Some(NormBy::RootMean(planner.known(norm))));
    // Contiguous in memory, like the projection's.
    let to = ["queries", "keys", "values"];
    let mut of_value = from.into_iter();
    let to = to.map(|what| {
        let shape = of_value.next().map_or(Vec::new(), |from| planner.plan.shape(from).to_vec());
        planner.packets(&format!("normed_{what}.{layer}"), DType::BF16, &shape)
    });
    let vector = |at: usize, by| Vector { from: from[at], by, to: to[at] };
    let vectors = [vector(0, q_norm), vector(1, k_norm), vector(2, None)];
    norm_all(planner, &vectors);
    to
}

/// Returns the buffers of a layer with these queries, keys and values, these caches, and `parts` if
/// there are splits.
pub(super) fn buffers(
    attention: &Attention,
    planner: &mut Planner<'_>,
    qkv: [BufferId; 3],
    caches: [BufferId; 2],
    parts: Option<Partials>,
) -> LayerBuffers {
    let form = attention.form(planner);
    let head_norms = match attention.norms {
        Some(Norms::Heads(norms)) => Some(norms.map(|norm| planner.known(norm))),
        _ => None,
    };
    let forms = planner.plan.shared.entry::<Decoder>().forms.clone();
    LayerBuffers {
        kind: forms.iter().position(|known| *known == form).unwrap_or(forms.len()),
        qkv,
        caches,
        parts,
        attended: planner.value(attention.result, DType::BF16),
        head_norms,
    }
}

/// Records the workers that attend at every position: those with the first split of a head, which
/// come first in the `order` of [`attending`].
pub(super) fn note_late(planner: &mut Planner<'_>, order: &[usize]) {
    let kv_heads = planner.plan.shared.entry::<Decoder>().heads()[0] as usize;
    let mut late = vec![false; planner.load.len()];
    order.iter().take(kv_heads).for_each(|&worker| late[worker] = true);
    planner.plan.shared.set(LateWorkers(late));
}

/// Returns the workers for the splits of a layer's heads, in the order in which the splits become
/// active. Layers differ, to balance the load.
///
/// The first splits are active at every position, so they go to the workers with the least to do in
/// the projection before and in the residual after. The other shares are merged before the
/// residual, so workers without residual rows stay free for the merge.
pub(super) fn attending(plan: &Plan, layer: usize) -> Vec<usize> {
    let Some(decoder) = plan.shared.get::<Decoder>() else { return Vec::new() };
    let owned = owned(plan, decoder.hidden);
    let last = plan.shared.get::<LastRows>().map_or(&[][..], |last| &last.0);
    let before = |worker: usize| last.get(worker).copied().unwrap_or(0);
    let mut order = rotated((0..owned.len()).collect(), layer * 17);
    order.sort_by_key(|&worker| (before(worker), owned[worker].len()));
    if let Some(others) = order.get_mut(decoder.heads()[0] as usize..) {
        others.sort_by_key(|&worker| (before(worker), Reverse(owned[worker].len())));
    }
    order
}

/// Assigns the slices of a layer's heads to the workers that merge them. The first choice is the
/// workers with the last splits while these are inactive: an idle worker polls for the shares as
/// they arrive, whereas an attending worker asks for them afterwards. Ties go to workers without
/// rows of the residual, which comes next.
fn merging(plan: &Plan, layer: usize, works: &[Work]) -> Vec<Range<u32>> {
    let Some(decoder) = plan.shared.get::<Decoder>() else { return Vec::new() };
    let (splits, [_, heads, head_dim]) = (decoder.splits(), decoder.heads());
    let owned = owned(plan, decoder.hidden);
    let split = |worker: usize| match works[worker] {
        Work::Cell { column, .. } => column,
        _ => splits,
    };
    let quarter = |worker: usize| split(worker) * 4 / splits.max(1);
    let mut order = rotated((0..works.len()).collect(), layer * 29);
    order.retain(|&worker| split(worker) >= splits / 4); // the others already attend at short contexts
    order.sort_by_key(|&worker| (Reverse(quarter(worker)), owned[worker].len(), Reverse(split(worker))));
    let slices = slices(heads, head_dim);
    order.truncate(slices as usize);
    let mut parts = vec![0..0; works.len()];
    for (&worker, part) in order.iter().zip(even(slices, order.len() as u32)) {
        parts[worker] = part;
    }
    parts
}

/// The number of slices of `heads` heads.
pub(super) fn slices(heads: u32, head_dim: u32) -> u32 {
    heads * head_dim.div_ceil(SLICE)
}

/// The norms of a layer's heads, which its records read.
pub(super) fn head_norms(plan: &Plan, layer: usize) -> Vec<BufferId> {
    Decoder::layer(plan, layer).and_then(|layer| layer.head_norms).into_iter().flatten().collect()
}

impl PhaseKind for Attend {
    fn label(&self) -> String {
        format!("attend {}", self.layer)
    }

    fn calls(&self, task: &mut TaskCalls<'_>, _worker: u32, work: &Work) {
        let (Some(decoder), &Work::Cell { row: head, column: split }) = (Decoder::of(task.plan).cloned(), work) else {
            return;
        };
        let (splits, [kv_heads, heads, head_dim]) = (decoder.splits(), decoder.heads());
        let group = heads / kv_heads;
        let Some(buffers) = decoder.layers.get(self.layer) else { return };
        let Some((form, table)) = decoder.form(buffers) else { return };
        let &LayerBuffers { qkv: [q, k, v], caches: [keys, values], parts, head_norms, .. } = buffers;
        let Some(Partials { partial, lse }) = parts else { return };
        let queries = head * group..(head + 1) * group;
        let share = task.plan.shape(keys).get(2).copied().unwrap_or(0);
        let own = head / form.copies * head_dim..(head / form.copies + 1) * head_dim;
        let cache =
            |buffer| operand(buffer, &[head..head + 1, split..split + 1, 0..share, 0..head_dim], Access::Update, false);
        let mut operands = vec![
            read(q, &[queries.start * head_dim..queries.end * head_dim]),
            read(k, std::slice::from_ref(&own)),
            read(v, &[own]),
        ];
        operands.extend(head_norms.into_iter().flatten().map(|norm| early(norm, &[0..head_dim])));
        operands.extend(table.map(|table| early(table.freqs, &[0..table.len])));
        operands.extend([
            cache(keys),
            cache(values),
            write(partial, &[queries.clone(), split..split + 1, 0..head_dim]),
            write(lse, &[queries, split..split + 1]),
        ]);
        let mut params = [group, decoder.run(), splits, split].map(Param::U32).to_vec();
        params.extend(head_norms.map(|_| Param::F32(decoder.eps)));
        let window = Param::U32(form.last(&task.plan.program));
        params.extend(table.map(|table| Param::F32(table.scale)));
        params.push(Param::F32(decoder.score_scale));
        params.extend(form.cap.map(Param::F32));
        params.extend([window, Param::Pos]);
        task.call(form.split_path(), operands, params);
    }

    fn record(&self, encoder: &mut Encoder<'_>, work: &Work) -> Record {
        let (Some(buffers), &Work::Cell { row, column }) = (Decoder::layer(encoder.plan, self.layer), work) else {
            return Record::default();
        };
        let Some(parts) = buffers.parts else { return Record::default() };
        Record {
            op: encoder.op("ATTEND"),
            units: 1,
            output: encoder.packet(buffers.attended),
            row,
            aux: column,
            partial: encoder.packet(parts.partial),
            ..buffers.record(encoder, self.layer)
        }
    }

    fn constants(&self, plan: &Plan) -> Vec<BufferId> {
        head_norms(plan, self.layer)
    }

    fn carried(&self, plan: &Plan) -> Vec<BufferId> {
        Decoder::layer(plan, self.layer).and_then(|layer| layer.parts).map(|parts| parts.lse).into_iter().collect()
    }

    /// Returns the cost of a split's part of attention at a position. All warps take turns, so time
    /// grows by whole turns.
    fn load(&self, _cost: &CostModel, plan: &Plan, work: &Work, pos: u32) -> Option<Load> {
        let (decoder, &Work::Cell { column: split, .. }) = (Decoder::of(plan)?, work) else { return None };
        let active = splits_in_use(plan, pos);
        if split >= active {
            return None;
        }
        let [kv_heads, heads, head_dim] = decoder.heads();
        let (form, _) = decoder.form(decoder.layers.get(self.layer)?)?;
        let before = pos.saturating_sub(form.window.unwrap_or(pos)) / BLOCK * BLOCK;
        let cached = cached_positions(plan, pos, split) - cached_positions(plan, before, split);
        let bytes = f64::from(cached) * f64::from(head_dim * 2 * cache_of(plan).bytes());
        let queries = f64::from(heads / kv_heads.max(1) * head_dim) / 256.0;
        let turns = f64::from(cached.div_ceil(16 * WARPS).max(1)) * f64::from(head_dim.min(times::LONG)) / 64.0;
        let gather = if cached < BLOCK { 0.0 } else { times::GATHER };
        let partial = if active == 1 { 0.0 } else { times::PARTIAL };
        let busy = queries * times::ATTEND[1] + turns * times::TURN + gather + partial;
        Some(Load { bytes, slots: (bytes / f64::from(CHUNK)).ceil(), busy, unasked: 0.0 })
    }

    fn overhead(&self, _cost: &CostModel) -> Overhead {
        Overhead { hops: true, fixed: times::ATTEND[0] }
    }

    fn same(&self, other: &dyn PhaseKind) -> bool {
        same(self, other)
    }
}

impl PhaseKind for Combine {
    fn label(&self) -> String {
        format!("combine {}", self.layer)
    }

    fn calls(&self, task: &mut TaskCalls<'_>, _worker: u32, work: &Work) {
        let (Some(decoder), Work::Rows(slices)) = (Decoder::of(task.plan).cloned(), work) else { return };
        let (splits, [_, _, head_dim]) = (decoder.splits(), decoder.heads());
        let Some(&LayerBuffers { parts: Some(Partials { partial, lse }), attended, .. }) =
            decoder.layers.get(self.layer)
        else {
            return;
        };
        let each = head_dim.div_ceil(SLICE);
        for slice in slices.clone() {
            let (head, first) = (slice / each, slice % each * SLICE);
            let end = (first + SLICE).min(head_dim);
            let operands = vec![
                read(partial, &[head..head + 1, 0..splits, first..end]),
                read(lse, &[head..head + 1, 0..splits]),
                write(attended, &[head * head_dim + first..head * head_dim + end]),
            ];
            task.call("amk_kernels::combine_splits", operands, Vec::new());
        }
    }

    fn record(&self, encoder: &mut Encoder<'_>, work: &Work) -> Record {
        let (Some(buffers), Work::Rows(slices)) = (Decoder::layer(encoder.plan, self.layer), work) else {
            return Record::default();
        };
        let Some(parts) = buffers.parts else { return Record::default() };
        Record {
            op: encoder.op("COMBINE"),
            units: (slices.end - slices.start) as u16,
            output: encoder.packet(buffers.attended),
            row: slices.start,
            layer: self.layer as u32,
            partial: encoder.packet(parts.partial),
            ..Record::default()
        }
    }

    /// Returns the cost of merging the outputs of the active splits, one team of warps per slice.
    fn load(&self, _cost: &CostModel, plan: &Plan, work: &Work, pos: u32) -> Option<Load> {
        let (active, Work::Rows(slices)) = (splits_in_use(plan, pos), work) else { return None };
        if active == 1 {
            return None;
        }
        let team = (active.div_ceil(LOOK)).next_power_of_two().min(WARPS);
        let meet = if team > 1 { times::COMBINE[1] } else { 0.0 };
        let slices = slices.end - slices.start;
        let busy = f64::from(slices.div_ceil(WARPS / team)) * (meet + times::COMBINE[2] * f64::from(team));
        Some(Load { busy, ..Load::default() })
    }

    fn overhead(&self, _cost: &CostModel) -> Overhead {
        Overhead { hops: true, fixed: times::COMBINE[0] }
    }

    fn same(&self, other: &dyn PhaseKind) -> bool {
        same(self, other)
    }
}

/// Returns the splits of a head's cache, and the positions of a run.
fn splits_and_run(plan: &Plan) -> (u32, u32) {
    Decoder::of(plan).map_or((0, 1), |decoder| (decoder.splits(), decoder.run()))
}

/// Returns the number of splits of a head's cache that have a position at or before `pos`.
fn splits_in_use(plan: &Plan, pos: u32) -> u32 {
    let (splits, run) = splits_and_run(plan);
    (pos / run + 1).min(splits)
}

/// Returns the number of positions before `pos` that a split holds.
fn cached_positions(plan: &Plan, pos: u32, split: u32) -> u32 {
    let (splits, run) = splits_and_run(plan);
    let (rounds, rest) = (pos / (run * splits.max(1)), pos % (run * splits.max(1)));
    rounds * run + rest.saturating_sub(split * run).min(run)
}

/// Costs of attention in nanoseconds, fitted on an H200.
mod times {
    /// Fixed cost, and per 256 elements of a head's queries.
    pub(super) const ATTEND: [f64; 2] = [343.4, 153.3];
    /// A turn: each warp takes 16 positions, per 64 elements of a head.
    pub(super) const TURN: f64 = 1682.6;
    /// Number of elements of a head beyond which a turn takes no longer: from a trace of Gemma 3's
    /// heads of 256.
    pub(super) const LONG: u32 = 128;
    /// Merging the outputs of all warps. With less than one block in the cache, only a few warps
    /// have any.
    pub(super) const GATHER: f64 = 232.2;
    /// Publishing a split's share instead of a result.
    pub(super) const PARTIAL: f64 = 63.5;
    /// Merging splits: fixed, per meeting of a slice's warps if it needs several, and per warp.
    pub(super) const COMBINE: [f64; 3] = [747.0, 70.7, 127.4];
}

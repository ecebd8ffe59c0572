//! Phases of attention for steps of rows: append, attend and, if the positions are in splits, as in
//! narrow steps and some long ones, merge.

use super::division::Division;
use super::form::{AttentionForm, cache_of, first_alike};
use super::group::Attention;
use super::phase::{LayerBuffers, Partials, attending, buffers, head_norms, normed, note_late, slices};
use crate::abi::split_of;
use crate::fused::Decoder;
use amk::ir::program::BufferKind;
use amk::ir::{Access, Bound, BufferId, Exchange, Interval, Operand, Param, Region};
use amk_cuda::image::{Encoder, Record};
use amk_cuda::plan::{PhaseKind, Plan, Planner, TaskCalls, Unsupported, Work, early, even, read, rotated, same, write};
use std::iter;
use std::ops::Range;

/// Writes the keys and values of a block of rows to their pages, one kv head per task.
#[derive(Clone, Debug, PartialEq)]
pub struct Append {
    /// The layer.
    pub layer: usize,
}

/// Attention of all rows to one split each of their positions. A task has one kv head; it takes a
/// different split of each row (`split_of`), so that short contexts are spread over the workers.
#[derive(Clone, Debug, PartialEq)]
pub struct Parts {
    /// The layer.
    pub layer: usize,
}

/// Attention of a block of rows to all of their positions, one kv head per task.
#[derive(Clone, Debug, PartialEq)]
pub struct AttendRows {
    /// The layer.
    pub layer: usize,
}

/// Attention of a block of rows to a part of their positions, one kv head per task.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockParts {
    /// The layer.
    pub layer: usize,
}

/// The combination of the parts of some rows, of all heads.
#[derive(Clone, Debug, PartialEq)]
pub struct JoinRows {
    /// The layer.
    pub layer: usize,
}

/// The combination of the splits of all rows, in slices of 32 head dims.
#[derive(Clone, Debug, PartialEq)]
pub struct JoinParts {
    /// The layer.
    pub layer: usize,
}

/// Adds the phases of an attention with rows.
///
/// # Errors
/// If there are more key heads than workers.
pub(super) fn plan(attention: &Attention, planner: &mut Planner<'_>) -> Result<(), Unsupported> {
    let context = planner.plan.sizes.context;
    let decoder = planner.plan.shared.entry::<Decoder>().clone();
    let (layer, splits, [kv_heads, heads, head_dim]) = (decoder.layers.len(), decoder.splits(), decoder.heads());
    let workers = planner.load.len();
    let name = |what: &str| format!("{what}.{layer}");
    let shape = [kv_heads, context, head_dim];
    let dtype = cache_of(&planner.plan);
    let caches = ["keys", "values"].map(|what| {
        let cache = planner.buffer(&name(what), BufferKind::State, dtype, &shape, Exchange::Counter);
        planner.exchange(cache)
    });
    let division = Division::new(&planner.plan, decoder.heads(), decoder.score_scale);
    let qkv = normed(attention, planner);
    let wide = planner.plan.is_wide();
    let parts = (!wide || division.parts > 1).then(|| Partials::new(planner, layer));
    let buffers = buffers(attention, planner, qkv, caches, parts);
    planner.plan.shared.entry::<Decoder>().layers.push(buffers);
    let order = attending(&planner.plan, layer);
    note_late(planner, &order);
    let cells = |columns: &[u32]| {
        let mut cells = vec![Work::Rows(0..0); workers];
        for (n, &worker) in (0..kv_heads * columns.len() as u32).zip(&order) {
            cells[worker] = Work::Cell { row: n % kv_heads, column: columns[(n / kv_heads) as usize] };
        }
        cells
    };
    if let Some(because) = division.refused() {
        return Err(Unsupported::at(planner.flow, attention.calls[0], because));
    }
    division.appends().iter().for_each(|columns| planner.phase(Append { layer }, cells(columns)));
    match (wide, parts) {
        (false, _) => {
            let slices = rotated(even(slices(heads, head_dim), workers as u32), layer * 29);
            planner.phase(Parts { layer }, cells(&Vec::from_iter(0..splits)));
            planner.phase(JoinParts { layer }, slices.into_iter().map(Work::Rows).collect());
        }
        (true, None) => {
            division.blocks().iter().for_each(|columns| planner.phase(AttendRows { layer }, cells(columns)));
        }
        (true, Some(_)) => {
            let rounds = division.parts_by_round();
            rounds.into_iter().for_each(|works| planner.phase(BlockParts { layer }, works));
            let rows = even(planner.plan.rows().unwrap_or(1), workers as u32);
            planner.phase(JoinRows { layer }, rows.into_iter().map(Work::Rows).collect());
        }
    }
    Ok(())
}

/// A kv head's positions in a cache: those from `lo` up to the row's own, which are read, or only
/// its own, which is written.
fn cached(cache: BufferId, head: u32, head_dim: u32, read_from: Option<Bound>) -> Operand {
    let (lo, access) = read_from.map_or((Bound::at_pos(0), Access::Write), |lo| (lo, Access::Read));
    let positions = Interval { lo, hi: Bound::at_pos(1) };
    let intervals = [Interval::fixed(head, head + 1), positions, Interval::fixed(0, head_dim)];
    let region = Region::new(&intervals).unwrap_or(Region::full(&[]));
    Operand { buffer: cache, region, access, early: false, routed: None }
}

/// Adds the calls that normalise and rotate heads of a layer for some rows, if the layer does so.
/// Returns the result.
fn turned(
    task: &mut TaskCalls<'_>,
    layer: &LayerBuffers,
    rows: &Range<u32>,
    x: Operand,
    norm: Option<BufferId>,
) -> Option<Operand> {
    let decoder = Decoder::of(task.plan)?;
    let (eps, (AttentionForm { head_dim, .. }, table)) = (decoder.eps, decoder.form(layer)?);
    let len = x.region.len_at(0) as u32;
    let mut x = x;
    if let Some(norm) = norm {
        let to = task.local(len);
        let operands = vec![x, early(norm, &[0..head_dim]), write(to, &[0..len])];
        task.call_of_rows(rows, "amk_kernels::head_norm", operands, vec![Param::F32(eps)]);
        x = read(to, &[0..len]);
    }
    let Some(table) = table else { return Some(x) };
    let to = task.local(len);
    let operands = vec![x, early(table.freqs, &[0..table.len]), write(to, &[0..len])];
    let params = vec![Param::U32(head_dim), Param::F32(table.scale), Param::Pos];
    task.call_of_rows(rows, "amk_kernels::rope", operands, params);
    Some(read(to, &[0..len]))
}

/// The elements of some heads.
fn elements(heads: &Range<u32>, head_dim: u32) -> Range<u32> {
    heads.start * head_dim..heads.end * head_dim
}

impl PhaseKind for Append {
    fn label(&self) -> String {
        format!("append {}", self.layer)
    }

    fn calls(&self, task: &mut TaskCalls<'_>, _worker: u32, work: &Work) {
        let (Some(decoder), &Work::Cell { row: head, column }) = (Decoder::of(task.plan).cloned(), work) else {
            return;
        };
        let Some(layer) = decoder.layers.get(self.layer) else { return };
        let &LayerBuffers { qkv: [_, k, v], caches: [keys, values], head_norms, .. } = layer;
        let ([_, _, head_dim], rows) = (decoder.heads(), Division::of(task.plan).appended(column));
        let key = decoder.form(layer).map_or(head, |(form, _)| head / form.copies);
        let own = elements(&(key..key + 1), head_dim);
        let norm = head_norms.map(|[_, norm]| norm);
        let Some(key) = turned(task, layer, &rows, read(k, std::slice::from_ref(&own)), norm) else { return };
        for (cache, x) in [(keys, key), (values, read(v, &[own]))] {
            let operands = vec![cached(cache, head, head_dim, None), x];
            task.call_of_rows(&rows, "amk_kernels::kv_append", operands, vec![Param::Pos]);
        }
    }

    fn record(&self, encoder: &mut Encoder<'_>, work: &Work) -> Record {
        let (Some(buffers), &Work::Cell { row, column }) = (Decoder::layer(encoder.plan, self.layer), work) else {
            return Record::default();
        };
        let rows = Division::of(encoder.plan).appended(column);
        Record {
            op: encoder.op("APPEND"),
            units: rows.len() as u16,
            shape: Decoder::of(encoder.plan)
                .map_or(0, |decoder| first_alike(&decoder.forms, &decoder.groups(encoder.plan), buffers.kind) as u32),
            row,
            norm: 0, // of queries
            aux: rows.start,
            ..buffers.record(encoder, self.layer)
        }
    }

    fn constants(&self, plan: &Plan) -> Vec<BufferId> {
        head_norms(plan, self.layer)
    }

    fn same(&self, other: &dyn PhaseKind) -> bool {
        same(self, other)
    }
}

impl PhaseKind for AttendRows {
    fn label(&self) -> String {
        format!("attend {}", self.layer)
    }

    fn calls(&self, task: &mut TaskCalls<'_>, _worker: u32, work: &Work) {
        let (Some(decoder), &Work::Cell { row: kv_head, column }) = (Decoder::of(task.plan).cloned(), work) else {
            return;
        };
        let Some(layer) = decoder.layers.get(self.layer) else { return };
        let (&LayerBuffers { qkv: [q, ..], caches, attended, head_norms, .. }, Some((form, _))) =
            (layer, decoder.form(layer))
        else {
            return;
        };
        let ([kv_heads, heads, head_dim], rows) = (decoder.heads(), Division::of(task.plan).rows(column));
        let group = heads / kv_heads;
        let own = elements(&(kv_head * group..(kv_head + 1) * group), head_dim);
        let (x, norm) = (read(q, std::slice::from_ref(&own)), head_norms.map(|[norm, _]| norm));
        let Some(x) = turned(task, layer, &rows, x, norm) else { return };
        let [keys, values] = caches.map(|cache| cached(cache, kv_head, head_dim, Some(form.first())));
        let window = Param::U32(form.last(&task.plan.program));
        let mut params = vec![Param::F32(decoder.score_scale)];
        params.extend(form.cap.map(Param::F32));
        params.extend([window, Param::Pos]);
        let operands = vec![x, keys, values, write(attended, &[own])];
        task.call_of_rows(&rows, form.row_path(), operands, params);
    }

    fn record(&self, encoder: &mut Encoder<'_>, work: &Work) -> Record {
        let (Some(buffers), &Work::Cell { row, column }) = (Decoder::layer(encoder.plan, self.layer), work) else {
            return Record::default();
        };
        let rows = Division::of(encoder.plan).rows(column);
        Record {
            op: encoder.op("ATTEND_ROWS"),
            units: rows.len() as u16,
            output: encoder.packet(buffers.attended),
            row,
            aux: rows.start,
            ..buffers.record(encoder, self.layer)
        }
    }

    fn same(&self, other: &dyn PhaseKind) -> bool {
        same(self, other)
    }
}

/// Adds the calls with which a kv head's queries attend to splits of the positions, one split for
/// each of some rows.
fn attend_splits(
    task: &mut TaskCalls<'_>,
    layer: usize,
    kv_head: u32,
    of: impl Iterator<Item = (Range<u32>, u32)>,
) -> Option<()> {
    let decoder = Decoder::of(task.plan).cloned()?;
    let (splits, [kv_heads, heads, head_dim]) = (decoder.splits(), decoder.heads());
    let layer = decoder.layers.get(layer)?;
    let &LayerBuffers { qkv: [q, ..], caches, parts: Some(Partials { partial, lse }), head_norms, .. } = layer else {
        return None;
    };
    let (form, _) = decoder.form(layer)?;
    let group = heads / kv_heads;
    let queries = kv_head * group..(kv_head + 1) * group;
    let norm = head_norms.map(|[norm, _]| norm);
    for (rows, split) in of {
        let x = turned(task, layer, &rows, read(q, &[elements(&queries, head_dim)]), norm)?;
        let [keys, values] = caches.map(|cache| cached(cache, kv_head, head_dim, Some(form.first())));
        let operands = vec![
            x,
            keys,
            values,
            write(partial, &[queries.clone(), split..split + 1, 0..head_dim]),
            write(lse, &[queries.clone(), split..split + 1]),
        ];
        let mut params = [group, decoder.run(), splits, split].map(Param::U32).to_vec();
        params.push(Param::F32(decoder.score_scale));
        params.extend(form.cap.map(Param::F32));
        params.extend([Param::U32(form.last(&task.plan.program)), Param::Pos]);
        task.call_of_rows(&rows, form.part_path(), operands, params);
    }
    Some(())
}

impl PhaseKind for BlockParts {
    fn label(&self) -> String {
        format!("attend {}", self.layer)
    }

    fn calls(&self, task: &mut TaskCalls<'_>, _worker: u32, work: &Work) {
        let &Work::Cell { row: kv_head, column } = work else { return };
        let division = Division::of(task.plan);
        let (block, part) = division.block_and_part(column);
        attend_splits(task, self.layer, kv_head, iter::once((division.rows(block), part)));
    }

    fn record(&self, encoder: &mut Encoder<'_>, work: &Work) -> Record {
        let (Some(buffers), &Work::Cell { row, column }) = (Decoder::layer(encoder.plan, self.layer), work) else {
            return Record::default();
        };
        let Some(parts) = buffers.parts else { return Record::default() };
        let division = Division::of(encoder.plan);
        let (block, part) = division.block_and_part(column);
        let rows = division.rows(block);
        Record {
            op: encoder.op("BLOCK_PARTS"),
            units: rows.len() as u16,
            output: encoder.packet(parts.lse),
            row,
            aux: rows.start,
            partial: encoder.packet(parts.partial),
            more: part,
            ..buffers.record(encoder, self.layer)
        }
    }

    fn same(&self, other: &dyn PhaseKind) -> bool {
        same(self, other)
    }
}

impl PhaseKind for JoinRows {
    fn label(&self) -> String {
        format!("combine {}", self.layer)
    }

    fn calls(&self, task: &mut TaskCalls<'_>, _worker: u32, work: &Work) {
        let (Some(decoder), Work::Rows(rows)) = (Decoder::of(task.plan).cloned(), work) else { return };
        let (splits, [_, heads, head_dim]) = (decoder.splits(), decoder.heads());
        let Some(&LayerBuffers { parts: Some(Partials { partial, lse }), attended, .. }) =
            decoder.layers.get(self.layer)
        else {
            return;
        };
        let operands = vec![
            read(partial, &[0..heads, 0..splits, 0..head_dim]),
            read(lse, &[0..heads, 0..splits]),
            write(attended, &[0..heads * head_dim]),
        ];
        task.call_of_rows(rows, "amk_kernels::combine_splits", operands, Vec::new());
    }

    fn record(&self, encoder: &mut Encoder<'_>, work: &Work) -> Record {
        let (Some(buffers), Work::Rows(rows)) = (Decoder::layer(encoder.plan, self.layer), work) else {
            return Record::default();
        };
        let Some(parts) = buffers.parts else { return Record::default() };
        Record {
            op: encoder.op("JOIN_ROWS"),
            units: rows.len() as u16,
            input: encoder.packet(parts.lse),
            output: encoder.packet(buffers.attended),
            aux: rows.start,
            partial: encoder.packet(parts.partial),
            ..Record::default()
        }
    }

    fn same(&self, other: &dyn PhaseKind) -> bool {
        same(self, other)
    }
}

impl PhaseKind for Parts {
    fn label(&self) -> String {
        format!("attend {}", self.layer)
    }

    fn calls(&self, task: &mut TaskCalls<'_>, _worker: u32, work: &Work) {
        let &Work::Cell { row: kv_head, column } = work else { return };
        let splits = Decoder::of(task.plan).map_or(1, Decoder::splits);
        let most = task.plan.rows().unwrap_or(0);
        let of = (0..most).map(|row| (row..row + 1, split_of(column, row, splits, most)));
        attend_splits(task, self.layer, kv_head, of);
    }

    fn record(&self, encoder: &mut Encoder<'_>, work: &Work) -> Record {
        let (Some(buffers), &Work::Cell { row, column }) = (Decoder::layer(encoder.plan, self.layer), work) else {
            return Record::default();
        };
        let Some(parts) = buffers.parts else { return Record::default() };
        Record {
            op: encoder.op("PARTS"),
            units: 1,
            output: encoder.packet(parts.lse),
            row,
            aux: column,
            partial: encoder.packet(parts.partial),
            more: encoder.packet(buffers.attended),
            ..buffers.record(encoder, self.layer)
        }
    }

    fn same(&self, other: &dyn PhaseKind) -> bool {
        same(self, other)
    }
}

impl PhaseKind for JoinParts {
    fn label(&self) -> String {
        format!("combine {}", self.layer)
    }

    fn calls(&self, task: &mut TaskCalls<'_>, worker: u32, work: &Work) {
        super::phase::Combine { layer: self.layer }.calls(task, worker, work);
    }

    fn record(&self, encoder: &mut Encoder<'_>, work: &Work) -> Record {
        let (Some(buffers), Work::Rows(slices)) = (Decoder::layer(encoder.plan, self.layer), work) else {
            return Record::default();
        };
        let Some(parts) = buffers.parts else { return Record::default() };
        Record {
            op: encoder.op("JOIN_PARTS"),
            units: (slices.end - slices.start) as u16,
            input: encoder.packet(parts.lse),
            output: encoder.packet(buffers.attended),
            row: slices.start,
            partial: encoder.packet(parts.partial),
            ..Record::default()
        }
    }

    fn same(&self, other: &dyn PhaseKind) -> bool {
        same(self, other)
    }
}

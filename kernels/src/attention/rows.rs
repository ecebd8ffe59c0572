//! Phases of attention for steps of rows: append, attend in splits of the positions, join.

use super::form::{AttentionForm, SMALL_HEAD, cache_of, first_alike};
use super::group::Attention;
use super::phase::{BLOCK, LayerBuffers, Partials, attending, buffers, head_norms, normed, note_late, slices};
use crate::abi::split_of;
use crate::fused::Decoder;
use crate::linear::blocks;
use amk::ir::program::BufferKind;
use amk::ir::{Access, Bound, BufferId, Exchange, Interval, Operand, Param, Region};
use amk_cuda::image::abi::{CHUNK, WARPS};
use amk_cuda::image::{Encoder, Record};
use amk_cuda::plan::{PhaseKind, Plan, Planner, TaskCalls, Unsupported, Work, early, even, read, rotated, same, write};
use std::iter;
use std::ops::Range;

/// Steps of more rows mostly run long prompts. Rows of many sequences are attended to one
/// sequence after the other by the larger sets, and there may be so many such rows.
const MANY_SEQUENCES: u32 = 256;
/// Steps of more rows have a prompt's first and last rows in different rounds.
const VERY_LONG: u32 = 512;
/// Queries of a set of rows in long steps.
const LONG_QUERIES: u32 = 64;
/// The longest head of which a worker's warps have the elements in long steps.
const LONGEST_HEAD: u32 = 256;

/// Writes the keys and values of a block of rows to their pages, a kv head a task.
#[derive(Clone, Debug, PartialEq)]
pub struct Append {
    /// The layer.
    pub layer: usize,
}

/// Attention of all rows to one split each of their positions. A task has one kv head; it takes
/// another split of each row (`split_of`), so that short contexts are spread over the workers.
#[derive(Clone, Debug, PartialEq)]
pub struct Parts {
    /// The layer.
    pub layer: usize,
}

/// Attention of a block of rows to all of their positions, a kv head a task.
#[derive(Clone, Debug, PartialEq)]
pub struct AttendRows {
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
/// Where there are more key heads than workers.
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
    let wide = planner.plan.is_wide();
    let qkv = normed(attention, planner);
    let parts = (!wide).then(|| Partials::new(planner, layer));
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
    let division = Division::of(&planner.plan);
    let blocks = blocks(&planner.plan);
    if division.tasks(&planner.plan, kv_heads) as usize > workers {
        let what = format!("{kv_heads} key heads with {blocks} blocks of rows are too many for {workers} workers");
        return Err(Unsupported::at(planner.flow, attention.calls[0], what));
    }
    let by_round = by_round(blocks, division.rounds);
    by_round.iter().for_each(|columns| planner.phase(Append { layer }, cells(columns)));
    if wide {
        by_round.iter().for_each(|columns| planner.phase(AttendRows { layer }, cells(columns)));
        return Ok(());
    }
    let slices = rotated(even(slices(heads, head_dim), workers as u32), layer * 29);
    planner.phase(Parts { layer }, cells(&Vec::from_iter(0..splits)));
    planner.phase(JoinParts { layer }, slices.into_iter().map(Work::Rows).collect());
    Ok(())
}

/// The blocks of each round. A worker's blocks of two rounds are as far from the ends.
fn by_round(blocks: u32, rounds: u32) -> Vec<Vec<u32>> {
    let all = Vec::from_iter(0..blocks);
    let mut rounds: Vec<_> = all.chunks(blocks.div_ceil(rounds) as usize).map(<[u32]>::to_vec).collect();
    rounds.iter_mut().skip(1).step_by(2).for_each(|round| round.reverse());
    rounds
}

/// How attention is shared out.
#[derive(Clone, Copy)]
struct Division {
    /// The rows of a task.
    block: u32,
    /// Phases in which the workers attend, each to a block.
    rounds: u32,
    /// By sets of more queries, of which the positions are in the ring's memory.
    long: bool,
}

impl Division {
    /// In as few rounds as there can be but no fewer than `least`, and of these by the first block,
    /// which give no worker two tasks in a round.
    fn first(
        plan: &Plan,
        decoder: &Decoder,
        least: u32,
        blocks: impl Iterator<Item = u32> + Clone,
    ) -> Option<Division> {
        let [kv_heads, ..] = decoder.heads();
        let of = |rounds| blocks.clone().map(move |block| Division { block, rounds, long: false });
        let fits = |division: &Division| division.tasks(plan, kv_heads) <= plan.schedule.workers;
        (least..=plan.rows().unwrap_or(1)).find_map(|rounds| of(rounds).find(fits))
    }

    /// By rows, or sets of 8 queries. The later rows of a long step attend to more: a worker has a
    /// block of the first half, then one of the second.
    fn wide(plan: &Plan, decoder: &Decoder) -> Division {
        let [kv_heads, heads, head_dim] = decoder.heads();
        let (set, most) = (8 / (heads / kv_heads), WARPS / head_dim.div_ceil(SMALL_HEAD).max(1));
        let rounds = if blocks::blocks(plan.rows()) > 1 { 2 } else { 1 };
        let blocks = iter::once(1).chain((1..=most).map(|sets| sets * set));
        Division::first(plan, decoder, rounds, blocks).unwrap_or(Division { block: most * set, rounds, long: false })
    }

    /// By sets of more queries, in steps that are long enough. Not where the memory is too small,
    /// or a third of the workers would have none. Each task reads all positions: rather larger
    /// ones than more rounds. But the later rows of very long steps attend to so many more that a
    /// worker has early and late ones. Nor where scores fall as products rise.
    fn long(plan: &Plan, decoder: &Decoder) -> Option<Division> {
        let [kv_heads, heads, head_dim] = decoder.heads();
        let is_long = plan.rows().is_some_and(|rows| rows > MANY_SEQUENCES) && head_dim <= LONGEST_HEAD;
        if !is_long || decoder.score_scale < 0.0 {
            return None;
        }
        let (set, most) = (LONG_QUERIES / (heads / kv_heads), teams(head_dim));
        let least = if plan.rows() > Some(VERY_LONG) { 2 } else { 1 };
        let of = |rounds| Division::first(plan, decoder, rounds, (1..=most).map(|sets| sets * set));
        // More rounds may give a worker fewer sets. Teams without one have nothing to do.
        let first = of(least)?.rounds;
        let sets = |division: &Division| most / (most / (division.block / set));
        let division = (first..=2 * first).filter_map(of).min_by_key(|division| division.rounds * sets(division));
        let division = division.map(|division| Division { long: true, ..division });
        division.filter(|division| {
            3 * division.tasks(plan, kv_heads) >= 2 * plan.schedule.workers
                && division.long_bytes(decoder) <= plan.schedule.ring.slots * CHUNK
        })
    }

    /// That of a plan. A task of a narrow step has all rows.
    fn of(plan: &Plan) -> Division {
        match Decoder::attending(plan).filter(|_| plan.is_wide()) {
            Some(decoder) => Division::long(plan, decoder).unwrap_or_else(|| Division::wide(plan, decoder)),
            None => Division { block: plan.rows().unwrap_or(1), rounds: 1, long: false },
        }
    }

    /// Bytes that a task of a long step needs (`PromptMemory` in `blocks.cuh`): for turns, the
    /// queries and two blocks of positions, or else for the teams' shares.
    fn long_bytes(self, decoder: &Decoder) -> u32 {
        let [kv_heads, heads, head_dim] = decoder.heads();
        let sets = self.block / (LONG_QUERIES / (heads / kv_heads));
        let turns = (self.block * head_dim.max(SMALL_HEAD) * 4).next_multiple_of(1024);
        let shares = teams(head_dim) * LONG_QUERIES * (8 + (head_dim + 16) * 4);
        shares.max(turns + sets * LONG_QUERIES * head_dim * 2 + 2 * BLOCK * head_dim * 4)
    }

    /// Tasks of a round, a kv head each.
    fn tasks(self, plan: &Plan, kv_heads: u32) -> u32 {
        kv_heads * plan.rows().unwrap_or(1).div_ceil(self.block).div_ceil(self.rounds)
    }
}

/// The rows of a task that appends or attends: all of a narrow step, else as few as give no worker
/// two tasks in a round, one or whole sets.
pub(crate) fn block(plan: &Plan) -> u32 {
    Division::of(plan).block
}

/// Whether steps are long and their attention has sets of more queries, and its positions in the
/// ring's memory.
pub(super) fn is_long(plan: &Plan) -> bool {
    Division::of(plan).long
}

/// Teams of a worker's warps in long steps, each with a set of queries or a share of the positions.
fn teams(head_dim: u32) -> u32 {
    WARPS / 4 / head_dim.div_ceil(SMALL_HEAD)
}

fn blocks(plan: &Plan) -> u32 {
    plan.rows().unwrap_or(1).div_ceil(block(plan))
}

/// The rows of a block.
fn rows_of(plan: &Plan, number: u32) -> Range<u32> {
    let (block, rows) = (block(plan), plan.rows().unwrap_or(1));
    number * block..((number + 1) * block).min(rows)
}

/// A kv head's positions of a cache, which are read from `lo` up to the row's own, or its own one,
/// which is written.
fn cached(cache: BufferId, head: u32, head_dim: u32, read_from: Option<Bound>) -> Operand {
    let (lo, access) = read_from.map_or((Bound::at_pos(0), Access::Write), |lo| (lo, Access::Read));
    let positions = Interval { lo, hi: Bound::at_pos(1) };
    let intervals = [Interval::fixed(head, head + 1), positions, Interval::fixed(0, head_dim)];
    let region = Region::new(&intervals).unwrap_or(Region::full(&[]));
    Operand { buffer: cache, region, access, early: false, routed: None }
}

/// Adds the calls that norm and rotate heads of a layer for some rows, where it does. Returns the
/// result.
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
        let ([_, _, head_dim], rows) = (decoder.heads(), rows_of(task.plan, column));
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
        let rows = rows_of(encoder.plan, column);
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
        let ([kv_heads, heads, head_dim], rows) = (decoder.heads(), rows_of(task.plan, column));
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
        let rows = rows_of(encoder.plan, column);
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

impl PhaseKind for Parts {
    fn label(&self) -> String {
        format!("attend {}", self.layer)
    }

    fn calls(&self, task: &mut TaskCalls<'_>, _worker: u32, work: &Work) {
        let (Some(decoder), &Work::Cell { row: kv_head, column }) = (Decoder::of(task.plan).cloned(), work) else {
            return;
        };
        let (splits, [kv_heads, heads, head_dim]) = (decoder.splits(), decoder.heads());
        let Some(layer) = decoder.layers.get(self.layer) else { return };
        let (&LayerBuffers { qkv: [q, ..], caches, parts: Some(parts), head_norms, .. }, Some((form, _))) =
            (layer, decoder.form(layer))
        else {
            return;
        };
        let Partials { partial, lse } = parts;
        let group = heads / kv_heads;
        let queries = kv_head * group..(kv_head + 1) * group;
        let norm = head_norms.map(|[norm, _]| norm);
        let most = task.plan.rows().unwrap_or(0);
        for row in 0..most {
            let (split, rows) = (split_of(column, row, splits, most), row..row + 1);
            let x = read(q, &[elements(&queries, head_dim)]);
            let Some(x) = turned(task, layer, &rows, x, norm) else { return };
            let [keys, values] = caches.map(|cache| cached(cache, kv_head, head_dim, Some(form.first())));
            let operands = vec![
                x,
                keys,
                values,
                write(partial, &[queries.clone(), split..split + 1, 0..head_dim]),
                write(lse, &[queries.clone(), split..split + 1]),
            ];
            let mut params = [group, decoder.run(), splits, split].map(Param::U32).to_vec();
            let window = Param::U32(form.last(&task.plan.program));
            params.push(Param::F32(decoder.score_scale));
            params.extend(form.cap.map(Param::F32));
            params.extend([window, Param::Pos]);
            task.call_of_rows(&rows, form.part_path(), operands, params);
        }
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

//! Phases of attention for steps of rows: append, attend in splits of the positions, join.

use super::group::Attention;
use super::phase::{BLOCK, LayerBuffers, SLICE, attending, note_late};
use crate::fused::Decoder;
use amk::ir::program::BufferKind;
use amk::ir::{Access, Bound, BufferId, DType, Exchange, Interval, Operand, Param, Region};
use amk_cuda::image::{Encoder, Record};
use amk_cuda::plan::{PhaseKind, Plan, Planner, TaskCalls, Work, early, even, read, rotated, same, write};
use std::ops::Range;

/// Writes the keys and values of all rows to their pages, a kv head a task.
#[derive(Clone, Debug, PartialEq)]
pub struct Append {
    /// The layer.
    pub layer: usize,
}

/// Attention of all rows to one split each of their positions. A task has one kv head; it takes
/// split `column + row` of each row, so that short contexts are spread over the workers.
#[derive(Clone, Debug, PartialEq)]
pub struct Parts {
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
pub(super) fn plan(attention: &Attention, planner: &mut Planner<'_>) {
    let context = planner.plan.sizes.context;
    let decoder = planner.plan.shared.entry::<Decoder>().clone();
    let (layer, splits, [kv_heads, heads, head_dim]) = (decoder.layers.len(), decoder.splits, decoder.heads());
    let workers = planner.load.len();
    let name = |what: &str| format!("{what}.{layer}");
    let shape = [kv_heads, context, head_dim];
    let caches = ["keys", "values"].map(|what| {
        let cache = planner.buffer(&name(what), BufferKind::State, DType::BF16, &shape, Exchange::Counter);
        planner.exchange(cache)
    });
    let buffers = LayerBuffers {
        qkv: attention.qkv.map(|value| planner.known(value)),
        caches,
        partial: planner.packets(&name("partial"), DType::F32, &[heads, splits, head_dim]),
        lse: planner.packets(&name("lse"), DType::F32, &[heads, splits]),
        attended: planner.value(attention.result, DType::BF16),
        head_norms: attention.head_norms.map(|norms| norms.map(|norm| planner.known(norm))),
    };
    planner.plan.shared.entry::<Decoder>().layers.push(buffers);
    let mut order = attending(&planner.plan, layer);
    let mut cells = vec![Work::Rows(0..0); workers];
    for (n, &worker) in (0..kv_heads * splits).zip(&order) {
        cells[worker] = Work::Cell { row: n % kv_heads, column: n / kv_heads };
    }
    order.truncate(kv_heads as usize);
    let mut appends = vec![Work::Rows(0..0); workers];
    for (head, worker) in (0..kv_heads).zip(order) {
        appends[worker] = Work::Rows(head..head + 1);
    }
    let slices = rotated(even(heads * head_dim / SLICE, workers as u32), layer * 29);
    note_late(planner, &cells);
    planner.phase(Append { layer }, appends);
    planner.phase(Parts { layer }, cells);
    planner.phase(JoinParts { layer }, slices.into_iter().map(Work::Rows).collect());
}

/// A kv head's positions of a cache: the row's own one, or all up to it.
fn cached(cache: BufferId, head: u32, head_dim: u32, own: bool) -> Operand {
    let positions = Interval { lo: if own { Bound::at_pos(0) } else { Bound::fixed(0) }, hi: Bound::at_pos(1) };
    let intervals = [Interval::fixed(head, head + 1), positions, Interval::fixed(0, head_dim)];
    let region = Region::new(&intervals).unwrap_or(Region::full(&[]));
    let access = if own { Access::Write } else { Access::Read };
    Operand { buffer: cache, region, access, early: false, routed: None }
}

/// Adds the calls that norm and rotate heads for a row, or for all. Returns the buffer of the
/// result.
fn turned(
    task: &mut TaskCalls<'_>,
    row: Option<u32>,
    x: Operand,
    [len, head_dim]: [u32; 2],
    norm: Option<BufferId>,
) -> Option<Operand> {
    let decoder = Decoder::of(task.plan)?.clone();
    let mut x = x;
    if let Some(norm) = norm {
        let to = task.local(len);
        let operands = vec![x, early(norm, &[0..head_dim]), write(to, &[0..len])];
        add(task, row, "amk_kernels::head_norm", operands, vec![Param::F32(decoder.eps)]);
        x = read(to, &[0..len]);
    }
    let to = task.local(len);
    let operands = vec![x, early(decoder.freqs?, &[0..head_dim / 2]), write(to, &[0..len])];
    let params = vec![Param::U32(head_dim), Param::F32(decoder.scales()[0]), Param::Pos];
    add(task, row, "amk_kernels::rope", operands, params);
    Some(read(to, &[0..len]))
}

fn add(task: &mut TaskCalls<'_>, row: Option<u32>, path: &str, operands: Vec<Operand>, params: Vec<Param>) {
    match row {
        Some(row) => task.call_of_row(row, path, operands, params),
        None => task.call(path, operands, params),
    }
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
        let (Some(decoder), Work::Rows(heads)) = (Decoder::of(task.plan).cloned(), work) else { return };
        let Some(&LayerBuffers { qkv: [_, k, v], caches: [keys, values], head_norms, .. }) =
            decoder.layers.get(self.layer)
        else {
            return;
        };
        let [_, _, head_dim] = decoder.heads();
        let own = elements(heads, head_dim);
        let norm = head_norms.map(|[_, norm]| norm);
        let Some(key) = turned(task, None, read(k, std::slice::from_ref(&own)), [head_dim; 2], norm) else { return };
        for (cache, x) in [(keys, key), (values, read(v, &[own]))] {
            let operands = vec![cached(cache, heads.start, head_dim, true), x];
            task.call("amk_kernels::kv_append", operands, vec![Param::Pos]);
        }
    }

    fn record(&self, encoder: &mut Encoder<'_>, work: &Work) -> Record {
        let (Some(buffers), Work::Rows(heads)) = (Decoder::layer(encoder.plan, self.layer), work) else {
            return Record::default();
        };
        Record {
            op: encoder.op("APPEND"),
            units: 1,
            input: encoder.packet(buffers.qkv[0]),
            row: heads.start,
            bias: encoder.constant(buffers.head_norms.map(|norms| norms[1])),
            layer: self.layer as u32,
            ..Record::default()
        }
    }

    fn constants(&self, plan: &Plan) -> Vec<BufferId> {
        Decoder::layer(plan, self.layer).and_then(|layer| layer.head_norms).into_iter().flatten().collect()
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
        let (splits, [kv_heads, heads, head_dim]) = (decoder.splits, decoder.heads());
        let Some(&LayerBuffers { qkv: [q, ..], caches, partial, lse, head_norms, .. }) = decoder.layers.get(self.layer)
        else {
            return;
        };
        let group = heads / kv_heads;
        let queries = kv_head * group..(kv_head + 1) * group;
        let norm = head_norms.map(|[norm, _]| norm);
        for row in 0..task.plan.rows().unwrap_or(0) {
            let split = (column + row) % splits;
            let x = read(q, &[elements(&queries, head_dim)]);
            let Some(x) = turned(task, Some(row), x, [group * head_dim, head_dim], norm) else { return };
            let [keys, values] = caches.map(|cache| cached(cache, kv_head, head_dim, false));
            let operands = vec![
                x,
                keys,
                values,
                write(partial, &[queries.clone(), split..split + 1, 0..head_dim]),
                write(lse, &[queries.clone(), split..split + 1]),
            ];
            let mut params = [group, BLOCK * task.plan.schedule.run, splits, split].map(Param::U32).to_vec();
            params.extend([Param::F32(decoder.scales()[1]), Param::Pos]);
            task.call_of_row(row, "amk_kernels::attention_part", operands, params);
        }
    }

    fn record(&self, encoder: &mut Encoder<'_>, work: &Work) -> Record {
        let (Some(buffers), &Work::Cell { row, column }) = (Decoder::layer(encoder.plan, self.layer), work) else {
            return Record::default();
        };
        Record {
            op: encoder.op("PARTS"),
            units: 1,
            input: encoder.packet(buffers.qkv[0]),
            output: encoder.packet(buffers.lse),
            row,
            norm: encoder.constant(buffers.head_norms.map(|norms| norms[0])),
            layer: self.layer as u32,
            aux: column,
            partial: encoder.packet(buffers.partial),
            ..Record::default()
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
        Record {
            op: encoder.op("JOIN_PARTS"),
            units: (slices.end - slices.start) as u16,
            input: encoder.packet(buffers.lse),
            output: encoder.packet(buffers.attended),
            row: slices.start,
            partial: encoder.packet(buffers.partial),
            ..Record::default()
        }
    }

    fn same(&self, other: &dyn PhaseKind) -> bool {
        same(self, other)
    }
}

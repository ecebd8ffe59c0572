//! Phases that set the workers' residual, each worker its own rows, from the embedding or from
//! packets.

use crate::fused::Decoder;
use crate::linear::blocks::works;
use crate::linear::phase::owned;
use amk::ir::program::BufferKind;
use amk::ir::{BufferId, DType, Exchange, Param, TensorId};
use amk_cuda::cost::{CostModel, Overhead};
use amk_cuda::image::abi::UNIT;
use amk_cuda::image::{Encoder, Record};
use amk_cuda::plan::{PhaseKind, Plan, Planner, TaskCalls, Work, early, read, same, write};
use std::ops::Range;
use std::slice::from_ref;

/// Sets the residual to the token's embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct Embed {
    /// The residual.
    pub to: BufferId,
    /// Its packets, if it has any.
    pub published: Option<BufferId>,
}

/// Sets the residual from packets.
#[derive(Clone, Debug, PartialEq)]
pub struct Adopt {
    /// The packets.
    pub from: BufferId,
    /// The residual.
    pub to: BufferId,
}

/// Values that the workers hold during planning.
#[derive(Clone, Debug, Default)]
struct Holding {
    /// The value that every reader looks up in the embedding table.
    embedded: Option<TensorId>,
    /// The residual: a value of the function, and its buffer.
    residual: Option<(TensorId, BufferId)>,
    adoptions: u32,
}

/// Makes the workers look up a value and hold it as the residual.
pub(super) fn begin(plan: &mut Plan, value: TensorId, buffer: BufferId) {
    let holding = plan.shared.entry::<Holding>();
    (holding.embedded, holding.residual) = (Some(value), Some((value, buffer)));
}

/// Returns the value that every reader looks up in the embedding table.
pub(crate) fn embedded(plan: &Plan) -> Option<TensorId> {
    plan.shared.get::<Holding>()?.embedded
}

/// Records that the workers now hold a value in a buffer.
pub(crate) fn hold(plan: &mut Plan, value: TensorId, buffer: BufferId) {
    plan.shared.entry::<Holding>().residual = Some((value, buffer));
}

/// Returns the buffer in which the workers hold a residual of `rows` rows. They adopt it from its
/// packets if they hold another.
pub(crate) fn held(planner: &mut Planner<'_>, value: TensorId, rows: u32) -> BufferId {
    let holding = planner.plan.shared.entry::<Holding>();
    if let Some((held, buffer)) = holding.residual
        && held == value
    {
        return buffer;
    }
    let number = holding.adoptions;
    holding.adoptions += 1;
    let from = planner.known(value);
    let name = format!("adopted.{number}.{}", planner.flow.tensor(value).name);
    let to = planner.activation(&name, DType::F32, &[rows], Exchange::Counter);
    let works = works(&planner.plan, &owned(&planner.plan, rows), UNIT);
    planner.phase(Adopt { from, to }, works);
    to
}

/// Adds the calls that look up columns of the token's row of the embedding table, for a worker, and
/// scale them if the embedding is scaled.
pub(crate) fn look_up(task: &mut TaskCalls<'_>, worker: u32, columns: Range<u32>, to: BufferId) {
    let plan = &*task.plan;
    let Some(decoder) = plan.shared.get::<Decoder>() else { return };
    let (Some(table), scale) = (decoder.embedding, decoder.embedding_scale) else { return };
    let (token, vocab) = (plan.token, plan.extent(table));
    let local = plan.program.buffers.get(to.index()).is_some_and(|buffer| buffer.kind == BufferKind::Local);
    let len = columns.end - columns.start;
    let to = if local { write(to, &[0..len]) } else { write(to, from_ref(&columns)) };
    let own = if plan.rows().is_some() { 0 } else { worker };
    let row = match scale {
        None => to,
        Some(_) => write(task.local(len), &[0..len]),
    };
    let from = read(row.buffer, &[0..len]);
    let operands = vec![early(table, &[0..vocab, columns]), read(token, &[own..own + 1]), row];
    task.call("amk_kernels::embed", operands, Vec::new());
    if let Some(scale) = scale {
        task.call("amk_kernels::scale", vec![from, to], vec![Param::F32(scale)]);
    }
}

impl PhaseKind for Embed {
    fn label(&self) -> String {
        "embed".into()
    }

    fn calls(&self, task: &mut TaskCalls<'_>, worker: u32, work: &Work) {
        if let Some(rows) = work.elements() {
            for to in [self.to].into_iter().chain(self.published) {
                look_up(task, worker, rows.clone(), to);
            }
        }
    }

    fn record(&self, encoder: &mut Encoder<'_>, work: &Work) -> Record {
        let Some(rows) = work.elements() else { return Record::default() };
        Record {
            output: self.published.map_or(0, |to| encoder.element(to, rows.start)),
            shape: u32::from(self.published.is_some()),
            ..encoder.of_rows("EMBED", work)
        }
    }

    fn overhead(&self, _cost: &CostModel) -> Overhead {
        Overhead { hops: false, fixed: 0.0 }
    }

    fn same(&self, other: &dyn PhaseKind) -> bool {
        same(self, other)
    }
}

impl PhaseKind for Adopt {
    fn label(&self) -> String {
        "adopt".into()
    }

    fn calls(&self, task: &mut TaskCalls<'_>, _worker: u32, work: &Work) {
        if let Some(rows) = work.elements() {
            let operands = vec![read(self.from, from_ref(rows)), write(self.to, from_ref(rows))];
            task.call("amk_kernels::adopt", operands, Vec::new());
        }
    }

    fn record(&self, encoder: &mut Encoder<'_>, work: &Work) -> Record {
        let buffer = encoder.plan.program.buffers.get(self.from.index());
        let pairs = buffer.is_some_and(|buffer| buffer.dtype == DType::BF16);
        let input = encoder.packet(self.from);
        Record { input, shape: u32::from(pairs), ..encoder.of_rows("ADOPT", work) }
    }

    fn same(&self, other: &dyn PhaseKind) -> bool {
        same(self, other)
    }
}

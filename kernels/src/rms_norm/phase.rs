//! Phases of norms of whole vectors. The values come from many workers, so each worker that
//! delivers a part of the result reads all of them. In a wide step that would be all values of all
//! rows, so there each worker first normalises the whole vectors of a few rows.

use crate::abi::{NORM_ADDED, NORM_BIASED, NORM_CENTRED, NORM_COMPUTED, NORM_KNOWN};
use crate::fused::Decoder;
use amk::ir::{BufferId, DType, Operand, Param};
use amk_cuda::cost::{CostModel, Overhead};
use amk_cuda::image::{Encoder, Record};
use amk_cuda::plan::{PhaseKind, Plan, Planner, TaskCalls, UNIT, Work, early, even, read, rotated, same, write};
use std::ops::Range;
use std::slice::from_ref;

/// How a vector is normalised, and by which weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormBy {
    /// `rms_norm` with this weight.
    RootMean(BufferId),
    /// `layer_norm`, or `centred_norm` if there is no bias.
    Centred {
        /// The weight.
        weight: BufferId,
        /// The bias.
        bias: Option<BufferId>,
    },
}

impl NormBy {
    fn weight(self) -> BufferId {
        match self {
            Self::RootMean(weight) | Self::Centred { weight, .. } => weight,
        }
    }

    fn bias(self) -> Option<BufferId> {
        match self {
            Self::RootMean(_) => None,
            Self::Centred { bias, .. } => bias,
        }
    }

    /// Whether it subtracts the mean.
    pub(super) fn is_centred(self) -> bool {
        matches!(self, Self::Centred { .. })
    }

    fn constants(self) -> impl Iterator<Item = BufferId> {
        [Some(self.weight()), self.bias()].into_iter().flatten()
    }

    /// The bits of a record's shape that identify the norm.
    fn flags(self) -> u32 {
        let biased = if self.bias().is_some() { NORM_BIASED } else { 0 };
        if self.is_centred() { NORM_CENTRED | biased } else { 0 }
    }

    /// Adds its call for a vector of `len` elements to a task. Returns the result.
    pub(crate) fn normed(self, task: &mut TaskCalls<'_>, x: BufferId, len: u32) -> BufferId {
        let to = task.local(len);
        let (path, operands, params) = self.call(task.plan, x, len, to);
        task.call(path, operands, params);
        to
    }

    /// The instruction, with its operands and its parameters, for a vector of `len` elements.
    fn call(self, plan: &Plan, x: BufferId, len: u32, to: BufferId) -> (&'static str, Vec<Operand>, Vec<Param>) {
        let path = match self {
            Self::RootMean(_) => "amk_kernels::rms_norm",
            Self::Centred { bias: None, .. } => "amk_kernels::centred_norm",
            Self::Centred { bias: Some(_), .. } => "amk_kernels::layer_norm",
        };
        let constants = self.constants().map(|constant| early(constant, &[0..len]));
        let operands = [read(x, &[0..len])].into_iter().chain(constants).chain([write(to, &[0..len])]).collect();
        (path, operands, vec![Param::F32(Decoder::eps(plan))])
    }
}

/// The norm of a vector; each worker delivers a part of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Norm {
    /// The vector.
    pub from: BufferId,
    /// Its length.
    pub len: u32,
    /// The norm; `None`: the vector is passed on unchanged.
    pub by: Option<NormBy>,
    /// Where the result goes.
    pub output: NormOutput,
    /// The rows of workers with which their last projection of a sum has left the vector's scale.
    pub known: Vec<Range<u32>>,
}

/// Destination of a norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormOutput {
    /// Published.
    Store(BufferId),
    /// Added to the residual, and published.
    Residual {
        /// The residual before.
        before: BufferId,
        /// The residual after.
        after: BufferId,
        /// The packets of the residual after.
        packets: BufferId,
    },
}

/// Norms of whole vectors of some rows of a wide step.
#[derive(Clone, Debug, PartialEq)]
pub struct NormRows {
    /// The vectors.
    pub from: BufferId,
    /// Their length.
    pub len: u32,
    /// The norm.
    pub by: NormBy,
    /// The results.
    pub to: BufferId,
}

/// Adds a phase that normalises whole vectors of the rows of a wide step, into the buffer `to`.
pub(crate) fn whole(planner: &mut Planner<'_>, from: BufferId, by: NormBy, to: BufferId) {
    let rows = planner.plan.rows().unwrap_or(1);
    // Another vector of the same phase starts with different workers.
    let works = rotated(even(rows, planner.plan.schedule.workers), planner.plan.phases.len() * rows as usize);
    let len = planner.plan.extent(from);
    planner.phase(NormRows { from, len, by, to }, works.into_iter().map(Work::Rows).collect());
}

/// Returns the norm of a vector of a wide step with a weight. The first request adds its phase.
pub(crate) fn normed(planner: &mut Planner<'_>, from: BufferId, weight: BufferId) -> BufferId {
    let by = NormBy::RootMean(weight);
    if let Some(known) = planner.plan.phases_of::<NormRows>().find(|norm| norm.from == from && norm.by == by) {
        return known.to;
    }
    let name = planner.plan.program.buffers[weight.index()].name.clone();
    let to = planner.packets(&format!("normed.{name}"), DType::BF16, &[planner.plan.extent(from)]);
    whole(planner, from, by, to);
    to
}

/// A vector that [`norm_all`] norms or passes on.
#[derive(Clone, Copy)]
pub(crate) struct Vector {
    /// The vector.
    pub(crate) from: BufferId,
    /// The norm; `None`: the vector is passed on unchanged.
    pub(crate) by: Option<NormBy>,
    /// The result.
    pub(crate) to: BufferId,
}

/// Adds the phases that normalise several vectors and store the results. All of them together are
/// divided among the workers, except that in a wide step workers have whole vectors.
pub(crate) fn norm_all(planner: &mut Planner<'_>, vectors: &[Vector]) {
    let mut vectors = vectors.to_vec();
    if planner.plan.is_wide() {
        vectors.retain(|&Vector { from, by, to }| by.map(|by| whole(planner, from, by, to)).is_none());
    }
    let units: Vec<u32> = vectors.iter().map(|vector| planner.plan.extent(vector.from) / UNIT).collect();
    let parts = even(units.iter().sum(), planner.plan.schedule.workers);
    let mut before = 0;
    for (Vector { from, by, to }, units) in vectors.into_iter().zip(units) {
        let own = |part: &Range<u32>| {
            let inside = |unit: u32| unit.clamp(before, before + units) - before;
            Work::Rows(inside(part.start) * UNIT..inside(part.end) * UNIT)
        };
        let works = parts.iter().map(own).collect();
        planner.phase(Norm { from, len: units * UNIT, by, output: NormOutput::Store(to), known: Vec::new() }, works);
        before += units;
    }
}

impl PhaseKind for Norm {
    fn label(&self) -> String {
        "norm".into()
    }

    fn calls(&self, task: &mut TaskCalls<'_>, _worker: u32, work: &Work) {
        let Some(rows) = work.elements() else { return };
        let mut x = self.from;
        if let Some(by) = self.by {
            x = by.normed(task, x, self.len);
        }
        let x = read(x, from_ref(rows));
        match self.output {
            NormOutput::Store(to) => {
                task.call("amk_kernels::adopt", vec![x, write(to, from_ref(rows))], Vec::new());
            }
            NormOutput::Residual { before, after, packets } => {
                for to in [after, packets] {
                    let operands = vec![read(before, from_ref(rows)), x, write(to, from_ref(rows))];
                    task.call("amk_kernels::add", operands, Vec::new());
                }
            }
        }
    }

    fn record(&self, encoder: &mut Encoder<'_>, work: &Work) -> Record {
        let Some(rows) = work.elements() else { return Record::default() };
        let (to, added) = match self.output {
            NormOutput::Store(to) => (to, 0),
            NormOutput::Residual { packets, .. } => (packets, NORM_ADDED),
        };
        let known = if self.known.contains(rows) { NORM_KNOWN } else { 0 };
        let computed = self.by.map_or(0, |by| NORM_COMPUTED | by.flags() | known);
        Record {
            input: encoder.packet(self.from),
            output: encoder.element(to, rows.start),
            shape: self.len | computed | added,
            norm: encoder.constant(self.by.map(NormBy::weight)),
            bias: encoder.constant(self.by.and_then(NormBy::bias)),
            ..encoder.of_rows("NORM", work)
        }
    }

    fn overhead(&self, cost: &CostModel) -> Overhead {
        Overhead { hops: self.known.is_empty(), fixed: cost.task }
    }

    fn constants(&self, _plan: &Plan) -> Vec<BufferId> {
        self.by.into_iter().flat_map(NormBy::constants).collect()
    }

    fn same(&self, other: &dyn PhaseKind) -> bool {
        same(self, other)
    }
}

impl PhaseKind for NormRows {
    fn label(&self) -> String {
        "norm".into()
    }

    fn calls(&self, task: &mut TaskCalls<'_>, _worker: u32, work: &Work) {
        let Work::Rows(rows) = work else { return };
        let (path, operands, params) = self.by.call(task.plan, self.from, self.len, self.to);
        task.call_of_rows(rows, path, operands, params);
    }

    fn record(&self, encoder: &mut Encoder<'_>, work: &Work) -> Record {
        let Work::Rows(rows) = work else { return Record::default() };
        Record {
            op: encoder.op("NORM_ROWS"),
            units: (rows.end - rows.start) as u16,
            input: encoder.packet(self.from),
            output: encoder.packet(self.to),
            shape: self.len | self.by.flags(),
            norm: encoder.constant(Some(self.by.weight())),
            bias: encoder.constant(self.by.bias()),
            aux: rows.start,
            ..Record::default()
        }
    }

    fn constants(&self, _plan: &Plan) -> Vec<BufferId> {
        self.by.constants().collect()
    }

    fn same(&self, other: &dyn PhaseKind) -> bool {
        same(self, other)
    }
}

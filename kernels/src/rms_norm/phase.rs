//! Phases of norms of whole vectors. The values come from many workers, so each that delivers a
//! part of the result reads all of them. In a wide step that would be all values of all rows, so
//! there each worker has whole vectors of a few rows first.

use crate::abi::{NORM_ADDED, NORM_COMPUTED};
use crate::fused::Decoder;
use amk::ir::{BufferId, Param};
use amk_cuda::image::{Encoder, Record};
use amk_cuda::plan::{PhaseKind, Plan, Planner, TaskCalls, UNIT, Work, early, even, read, rotated, same, write};
use std::ops::Range;
use std::slice::from_ref;

/// The norm of a vector, of which each worker delivers a part.
#[derive(Clone, Debug, PartialEq)]
pub struct Norm {
    /// The vector.
    pub from: BufferId,
    /// Its length.
    pub len: u32,
    /// Weight of the norm; `None`: the vector is passed on as it is.
    pub weight: Option<BufferId>,
    /// Where the result goes.
    pub output: NormOutput,
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
    /// Weight of the norm.
    pub weight: BufferId,
    /// The results.
    pub to: BufferId,
}

/// Adds a phase that norms whole vectors of the rows of a wide step, into the buffer `to`.
pub(crate) fn whole(planner: &mut Planner<'_>, from: BufferId, weight: BufferId, to: BufferId) {
    let rows = planner.plan.rows().unwrap_or(1);
    // Another vector of the same phase has other workers first.
    let works = rotated(even(rows, planner.plan.schedule.workers), planner.plan.phases.len() * rows as usize);
    let len = planner.plan.extent(from);
    planner.phase(NormRows { from, len, weight, to }, works.into_iter().map(Work::Rows).collect());
}

/// A vector that [`norm_all`] norms or passes on.
#[derive(Clone, Copy)]
pub(crate) struct Vector {
    /// The vector.
    pub(crate) from: BufferId,
    /// Weight of the norm; `None`: the vector is passed on as it is.
    pub(crate) weight: Option<BufferId>,
    /// The result.
    pub(crate) to: BufferId,
}

/// Adds the phases that norm several vectors and store the results. The workers share out all of
/// them together, except that in a wide step they have whole vectors.
pub(crate) fn norm_all(planner: &mut Planner<'_>, vectors: &[Vector]) {
    let mut vectors = vectors.to_vec();
    if planner.plan.is_wide() {
        vectors.retain(|&Vector { from, weight, to }| weight.map(|weight| whole(planner, from, weight, to)).is_none());
    }
    let units: Vec<u32> = vectors.iter().map(|vector| planner.plan.extent(vector.from) / UNIT).collect();
    let parts = even(units.iter().sum(), planner.plan.schedule.workers);
    let mut before = 0;
    for (Vector { from, weight, to }, units) in vectors.into_iter().zip(units) {
        let own = |part: &Range<u32>| {
            let inside = |unit: u32| unit.clamp(before, before + units) - before;
            Work::Rows(inside(part.start) * UNIT..inside(part.end) * UNIT)
        };
        let works = parts.iter().map(own).collect();
        planner.phase(Norm { from, len: units * UNIT, weight, output: NormOutput::Store(to) }, works);
        before += units;
    }
}

impl PhaseKind for Norm {
    fn label(&self) -> String {
        "norm".into()
    }

    fn calls(&self, task: &mut TaskCalls<'_>, _worker: u32, work: &Work) {
        let Work::Rows(rows) = work else { return };
        let mut x = self.from;
        if let Some(weight) = self.weight {
            let len = self.len;
            let eps = Decoder::of(task.plan).map_or(0.0, |decoder| decoder.eps);
            let normed = task.local(len);
            let operands = vec![read(x, &[0..len]), early(weight, &[0..len]), write(normed, &[0..len])];
            task.call("amk_kernels::rms_norm", operands, vec![Param::F32(eps)]);
            x = normed;
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
        let Work::Rows(rows) = work else { return Record::default() };
        let (to, added) = match self.output {
            NormOutput::Store(to) => (to, 0),
            NormOutput::Residual { packets, .. } => (packets, NORM_ADDED),
        };
        let computed = if self.weight.is_some() { NORM_COMPUTED } else { 0 };
        Record {
            input: encoder.packet(self.from),
            output: encoder.element(to, rows.start),
            shape: self.len | computed | added,
            norm: encoder.constant(self.weight),
            ..encoder.of_rows("NORM", rows)
        }
    }

    fn constants(&self, _plan: &Plan) -> Vec<BufferId> {
        self.weight.into_iter().collect()
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
        let len = self.len;
        let eps = Decoder::of(task.plan).map_or(0.0, |decoder| decoder.eps);
        let operands = vec![read(self.from, &[0..len]), early(self.weight, &[0..len]), write(self.to, &[0..len])];
        task.call_of_rows(rows, "amk_kernels::rms_norm", operands, vec![Param::F32(eps)]);
    }

    fn record(&self, encoder: &mut Encoder<'_>, work: &Work) -> Record {
        let Work::Rows(rows) = work else { return Record::default() };
        Record {
            op: encoder.op("NORM_ROWS"),
            units: (rows.end - rows.start) as u16,
            input: encoder.packet(self.from),
            output: encoder.packet(self.to),
            shape: self.len,
            norm: encoder.constant(Some(self.weight)),
            aux: rows.start,
            ..Record::default()
        }
    }

    fn constants(&self, _plan: &Plan) -> Vec<BufferId> {
        vec![self.weight]
    }

    fn same(&self, other: &dyn PhaseKind) -> bool {
        same(self, other)
    }
}

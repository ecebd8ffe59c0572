//! Groups a norm behind a projection with the residual that its result is added to.

use super::phase::{self, Norm, NormBy, NormOutput};
use crate::abi::most_own_rows;
use crate::fused::Decoder;
use crate::residual;
use amk::ir::program::BufferKind;
use amk::ir::{DType, Exchange, TensorId};
use amk_cuda::Extensions;
use amk_cuda::image::abi::UNIT;
use amk_cuda::plan::{Flow, FusedGroup, Grouping, Planner, Unsupported, Work};
use amk_cuda::set::Fusion;

/// Finds the norms whose results are added to a residual.
pub(crate) struct NormedResiduals;

/// `after = before + norm(value)`.
#[derive(Clone, Debug)]
pub(crate) struct NormedResidual {
    /// The calls, `add` first.
    calls: [usize; 2],
    value: TensorId,
    weight: TensorId,
    before: TensorId,
    after: TensorId,
}

impl Fusion for NormedResiduals {
    fn group(&self, grouping: &mut Grouping<'_>) {
        for at in grouping.calls() {
            if let Some(group) = normed_residual(grouping, at) {
                grouping.push(group);
            }
        }
    }
}

/// Returns the group of call `at`, if it adds a norm.
fn normed_residual(grouping: &Grouping<'_>, at: usize) -> Option<NormedResidual> {
    let flow = grouping.flow;
    let fits = |at: usize| grouping.free(at) && grouping.may_lead(at);
    if flow.path(at) != "amk_kernels::add" || !fits(at) {
        return None;
    }
    let (before, normed, after) = (flow.operand(at, 0)?, flow.operand(at, 1)?, flow.result(at)?);
    let norm = flow.made_by(normed, "amk_kernels::rms_norm").filter(|&norm| fits(norm) && flow.only_for(normed, at))?;
    let (value, weight) = (flow.operand(norm, 0)?, flow.operand(norm, 1)?);
    let rows = flow.shape(after)[0];
    let owned = (rows / UNIT).div_ceil(grouping.schedule.workers) * UNIT;
    if !rows.is_multiple_of(32) || owned > most_own_rows(grouping.schedule.rows.map(|rows| rows.most)) {
        grouping.refuse(norm, format!("{rows} elements are not whole packets, or more than the workers hold"));
        return None;
    }
    if flow.float(norm) != grouping.shared.get::<Decoder>().map(|decoder| decoder.eps) {
        grouping.refuse(norm, "it has another epsilon than the first norm");
        return None;
    }
    let computed = [before, value, after].iter().all(|&value| flow.kind(value) == BufferKind::Activation);
    computed.then_some(NormedResidual { calls: [at, norm], value, weight, before, after })
}

impl NormedResidual {
    /// Whether it reads a value as the residual.
    pub(crate) fn adds_to(&self, value: TensorId) -> bool {
        self.before == value && self.value != value
    }
}

impl FusedGroup for NormedResidual {
    fn calls(&self) -> &[usize] {
        &self.calls
    }

    fn packed(&self) -> Vec<TensorId> {
        vec![self.value]
    }

    fn check(&self, flow: &Flow<'_>, seen: &mut Extensions) -> Result<(), usize> {
        residual::add(flow, seen, self.calls[0], self.before, self.after)
    }

    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), Unsupported> {
        let rows = planner.flow.shape(self.after)[0];
        let by = NormBy::RootMean(planner.known(self.weight));
        let (mut from, mut remaining) = (planner.known(self.value), Some(by));
        let name = planner.flow.tensor(self.after).name.clone();
        if planner.plan.is_wide() {
            let normed = planner.packets(&format!("normed.{name}"), DType::BF16, &[rows]);
            phase::whole(planner, from, by, normed);
            (from, remaining) = (normed, None);
        }
        let before = residual::held(planner, self.before, rows);
        let after = planner.activation(&format!("residual.{name}"), DType::F32, &[rows], Exchange::Counter);
        let packets = planner.value(self.after, DType::BF16);
        residual::hold(&mut planner.plan, self.after, after);
        let owned = crate::linear::phase::owned(&planner.plan, rows);
        let output = NormOutput::Residual { before, after, packets };
        planner.phase(Norm { from, len: rows, by: remaining, output }, owned.into_iter().map(Work::Rows).collect());
        Ok(())
    }
}

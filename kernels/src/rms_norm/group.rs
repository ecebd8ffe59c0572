//! Groups a norm after a projection with the residual that its result is added to.

use super::phase::{self, Norm, NormBy, NormOutput};
use crate::fused::Decoder;
use crate::linear::blocks::{unheld, works};
use crate::linear::group::{Delivered, Product};
use crate::residual;
use amk::ir::program::BufferKind;
use amk::ir::{BufferId, DType, Exchange, TensorId};
use amk_cuda::Extensions;
use amk_cuda::image::abi::UNIT;
use amk_cuda::plan::{Flow, FusedGroup, Grouping, Planner, Unsupported};
use amk_cuda::set::Fusion;
use std::ops::Range;

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
    /// Whether its phase can wait: until another phase adds to it, only norms of it are read, each
    /// by products that can add it up themselves.
    waits: bool,
}

/// A residual that is the sum of another and of the norm of a vector, both in packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// The residual before.
    pub residual: BufferId,
    /// The vector.
    pub vector: BufferId,
    /// The weight of its norm.
    pub weight: BufferId,
}

/// The residual whose phase waits, if there is one: products that read its norm come first.
#[derive(Clone, Debug, Default)]
struct Unsettled {
    residual: Option<NormedResidual>,
    /// The workers with which a product has left the scale of the vector.
    known: Vec<bool>,
}

/// The vector of the last sum that a worker multiplied, by its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastSum {
    /// Offset of its packets.
    pub(crate) vector: u32,
    /// Its elements.
    pub(crate) len: u32,
}

/// Returns a residual as a sum, if its phase waits.
pub(crate) fn unsettled(planner: &Planner<'_>, after: TensorId) -> Option<Sum> {
    let waiting = planner.plan.shared.get::<Unsettled>()?.residual.as_ref().filter(|waiting| waiting.after == after)?;
    let [residual, vector, weight] =
        [waiting.before, waiting.value, waiting.weight].map(|tensor| planner.known(tensor));
    Some(Sum { residual, vector, weight })
}

/// Adds the waiting phase, if there is one.
pub(crate) fn settle(planner: &mut Planner<'_>) {
    let Unsettled { residual, known } = std::mem::take(planner.plan.shared.entry::<Unsettled>());
    if let Some(residual) = residual {
        residual.add_phases(planner, &known);
    }
}

/// Records that workers with parts of a product, whose input is the sum of the waiting residual,
/// have the scale of its vector.
pub(crate) fn leave_scale(planner: &mut Planner<'_>, parts: &[Range<u32>]) {
    let known = &mut planner.plan.shared.entry::<Unsettled>().known;
    known.resize(parts.len(), false);
    known.iter_mut().zip(parts).for_each(|(known, part)| *known |= !part.is_empty());
}

impl Fusion for NormedResiduals {
    fn group(&self, grouping: &mut Grouping<'_>) {
        let found: Vec<NormedResidual> = grouping.calls().filter_map(|at| normed_residual(grouping, at)).collect();
        let waits: Vec<bool> = found.iter().map(|group| group.can_wait(grouping, &found)).collect();
        for (group, waits) in found.into_iter().zip(waits) {
            grouping.push(NormedResidual { waits, ..group });
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
    let part = (!rows.is_multiple_of(32)).then(|| format!("its {rows} elements are not whole packets"));
    if let Some(because) = part.or_else(|| unheld(rows, grouping.schedule)) {
        [at, norm].into_iter().for_each(|call| grouping.refuse(call, &because[..]));
        return None;
    }
    if flow.float(norm) != grouping.shared.get::<Decoder>().map(|decoder| decoder.eps) {
        grouping.refuse(norm, "it has another epsilon than the first norm");
        return None;
    }
    let computed = [before, value, after].iter().all(|&value| flow.kind(value) == BufferKind::Activation);
    computed.then_some(NormedResidual { calls: [at, norm], value, weight, before, after, waits: false })
}

impl NormedResidual {
    /// Whether it reads a value as the residual.
    pub(crate) fn adds_to(&self, value: TensorId) -> bool {
        self.before == value && self.value != value
    }

    /// The residual before and after it.
    pub(super) fn residuals(&self) -> [TensorId; 2] {
        [self.before, self.after]
    }

    /// Whether products add it to a value, which they read as packets.
    pub(crate) fn waits_with(&self, value: TensorId) -> bool {
        self.waits && self.before == value
    }

    /// Whether its phase can wait for one of the `others`.
    fn can_wait(&self, grouping: &Grouping<'_>, others: &[Self]) -> bool {
        let flow = grouping.flow;
        let next = |user: usize| others.iter().any(|other| other.calls[0] == user && other.adds_to(self.after));
        // A product of the norm, which is in no group of its own.
        let sums = |product: &Product| {
            product.norm.is_some()
                && product.biases.iter().all(Option::is_none)
                && !matches!(product.output, Delivered::Logits { .. })
        };
        let reads =
            |user: usize| grouping.groups::<Product>().any(|product| product.calls.contains(&user) && sums(product));
        let normed = |norm: usize| {
            flow.path(norm) == "amk_kernels::rms_norm"
                && !grouping.free(norm)
                && flow.result(norm).is_some_and(|result| flow.users(result).iter().all(|&user| reads(user)))
        };
        let users = flow.users(self.after);
        grouping.schedule.rows.is_none()
            && users.iter().any(|&user| next(user))
            && users.iter().any(|&user| normed(user))
            && users.iter().all(|&user| next(user) || normed(user))
    }

    /// Adds its phases.
    fn add_phases(&self, planner: &mut Planner<'_>, known: &[bool]) {
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
        let known = owned.iter().zip(known).filter(|(_, known)| **known).map(|(own, _)| own.clone()).collect();
        let output = NormOutput::Residual { before, after, packets };
        let norm = Norm { from, len: rows, by: remaining, output, known };
        planner.phase(norm, works(&planner.plan, &owned, UNIT));
    }
}

impl FusedGroup for NormedResidual {
    fn calls(&self) -> &[usize] {
        &self.calls
    }

    fn packed(&self) -> Vec<TensorId> {
        let read_by_products = self.waits.then_some(self.before);
        read_by_products.into_iter().chain([self.value]).collect()
    }

    fn check(&self, flow: &Flow<'_>, seen: &mut Extensions) -> Result<(), usize> {
        residual::add(flow, seen, self.calls[0], self.before, self.after)
    }

    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), Unsupported> {
        settle(planner);
        if self.waits {
            planner.plan.shared.entry::<Unsettled>().residual = Some(self.clone());
        } else {
            self.add_phases(planner, &[]);
        }
        Ok(())
    }
}

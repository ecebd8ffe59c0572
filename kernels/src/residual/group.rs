//! Groups the embedding that starts a residual. Every projection that needs it looks it up; it is
//! published for norms that are phases of their own.

use super::phase::{self, Embed};
use crate::fused::Decoder;
use crate::layer_norm::CentredNorm;
use crate::linear::blocks::works;
use crate::linear::group::Product;
use crate::rms_norm::NormedResidual;
use amk::ir::program::BufferKind;
use amk::ir::{DType, Exchange, TensorId};
use amk_cuda::Extensions;
use amk_cuda::image::abi::UNIT;
use amk_cuda::plan::{Flow, FusedGroup, Grouping, Planner, Unsupported};
use amk_cuda::set::Fusion;

const EMBED: &str = "amk_kernels::embed";
const SCALE: &str = "amk_kernels::scale";

/// Finds the embedding of the token, which only fused groups may read.
pub(crate) struct Embedding;

/// The embedding of the token.
#[derive(Clone, Debug)]
struct EmbedGroup {
    /// The calls, `embed` first.
    calls: Vec<usize>,
    value: TensorId,
    table: TensorId,
    /// The factor of the rows.
    scale: Option<f32>,
    /// Whether a group reads it as packets.
    published: bool,
}

/// The value that the workers hold as the residual after each group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held(TensorId);

/// The call that looks up a token, and its value.
#[derive(Clone, Debug)]
struct Lookup {
    call: usize,
    value: TensorId,
}

impl Lookup {
    /// Returns the call, if a group needs its value as the residual but the workers hold another.
    fn given_up_for(&self, before: TensorId, seen: &Extensions) -> Option<usize> {
        (self.value == before && seen.get() != Some(&Held(self.value))).then_some(self.call)
    }
}

/// Checks that the workers hold the residual `before` when call `lead` adds to it, and records that
/// they then hold `after`.
///
/// # Errors
/// The leading call of a group that must be given up.
pub(crate) fn add(
    flow: &Flow<'_>,
    seen: &mut Extensions,
    lead: usize,
    before: TensorId,
    after: TensorId,
) -> Result<(), usize> {
    // The embedding exists only as the residual that the workers hold.
    if let Some(at) = seen.get::<Lookup>().and_then(|lookup| lookup.given_up_for(before, seen)) {
        return Err(at);
    }
    if flow.writer(before).is_none() {
        return Err(lead);
    }
    seen.set(Held(after));
    Ok(())
}

impl Fusion for Embedding {
    fn group(&self, grouping: &mut Grouping<'_>) {
        if let Some(group) = find(grouping) {
            grouping.push(group);
        }
    }
}

fn find(grouping: &Grouping<'_>) -> Option<EmbedGroup> {
    let flow = grouping.flow;
    let call = grouping.calls().find(|&at| flow.path(at) == EMBED && grouping.free(at) && grouping.may_lead(at))?;
    let (row, table, token) = (flow.result(call)?, flow.operand(call, 0)?, flow.operand(call, 1)?);
    let scaled =
        flow.users(row).first().copied().filter(|&at| {
            flow.path(at) == SCALE && flow.only_for(row, at) && grouping.free(at) && grouping.may_lead(at)
        });
    let value = scaled.and_then(|at| flow.result(at)).unwrap_or(row);
    let normed =
        |user: usize| grouping.groups::<CentredNorm>().any(|norm| norm.value == value && norm.calls().contains(&user));
    // Only products may read other norms of it.
    let fits = |user: usize| {
        let of_product = |product: &Product| {
            product.calls.contains(&user)
                || (product.input == value && product.norm.is_some() && flow.path(user) == "amk_kernels::rms_norm")
        };
        let added = |sum: &NormedResidual| sum.calls().contains(&user) && sum.adds_to(value);
        !grouping.free(user)
            && (grouping.groups::<Product>().any(of_product)
                || grouping.groups::<NormedResidual>().any(added)
                || normed(user))
    };
    let holds = flow.kind(token) == BufferKind::Input
        && flow.kind(value) == BufferKind::Activation
        && flow.shape(value)[0].is_multiple_of(32)
        && flow.users(value).iter().all(|&user| fits(user));
    if !holds {
        let because = "other calls than projections, norms and residuals read its result, or it is not whole packets";
        grouping.refuse(call, because);
    }
    let calls = [call].into_iter().chain(scaled).collect();
    let published = flow.users(value).iter().any(|&user| normed(user))
        || grouping.groups::<NormedResidual>().any(|sum| sum.waits_with(value));
    holds.then_some(EmbedGroup { calls, value, table, scale: scaled.and_then(|at| flow.float(at)), published })
}

impl FusedGroup for EmbedGroup {
    fn calls(&self) -> &[usize] {
        &self.calls
    }

    fn unpublished(&self) -> Option<TensorId> {
        (!self.published).then_some(self.value)
    }

    fn check(&self, _flow: &Flow<'_>, seen: &mut Extensions) -> Result<(), usize> {
        seen.set(Lookup { call: self.calls[0], value: self.value });
        seen.set(Held(self.value));
        Ok(())
    }

    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), Unsupported> {
        let hidden = planner.flow.shape(self.value)[0];
        let embedding = planner.known(self.table);
        let decoder = planner.plan.shared.entry::<Decoder>();
        (decoder.hidden, decoder.embedding, decoder.embedding_scale) = (hidden, Some(embedding), self.scale);
        let to = planner.activation("residual", DType::F32, &[hidden], Exchange::Counter);
        phase::begin(&mut planner.plan, self.value, to);
        let published = self.published.then(|| planner.value(self.value, DType::BF16));
        let owned = crate::linear::phase::owned(&planner.plan, hidden);
        let works = works(&planner.plan, &owned, UNIT);
        planner.phase(Embed { to, published }, works);
        Ok(())
    }
}

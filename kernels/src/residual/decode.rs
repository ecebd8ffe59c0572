//! Decodes the residual from the embedding or from packets.

use super::phase::Embed;
use crate::fused::Shared;
use crate::linear::blocks::check_held;
use amk::ir::Param;
use amk_cuda::image::Record;
use amk_cuda::image::abi::UNIT;
use amk_cuda::image::decode::{
    DecodedCall, DecodedOperand, Format, Place, Places, Refusal, WorkerState, early, for_rows, only, read, rows, write,
};
use amk_cuda::plan::Plan;
use amk_cuda::set::RecordKind;
use std::ops::Range;

/// Records that look up the residual in the embedding table.
pub(crate) const EMBED: RecordKind =
    RecordKind { dispatch: |plan| Some(by_rows(plan, embedding(plan))), ..RecordKind::new("EMBED", embed) };

/// Records that adopt a residual from packets.
pub(crate) const ADOPT: RecordKind =
    RecordKind { dispatch: |plan| Some(by_rows(plan, ("adopt", ""))), ..RecordKind::new("ADOPT", adopt) };

/// The function that looks up the embedding, with its argument: whether it is published.
fn embedding(plan: &Plan) -> (&'static str, &'static str) {
    let published = plan.phases_of::<Embed>().any(|embed| embed.published.is_some());
    ("embed", if published { "<true>" } else { "<false>" })
}

/// Renders the call of a function for one row, or for all of a step.
fn by_rows(plan: &Plan, (function, arguments): (&str, &str)) -> String {
    let rows = if plan.rows().is_some() { "_rows" } else { "" };
    format!("{function}{rows}{arguments}(w, r)")
}

fn embed<'p>(record: &Record, places: &Places<'p>, state: &mut WorkerState) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["units", "row", "output", "shape", "layer"])?;
    let of_step = places.block_rows(record)?;
    let own = own_rows(record, places)?;
    let held = write("units, row", Place::Kept("residual"), std::slice::from_ref(&own));
    let unscaled = |local| Shared::of(places.image).embedding_scale.map(|_| Place::Local(local));
    let mut calls = lookup(places, state, own.clone(), unscaled(0), held)?;
    match (record.shape, record.output) {
        (0, 0) => {}
        (0, _) => return Err(Refusal::new("output", "is not 0, and nothing is published")),
        (1, at) => {
            let (to, elements) = places.elements("output, units", at, own.end - own.start, Format::Pairs)?;
            calls.extend(lookup(places, state, own, unscaled(1), write("output, units", to, &[elements]))?);
        }
        (shape, _) => return Err(Refusal::new("shape", format!("is {shape}, expected 0 or 1"))),
    }
    Ok(for_rows(calls, of_step.as_ref()))
}

/// Decodes the columns of the token's row of the embedding table. A scaled embedding has a separate
/// place for them before they are scaled.
pub(crate) fn lookup<'p>(
    places: &Places<'p>,
    state: &WorkerState,
    columns: Range<u32>,
    unscaled: Option<Place>,
    to: DecodedOperand,
) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    let (shared, field, len) = (Shared::of(places.image), to.field, columns.end - columns.start);
    let table = shared.embedding.ok_or_else(|| Refusal::new(field, "needs an embedding table, and there is none"))?;
    let tokens = places.shape(table).first().copied().unwrap_or(0);
    // With rows, each row has its own token; otherwise each worker has one.
    let token = if places.program.rows.is_some() { 0..1 } else { state.row() };
    let operands = vec![
        early(field, Place::Buffer(table), &[0..tokens, columns]),
        read("token", Place::Buffer(places.image.token), &[token]),
    ];
    let embed = |to| DecodedCall::new("amk_kernels::embed", operands.into_iter().chain([to]).collect());
    let (Some(scale), Some(row)) = (shared.embedding_scale, unscaled) else { return Ok(vec![embed(to)]) };
    let operands = vec![read(field, row, &[0..len]), to];
    let scaled = DecodedCall { params: vec![Param::F32(scale)], ..DecodedCall::new("amk_kernels::scale", operands) };
    Ok(vec![embed(write(field, row, &[0..len])), scaled])
}

fn adopt<'p>(record: &Record, places: &Places<'p>, _state: &mut WorkerState) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["units", "row", "input", "shape", "layer"])?;
    let of_step = places.block_rows(record)?;
    let own = own_rows(record, places)?;
    let format = match record.shape {
        0 => Format::Words,
        1 => Format::Pairs,
        shape => return Err(Refusal::new("shape", format!("is {shape}, expected 0 or 1"))),
    };
    let at = record.input.saturating_add(own.start / places.per_place(format));
    let (from, elements) = places.elements("input, units, row", at, own.end - own.start, format)?;
    let operands =
        vec![read("input, units, row", from, &[elements]), write("units, row", Place::Kept("residual"), &[own])];
    Ok(for_rows(vec![DecodedCall::new("amk_kernels::adopt", operands)], of_step.as_ref()))
}

/// Decodes the rows of the residual that the worker owns.
fn own_rows(record: &Record, places: &Places<'_>) -> Result<Range<u32>, Refusal> {
    let own = rows(record, UNIT)?;
    check_held(record, places, own.end - own.start)?;
    if record.units > 0 && own.start.is_multiple_of(UNIT) {
        Ok(own)
    } else {
        Err(Refusal::new("units, row", format!("give the rows {own:?}, which a worker cannot hold")))
    }
}

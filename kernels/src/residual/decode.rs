//! Decodes the residual from the embedding or from packets.

use crate::abi::MAX_OWN_ROWS;
use crate::fused::Shared;
use amk_cuda::image::Record;
use amk_cuda::image::abi::UNIT;
use amk_cuda::image::decode::{
    DecodedCall, Format, Place, Places, Refusal, WorkerState, early, only, read, rows, write,
};
use amk_cuda::set::RecordKind;
use std::ops::Range;

/// Records that look up the residual in the embedding table.
pub(crate) const EMBED: RecordKind =
    RecordKind { dispatch: |_| Some("embed(w, r)".to_owned()), ..RecordKind::new("EMBED", embed) };

/// Records that adopt a residual from packets.
pub(crate) const ADOPT: RecordKind =
    RecordKind { dispatch: |_| Some("adopt(w, r)".to_owned()), ..RecordKind::new("ADOPT", adopt) };

fn embed<'p>(record: &Record, places: &Places<'p>, state: &mut WorkerState) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["units", "row"])?;
    let own = own_rows(record)?;
    let call = lookup(places, state, "units, row", own.clone(), Place::Kept("residual"), own)?;
    Ok(vec![call])
}

/// Decodes the columns of the token's row of the embedding table.
pub(crate) fn lookup<'p>(
    places: &Places<'p>,
    state: &WorkerState,
    field: &'static str,
    columns: Range<u32>,
    to: Place,
    written: Range<u32>,
) -> Result<DecodedCall<'p>, Refusal> {
    let table = Shared::of(places.image)
        .embedding
        .ok_or_else(|| Refusal::new(field, "needs an embedding table, and there is none"))?;
    let tokens = places.shape(table).first().copied().unwrap_or(0);
    let operands = vec![
        early(field, Place::Buffer(table), &[0..tokens, columns]),
        read("token", Place::Buffer(places.image.token), &[state.row()]),
        write(field, to, &[written]),
    ];
    Ok(DecodedCall::new("amk_kernels::embed", operands))
}

fn adopt<'p>(record: &Record, places: &Places<'p>, _state: &mut WorkerState) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["units", "row", "input", "shape"])?;
    let own = own_rows(record)?;
    let (format, each) = match record.shape {
        0 => (Format::Words, 1),
        1 => (Format::Pairs, 2),
        shape => return Err(Refusal::new("shape", format!("is {shape}, expected 0 or 1"))),
    };
    let at = record.input.saturating_add(own.start / each);
    let (from, elements) = places.elements("input, units, row", at, own.end - own.start, format)?;
    let operands =
        vec![read("input, units, row", from, &[elements]), write("units, row", Place::Kept("residual"), &[own])];
    Ok(vec![DecodedCall::new("amk_kernels::adopt", operands)])
}

/// Decodes the rows of the residual that the worker owns.
fn own_rows(record: &Record) -> Result<Range<u32>, Refusal> {
    let own = rows(record, UNIT)?;
    let fits = record.units > 0 && own.end - own.start <= MAX_OWN_ROWS && own.start.is_multiple_of(UNIT);
    if fits {
        Ok(own)
    } else {
        Err(Refusal::new("units, row", format!("give the rows {own:?}, which a worker cannot hold")))
    }
}

//! The residual from the embedding or from packets.

use super::call::{DecodedCall, Place, Refusal, early, only, read, rows, write};
use super::places::{Format, Places};
use super::worker::WorkerState;
use crate::image::abi::{MAX_OWN_ROWS, Record, UNIT};
use std::ops::Range;

pub(super) fn embed<'p>(
    record: &Record,
    places: &Places<'p>,
    state: &WorkerState,
) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["units", "row"])?;
    let own = own_rows(record)?;
    let call = lookup(places, state, "units, row", own.clone(), Place::Residual, own)?;
    Ok(vec![call])
}

/// The columns of the token's row of the embedding table.
pub(super) fn lookup<'p>(
    places: &Places<'p>,
    state: &WorkerState,
    field: &'static str,
    columns: Range<u32>,
    to: Place,
    written: Range<u32>,
) -> Result<DecodedCall<'p>, Refusal> {
    let fixed = places.fixed();
    let table = fixed.embedding.ok_or_else(|| Refusal::new(field, "needs an embedding table, and there is none"))?;
    let tokens = places.shape(table).first().copied().unwrap_or(0);
    let operands = vec![
        early(field, Place::Buffer(table), &[0..tokens, columns]),
        read("token", Place::Buffer(fixed.token), &[state.own()]),
        write(field, to, &[written]),
    ];
    Ok(DecodedCall::new("amk_kernels::embed", operands))
}

pub(super) fn adopt<'p>(record: &Record, places: &Places<'p>) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["units", "row", "input", "shape"])?;
    let own = own_rows(record)?;
    let (format, each) = match record.shape {
        0 => (Format::Words, 1),
        1 => (Format::Pairs, 2),
        shape => return Err(Refusal::new("shape", format!("is {shape}, expected 0 or 1"))),
    };
    let at = record.input.saturating_add(own.start / each);
    let (from, elements) = places.elements("input, units, row", at, own.end - own.start, format)?;
    let operands = vec![read("input, units, row", from, &[elements]), write("units, row", Place::Residual, &[own])];
    Ok(vec![DecodedCall::new("amk_kernels::adopt", operands)])
}

/// The rows of the residual that a record gives its worker.
fn own_rows(record: &Record) -> Result<Range<u32>, Refusal> {
    let own = rows(record, UNIT)?;
    let fits = record.units > 0 && own.end - own.start <= MAX_OWN_ROWS && own.start.is_multiple_of(UNIT);
    if fits {
        Ok(own)
    } else {
        Err(Refusal::new("units, row", format!("give the rows {own:?}, which a worker cannot hold")))
    }
}

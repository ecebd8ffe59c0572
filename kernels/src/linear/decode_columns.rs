//! Decodes the records of projections whose columns are shared: the products of some columns, and
//! the delivery of their sums.

use super::blocks::{blocks, is_in_one};
use super::columns::MOST_SHARES;
use super::decode::{Gemv, Part, Shape, check_piece, named};
use super::source::shares_columns;
use crate::abi::{OUT_STORE, SHARE_TILES, TILE_K};
use amk_cuda::image::Record;
use amk_cuda::image::abi::UNIT;
use amk_cuda::image::decode::{
    DecodedCall, DecodedOperand, Format, Place, Places, Refusal, WorkerState, early, for_rows, only, read, write,
};
use amk_cuda::set::RecordKind;
use amk_cuda::tape::WeightRows;
use std::ops::Range;
use std::slice::from_ref;

/// Records that deliver the sums over the shares of a projection's columns.
pub(crate) const REDUCE: RecordKind = RecordKind {
    dispatch: |plan| shares_columns(plan).then(|| "reduce(w, r)".to_owned()),
    ..RecordKind::new("REDUCE", decode_reduce)
};

/// The sums of a projection's rows: the places of each share's.
pub(super) struct Sums {
    /// The first of the rows.
    first: u32,
    shares: Vec<(Place, Range<u32>)>,
}

/// Returns the rows of a record of shares or of their sums: one block's; `None`: all, if there is
/// only one.
fn rows_of(record: &Record, places: &Places<'_>) -> Result<Option<Range<u32>>, Refusal> {
    if !places.is_wide {
        return Err(Refusal::new("op, shape", "are of shares of columns, which only wide steps have"));
    }
    let rows = places.block_rows(record)?;
    let several = blocks(places.program.rows) > 1;
    let is_block = match &rows {
        Some(rows) => several && is_in_one(rows),
        None => !several,
    };
    if is_block { Ok(rows) } else { Err(Refusal::new("layer", "does not name the rows of one block")) }
}

/// Decodes the products of some columns with rows that are on the tapes of several workers.
pub(super) fn decode_share<'p>(
    record: &Record,
    shape: &Shape,
    places: &Places<'p>,
    state: &mut WorkerState,
) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    let plain = shape.output == OUT_STORE && !shape.norm && !shape.bias && shape.function == 0;
    if !plain {
        return Err(Refusal::new("shape", "has some columns of a product that is not stored as it is"));
    }
    if (record.norm, record.bias, record.more) != (0, 0, 0) {
        return Err(Refusal::new("norm, bias, more", "are not 0, and the sums of some columns have none"));
    }
    let rows = rows_of(record, places)?;
    let piece = named(record, places, state)?;
    check_piece(record, shape, &piece, places)?;
    if !piece.rows().is_multiple_of(UNIT) {
        // The sums of the rows that the last unit lacks would belong to another share.
        return Err(Refusal::new("piece", format!("has {} rows, which are no whole units", piece.rows())));
    }
    if shape.kind.is_none_or(|kind| !SHARE_TILES.is_multiple_of(kind.pack)) {
        return Err(Refusal::new("shape", "has tiles in packs that shares of columns would cut"));
    }
    let (first, end, all) = (record.row & 0xffff, record.row >> 16, shape.k / TILE_K);
    let whole = |tile: u32| tile == all || tile.is_multiple_of(SHARE_TILES);
    if first >= end || end > all || !whole(first) || !whole(end) {
        return Err(Refusal::new("row", format!("names the tiles {first}..{end} of {all}")));
    }
    let (x, _) = places.elements("input", record.input, shape.k, Format::Pairs)?;
    places.begins("input", record.input, Format::Pairs)?;
    let columns = first * TILE_K..end * TILE_K;
    let (to, sums) = places.elements("output", record.output, u32::from(record.units) * UNIT, Format::Words)?;
    if !sums.start.is_multiple_of(UNIT) {
        return Err(Refusal::new("output", format!("begins at element {}, within a unit", sums.start)));
    }
    let mut at = sums.start;
    let mut call = |part: &WeightRows| {
        let elements = at..at + part.rows.end - part.rows.start;
        at = elements.end;
        let operands = vec![
            read("input", x, from_ref(&columns)),
            early("piece", Place::Buffer(part.weight), &[part.rows.clone(), columns.clone()]),
            write("output", to, &[elements]),
        ];
        DecodedCall::new("amk_kernels::linear", operands)
    };
    Ok(for_rows(piece.parts.iter().map(&mut call).collect(), rows.as_ref()))
}

/// Decodes the delivery of rows that are the sums of all shares.
fn decode_reduce<'p>(
    record: &Record,
    places: &Places<'p>,
    _state: &mut WorkerState,
) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["units", "input", "output", "shape", "row", "norm", "bias", "layer", "aux", "partial", "more"])?;
    let (shape, of_step) = (Shape::of_delivery(record)?, rows_of(record, places)?);
    if !shape.bias && record.bias != 0 {
        return Err(Refusal::new("bias", "is not 0, and there is no bias"));
    }
    if record.norm != 0 && record.more == 0 {
        return Err(Refusal::new("norm, more", "name the weight of a norm, and there is none"));
    }
    let end = record.row.checked_add(u32::from(record.units) * UNIT);
    let rows = record.row..end.ok_or_else(|| Refusal::new("row", "is out of range"))?;
    let sums = Sums::of(record, places, &rows)?;
    let mut gemv = Gemv::new(record, places, shape, outputs(record, places, &rows)?);
    gemv.sums = Some(sums);
    gemv.deferred()?;
    gemv.deliver()?;
    Ok(for_rows(gemv.calls, of_step.as_ref()))
}

/// Cuts the rows of a record by the buffers of its output.
fn outputs(record: &Record, places: &Places<'_>, rows: &Range<u32>) -> Result<Vec<Part>, Refusal> {
    let (mut parts, mut first) = (Vec::new(), rows.start);
    while first < rows.end {
        let at = record.output.saturating_add((first - rows.start) / places.per_place(Format::Pairs));
        let end = rows.end.min(first.saturating_add(places.room("output", at, Format::Pairs)?));
        parts.push(Part { weight: None, rows: first..end });
        first = end;
    }
    Ok(parts)
}

impl Sums {
    fn of(record: &Record, places: &Places<'_>, rows: &Range<u32>) -> Result<Self, Refusal> {
        let (shares, len) = (record.aux, rows.end - rows.start);
        if len == 0 || !(2..=MOST_SHARES).contains(&shares) {
            return Err(Refusal::new("units, aux", format!("are {} and {shares} shares", record.units)));
        }
        if !record.partial.is_multiple_of(UNIT) {
            return Err(Refusal::new("partial", format!("is {}, within a unit", record.partial)));
        }
        let share = |share: u32| {
            let apart = record.partial.saturating_mul(share) / places.per_place(Format::Words);
            places.elements("units, input, aux, partial", record.input.saturating_add(apart), len, Format::Words)
        };
        let shares = (0..shares).map(share).collect::<Result<Vec<_>, _>>()?;
        match shares.iter().all(|(_, sums)| sums.start.is_multiple_of(UNIT)) {
            true => Ok(Self { first: rows.start, shares }),
            false => Err(Refusal::new("input", "begins within a unit")),
        }
    }
}

impl Gemv<'_, '_> {
    /// Decodes the sums over the shares of some rows.
    pub(super) fn add_up(&mut self, rows: &Range<u32>, to: DecodedOperand) {
        let Some(Sums { first, shares }) = &self.sums else { return };
        let (before, len) = (rows.start - first, rows.end - rows.start);
        let of = |(place, sums): &(Place, Range<u32>)| {
            read("input", *place, &[sums.start + before..sums.start + before + len])
        };
        let mut sums: Vec<DecodedOperand> = shares.iter().map(of).rev().collect();
        let Some(mut y) = sums.pop() else { return };
        while let Some(next) = sums.pop() {
            let sum = if sums.is_empty() { to.clone() } else { write("aux", self.local(), &[0..len]) };
            let place = sum.place;
            self.call("amk_kernels::add", vec![y, next, sum]);
            y = read("aux", place, &[0..len]);
        }
    }
}

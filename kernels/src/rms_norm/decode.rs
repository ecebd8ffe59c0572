//! Decodes the records of norms of whole vectors.

use super::LastSum;
use super::phase::{Norm, NormBy, NormRows};
use crate::abi::{NORM_ADDED, NORM_BIASED, NORM_CENTRED, NORM_COMPUTED, NORM_KNOWN, NORM_LENGTH};
use crate::attention::step_rows;
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
use std::slice::from_ref;

/// Records of a part of a norm.
pub(crate) const NORM: RecordKind = RecordKind { dispatch: part, ..RecordKind::new("NORM", norm) };

/// Records of norms of some rows of a wide step.
pub(crate) const NORM_ROWS: RecordKind = RecordKind { dispatch: whole, ..RecordKind::new("NORM_ROWS", norm_rows) };

/// Renders the call of the body for one row, or for all of a step.
fn part(plan: &Plan) -> Option<String> {
    let rows = if plan.rows().is_some() { "_rows" } else { "" };
    let centred = plan.phases_of::<Norm>().map(|norm| norm.by.is_some_and(NormBy::is_centred));
    by_kind(&format!("norm{rows}"), centred.collect())
}

/// Renders the call of the body for whole vectors.
fn whole(plan: &Plan) -> Option<String> {
    by_kind("norm_whole", plan.phases_of::<NormRows>().map(|norm| norm.by.is_centred()).collect())
}

/// Renders the call of a body for the existing kinds of norms. If there are two, the record
/// selects.
fn by_kind(body: &str, centred: Vec<bool>) -> Option<String> {
    let call = |kind: &str| format!("{body}<{kind}>(w, r)");
    match (centred.contains(&true), centred.contains(&false)) {
        (true, true) => {
            Some(format!("if (any(r.shape & NORM_CENTRED)) {}; else {}", call("Centred"), call("RootMean")))
        }
        (true, false) => Some(call("Centred")),
        (false, true) => Some(call("RootMean")),
        (false, false) => None,
    }
}

/// Decodes the norm of a vector.
fn normed<'p>(
    record: &Record,
    places: &Places<'p>,
    x: DecodedOperand,
    len: u32,
    to: DecodedOperand,
) -> Result<DecodedCall<'p>, Refusal> {
    let (weight, elements) = places.constant("norm", record.norm, len)?;
    let mut operands = vec![x, early("norm", weight, &[elements])];
    let path = match (record.shape & NORM_CENTRED != 0, record.shape & NORM_BIASED != 0) {
        (false, false) => "amk_kernels::rms_norm",
        (true, false) => "amk_kernels::centred_norm",
        (true, true) => {
            let (bias, elements) = places.constant("bias", record.bias, len)?;
            operands.push(early("bias", bias, &[elements]));
            "amk_kernels::layer_norm"
        }
        (false, true) => return Err(Refusal::new("shape", "has a bias, and its values are not centred")),
    };
    if record.shape & NORM_BIASED == 0 && record.bias != 0 {
        return Err(Refusal::new("bias", "is not 0, and there is no bias"));
    }
    operands.push(to);
    let params = vec![Param::F32(Shared::of(places.image).eps)];
    Ok(DecodedCall { params, ..DecodedCall::new(path, operands) })
}

fn norm<'p>(record: &Record, places: &Places<'p>, state: &mut WorkerState) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["units", "input", "output", "shape", "row", "norm", "bias", "layer"])?;
    let of_step = places.block_rows(record)?;
    let (len, part) = (record.shape & NORM_LENGTH, rows(record, UNIT)?);
    let flags = record.shape & !NORM_LENGTH;
    if flags & !(NORM_COMPUTED | NORM_ADDED | NORM_CENTRED | NORM_BIASED | NORM_KNOWN) != 0 {
        return Err(Refusal::new("shape", format!("is {:#x}", record.shape)));
    }
    // Of several norms of the vector, the first takes it.
    let last = state.own.entry::<Option<LastSum>>();
    let left =
        flags & NORM_CENTRED == 0 && last.take_if(|last| *last == LastSum { vector: record.input, len }).is_some();
    if (flags & NORM_KNOWN != 0) != left {
        return Err(Refusal::new("input, shape", "take a scale that no projection of the vector left, or do not"));
    }
    if part.is_empty() || part.end > len {
        return Err(Refusal::new("units, row", format!("give the elements {part:?} of {len}")));
    }
    let from = Place::Buffer(places.whole("input", record.input, &[len], Format::Pairs)?);
    let mut calls = Vec::new();
    let x = if flags & NORM_COMPUTED != 0 {
        let to = write("shape", Place::Local(0), &[0..len]);
        calls.push(normed(record, places, read("input", from, &[0..len]), len, to)?);
        read("units, row", Place::Local(0), from_ref(&part))
    } else if (record.norm, record.bias, flags & !NORM_ADDED) == (0, 0, 0) {
        read("units, row", from, from_ref(&part))
    } else {
        return Err(Refusal::new("norm, bias, shape", "are of a norm, and nothing is normalised"));
    };
    let (to, elements) = places.elements("output", record.output, part.end - part.start, Format::Pairs)?;
    let published = write("output", to, &[elements]);
    if flags & NORM_ADDED == 0 {
        calls.push(DecodedCall::new("amk_kernels::adopt", vec![x, published]));
        return Ok(for_rows(calls, of_step.as_ref()));
    }
    check_held(record, places, part.end - part.start)?;
    let held = Place::Kept("residual");
    for to in [write("units, row", held, from_ref(&part)), published] {
        let operands = vec![read("units, row", held, from_ref(&part)), x.clone(), to];
        calls.push(DecodedCall::new("amk_kernels::add", operands));
    }
    Ok(for_rows(calls, of_step.as_ref()))
}

fn norm_rows<'p>(
    record: &Record,
    places: &Places<'p>,
    _state: &mut WorkerState,
) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["units", "input", "output", "shape", "norm", "bias", "aux"])?;
    let (len, rows) = (record.shape & NORM_LENGTH, step_rows(record, places)?);
    if record.shape & !(NORM_LENGTH | NORM_CENTRED | NORM_BIASED) != 0 {
        return Err(Refusal::new("shape", format!("is {:#x}", record.shape)));
    }
    let [from, to] = [("input", record.input), ("output", record.output)]
        .map(|(field, at)| places.whole(field, at, &[len], Format::Pairs).map(Place::Buffer));
    let to = write("output", to?, &[0..len]);
    let call = normed(record, places, read("input", from?, &[0..len]), len, to)?;
    Ok(vec![DecodedCall { rows: Some(rows), ..call }])
}

//! Decodes the records of short convolutions.

use super::phase::Convolve;
use crate::fused::Shared;
use amk::ir::{Access, Bound, BufferId, Interval, Param, Region};
use amk_cuda::image::Record;
use amk_cuda::image::abi::UNIT;
use amk_cuda::image::decode::{
    DecodedCall, DecodedOperand, Format, Place, Places, Refusal, WorkerState, early, only, read, rows, write,
};
use amk_cuda::plan::Plan;
use amk_cuda::set::RecordKind;
use std::ops::Range;
use std::slice::from_ref;

/// Records of a part of a convolution's channels.
pub(crate) const CONVOLVE: RecordKind = RecordKind { dispatch, ..RecordKind::new("CONVOLVE", convolve) };

fn dispatch(plan: &Plan) -> Option<String> {
    plan.phases_of::<Convolve>().next()?;
    let rows = if plan.rows().is_some() { "_rows" } else { "" };
    Some(format!("convolve{rows}(w, r)"))
}

/// Some channels of the inputs at this position, or also of the `before` positions before it.
fn inputs_of(buffer: BufferId, channels: &Range<u32>, before: u32, access: Access) -> DecodedOperand {
    let lo = Bound::behind(before);
    let positions = Interval { lo, hi: Bound::at_pos(1) };
    let region = Region::new(&[positions, Interval::fixed(channels.start, channels.end)]);
    let region = region.unwrap_or(Region::full(&[]));
    DecodedOperand { field: "units, row, layer", place: Place::Buffer(buffer), region, access, early: false }
}

fn convolve<'p>(
    record: &Record,
    places: &Places<'p>,
    _state: &mut WorkerState,
) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["units", "input", "output", "row", "norm", "layer", "aux"])?;
    let shared = Shared::of(places.image);
    let [channels, taps] = shared.convolved;
    let (own, inputs) = (rows(record, UNIT)?, shared.convolutions.get(record.layer as usize));
    let &inputs = inputs.ok_or_else(|| Refusal::new("layer", format!("is {}", record.layer)))?;
    if own.is_empty() || own.end > channels {
        return Err(Refusal::new("units, row", format!("give the channels {own:?} of {channels}")));
    }
    let [x, gate] = [("input", record.input), ("aux", record.aux)]
        .map(|(field, at)| places.whole(field, at, &[channels], Format::Pairs).map(|id| (field, Place::Buffer(id))));
    let ((of_x, x), (of_gate, gate)) = (x?, gate?);
    let len = own.end - own.start;
    let (weight, elements) = places.constant("norm, units", record.norm, len * taps)?;
    let weights = elements.start / taps..elements.end / taps;
    if !elements.start.is_multiple_of(taps) {
        return Err(Refusal::new("norm", format!("is {}, where no channel begins", record.norm)));
    }
    let (to, elements) = places.elements("output, units", record.output, len, Format::Pairs)?;
    let (newest, y) = (inputs_of(inputs, &own, 0, Access::Write), Place::Local(0));
    let append = DecodedCall::new("amk_kernels::append", vec![newest, read(of_x, x, from_ref(&own))]);
    let operands = vec![
        inputs_of(inputs, &own, taps - 1, Access::Read),
        early("norm, units", weight, &[weights, 0..taps]),
        write("units", y, &[0..len]),
    ];
    let convolve = DecodedCall::new("amk_kernels::short_conv", operands);
    let operands = vec![
        read(of_gate, gate, from_ref(&own)),
        read("units", y, &[0..len]),
        write("output, units", to, from_ref(&elements)),
    ];
    let of_position = |call| DecodedCall { params: vec![Param::Pos], ..call };
    Ok(vec![of_position(append), of_position(convolve), DecodedCall::new("amk_kernels::mul", operands)])
}

//! A split of an attention, and the combination of splits.

use super::call::{DecodedCall, Place, Refusal, early, only, read, rows, update, write};
use super::places::{Format, Places};
use crate::image::abi::{PER_PACKET, Record};
use crate::image::{AttentionForm, Fixed};
use crate::plan::{BLOCK, SLICE};
use amk_ir::{BufferId, Param};

fn form(places: &Places<'_>) -> Result<AttentionForm, Refusal> {
    places.fixed().attention.ok_or_else(|| Refusal::new("op", "is an attention, and none is compiled"))
}

/// Split results `[heads, splits, head_dim]`, and what the program combines them into.
fn results(record: &Record, places: &Places<'_>, form: AttentionForm) -> Result<[BufferId; 2], Refusal> {
    let heads = form.kv_heads * form.group;
    let shape = [heads, form.splits, form.head_dim];
    let partial = places.whole("partial", record.partial, &shape, Format::Words)?;
    let attended = places.whole("output", record.output, &[heads * form.head_dim], Format::Pairs)?;
    // With one active split the attention itself writes the result.
    let combined = places.combined(partial);
    if combined != Some(attended) {
        let expected = combined.map_or("nothing".to_owned(), |id| places.name(id));
        let what =
            format!("point at {}, but {} is combined into {expected}", places.name(attended), places.name(partial));
        return Err(Refusal::new("output, partial", what));
    }
    let layer = places.layer(partial);
    if layer != Some(record.layer) {
        let what = format!("is {}, {} is of layer {layer:?}", record.layer, places.name(partial));
        return Err(Refusal::new("layer, partial", what));
    }
    Ok([partial, attended])
}

pub(super) fn attend<'p>(record: &Record, places: &Places<'p>) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["units", "input", "output", "row", "norm", "bias", "layer", "aux", "partial"])?;
    let form = form(places)?;
    let AttentionForm { head_dim, group, kv_heads, splits, .. } = form;
    let (head, split) = (record.row, record.aux);
    for (field, value, most) in [("row", head, kv_heads), ("aux", split, splits)] {
        if value >= most {
            return Err(Refusal::new(field, format!("is {value}, there are {most}")));
        }
    }
    if record.units != 1 {
        return Err(Refusal::new("units", format!("is {}, expected 1", record.units)));
    }
    let [partial, _] = results(record, places, form)?;
    let Some(freqs) = places.fixed().freqs else {
        return Err(Refusal::new("op", "is an attention, and there are no frequencies"));
    };
    let caches = places.fixed().caches.get(record.layer as usize);
    let &[keys, values] = caches.ok_or_else(|| Refusal::new("layer", format!("is {}", record.layer)))?;
    // Queries, keys and values lie one behind the other, head by head.
    let heads = |first: u32, len: u32| {
        let at = record.input.saturating_add(first * head_dim / PER_PACKET);
        let (place, elements) = places.elements("input, row", at, len * head_dim, Format::Pairs)?;
        Ok(read("input, row", place, &[elements]))
    };
    let queries = kv_heads * group;
    let cache = |buffer| {
        let share = places.shape(buffer).get(2).copied().unwrap_or(0);
        update("row, layer, aux", Place::Buffer(buffer), &[head..head + 1, split..split + 1, 0..share, 0..head_dim])
    };
    let mut operands = vec![
        heads(head * group, group)?,
        heads(queries + head, 1)?,
        heads(queries + kv_heads + head, 1)?,
        early("freqs", Place::Buffer(freqs), &[0..head_dim / 2]),
        cache(keys),
        cache(values),
        write(
            "partial, row, aux",
            Place::Buffer(partial),
            &[head * group..(head + 1) * group, split..split + 1, 0..head_dim],
        ),
        write(
            "partial, row, aux",
            Place::Buffer(places.lse(partial)?),
            &[head * group..(head + 1) * group, split..split + 1],
        ),
    ];
    let mut params = [group, form.run * BLOCK, splits, split].map(Param::U32).to_vec();
    let norms = [("norm", record.norm), ("bias", record.bias)];
    let path = if form.normed {
        for (nth, (field, at)) in norms.into_iter().enumerate() {
            let (norm, elements) = places.constant(field, at, head_dim)?;
            operands.insert(3 + nth, early(field, norm, &[elements]));
        }
        params.push(Param::F32(places.fixed().eps));
        "amk_kernels::normed_attention_split"
    } else {
        only(record, &["units", "input", "output", "row", "layer", "aux", "partial"])?;
        "amk_kernels::attention_split"
    };
    let Fixed { rope_scale, score_scale, .. } = *places.fixed();
    params.extend([Param::F32(rope_scale), Param::F32(score_scale), Param::Pos]);
    Ok(vec![DecodedCall { params, ..DecodedCall::new(path, operands) }])
}

pub(super) fn combine<'p>(record: &Record, places: &Places<'p>) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["units", "output", "row", "layer", "partial"])?;
    let form = form(places)?;
    let [partial, attended] = results(record, places, form)?;
    let lse = places.lse(partial)?;
    let each = form.head_dim / SLICE;
    let slices = rows(record, 1)?;
    if slices.is_empty() || slices.end > form.kv_heads * form.group * each {
        return Err(Refusal::new("units, row", format!("give the slices {slices:?}, which there are not")));
    }
    let call = |slice: u32| {
        let (head, first) = (slice / each, slice % each * SLICE);
        let operands = vec![
            read("partial, row", Place::Buffer(partial), &[head..head + 1, 0..form.splits, first..first + SLICE]),
            read("partial, row", Place::Buffer(lse), &[head..head + 1, 0..form.splits]),
            write("output, row", Place::Buffer(attended), &[slice * SLICE..(slice + 1) * SLICE]),
        ];
        DecodedCall::new("amk_kernels::combine_splits", operands)
    };
    Ok(slices.map(call).collect())
}

//! Decodes the records of a split of attention and of the combination of splits.

use super::form::{by_kind, of_any_kind};
use super::phase::{BLOCK, SLICE};
use crate::fused::{AttentionForm, RotaryTable, Shared};
use amk::ir::{BufferId, Call, Param, Program};
use amk_cuda::image::Record;
use amk_cuda::image::decode::{
    DecodedCall, Format, Place, Places, Refusal, Survey, WorkerState, early, only, read, rows, update, write,
};
use amk_cuda::plan::Plan;
use amk_cuda::set::RecordKind;
use std::collections::HashMap;

/// The instruction that merges splits. The image does not contain it; it is taken from the program.
pub(super) const COMBINE: &str = "amk_kernels::combine_splits";
const ATTEND: [&str; 4] = [
    "amk_kernels::attention_split",
    "amk_kernels::normed_attention_split",
    "amk_kernels::capped_attention_split",
    "amk_kernels::unturned_attention_split",
];

/// Records of attention splits.
pub(crate) const SPLIT: RecordKind = RecordKind {
    dispatch: |plan| one_row(plan, by_kind(plan, "any", |form| format!("attention<{form}>(w, r)"))),
    feed: |plan| one_row(plan, by_kind(plan, "agreed", |form| format!("attention_feed<{form}>(l, r, feed)"))),
    survey,
    ..RecordKind::new("ATTEND", attend)
};

/// Records that combine splits.
pub(crate) const JOIN: RecordKind = RecordKind {
    dispatch: |plan| one_row(plan, of_any_kind(plan, |form| format!("combine<{form}>(w, r)"))),
    ..RecordKind::new("COMBINE", combine)
};

/// Returns the code, if the plan has one row.
fn one_row(plan: &Plan, code: Option<String>) -> Option<String> {
    code.filter(|_| plan.rows().is_none())
}

/// Facts about the buffers of split results, taken from the program.
#[derive(Clone, Debug, Default)]
struct Splits {
    /// The buffer into which each is combined.
    combined: HashMap<BufferId, BufferId>,
    /// The log-sum-exps. They have no packets of their own: each travels in the packets of two dims
    /// of a result.
    lse: HashMap<BufferId, BufferId>,
    /// The keys of each attention.
    keys: HashMap<BufferId, BufferId>,
}

fn survey(program: &Program, survey: &mut Survey) {
    let path = |call: &Call| program.instructions.get(call.instruction.index()).map_or("", |known| &known.path);
    let mut splits = Splits::default();
    for call in program.tasks.iter().flat_map(|task| &task.calls) {
        match (&call.operands[..], ATTEND.contains(&path(call))) {
            ([partial, _, attended], _) if path(call) == COMBINE => {
                splits.combined.insert(partial.buffer, attended.buffer);
            }
            ([.., keys, _, partial, lse], true) => {
                splits.keys.insert(partial.buffer, keys.buffer);
                splits.lse.insert(partial.buffer, lse.buffer);
            }
            _ => {}
        }
    }
    survey.carried.extend(splits.lse.iter().map(|(&partial, &lse)| (lse, partial)));
    survey.notes.set(splits);
}

/// Returns the facts about split results, collected on the first call.
fn noted<'n>(places: &'n Places<'_>) -> Result<&'n Splits, Refusal> {
    places.survey.notes.get().ok_or_else(|| Refusal::new("op", "is an attention, and the program was not surveyed"))
}

/// Returns the log-sum-exps of split results.
fn lse(places: &Places<'_>, partial: BufferId) -> Result<BufferId, Refusal> {
    let none =
        || Refusal::new("partial", format!("points at {}, whose log-sum-exps no task writes", places.name(partial)));
    noted(places)?.lse.get(&partial).copied().ok_or_else(none)
}

/// Returns the layer of the attention that writes split results, in the order of the plan.
fn layer(places: &Places<'_>, partial: BufferId) -> Result<Option<u32>, Refusal> {
    let keys = noted(places)?.keys.get(&partial);
    let layers = &Shared::of(places.image).layers;
    Ok(layers.iter().position(|layer| Some(&layer.caches[0]) == keys).map(|layer| layer as u32))
}

/// Returns the form of an attention of kind `kind`, and its table of frequencies if it rotates.
pub(super) fn form(places: &Places<'_>, kind: u32) -> Result<(AttentionForm, Option<RotaryTable>), Refusal> {
    let shared = Shared::of(places.image);
    let form = shared.attention.get(kind as usize);
    let form = form.ok_or_else(|| Refusal::new("op, shape", format!("is an attention of kind {kind}")))?;
    let Some(table) = form.table else { return Ok((*form, None)) };
    let table = shared.tables.get(table);
    let table = table.ok_or_else(|| Refusal::new("op", "is an attention, and there are no frequencies"))?;
    Ok((*form, Some(*table)))
}

/// Returns the split results `[heads, splits, head_dim]` and the buffer they are combined into.
fn results(record: &Record, places: &Places<'_>, form: AttentionForm) -> Result<[BufferId; 2], Refusal> {
    let heads = form.kv_heads * form.group;
    let shape = [heads, form.splits, form.head_dim];
    let partial = places.whole("partial", record.partial, &shape, Format::Words)?;
    let attended = places.whole("output", record.output, &[heads * form.head_dim], Format::Pairs)?;
    combined_into(places, ("output, partial", attended), partial)?;
    Ok([partial, attended])
}

/// Checks that split results are of a record's layer.
fn check_layer(record: &Record, places: &Places<'_>, partial: BufferId, expected: Option<u32>) -> Result<(), Refusal> {
    let layer = layer(places, partial)?;
    if layer.is_some() && layer == expected {
        return Ok(());
    }
    let what = format!("is {}, {} is of layer {layer:?}", record.layer, places.name(partial));
    Err(Refusal::new("layer, partial", what))
}

/// Checks where split results are combined: with a single active split, attention itself writes the
/// result there.
pub(super) fn combined_into(
    places: &Places<'_>,
    (fields, attended): (&'static str, BufferId),
    partial: BufferId,
) -> Result<(), Refusal> {
    let combined = noted(places)?.combined.get(&partial).copied();
    if combined == Some(attended) {
        return Ok(());
    }
    let expected = combined.map_or("nothing".to_owned(), |id| places.name(id));
    let what = format!("point at {}, but {} is combined into {expected}", places.name(attended), places.name(partial));
    Err(Refusal::new(fields, what))
}

fn attend<'p>(record: &Record, places: &Places<'p>, _state: &mut WorkerState) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["units", "input", "output", "shape", "row", "norm", "bias", "layer", "aux", "partial"])?;
    let (form, table) = form(places, record.shape)?;
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
    let shared = Shared::of(places.image);
    check_layer(record, places, partial, shared.layer_at(record))?;
    let [keys, values] = shared.cached_at(record)?.caches;
    // Queries, keys and values are contiguous, head by head.
    let heads = |first: u32, len: u32| {
        let at = record.input.saturating_add(first * head_dim / places.per_place(Format::Pairs));
        let (place, elements) = places.elements("input, row", at, len * head_dim, Format::Pairs)?;
        Ok(read("input, row", place, &[elements]))
    };
    let [key, value] = form.key_and_value(head);
    let cache = |buffer| {
        let share = places.shape(buffer).get(2).copied().unwrap_or(0);
        update("row, layer, aux", Place::Buffer(buffer), &[head..head + 1, split..split + 1, 0..share, 0..head_dim])
    };
    let mut operands = vec![
        heads(head * group, group)?,
        heads(key, 1)?,
        heads(value, 1)?,
        cache(keys),
        cache(values),
        write(
            "partial, row, aux",
            Place::Buffer(partial),
            &[head * group..(head + 1) * group, split..split + 1, 0..head_dim],
        ),
        write(
            "partial, row, aux",
            Place::Buffer(lse(places, partial)?),
            &[head * group..(head + 1) * group, split..split + 1],
        ),
    ];
    let mut params = [group, form.run * BLOCK, splits, split].map(Param::U32).to_vec();
    if let Some(table) = table {
        operands.insert(3, early("tables", Place::Buffer(table.freqs), &[0..table.len]));
    }
    let norms = [("norm", record.norm), ("bias", record.bias)];
    if form.normed {
        for (nth, (field, at)) in norms.into_iter().enumerate() {
            let (norm, elements) = places.constant(field, at, head_dim)?;
            operands.insert(3 + nth, early(field, norm, &[elements]));
        }
        params.push(Param::F32(shared.eps));
    } else {
        only(record, &["units", "input", "output", "shape", "row", "layer", "aux", "partial"])?;
    }
    let window = Param::U32(form.last(places.program));
    params.extend(table.map(|table| Param::F32(table.scale)));
    params.push(Param::F32(shared.score_scale));
    params.extend(form.cap.map(Param::F32));
    params.extend([window, Param::Pos]);
    Ok(vec![DecodedCall { params, ..DecodedCall::new(form.split_path(), operands) }])
}

fn combine<'p>(
    record: &Record,
    places: &Places<'p>,
    _state: &mut WorkerState,
) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["units", "output", "row", "layer", "partial"])?;
    let (form, _) = form(places, 0)?;
    let [partial, attended] = results(record, places, form)?;
    check_layer(record, places, partial, Some(record.layer))?;
    let lse = lse(places, partial)?;
    joined(record, form, "partial, row", [partial, lse, attended])
}

/// Returns the calls that merge the splits of a record's slices. The fields `lse_at` give the
/// places of the log-sum-exps.
pub(super) fn joined<'p>(
    record: &Record,
    form: AttentionForm,
    lse_at: &'static str,
    [partial, lse, attended]: [BufferId; 3],
) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    let (slices, each, head_dim) = (rows(record, 1)?, form.head_dim.div_ceil(SLICE), form.head_dim);
    if slices.is_empty() || slices.end > form.kv_heads * form.group * each {
        return Err(Refusal::new("units, row", format!("give the slices {slices:?}, which there are not")));
    }
    let call = |slice: u32| {
        let (head, first) = (slice / each, slice % each * SLICE);
        let own = first..(first + SLICE).min(head_dim);
        let to = head * head_dim + own.start..head * head_dim + own.end;
        let operands = vec![
            read("partial, row", Place::Buffer(partial), &[head..head + 1, 0..form.splits, own]),
            read(lse_at, Place::Buffer(lse), &[head..head + 1, 0..form.splits]),
            write("output, row", Place::Buffer(attended), &[to]),
        ];
        DecodedCall::new(COMBINE, operands)
    };
    Ok(slices.map(call).collect())
}

//! Decodes the records of attention for steps of rows.

use super::decode::{COMBINE, combined_into, form, joined};
use super::division::{has_parts, is_long};
use super::form::{by_kind, first_alike, of_any_kind};
use super::phase::BLOCK;
use crate::abi::split_of;
use crate::fused::{AttentionForm, CachedLayer, RotaryTable, Shared};
use amk::ir::{Access, Bound, BufferId, BufferKind, Call, Interval, Operand, Param, Program, Region};
use amk_cuda::image::Record;
use amk_cuda::image::decode::{
    DecodedCall, DecodedOperand, Format, Place, Places, Refusal, Survey, WorkerState, early, for_rows, only, read,
    write,
};
use amk_cuda::plan::Plan;
use amk_cuda::set::RecordKind;
use std::collections::HashMap;
use std::ops::Range;

/// Records that append keys and values.
pub(crate) const APPEND: RecordKind = RecordKind {
    dispatch: |plan| with_rows(plan, "append_rows"),
    signals: |plan| plan.rows().is_some(), // it may have stored nothing
    survey,
    ..RecordKind::new("APPEND", append)
};

/// Records of attention to splits of the positions.
pub(crate) const PARTS: RecordKind =
    // It waits for this step's appends only when it reaches them.
    RecordKind {
        dispatch: |plan| narrow(plan, "attend_rows"),
        feed: prefetches,
        awaits: Plan::has_row_packets,
        ..RecordKind::new("PARTS", parts)
    };

/// Records of attention of blocks of rows.
pub(crate) const ATTEND_ROWS: RecordKind = RecordKind {
    dispatch: attend_wide,
    awaits: Plan::is_wide, // for rows that are not alone; a long one tells the copying warps
    ..RecordKind::new("ATTEND_ROWS", attend_rows)
};

/// Records of attention of blocks of rows to parts of the positions.
pub(crate) const BLOCK_PARTS: RecordKind = RecordKind {
    dispatch: |plan| if has_parts(plan) { with_rows(plan, "attend_long") } else { None },
    awaits: has_parts, // it tells the copying warps
    ..RecordKind::new("BLOCK_PARTS", block_parts)
};

/// Records that merge the parts of some rows.
pub(crate) const JOIN_ROWS: RecordKind = RecordKind {
    dispatch: |plan| {
        if has_parts(plan) { of_any_kind(plan, |form| format!("join_blocks<{form}>(w, r)")) } else { None }
    },
    ..RecordKind::new("JOIN_ROWS", join_rows)
};

/// Records that join these splits.
pub(crate) const JOIN_PARTS: RecordKind = RecordKind { dispatch: join_splits, ..RecordKind::new("JOIN_PARTS", join) };

/// Renders the call of a function with the type of a plan's attention, if the plan has rows.
fn with_rows(plan: &Plan, function: &str) -> Option<String> {
    plan.rows()?;
    by_kind(plan, "any", |form| format!("{function}<{form}>(w, r)"))
}

/// Renders the call for plans with wide steps.
fn wide(plan: &Plan, function: &str) -> Option<String> {
    if plan.is_wide() { with_rows(plan, function) } else { None }
}

/// Renders the call that attends to all positions.
fn attend_wide(plan: &Plan) -> Option<String> {
    if has_parts(plan) {
        return None;
    }
    wide(plan, if is_long(plan) { "attend_long" } else { "attend_block" })
}

/// Renders `memory_of`, the memory left to the copying warps, and `copy_other`, with which they
/// load the positions of long steps.
pub(crate) fn copies(plan: &Plan) -> String {
    if !plan.is_wide() {
        return String::new();
    }
    let memory = by_kind(plan, "any", |form| format!("return RowBlock<{form}>::QUERIES_AT"));
    let memory = memory.filter(|_| !is_long(plan)).map_or(String::new(), |memory| {
        format!("if (any(r.op == OP_APPEND || r.op == OP_ATTEND_ROWS)) {{ {memory}; }} ")
    });
    let memory = format!("AMK_DEVICE u32 memory_of(const Record& r) {{ {memory}return 0; }}\n");
    let calls = by_kind(plan, "any", |form| format!("return copy_blocks<{form}>(c, r)")).filter(|_| is_long(plan));
    let op = if has_parts(plan) { "OP_BLOCK_PARTS" } else { "OP_ATTEND_ROWS" };
    let calls = calls.map_or(String::new(), |calls| format!("if (any(r.op == {op})) {{ {calls}; }} "));
    memory + &format!("AMK_DEVICE bool copy_other(Copier& c, const Record& r) {{ {calls}return true; }}\n")
}

/// Renders the call for plans with narrow steps.
fn narrow(plan: &Plan, function: &str) -> Option<String> {
    if plan.is_wide() { None } else { with_rows(plan, function) }
}

/// Renders the loader's work for a split that streams nothing.
fn prefetches(plan: &Plan) -> Option<String> {
    plan.rows().filter(|_| !plan.is_wide())?;
    by_kind(plan, "agreed", |form| format!("prefetch_rows<{form}>(l.p, l.s, r)"))
}

/// Renders the call that merges splits, whatever the kind of their attention.
fn join_splits(plan: &Plan) -> Option<String> {
    plan.rows().filter(|_| !plan.is_wide())?;
    of_any_kind(plan, |form| format!("join_rows<{form}>(w, r)"))
}

/// Returns the rows of a step that a record is for.
///
/// # Errors
/// If a step does not have them.
pub(crate) fn step_rows(record: &Record, places: &Places<'_>) -> Result<Range<u32>, Refusal> {
    let all = places.program.rows.unwrap_or(0);
    let end = record.aux.checked_add(u32::from(record.units)).filter(|&end| end <= all);
    match end {
        Some(end) if record.units > 0 => Ok(record.aux..end),
        _ => {
            let what = format!("give {} rows from {} on, a step has {all}", record.units, record.aux);
            Err(Refusal::new("units, aux", what))
        }
    }
}

/// The data that the records of a layer share.
struct Layer<'c, 'p> {
    record: &'c Record,
    places: &'c Places<'p>,
    form: AttentionForm,
    table: Option<RotaryTable>,
    caches: [BufferId; 2],
    key_norm: Option<BufferId>,
}

/// The sources of the heads that the program's tasks append, by cache and kv head; `None` for heads
/// from several sources.
#[derive(Clone, Debug, Default)]
struct Sources(HashMap<(BufferId, u32), Option<(BufferId, Interval)>>);

fn survey(program: &Program, survey: &mut Survey) {
    let is_append = |call: &&Call| {
        let known = program.instructions.get(call.instruction.index());
        known.is_some_and(|known| known.path == "amk_kernels::kv_append")
    };
    let mut sources = Sources::default();
    for task in &program.tasks {
        for call in task.calls.iter().filter(is_append) {
            let [cache, x] = &call.operands[..] else { continue };
            let Some(head) = cache.region.intervals().first() else { continue };
            let from = source(program, &task.calls, x);
            let known = sources.0.entry((cache.buffer, head.lo.base)).or_insert(from);
            if *known != from {
                *known = None;
            }
        }
    }
    survey.notes.set(sources);
}

/// The origin of an operand, which a task's calls pass from one to the next: the buffer,
/// and its elements in every row.
fn source(program: &Program, calls: &[Call], x: &Operand) -> Option<(BufferId, Interval)> {
    let mut x = x;
    for call in calls.iter().rev() {
        if program.buffers.get(x.buffer.index())?.kind != BufferKind::Local {
            break;
        }
        if call.operands.iter().any(|operand| operand.buffer == x.buffer && operand.access.writes()) {
            x = call.operands.first()?;
        }
    }
    Some((x.buffer, *x.region.intervals().last()?))
}

/// Rows whose heads a worker's records have appended so far, by cache and kv head.
#[derive(Clone, Debug, Default)]
struct Appended(Vec<(BufferId, u32, Range<u32>)>);

impl<'c, 'p> Layer<'c, 'p> {
    fn new(record: &'c Record, places: &'c Places<'p>) -> Result<Self, Refusal> {
        let shared = Shared::of(places.image);
        let (form, table) = form(places, record.shape)?;
        let &CachedLayer { caches, key_norm, .. } = shared.cached_at(record)?;
        if record.row >= form.kv_heads {
            return Err(Refusal::new("row", format!("is {}, there are {}", record.row, form.kv_heads)));
        }
        Ok(Self { record, places, form, table, caches, key_norm })
    }

    /// The heads of some rows that the record appends, or, if others append them, attends to.
    fn appended(&self, rows: &Range<u32>) -> (BufferId, u32, Range<u32>) {
        (self.caches[0], self.record.row, rows.clone())
    }

    /// Checks that the record has the norm of the layer's keys.
    fn check_key_norm(&self) -> Result<(), Refusal> {
        let (head_dim, &Record { bias, layer, .. }) = (self.form.head_dim, self.record);
        let is_own = match self.key_norm {
            Some(norm) => self.places.constant("bias", bias, head_dim)? == (Place::Buffer(norm), 0..head_dim),
            None => bias == 0,
        };
        if is_own {
            Ok(())
        } else {
            Err(Refusal::new("bias, layer", format!("are {bias} and {layer}, of another layer")))
        }
    }

    /// Checks that a record that attends finds the key and the value of its kv head where the
    /// program appends them from, because it appends what rows that are alone have.
    fn check_own(&self) -> Result<(), Refusal> {
        let ([keys, values], [key, value]) = (self.caches, self.form.key_and_value(self.record.row));
        let sources = self.places.survey.notes.get::<Sources>();
        for (cache, head) in [(keys, key), (values, value)] {
            let own = self.heads(head, 1)?;
            let known = sources.and_then(|sources| sources.0.get(&(cache, self.record.row)));
            let fits = |&(buffer, elements): &(BufferId, Interval)| {
                own.place == Place::Buffer(buffer) && own.region.intervals() == [elements]
            };
            if !known.and_then(Option::as_ref).is_some_and(fits) {
                let (input, layer) = (self.record.input, self.record.layer);
                let name = self.places.name(cache);
                let what = format!("are {input} and {layer}: heads of {name} do not come from there");
                return Err(Refusal::new("input, layer", what));
            }
        }
        Ok(())
    }

    /// Some of the heads of queries, keys and values, which follow one another.
    fn heads(&self, first: u32, len: u32) -> Result<DecodedOperand, Refusal> {
        let head_dim = self.form.head_dim;
        let at = self.record.input.saturating_add(first * head_dim / self.places.per_place(Format::Pairs));
        let (place, elements) = self.places.elements("input, row", at, len * head_dim, Format::Pairs)?;
        Ok(read("input, row", place, &[elements]))
    }

    /// The record's kv head in a cache: the row's own position, or the positions of the window that
    /// ends with it; without a window, all up to it.
    fn cached(&self, cache: BufferId, own: bool) -> DecodedOperand {
        let (lo, access) = match (own, self.form.window) {
            (true, _) => (Bound::at_pos(0), Access::Write),
            (false, None | Some(0)) => (Bound::fixed(0), Access::Read),
            (false, Some(window)) => (Bound::behind(window - 1), Access::Read),
        };
        let fixed = |range: Range<u32>| Interval::fixed(range.start, range.end);
        let head = self.record.row;
        let intervals = [fixed(head..head + 1), Interval { lo, hi: Bound::at_pos(1) }, fixed(0..self.form.head_dim)];
        let region = Region::new(&intervals).unwrap_or(Region::full(&[]));
        DecodedOperand { field: "row, layer", place: Place::Buffer(cache), region, access, early: false }
    }

    /// Normalises and rotates `heads` heads, if the form does. Locals are numbered from `local` on.
    /// Returns the result.
    fn turned(
        &self,
        calls: &mut Vec<DecodedCall<'p>>,
        x: DecodedOperand,
        heads: u32,
        (field, norm): (&'static str, u32),
        local: &mut usize,
    ) -> Result<DecodedOperand, Refusal> {
        let (shared, head_dim) = (Shared::of(self.places.image), self.form.head_dim);
        let len = heads * head_dim;
        let mut next = || {
            *local += 1;
            Place::Local(*local - 1)
        };
        let mut x = x;
        if self.form.normed {
            let (weight, elements) = self.places.constant(field, norm, head_dim)?;
            let to = next();
            let operands = vec![x, early(field, weight, &[elements]), write("row", to, &[0..len])];
            let params = vec![Param::F32(shared.eps)];
            calls.push(DecodedCall { params, ..DecodedCall::new("amk_kernels::head_norm", operands) });
            x = read("row", to, &[0..len]);
        } else if norm != 0 {
            return Err(Refusal::new(field, "is not 0, and heads have no norms"));
        }
        let Some(table) = self.table else { return Ok(x) };
        let to = next();
        let freqs = early("tables", Place::Buffer(table.freqs), &[0..table.len]);
        let operands = vec![x, freqs, write("row", to, &[0..len])];
        let params = vec![Param::U32(head_dim), Param::F32(table.scale), Param::Pos];
        calls.push(DecodedCall { params, ..DecodedCall::new("amk_kernels::rope", operands) });
        Ok(read("row", to, &[0..len]))
    }
}

fn append<'p>(record: &Record, places: &Places<'p>, state: &mut WorkerState) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["units", "input", "shape", "row", "bias", "layer", "aux"])?;
    let layer = Layer::new(record, places)?;
    let shared = Shared::of(places.image);
    if first_alike(&shared.attention, &shared.groups, record.shape as usize) != record.shape as usize {
        return Err(Refusal::new("shape", format!("is {}, an earlier kind rotates keys alike", record.shape)));
    }
    let ([keys, values], [key, value]) = (layer.caches, layer.form.key_and_value(record.row));
    let mut calls = Vec::new();
    let key = layer.turned(&mut calls, layer.heads(key, 1)?, 1, ("bias", record.bias), &mut 0)?;
    for (cache, x) in [(keys, key), (values, layer.heads(value, 1)?)] {
        let operands = vec![layer.cached(cache, true), x];
        calls.push(DecodedCall { params: vec![Param::Pos], ..DecodedCall::new("amk_kernels::kv_append", operands) });
    }
    layer.check_key_norm()?;
    let rows = step_rows(record, places)?;
    state.own.entry::<Appended>().0.push(layer.appended(&rows));
    Ok(for_rows(calls, Some(&rows)))
}

fn attend_rows<'p>(
    record: &Record,
    places: &Places<'p>,
    state: &mut WorkerState,
) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["units", "input", "output", "shape", "row", "norm", "bias", "layer", "aux"])?;
    let layer = Layer::new(record, places)?;
    layer.check_key_norm()?;
    layer.check_own()?;
    let rows = step_rows(record, places)?;
    if !state.own.entry::<Appended>().0.contains(&layer.appended(&rows)) {
        let what = "are rows that the worker's records before this one do not append";
        return Err(Refusal::new("units, row, layer, aux", what));
    }
    let AttentionForm { head_dim, group, kv_heads, .. } = layer.form;
    let attended = places.whole("output", record.output, &[kv_heads * group * head_dim], Format::Pairs)?;
    let mut calls = Vec::new();
    let x = layer.heads(record.row * group, group)?;
    let x = layer.turned(&mut calls, x, group, ("norm", record.norm), &mut 0)?;
    let [keys, values] = layer.caches.map(|cache| layer.cached(cache, false));
    let own = record.row * group * head_dim..(record.row + 1) * group * head_dim;
    let operands = vec![x, keys, values, write("output, row", Place::Buffer(attended), &[own])];
    let window = Param::U32(layer.form.last(places.program));
    let mut params = vec![Param::F32(Shared::of(places.image).score_scale)];
    params.extend(layer.form.cap.map(Param::F32));
    params.extend([window, Param::Pos]);
    calls.push(DecodedCall { params, ..DecodedCall::new(layer.form.row_path(), operands) });
    Ok(for_rows(calls, Some(&rows)))
}

/// Returns the split results and their log-sum-exps, and checks their shapes.
fn results(record: &Record, places: &Places<'_>, form: AttentionForm, lse: u32) -> Result<[BufferId; 2], Refusal> {
    let heads = form.kv_heads * form.group;
    Ok([
        places.whole("partial", record.partial, &[heads, form.splits, form.head_dim], Format::Words)?,
        places.whole("input, output", lse, &[heads, form.splits], Format::Words)?,
    ])
}

impl<'p> Layer<'_, 'p> {
    /// The calls by which the record's kv head of some rows attends to a split of the positions.
    fn attend_split(
        &self,
        rows: &Range<u32>,
        (field, split): (&'static str, u32),
        [partial, lse]: [BufferId; 2],
        locals: &mut usize,
    ) -> Result<Vec<DecodedCall<'p>>, Refusal> {
        let (record, AttentionForm { head_dim, group, splits, run, .. }) = (self.record, self.form);
        let queries = record.row * group..(record.row + 1) * group;
        let mut calls = Vec::new();
        let x = self.heads(queries.start, group)?;
        let x = self.turned(&mut calls, x, group, ("norm", record.norm), locals)?;
        let [keys, values] = self.caches.map(|cache| self.cached(cache, false));
        let operands = vec![
            x,
            keys,
            values,
            write("partial, row", Place::Buffer(partial), &[queries.clone(), split..split + 1, 0..head_dim]),
            write(field, Place::Buffer(lse), &[queries, split..split + 1]),
        ];
        let mut params = [group, run * BLOCK, splits, split].map(Param::U32).to_vec();
        params.push(Param::F32(Shared::of(self.places.image).score_scale));
        params.extend(self.form.cap.map(Param::F32));
        params.extend([Param::U32(self.form.last(self.places.program)), Param::Pos]);
        calls.push(DecodedCall { params, ..DecodedCall::new(self.form.part_path(), operands) });
        Ok(for_rows(calls, Some(rows)))
    }
}

fn parts<'p>(record: &Record, places: &Places<'p>, _state: &mut WorkerState) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["units", "input", "output", "shape", "row", "norm", "bias", "layer", "aux", "partial", "more"])?;
    let layer = Layer::new(record, places)?;
    layer.check_key_norm()?;
    layer.check_own()?;
    let AttentionForm { head_dim, group, splits, kv_heads, .. } = layer.form;
    if record.aux >= splits {
        return Err(Refusal::new("aux", format!("is {}, there are {splits}", record.aux)));
    }
    if record.units != 1 {
        return Err(Refusal::new("units", format!("is {}, expected 1", record.units)));
    }
    let results @ [partial, _] = results(record, places, layer.form, record.output)?;
    let attended = places.whole("more", record.more, &[kv_heads * group * head_dim], Format::Pairs)?;
    combined_into(places, ("more, partial", attended), partial)?;
    let (mut all, mut locals) = (Vec::new(), 0);
    let most = places.program.rows.unwrap_or(0);
    for row in 0..most {
        let split = ("output, row, aux", split_of(record.aux, row, splits, most));
        all.extend(layer.attend_split(&(row..row + 1), split, results, &mut locals)?);
    }
    Ok(all)
}

fn block_parts<'p>(
    record: &Record,
    places: &Places<'p>,
    _state: &mut WorkerState,
) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["units", "input", "output", "shape", "row", "norm", "bias", "layer", "aux", "partial", "more"])?;
    let layer = Layer::new(record, places)?;
    layer.check_key_norm()?;
    if record.more >= layer.form.splits {
        return Err(Refusal::new("more", format!("is {}, there are {} parts", record.more, layer.form.splits)));
    }
    let results = results(record, places, layer.form, record.output)?;
    layer.attend_split(&step_rows(record, places)?, ("output, row, more", record.more), results, &mut 0)
}

fn join_rows<'p>(
    record: &Record,
    places: &Places<'p>,
    _state: &mut WorkerState,
) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["units", "input", "output", "aux", "partial"])?;
    let (form, _) = form(places, 0)?;
    let [partial, lse] = results(record, places, form, record.input)?;
    let heads = form.kv_heads * form.group;
    let attended = places.whole("output", record.output, &[heads * form.head_dim], Format::Pairs)?;
    let operands = vec![
        read("partial", Place::Buffer(partial), &[0..heads, 0..form.splits, 0..form.head_dim]),
        read("input", Place::Buffer(lse), &[0..heads, 0..form.splits]),
        write("output", Place::Buffer(attended), &[0..heads * form.head_dim]),
    ];
    Ok(for_rows(vec![DecodedCall::new(COMBINE, operands)], Some(&step_rows(record, places)?)))
}

fn join<'p>(record: &Record, places: &Places<'p>, _state: &mut WorkerState) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["units", "input", "output", "row", "partial"])?;
    let (form, _) = form(places, 0)?;
    let [partial, lse] = results(record, places, form, record.input)?;
    let heads = form.kv_heads * form.group;
    let attended = places.whole("output", record.output, &[heads * form.head_dim], Format::Pairs)?;
    joined(record, form, "input, row", [partial, lse, attended])
}

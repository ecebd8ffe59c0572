//! Checks the memory layout and the parameters that all tasks share.

use super::call::Refusal;
use super::places::Survey;
use super::worker::WorkerState;
use crate::image::{Image, LINE, blocks};
use crate::plan::Plan;
use crate::set::body_sets;
use amk::rows::PAGE;
use amk_ir::rows::PageGroups;
use amk_ir::{Buffer, BufferId, BufferKind, DType, Exchange, Program};
use std::collections::BTreeSet;

/// Checks the tables of an image for a program.
pub(super) fn check(
    image: &Image,
    program: &Program,
    plan: &Plan,
    survey: &Survey,
    workers: usize,
) -> Result<(), Refusal> {
    check_records(image, program, workers)?;
    let end = check_packets(image, program, survey)?;
    check_events(image, program, end)?;
    check_constants(image, program)?;
    check_plain(image, program)?;
    check_pools(image, program, plan)?;
    check_states(image, program)?;
    check_results(image, program)?;
    for set in body_sets() {
        set.shared.check(image, program, plan)?;
    }
    Ok(())
}

/// The tape of a worker has exactly the bytes that its records consume.
pub(super) fn check_tape(image: &Image, state: &WorkerState) -> Result<(), Refusal> {
    let worker = state.worker as usize;
    let len = image.tape_at[worker + 1].checked_sub(image.tape_at[worker]);
    if image.pieces[worker].len() != state.pieces || len != Some(state.tape) {
        let what = format!("is {len:?} for worker {worker}, whose tasks take {} bytes", state.tape);
        return Err(Refusal::new("tape_at", what));
    }
    Ok(())
}

/// Every worker has as many records as tasks, and a separate tape.
fn check_records(image: &Image, program: &Program, workers: usize) -> Result<(), Refusal> {
    let amk_ir::Queues::Static(queues) = &program.queues else {
        return Err(Refusal::new("queues", "are not static"));
    };
    let mut next = 0;
    let starts = queues.iter().map(|queue| {
        next += queue.len();
        next as u32
    });
    if !image.record_at.iter().copied().eq([0].into_iter().chain(starts)) || image.records.len() != next {
        return Err(Refusal::new("record_at", "does not give every worker as many records as tasks"));
    }
    if image.tape_at.len() != workers + 1 || image.tape_at[0] != 0 || image.pieces.len() != workers {
        return Err(Refusal::new("tape_at", "does not give every worker a tape"));
    }
    Ok(())
}

fn buffer(program: &Program, id: BufferId) -> Option<&Buffer> {
    program.buffers.get(id.index())
}

/// Checks that ranges of a start and a length are disjoint, and returns the end of the last.
fn apart(field: &'static str, mut ranges: Vec<(u64, u64)>) -> Result<u64, Refusal> {
    ranges.sort_unstable();
    let mut end = 0;
    for (start, len) in ranges {
        if start < end {
            return Err(Refusal::new(field, format!("has two things at {start}")));
        }
        end = start.checked_add(len).ok_or_else(|| Refusal::new(field, format!("has {len} from {start} on")))?;
    }
    Ok(end)
}

/// Checks that no buffer has two places.
fn once(field: &'static str, placed: &[(BufferId, u64)], program: &Program) -> Result<(), Refusal> {
    let mut seen = BTreeSet::new();
    match placed.iter().find(|(id, _)| !seen.insert(id.0)) {
        Some(&(id, _)) => {
            let name = buffer(program, id).map_or("?", |buffer| buffer.name.as_str());
            Err(Refusal::new(field, format!("put `{name}` in two places")))
        }
        None => Ok(()),
    }
}

/// With rows, exchanged values have separate words of each row. Returns the end of all rows.
fn check_rows(image: &Image, program: &Program, rows: u32) -> Result<u64, Refusal> {
    let mut ranges = Vec::new();
    for (&id, &at) in &image.packet_at {
        let activation = buffer(program, id).filter(|buffer| buffer.kind == BufferKind::Activation);
        let activation = activation.ok_or_else(|| Refusal::new("packet_at", "has a buffer that is no activation"))?;
        let words = (activation.bytes() / u64::from(rows)).div_ceil(8);
        // Whole lines: they are followed by the results of rows that a projection's last unit
        // lacks.
        ranges.push((u64::from(at), words.next_multiple_of(u64::from(LINE))));
    }
    if apart("packet_at", ranges)? > u64::from(image.row_words) {
        return Err(Refusal::new("row_words", format!("are {}, fewer than a row has", image.row_words)));
    }
    let end = u64::from(image.row_words) * u64::from(blocks(program));
    if end > u64::from(image.packets) {
        return Err(Refusal::new("packets", format!("are {}, the rows have {end}", image.packets)));
    }
    Ok(end)
}

/// Every packet buffer has separate packets, except for log-sum-exps. Returns the end of all.
fn check_packets(image: &Image, program: &Program, survey: &Survey) -> Result<u64, Refusal> {
    if let Some(rows) = program.rows {
        return check_rows(image, program, rows);
    }
    let mut ranges = Vec::new();
    for (id, buffer) in program.buffers.iter().enumerate() {
        let at = image.packet_at.get(&BufferId::from(id));
        match (buffer.exchange, at) {
            (Exchange::Packet { slots }, Some(&at)) => {
                let words = buffer.len().div_ceil(if buffer.dtype == DType::BF16 { 2 } else { 1 });
                ranges.push((u64::from(at), (words * u64::from(slots)).next_multiple_of(u64::from(LINE))));
            }
            (Exchange::Counter, None) => {}
            (Exchange::Packet { slots: 1 }, None) if survey.carried.contains_key(&BufferId::from(id)) => {}
            _ => return Err(Refusal::new("packet_at", format!("is wrong about whether `{}` is packets", buffer.name))),
        }
    }
    if image.packet_at.len() != ranges.len() {
        return Err(Refusal::new("packet_at", "has buffers that there are not"));
    }
    let end = apart("packet_at", ranges)?;
    if end > u64::from(image.packets) {
        return Err(Refusal::new("packets", format!("are {}, the buffers have {end}", image.packets)));
    }
    Ok(end)
}

/// Every event has a counter in an L2 line of its own, after the packets.
fn check_events(image: &Image, program: &Program, end: u64) -> Result<(), Refusal> {
    if image.events.len() != program.events.len() {
        return Err(Refusal::new("events", "are more or less than the program's"));
    }
    let all_fit = image.events.iter().all(|&at| {
        at.is_multiple_of(LINE) && u64::from(at) >= end && u64::from(at) + u64::from(LINE) <= u64::from(image.packets)
    });
    if !all_fit || program.events.iter().any(|event| event.len() != 1) {
        return Err(Refusal::new("events", "have a counter that lies elsewhere than behind the packets"));
    }
    apart("events", image.events.iter().map(|&at| (u64::from(at), u64::from(LINE))).collect())?;
    Ok(())
}

/// Constants are weights in disjoint places.
fn check_constants(image: &Image, program: &Program) -> Result<(), Refusal> {
    let mut ranges = Vec::new();
    for &(id, at) in &image.constants {
        let weight = buffer(program, id).filter(|buffer| buffer.kind == BufferKind::Weight);
        let weight = weight.ok_or_else(|| Refusal::new("constants", "hold what is no weight"))?;
        ranges.push((u64::from(at), weight.len()));
    }
    let end = apart("constants", ranges)?;
    if end != u64::from(image.constant_len) {
        return Err(Refusal::new("constant_len", format!("is {}, the constants have {end}", image.constant_len)));
    }
    Ok(())
}

/// Plain buffers are disjoint and within their memory.
fn check_plain(image: &Image, program: &Program) -> Result<(), Refusal> {
    let plain = &image.plain;
    let bytes = |id| buffer(program, id).map_or(0, Buffer::bytes);
    once("plain", &plain.buffers, program)?;
    let end = apart("plain", plain.buffers.iter().map(|&(id, at)| (at, bytes(id))).collect())?;
    if end > plain.bytes || !plain.scratch.is_multiple_of(4) || plain.buffers.iter().any(|(_, at)| at % 16 != 0) {
        return Err(Refusal::new("plain", "has buffers that do not fit or are not aligned"));
    }
    Ok(())
}

/// Checks that the groups match the program's states, which are known to the registered
/// bodies if there are no rows, and that no two pages share bytes in any memory.
fn check_pools(image: &Image, program: &Program, plan: &Plan) -> Result<(), Refusal> {
    let groups = image.pools.0.iter().map(|pool| pool.group);
    if !groups.clone().eq(plan.groups.iter().copied()) {
        return Err(Refusal::new("pools", format!("have {:?}, the plan has {:?}", image.pools.0, plan.groups)));
    }
    let reaches = groups.map(|group| group.reach);
    let known = program.rows.map(|_| PageGroups::of(program));
    let expected = known.iter().flat_map(PageGroups::reaches).map(|reach| reach.map(|reach| reach as usize));
    if known.is_some() && !reaches.eq(expected) {
        return Err(Refusal::new("pools", "are not of the groups of the program's states"));
    }
    for sizes in image.page_sizes() {
        let places = image.pools.places(&sizes).map(|(start, end)| (start, end - start)).collect();
        apart("pools", places)?;
    }
    Ok(())
}

/// Checks that, with rows, the states of generic tasks are disjoint parts of the pages of their
/// groups, and have as many bytes as they need.
fn check_states(image: &Image, program: &Program) -> Result<(), Refusal> {
    let plain = &image.plain;
    let state = |id| buffer(program, id).filter(|buffer| buffer.kind == BufferKind::State);
    let groups = PageGroups::of(program);
    let mut ranges = vec![Vec::new(); image.pools.0.len()];
    once("states", &plain.states, program)?;
    for &(id, at) in &plain.states {
        let state = state(id).filter(|state| program.rows.is_some() && state.shape.contains(&program.positions));
        let state = state.ok_or_else(|| Refusal::new("states", "have a buffer that does not lie in pages"))?;
        let bytes = state.bytes() / u64::from(program.positions) * PAGE as u64;
        if !at.is_multiple_of(PAGE_ALIGN) {
            return Err(Refusal::new("states", format!("begin at {at}, which is not aligned")));
        }
        let of_group = groups.group(id).and_then(|group| ranges.get_mut(group));
        of_group.ok_or_else(|| Refusal::new("states", "have a buffer without a group"))?.push((at, bytes));
    }
    let end = |ranges| Ok(apart("states", ranges)?.next_multiple_of(PAGE_ALIGN));
    let ends = ranges.into_iter().map(end).collect::<Result<Vec<u64>, Refusal>>()?;
    if plain.pages != ends || !plain.bytes.is_multiple_of(PAGE_ALIGN) {
        return Err(Refusal::new("pages", format!("have {:?} bytes, the states have {ends:?}", plain.pages)));
    }
    let in_plain = |&(id, _): &(BufferId, u64)| program.rows.is_some() && state(id).is_some();
    if plain.buffers.iter().any(in_plain) {
        return Err(Refusal::new("plain", "has a state outside the pages"));
    }
    Ok(())
}

/// Alignment of pages and of the states in them, in bytes.
const PAGE_ALIGN: u64 = 256;

/// The logits are an output of the program, the only one without rows. The tokens are a state with
/// one element per worker.
fn check_results(image: &Image, program: &Program) -> Result<(), Refusal> {
    let logits = buffer(program, image.logits).filter(|logits| logits.kind == BufferKind::Output);
    let vocab = logits.and_then(|logits| logits.shape.last().copied());
    if vocab != Some(image.vocab) {
        return Err(Refusal::new("vocab", format!("is {}, the logits have {vocab:?}", image.vocab)));
    }
    Ok(())
}

//! The form of a program with rows: what it must look like to have a meaning at all.
//!
//! Written from the description of the format, rule by rule, and apart from the verifier.

use crate::oracle::source::{Access, Bound, Buffer, Call, Kind, Operand, Rows, Source};
use crate::oracle::structure;
use std::collections::{BTreeMap, BTreeSet};

/// Whether buffers of a kind have the rows as their first dimension.
pub fn has_rows(kind: Kind) -> bool {
    !matches!(kind, Kind::Weight | Kind::State)
}

/// The interval of a row at its own position, from a call's: it begins at 0 where that would
/// be before. `None` where the call's ends before the position of its last row.
pub fn own(interval: (Bound, Bound), rows: Rows, position: u64) -> Option<(u64, u64)> {
    let (lo, hi) = interval;
    let start = match (lo.pos, lo.back) {
        (false, _) => lo.base,
        (true, false) => (position + lo.base).saturating_sub(rows.first),
        (true, true) => position.saturating_sub(lo.base + rows.first),
    };
    let end = match hi.pos {
        false => hi.base,
        true if hi.back => return None,
        true => position + hi.base.checked_sub(rows.end - 1)?,
    };
    Some((start, end))
}

/// Checks the form; returns the most rows of a step.
///
/// # Errors
/// The first thing found.
pub fn check(source: &Source) -> Result<u64, String> {
    let rows = source.rows.filter(|&rows| rows > 0).ok_or("no rows")?;
    if source.pipelined {
        return Err("rows in a pipelined program".into());
    }
    structure::check(&flat(source))?;
    let mut locals = BTreeMap::new();
    for (id, call) in source.tasks.iter().enumerate().flat_map(|(id, task)| task.calls.iter().map(move |c| (id, c))) {
        let of = call.rows.filter(|of| of.first < of.end && of.end <= rows).ok_or(format!("t{id}: rows of a call"))?;
        for operand in &call.operands {
            let buffer = &source.buffers[operand.buffer];
            if has_rows(buffer.kind) && buffer.kind != Kind::Local && buffer.shape[0] != rows {
                return Err(format!("b{} has not {rows} rows", operand.buffer));
            }
            tile(source, buffer, operand, of).map_err(|why| format!("t{id}: b{}: {why}", operand.buffer))?;
            let known = *locals.entry(operand.buffer).or_insert((of.first, of.end));
            if buffer.kind == Kind::Local && known != (of.first, of.end) {
                return Err(format!("t{id}: b{}: a local is used for other rows", operand.buffer));
            }
        }
    }
    early(source)?;
    Ok(rows)
}

/// The program with whole buffers for tiles and without rows: references, arities, queues and
/// counters do not depend on them.
fn flat(source: &Source) -> Source {
    let mut flat = Source { rows: None, positions: source.positions.min(1), ..source.clone() };
    for call in flat.tasks.iter_mut().flat_map(|task| &mut task.calls) {
        call.rows = None;
        call.operands.iter_mut().flat_map(|operand| &mut operand.tile).for_each(|interval| *interval = None);
    }
    flat
}

/// A tile covers the call's rows, and is inside its buffer wherever a row is.
fn tile(source: &Source, buffer: &Buffer, operand: &Operand, rows: Rows) -> Result<(), String> {
    let intervals = whole(buffer, operand);
    let rest = if has_rows(buffer.kind) { 1 } else { 0 };
    if rest == 1 {
        let (first, end) = intervals[0];
        let wanted = match buffer.kind {
            Kind::Local if buffer.shape[0] != rows.end - rows.first => return Err("a local of other rows".into()),
            Kind::Local => (0, buffer.shape[0]),
            _ => (rows.first, rows.end),
        };
        if first.pos || end.pos || (first.base, end.base) != wanted {
            return Err("not the rows of the call".into());
        }
    }
    let moves = intervals[rest..].iter().any(|(lo, hi)| lo.pos || hi.pos);
    if buffer.slots.is_some() && moves {
        return Err("a packet's tile moves with the position".into());
    }
    let mut empty = true;
    for position in 0..source.positions {
        let mut elements = 1;
        for (&interval, &extent) in intervals[rest..].iter().zip(&buffer.shape[rest..]) {
            let (lo, hi) = of_row(buffer, interval, rows, position).ok_or("a row before its position")?;
            if lo > hi || hi > extent {
                return Err("outside of its buffer".into());
            }
            elements *= hi - lo;
        }
        empty &= elements == 0;
    }
    if empty { Err("always empty".into()) } else { Ok(()) }
}

/// The interval of a row in a dimension other than the rows': in states it is a part of the
/// call's, elsewhere it is the same for all rows.
pub fn of_row(buffer: &Buffer, interval: (Bound, Bound), rows: Rows, position: u64) -> Option<(u64, u64)> {
    match buffer.kind {
        Kind::State => own(interval, rows, position),
        _ => Some((interval.0.at(position), interval.1.at(position))),
    }
}

/// The intervals of a tile.
pub fn whole(buffer: &Buffer, operand: &Operand) -> Vec<(Bound, Bound)> {
    let fixed = |base| Bound { pos: false, base, back: false };
    let intervals = operand.tile.iter().zip(&buffer.shape);
    intervals.map(|(interval, &extent)| interval.unwrap_or((fixed(0), fixed(extent)))).collect()
}

/// An early read of a state touches nothing that a row at any position writes. Other buffers are
/// judged in each step.
fn early(source: &Source) -> Result<(), String> {
    let elements = |call: &Call, operand: &Operand| -> Vec<(usize, Vec<u64>)> {
        let Some(rows) = call.rows else { return Vec::new() };
        let buffer = &source.buffers[operand.buffer];
        let at = |position| {
            let mut all = vec![Vec::new()];
            for interval in whole(buffer, operand) {
                let (lo, hi) = of_row(buffer, interval, rows, position).unwrap_or((0, 0));
                all = all.iter().flat_map(|start| (lo..hi).map(|at| [start.as_slice(), &[at]].concat())).collect();
            }
            all
        };
        (0..source.positions).flat_map(at).map(|element| (operand.buffer, element)).collect()
    };
    let calls = || source.tasks.iter().flat_map(|task| &task.calls);
    let all = |chosen: &dyn Fn(&Operand) -> bool| -> BTreeSet<(usize, Vec<u64>)> {
        let operands = calls().flat_map(|call| call.operands.iter().map(move |operand| (call, operand)));
        let states = operands.filter(|(_, operand)| source.buffers[operand.buffer].kind == Kind::State);
        states.filter(|(_, operand)| chosen(operand)).flat_map(|(call, operand)| elements(call, operand)).collect()
    };
    let read = all(&|operand| operand.early);
    if !read.is_empty() && !read.is_disjoint(&all(&|operand| operand.access != Access::Read)) {
        return Err("an early read of a state that is written".into());
    }
    Ok(())
}

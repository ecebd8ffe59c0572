//! Compares decoded calls with the calls of the verified task.

use super::call::{DecodedCall, DecodedOperand, Place, Refusal};
use super::places::Places;
use super::worker::{Held, WorkerState};
use amk_ir::lower::lift::lifted;
use amk_ir::{Access, Buffer, BufferId, BufferKind, Call, CallRows, Exchange, Operand, Region};
use std::collections::BTreeMap;

/// Compares the calls of a task, and records what its worker holds afterwards.
///
/// Values held by a worker are read as of the start of the task: a projection has the residual in
/// registers before it writes the new one.
pub(super) fn calls(
    places: &Places<'_>,
    state: &mut WorkerState,
    decoded: &[DecodedCall<'_>],
    expected: &[Call],
) -> Result<(), Refusal> {
    let mut comparison = Comparison { places, state, locals: BTreeMap::new(), kept: Vec::new() };
    for (number, (decoded, expected)) in decoded.iter().zip(expected).enumerate() {
        comparison.call(number, decoded, expected)?;
    }
    if decoded.len() != expected.len() {
        let what = format!("mean {} calls, the program has {}", decoded.len(), expected.len());
        return Err(Refusal::new("op, units", what));
    }
    let kept = comparison.kept;
    state.kept.extend(kept);
    Ok(())
}

struct Comparison<'c, 'p> {
    places: &'c Places<'p>,
    state: &'c WorkerState,
    /// The buffers of the task's locals, by number.
    locals: BTreeMap<usize, BufferId>,
    /// Values that the task leaves in the worker's memory.
    kept: Vec<(&'static str, (BufferId, Region))>,
}

impl Comparison<'_, '_> {
    fn call(&mut self, number: usize, decoded: &DecodedCall<'_>, expected: &Call) -> Result<(), Refusal> {
        let instruction = self.places.program.instructions.get(expected.instruction.index());
        let path = instruction.map_or("?", |instruction| instruction.path.as_str());
        if decoded.path != path || decoded.operands.len() != expected.operands.len() {
            let what = format!("means `{}` as call {number}, the program has `{path}`", decoded.path);
            return Err(Refusal::new("op", what));
        }
        let rows = self.rows(decoded);
        if expected.rows != rows {
            return Err(Refusal::new(
                "op",
                format!("means `{path}` for {rows:?}, the program has {:?}", expected.rows),
            ));
        }
        for (decoded, expected) in decoded.operands.iter().zip(&expected.operands) {
            self.operand(decoded, expected, rows)?;
        }
        if decoded.params != expected.params {
            let what = format!("are {:?} of `{path}`, the program has {:?}", decoded.params, expected.params);
            return Err(Refusal::new("params", what));
        }
        Ok(())
    }

    /// The rows that a decoded call is for.
    fn rows(&self, decoded: &DecodedCall<'_>) -> Option<CallRows> {
        let all = self.places.program.rows?;
        let range = decoded.rows.clone().unwrap_or(0..all);
        Some(CallRows { first: range.start, end: range.end, wanted: decoded.wanted })
    }

    /// The elements of a decoded operand of some rows.
    fn region(&self, decoded: &DecodedOperand, expected: BufferId, rows: Option<CallRows>) -> Option<Region> {
        let Some(rows) = rows else { return Some(decoded.region) };
        let kind = match decoded.place {
            Place::Buffer(buffer) => self.places.buffer(buffer)?.kind,
            _ => self.places.buffer(expected)?.kind,
        };
        lifted(decoded.region, kind, rows).ok()
    }

    fn operand(&mut self, decoded: &DecodedOperand, expected: &Operand, rows: Option<CallRows>) -> Result<(), Refusal> {
        let (Operand { buffer, region, .. }, writes) = (*expected, expected.access == Access::Write);
        let holds = match decoded.place {
            Place::Buffer(known) => known == buffer,
            Place::Local(number) => match self.locals.get(&number) {
                None if writes => self.begin_local(number, buffer, region),
                known => known == Some(&buffer),
            },
            Place::Kept(name) if writes => self.keep(name, buffer, region),
            Place::Kept(name) => self.held(name) == Some((buffer, region)),
        };
        let found = self.region(decoded, buffer, rows);
        let same = (found, decoded.access, decoded.early) == (Some(region), expected.access, expected.early);
        if holds && same && expected.routed.is_none() {
            return Ok(());
        }
        let what = format!("means {}, the program has {}{region}", self.shown(decoded), self.places.name(buffer));
        Err(Refusal::new(decoded.field, what))
    }

    /// Checks the first write of a local. Others may write the elements that it omits; the verifier
    /// ensures that nothing is read before.
    fn begin_local(&mut self, number: usize, buffer: BufferId, region: Region) -> bool {
        let local = self.places.buffer(buffer).is_some_and(|local| local.kind == BufferKind::Local);
        let begins = region.intervals().iter().all(|interval| interval.lo.base == 0);
        let new = self.locals.values().all(|&known| known != buffer);
        self.locals.insert(number, buffer);
        local && begins && new
    }

    /// Checks that the worker keeps a value that no other worker can read.
    fn keep(&mut self, name: &'static str, buffer: BufferId, region: Region) -> bool {
        self.kept.push((name, (buffer, region)));
        let private = !self.places.image.packet_at.contains_key(&buffer);
        let kept = |buffer: &Buffer| buffer.kind == BufferKind::Activation && buffer.exchange == Exchange::Counter;
        private && self.places.buffer(buffer).is_some_and(kept)
    }

    fn held(&self, name: &str) -> Held {
        self.state.kept.get(name).copied()
    }

    fn shown(&self, DecodedOperand { place, region, .. }: &DecodedOperand) -> String {
        let held =
            |held: Held| held.map_or("nothing".to_owned(), |(id, region)| self.places.name(id) + &region.to_string());
        match *place {
            Place::Buffer(id) => format!("{}{region}", self.places.name(id)),
            Place::Kept(name) => format!("{region} of the worker's {name}, which holds {}", held(self.held(name))),
            Place::Local(number) => format!("local {number}{region}"),
        }
    }
}

//! Pairwise comparison of accesses: for storages divided too finely for cells, and for conflicts
//! between steps further apart than the replay covers.

use super::budget::Budget;
use super::grid::{byte_runs, runs_meet};
use super::judge::{Event, Judge};
use super::meet::{Meet, longest_launch};
use super::race::Scene;
use super::storage::Access;
use super::violation::{TooMuch, Violation};
use crate::certificate::Period;
use crate::{BufferId, BufferKind, Program, Routed, Steps};

/// Start and end in each dimension.
type Elements = Vec<(u64, u64)>;

/// Compares all pairs, within a step and across steps; at one position of the first step, or at
/// all.
pub(super) fn compare(scene: &Scene<'_>, judge: &mut Judge<'_>, at: Option<Period>) {
    if !spend_pairs(scene, judge) {
        return;
    }
    for (n, second) in scene.accesses.iter().enumerate() {
        for first in &scene.accesses[..n] {
            if judge.is_done() {
                return;
            }
            within_step(scene, judge, [first, second], at);
        }
    }
    if judge.program.steps == Steps::Pipelined {
        across_steps(scene, judge, at, 0);
    }
}

/// Takes the work of comparing all pairs from the budget; returns whether it was available.
fn spend_pairs(scene: &Scene<'_>, judge: &mut Judge<'_>) -> bool {
    const PER_PAIR: u64 = 4;
    let accesses = scene.accesses.len() as u64;
    judge.budget.spend(accesses * accesses * PER_PAIR, TooMuch::Pairs { buffer: scene.buffers[0] })
}

/// Units of work to decide where two tiles overlap.
const PER_MEETING: u64 = 40;

/// Whether one of two accesses writes, and they are not different rows, or groups, of a table.
pub(super) fn conflict(first: &Access, second: &Access) -> bool {
    let writes = first.operand.access.writes() || second.operand.access.writes();
    let apart = match (first.operand.routed, second.operand.routed) {
        (Some(Routed::Row { entry: a, .. }), Some(Routed::Row { entry: b, .. })) => a != b,
        (Some(Routed::Group { group: a, .. }), Some(Routed::Group { group: b, .. })) => a != b,
        _ => false,
    };
    writes && !apart
}

fn within_step(scene: &Scene<'_>, judge: &mut Judge<'_>, [first, second]: [&Access; 2], at: Option<Period>) {
    let same_task = first.site.task == second.site.task;
    let what = TooMuch::Pairs { buffer: first.operand.buffer };
    let compared = conflict(first, second) && (!same_task || scene.storage.packet);
    if !compared || !judge.budget.spend(PER_MEETING, what) {
        return;
    }
    // Where tiles meet at several positions, the first leaves the longest launch.
    let meet = Meet::of(&first.operand.region, &second.operand.region, judge.program.positions).with_first_in(at);
    let Some((position, _)) = meet.within(0, 0) else { return };
    let both_write = first.operand.access.writes() && second.operand.access.writes();
    if scene.storage.packet && both_write {
        judge.note(Violation::PacketTwice { first: first.party(0), second: second.party(0), position });
    } else if !(same_task || scene.storage.packet && first.operand.access.writes()) {
        judge.longest = longest_launch(judge.program, position);
        judge.require(Event { access: first, step: 0 }, Event { access: second, step: 0 }, position);
    }
}

/// Compares accesses of different steps whose least distance of conflict is more than `known`
/// strides.
pub(super) fn across_steps(scene: &Scene<'_>, judge: &mut Judge<'_>, at: Option<Period>, known: u32) {
    let stride = scene.storage.stride;
    if !spend_pairs(scene, judge) {
        return;
    }
    for first in scene.accesses {
        for second in scene.accesses {
            if !conflict(first, second) || judge.is_done() {
                continue;
            }
            if !judge.budget.spend(PER_MEETING, TooMuch::Pairs { buffer: first.operand.buffer }) {
                return;
            }
            // Bytes of two buffers, and packets that move, are asked for order in the launch from
            // the first position.
            let from = at.map_or(0, |at| at.first);
            judge.longest = longest_launch(judge.program, from);
            let same_buffer = first.operand.buffer == second.operand.buffer;
            let meets = match same_buffer {
                true => least_distance(judge.program, [first, second], stride, at),
                // An order over two steps also holds further apart.
                false if judge.longest < 3 || judge.is_ordered(first, second, 2) => None,
                false => least_byte_distance(judge, [first, second], at),
            };
            if let Some((distance, position)) = meets.filter(|(distance, _)| *distance > stride.saturating_mul(known)) {
                if same_buffer && at.is_none() {
                    judge.longest = longest_launch(judge.program, position);
                }
                judge.require(Event { access: first, step: 0 }, Event { access: second, step: distance }, position);
            }
        }
    }
}

/// The fewest steps, and the first position, after which the second touches an element that the
/// first has touched.
pub(super) fn least_distance(
    program: &Program,
    [first, second]: [&Access; 2],
    stride: u32,
    at: Option<Period>,
) -> Option<(u32, u32)> {
    let meet = Meet::of(&first.operand.region, &second.operand.region, program.positions);
    if program.positions == 1 {
        return meet.ever().map(|(p, _)| (stride, p));
    }
    let (meet, stride) = (meet.with_first_in(at), i64::from(stride));
    let (p, q) = meet.within(stride, i64::MAX)?;
    let least = i64::from(q) - i64::from(p);
    let next = least + (stride - least % stride) % stride;
    let (p, q) = meet.within(next, next)?;
    Some((q - p, p))
}

/// Like `least_distance`, for two buffers that share bytes, and from a distance of 2.
fn least_byte_distance(judge: &mut Judge<'_>, [first, second]: [&Access; 2], at: Option<Period>) -> Option<(u32, u32)> {
    let program = judge.program;
    for distance in 2..program.positions {
        let starts = at.map_or(0..program.positions - distance, |at| at.first..at.last + 1);
        for p in starts.filter(|p| p + distance < program.positions) {
            if bytes_meet(program, [first, second], [p, p + distance], judge.budget)? {
                return Some((distance, p));
            }
        }
    }
    None
}

/// Whether two accesses, each at its own position, share bytes. `None` if deciding it is too much
/// work.
pub(super) fn bytes_meet(
    program: &Program,
    accesses: [&Access; 2],
    positions: [u32; 2],
    budget: &mut Budget,
) -> Option<bool> {
    const PER_RUN: u64 = 10;
    let runs = |n: usize, runs: &mut Vec<(u64, u64)>| {
        let buffer = &program.buffers[accesses[n].operand.buffer.index()];
        byte_runs(buffer, accesses[n], positions[n], runs)
    };
    let (mut a, mut b) = (Vec::new(), Vec::new());
    let known = runs(0, &mut a) && runs(1, &mut b);
    let work = if known { 100 + (a.len() + b.len()) as u64 * PER_RUN } else { u64::MAX };
    budget.spend(work, TooMuch::Runs { buffer: accesses[0].operand.buffer }).then(|| runs_meet(&a, &b))
}

/// Checks at one position that every element read has been written in the step, and that outputs
/// are written at all.
pub(super) fn cover(scene: &Scene<'_>, judge: &mut Judge<'_>, position: u32) {
    let Some(&id) = scene.buffers.first() else { return };
    let buffer = &judge.program.buffers[id.index()];
    if matches!(buffer.kind, BufferKind::State | BufferKind::Weight | BufferKind::Input) {
        return;
    }
    let mut written: Vec<Elements> = Vec::new();
    for (n, access) in scene.accesses.iter().enumerate() {
        let tile = access.elements(position);
        if access.operand.access.reads()
            && let Some(elements) = uncovered(&tile, &written, id, judge)
        {
            let later =
                scene.accesses[n..].iter().find(|later| later.operand.access.writes()).map(|later| later.site.task);
            judge.note(Violation::Uninitialised { site: access.site, elements, position, later, given: None });
        }
        if access.operand.access.writes() {
            written.push(tile);
        }
    }
    let whole: Elements = buffer.shape.iter().map(|&extent| (0, u64::from(extent))).collect();
    if buffer.kind == BufferKind::Output
        && let Some(elements) = uncovered(&whole, &written, id, judge)
    {
        judge.note(Violation::OutputNotWritten { buffer: id, elements, position, given: None });
    }
}

/// Returns a part of `tile` that is in none of `tiles`. A tile that splits into very many parts
/// counts as uncovered.
fn uncovered(tile: &Elements, tiles: &[Elements], buffer: BufferId, judge: &mut Judge<'_>) -> Option<Elements> {
    const MOST_PARTS: usize = 1 << 12;
    const PER_PART: u64 = 60;
    let mut parts = vec![tile.clone()];
    parts.retain(|part| part.iter().all(|(lo, hi)| lo < hi));
    for cover in tiles {
        let mut left = Vec::new();
        if !judge.budget.spend(parts.len() as u64 * PER_PART, TooMuch::Pairs { buffer }) {
            return None;
        }
        for part in parts {
            subtract(part, cover, &mut left);
        }
        parts = left;
        if parts.is_empty() || parts.len() > MOST_PARTS {
            break;
        }
    }
    parts.into_iter().next()
}

/// Adds the part of `part` outside `cover`, in boxes.
fn subtract(mut part: Elements, cover: &Elements, left: &mut Vec<Elements>) {
    if part.iter().zip(cover).any(|(p, c)| p.0 >= c.1 || c.0 >= p.1) {
        left.push(part);
        return;
    }
    for dim in 0..part.len() {
        let (lo, hi) = cover[dim];
        for side in [(part[dim].0, lo), (hi, part[dim].1)] {
            if side.0 < side.1 {
                let mut rest = part.clone();
                rest[dim] = side;
                left.push(rest);
            }
        }
        part[dim] = (part[dim].0.max(lo), part[dim].1.min(hi));
    }
}

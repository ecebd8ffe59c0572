//! Checks of operands that need no order: overlap within a call, and reads before the waits.

use super::budget::Budget;
use super::grid::{MOST_RUNS_OF_STORAGE, byte_runs, runs_meet};
use super::judge::Judge;
use super::meet::Meet;
use super::storage::{Access, MOST_SHARED_POSITIONS, Storages, bytes};
use super::violation::{Site, TooMuch, Violation};
use crate::{Operand, Program, TaskId};

/// Runs of bytes, in order.
type Runs = Vec<(u64, u64)>;

/// Units of work for a run of bytes.
const PER_RUN: u64 = 10;

/// AMK0306: a call's writes overlap none of its other operands.
pub(super) fn check_calls(program: &Program, storages: &Storages, judge: &mut Judge<'_>) {
    for (t, task) in program.tasks.iter().enumerate() {
        for (c, call) in task.calls.iter().enumerate() {
            check_call(program, storages, (TaskId::from(t), c as u32), &call.operands, judge);
        }
    }
}

fn check_call(
    program: &Program,
    storages: &Storages,
    (task, call): (TaskId, u32),
    operands: &[Operand],
    judge: &mut Judge<'_>,
) {
    const PER_PAIR: u64 = 20;
    let pairs = operands.len() as u64 * operands.len() as u64;
    let Some(first) = operands.first() else { return };
    if !judge.budget.spend(pairs * PER_PAIR, TooMuch::Pairs { buffer: first.buffer }) {
        return;
    }
    for (n, second) in operands.iter().enumerate() {
        for (k, first) in operands[..n].iter().enumerate() {
            if !first.access.writes() && !second.access.writes() {
                continue;
            }
            let site = |operand: usize| Site { task, call, operand: operand as u32 };
            let pair = [Access { site: site(k), operand: *first }, Access { site: site(n), operand: *second }];
            let position = overlap(program, storages, &pair, judge.budget);
            if let Some(position) = position.filter(|_| !judge.budget.is_spent()) {
                let [first, second] = pair.map(|access| access.party(0));
                judge.note(Violation::SameCall { first, second, position });
            }
        }
    }
}

/// A position at which two operands share memory.
fn overlap(program: &Program, storages: &Storages, pair: &[Access; 2], budget: &mut Budget) -> Option<u32> {
    let [first, second] = pair;
    if first.operand.buffer == second.operand.buffer {
        let meet = Meet::of(&first.operand.region, &second.operand.region, program.positions);
        return meet.within(0, 0).map(|(position, _)| position);
    }
    let storage = storages.of(first.operand.buffer)?;
    let apart = || {
        let [a, b] = [first, second].map(|access| bytes(&program.buffers[access.operand.buffer.index()]));
        a.end <= b.start || b.end <= a.start
    };
    if storages.of(second.operand.buffer) != Some(storage) || apart() {
        return None;
    }
    // Shared bytes are followed position by position.
    let what = TooMuch::Runs { buffer: first.operand.buffer };
    (0..program.positions.min(MOST_SHARED_POSITIONS)).find(|&position| {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        let known = [(first, &mut a), (second, &mut b)]
            .into_iter()
            .all(|(access, runs)| byte_runs(&program.buffers[access.operand.buffer.index()], access, position, runs));
        let work = if known { 50 + (a.len() + b.len()) as u64 * PER_RUN } else { u64::MAX };
        !budget.spend(work, what) || runs_meet(&a, &b)
    })
}

/// The runs of bytes that an access touches at one position or another, in order; `None` beyond the
/// budget. Storages of shared bytes with more positions are refused as a whole.
fn runs_at_all_positions(program: &Program, access: &Access, budget: &mut Budget) -> Option<Runs> {
    let moves = access.operand.region.intervals().iter().any(|interval| interval.moves());
    let positions = if moves { program.positions.min(MOST_SHARED_POSITIONS) } else { 1 };
    let buffer = &program.buffers[access.operand.buffer.index()];
    let mut runs = Vec::new();
    for position in 0..positions {
        let known = runs.len();
        let fits = byte_runs(buffer, access, position, &mut runs) && runs.len() <= MOST_RUNS_OF_STORAGE;
        let work = if fits { 50 + (runs.len() - known) as u64 * 4 * PER_RUN } else { u64::MAX };
        if !budget.spend(work, TooMuch::Runs { buffer: access.operand.buffer }) {
            return None;
        }
    }
    runs.sort_unstable();
    let mut merged: Runs = Vec::new();
    for run in runs {
        match merged.last_mut() {
            Some(last) if run.0 <= last.1 => last.1 = last.1.max(run.1),
            _ => merged.push(run),
        }
    }
    Some(merged)
}

/// AMK0305: no task writes, at any position, an element that is read before the waits.
pub(super) fn check_early(program: &Program, storages: &Storages, storage: usize, judge: &mut Judge<'_>) {
    let accesses = storages.accesses(storage);
    let is_early = |access: &&Access| access.operand.early && access.operand.access.reads();
    if !storages.kinds[storage].written || !accesses.iter().any(|access| is_early(&access)) {
        return;
    }
    let writes: Vec<&Access> = accesses.iter().filter(|access| access.operand.access.writes()).collect();
    // Runs of the writes, if an operand of another buffer is early.
    let mut runs: Vec<Option<Option<Runs>>> = vec![None; writes.len()];
    for read in accesses.iter().filter(is_early) {
        let mut own = None;
        const PER_PAIR: u64 = 20;
        let buffer = read.operand.buffer;
        if !judge.budget.spend(writes.len() as u64 * PER_PAIR, TooMuch::Pairs { buffer }) {
            return;
        }
        for (write, runs) in writes.iter().zip(&mut runs) {
            let meet = if write.operand.buffer == buffer {
                Meet::of(&read.operand.region, &write.operand.region, program.positions).ever()
            } else {
                let own = own.get_or_insert_with(|| runs_at_all_positions(program, read, judge.budget));
                let runs = runs.get_or_insert_with(|| runs_at_all_positions(program, write, judge.budget));
                let (Some(a), Some(b)) = (own, runs) else { return };
                if !judge.budget.spend((a.len() + b.len()) as u64 * PER_RUN, TooMuch::Runs { buffer }) {
                    return;
                }
                runs_meet(a, b).then_some((0, 0))
            };
            if let Some((position, write_position)) = meet {
                let (read, write) = (read.party(0), write.party(0));
                judge.note(Violation::Early { read, write, position, write_position });
                break;
            }
        }
    }
}

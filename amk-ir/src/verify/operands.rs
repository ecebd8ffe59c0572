//! Checks of operands that need no order: overlap within a call, and reads before the waits.

use super::grid::{MOST_RUNS_OF_STORAGE, byte_runs, runs_meet};
use super::judge::Judge;
use super::meet::Meet;
use super::storage::{Access, MOST_SHARED_POSITIONS, Storages};
use super::violation::{Site, Violation};
use crate::{Program, TaskId};

/// AMK0306: what a call writes overlaps no other of its operands.
pub(super) fn check_calls(program: &Program, storages: &Storages, judge: &mut Judge<'_>) {
    for (t, task) in program.tasks.iter().enumerate() {
        for (c, call) in task.calls.iter().enumerate() {
            for (n, second) in call.operands.iter().enumerate() {
                for (k, first) in call.operands[..n].iter().enumerate() {
                    if !first.access.writes() && !second.access.writes() {
                        continue;
                    }
                    let site = |operand: usize| Site { task: TaskId::from(t), call: c as u32, operand: operand as u32 };
                    let pair = [Access { site: site(k), operand: *first }, Access { site: site(n), operand: *second }];
                    if let Some(position) = overlap(program, storages, &pair) {
                        let [first, second] = pair.map(|access| access.party(0));
                        judge.note(Violation::SameCall { first, second, position });
                    }
                }
            }
        }
    }
}

/// A position at which two operands share memory.
fn overlap(program: &Program, storages: &Storages, [first, second]: &[Access; 2]) -> Option<u32> {
    if first.operand.buffer == second.operand.buffer {
        let meet = Meet::of(&first.operand.region, &second.operand.region, program.positions);
        return meet.within(0, 0).map(|(position, _)| position);
    }
    let storage = storages.of(first.operand.buffer)?;
    if storages.of(second.operand.buffer) != Some(storage) {
        return None;
    }
    // Shared bytes are followed position by position.
    (0..program.positions.min(MOST_SHARED_POSITIONS)).find(|&position| {
        let runs = [first, second].map(|access| {
            let mut runs = Vec::new();
            let buffer = &program.buffers[access.operand.buffer.index()];
            byte_runs(buffer, access, position, &mut runs).then_some(runs)
        });
        match runs {
            [Some(a), Some(b)] => runs_meet(&a, &b),
            // Too many to take apart.
            _ => true,
        }
    })
}

/// The runs of bytes that an access touches at one position or another, in order. Storages of shared bytes with more
/// positions are refused as a whole.
fn runs_at_all_positions(program: &Program, access: &Access) -> Option<Vec<(u64, u64)>> {
    let moves = access.operand.region.intervals().iter().any(|interval| interval.lo.pos || interval.hi.pos);
    let positions = if moves { program.positions.min(MOST_SHARED_POSITIONS) } else { 1 };
    let mut runs = Vec::new();
    for position in 0..positions {
        let buffer = &program.buffers[access.operand.buffer.index()];
        if !byte_runs(buffer, access, position, &mut runs) || runs.len() > MOST_RUNS_OF_STORAGE {
            return None;
        }
    }
    runs.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for run in runs {
        match merged.last_mut() {
            Some(last) if run.0 <= last.1 => last.1 = last.1.max(run.1),
            _ => merged.push(run),
        }
    }
    Some(merged)
}

/// AMK0305: what is read before the waits is written by no task at any position.
pub(super) fn check_early(program: &Program, storages: &Storages, storage: usize, judge: &mut Judge<'_>) {
    let accesses = storages.accesses(storage);
    if !storages.kinds[storage].written || !accesses.iter().any(|access| access.operand.early) {
        return;
    }
    for read in accesses.iter().filter(|access| access.operand.early && access.operand.access.reads()) {
        for write in accesses.iter().filter(|access| access.operand.access.writes()) {
            let meet = if read.operand.buffer == write.operand.buffer {
                Meet::of(&read.operand.region, &write.operand.region, program.positions).ever()
            } else {
                match [read, write].map(|access| runs_at_all_positions(program, access)) {
                    [Some(a), Some(b)] => runs_meet(&a, &b).then_some((0, 0)),
                    // Too many to take apart.
                    _ => Some((0, 0)),
                }
            };
            if let Some((position, write_position)) = meet {
                let (read, write) = (read.party(0), write.party(0));
                judge.note(Violation::Early { read, write, position, write_position });
                break;
            }
        }
    }
}

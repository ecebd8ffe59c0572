//! C3 for buffers that share bytes: who has last written each byte, at each position.

use crate::budget::Budget;
use crate::bytes::Bytes;
use crate::refusal::Refusal;
use crate::structure;
use amk_ir::{BufferId, BufferKind, Program};
use std::collections::BTreeMap;
use std::ops::Range;

/// Whether the values of a group of buffers that share bytes are defined and kept, at each
/// position.
pub(crate) fn check(
    program: &Program,
    group: &[BufferId],
    uses: &[Bytes<'_>],
    budget: &mut Budget,
) -> Result<(), Refusal> {
    let moves = uses.iter().any(|bytes| bytes.of.moves());
    for position in 0..if moves { program.positions } else { 1 } {
        budget.take((1 + group.len() + uses.len()) as u64, WHAT)?;
        let mut owners = Owners::default();
        for (id, bytes) in of_kinds(program, group, &FROM_THE_START) {
            owners.set(&bytes, id);
        }
        for call in uses.chunk_by(|a, b| a.of.call() == b.of.call()) {
            owners.run(call, position, budget)?;
        }
        for (buffer, bytes) in of_kinds(program, group, &AT_THE_END) {
            if !owners.are(&bytes, buffer, budget)? {
                return Err(Refusal::NotKept { buffer, position });
            }
        }
    }
    Ok(())
}

const WHAT: &str = "following shared bytes";

/// Kinds that have a meaning before a step.
const FROM_THE_START: [BufferKind; 3] = [BufferKind::Weight, BufferKind::Input, BufferKind::State];

/// Kinds that have a meaning after a step (S3).
const AT_THE_END: [BufferKind; 4] = [BufferKind::Weight, BufferKind::Input, BufferKind::State, BufferKind::Output];

/// The buffers of some kinds, and their bytes.
fn of_kinds(program: &Program, group: &[BufferId], kinds: &[BufferKind]) -> Vec<(BufferId, Range<u64>)> {
    let of_kind = |id: &&BufferId| kinds.contains(&program.buffers[id.index()].kind);
    let bytes = |&id: &BufferId| Some((id, structure::bytes(&program.buffers[id.index()])?));
    group.iter().filter(of_kind).filter_map(bytes).collect()
}

/// Who has last written each byte, if anybody has: ends and owners by the first byte.
#[derive(Default)]
struct Owners {
    runs: BTreeMap<u64, (u64, BufferId)>,
}

impl Owners {
    /// Reads, then writes, of one call.
    fn run(&mut self, call: &[Bytes<'_>], position: u32, budget: &mut Budget) -> Result<(), Refusal> {
        for read in call.iter().filter(|one| one.of.reads()) {
            for run in read.at(position.into()) {
                if !self.are(run, read.of.at.buffer, budget)? {
                    return Err(Refusal::Undefined { at: Box::new(read.of.at), position });
                }
            }
        }
        for write in call.iter().filter(|one| one.of.writes()) {
            for run in write.at(position.into()) {
                budget.take(1, WHAT)?;
                self.set(run, write.of.at.buffer);
            }
        }
        Ok(())
    }

    fn set(&mut self, &Range { start, end }: &Range<u64>, owner: BufferId) {
        for at in [start, end] {
            self.cut(at);
        }
        let inside: Vec<u64> = self.runs.range(start..end).map(|(&at, _)| at).collect();
        for at in inside {
            self.runs.remove(&at);
        }
        self.runs.insert(start, (end, owner));
    }

    /// Makes one run two.
    fn cut(&mut self, at: u64) {
        if let Some((_, run)) = self.runs.range_mut(..at).next_back()
            && run.0 > at
        {
            let rest = (run.0, run.1);
            run.0 = at;
            self.runs.insert(at, rest);
        }
    }

    fn are(&self, &Range { start, end }: &Range<u64>, owner: BufferId, budget: &mut Budget) -> Result<bool, Refusal> {
        if start >= end {
            return Ok(true);
        }
        let mut next = start;
        let before = self.runs.range(..=start).next_back();
        for (&at, &(until, by)) in before.into_iter().chain(self.runs.range(start + 1..end)) {
            budget.take(1, WHAT)?;
            if until <= next {
                continue;
            }
            if at > next || by != owner {
                return Ok(false);
            }
            next = until;
        }
        Ok(next >= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_the_last_writers() {
        let mut owners = Owners::default();
        let mut plain = [None; 8];
        let mut state = 1u64;
        for _ in 0..2000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (start, length, owner) = (state >> 40 & 7, state >> 44 & 7, BufferId((state >> 50) as u32 & 1));
            let end = (start + length).min(8);
            if start < end {
                owners.set(&(start..end), owner);
                plain[start as usize..end as usize].fill(Some(owner));
            }
            for (lo, hi) in (0..8).flat_map(|lo| (lo..=8).map(move |hi| (lo, hi))) {
                let wanted = plain[lo as usize..hi as usize].iter().all(|&by| by == Some(owner));
                assert_eq!(owners.are(&(lo..hi), owner, &mut Budget::new()), Ok(wanted));
            }
        }
    }
}

//! Positions at which two tiles overlap, for all pairs of positions at once.

use crate::certificate::Period;
use crate::{Bound, Program, Region, Steps};

/// Returns the position of the step `step` steps after one at `position`; `None` if no launch has
/// it. Positions advance by one per step; a program for one position stays at it.
pub(super) fn position_after(program: &Program, position: u32, step: u32) -> Option<u32> {
    match program.positions {
        1 => Some(0),
        positions => position.checked_add(step).filter(|&later| later < positions),
    }
}

/// The most steps that a launch from `position` on can have.
pub(super) fn longest_launch(program: &Program, position: u32) -> u32 {
    match (program.steps, program.positions) {
        (Steps::Barrier, _) => 1,
        (Steps::Pipelined, 1) => u32::MAX,
        (Steps::Pipelined, positions) => positions.saturating_sub(position),
    }
}

/// Periods that start at the given positions.
pub(super) fn periods(program: &Program, mut firsts: Vec<u32>) -> Vec<Period> {
    firsts.sort_unstable();
    firsts.dedup();
    let ends = firsts.iter().skip(1).map(|next| next - 1).chain([program.positions - 1]);
    firsts.iter().zip(ends).map(|(&first, last)| Period { first, last }).collect()
}

/// The positions `p` of one tile and `q` of another at which they have an element in common: all
/// with `p` and `q` in their ranges and `q - p` in its range. Empty ranges mean that they never
/// meet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meet {
    p: (i64, i64),
    q: (i64, i64),
    distance: (i64, i64),
}

impl Meet {
    pub(super) fn of(a: &Region, b: &Region, positions: u32) -> Self {
        let last = i64::from(positions) - 1;
        let mut meet = Self { p: (0, last), q: (0, last), distance: (-last, last) };
        if a.intervals().len() != b.intervals().len() {
            meet.p = (1, 0);
        }
        for (x, y) in a.intervals().iter().zip(b.intervals()) {
            if meet.p.0 > meet.p.1 {
                break; // whatever else is required
            }
            // Two intervals overlap if the larger start is below the smaller end. No start is below
            // 0, so for an end of the form `max(0, pos - c)` only its line matters.
            for (start, lo_p) in [(x.lo, true), (y.lo, false)] {
                for (hi, hi_p) in [(x.hi, true), (y.hi, false)] {
                    start.lines().for_each(|lo| meet.require(lo, lo_p, hi, hi_p));
                }
            }
        }
        meet
    }

    /// Requires `lo < hi`; each is of the tile at `p` or of the one at `q`.
    fn require(&mut self, (moves, lo): (bool, i64), lo_p: bool, hi: Bound, hi_p: bool) {
        let gap = hi.offset() - lo;
        match (moves, hi.pos) {
            (false, false) => {
                if gap <= 0 {
                    self.p = (1, 0);
                }
            }
            // position < gap
            (true, false) => {
                let side = if lo_p { &mut self.p } else { &mut self.q };
                side.1 = side.1.min(gap - 1);
            }
            // position > -gap
            (false, true) => {
                let side = if hi_p { &mut self.p } else { &mut self.q };
                side.0 = side.0.max(1 - gap);
            }
            (true, true) => match (lo_p, hi_p) {
                // p < q + gap
                (true, false) => self.distance.0 = self.distance.0.max(1 - gap),
                // q < p + gap
                (false, true) => self.distance.1 = self.distance.1.min(gap - 1),
                _ => {
                    if gap <= 0 {
                        self.p = (1, 0);
                    }
                }
            },
        }
    }

    /// Returns the same with the first access at one of these positions, or at any.
    pub(super) fn with_first_in(mut self, positions: Option<Period>) -> Self {
        if let Some(Period { first, last }) = positions {
            self.p = (self.p.0.max(first.into()), self.p.1.min(last.into()));
        }
        self
    }

    /// Returns positions at which the tiles overlap, with `q - p` in the range; those with the
    /// smallest `q - p`, then the smallest `p`.
    pub(super) fn within(&self, from: i64, to: i64) -> Option<(u32, u32)> {
        let low = self.distance.0.max(self.q.0 - self.p.1).max(from);
        let high = self.distance.1.min(self.q.1 - self.p.0).min(to);
        if self.p.0 > self.p.1 || self.q.0 > self.q.1 || low > high {
            return None;
        }
        let p = self.p.0.max(self.q.0 - low);
        Some((u32::try_from(p).ok()?, u32::try_from(p + low).ok()?))
    }

    /// Some positions at which the tiles meet.
    pub(super) fn ever(&self) -> Option<(u32, u32)> {
        self.within(i64::MIN, i64::MAX)
    }
}

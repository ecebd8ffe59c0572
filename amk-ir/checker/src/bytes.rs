//! Buffers that share bytes: tiles as runs of bytes, position by position.

use crate::budget::Budget;
use crate::meet::{Distances, Span};
use crate::refusal::Refusal;
use crate::structure;
use crate::uses::Use;
use amk_ir::{Buffer, BufferId, Program};
use std::ops::Range;

/// The most runs that are kept.
const KEPT: u64 = 1 << 20;

/// Buffers that are linked by shared bytes: each group has several.
pub(crate) fn groups(program: &Program) -> Vec<Vec<BufferId>> {
    let mut groups: Vec<Vec<BufferId>> = Vec::new();
    let mut end = 0;
    for (bytes, id) in structure::places(program) {
        match groups.last_mut() {
            Some(group) if bytes.start < end => group.push(id),
            _ => groups.push(vec![id]),
        }
        end = end.max(bytes.end);
    }
    groups.retain(|group| group.len() > 1);
    groups
}

/// The bytes of an operand at each position.
#[derive(Debug)]
pub(crate) struct Bytes<'p> {
    pub(crate) of: Use<'p>,
    /// At each position; at one, if the tile does not move. In order.
    runs: Vec<Vec<Range<u64>>>,
}

impl<'p> Bytes<'p> {
    /// The operands of a group of buffers, in eager order.
    pub(crate) fn of_group(
        program: &'p Program,
        uses: &[Vec<Use<'p>>],
        group: &[BufferId],
        budget: &mut Budget,
    ) -> Result<Vec<Self>, Refusal> {
        let mut kept = Budget::of(KEPT);
        let mut found = Vec::new();
        for &one in group.iter().flat_map(|id| &uses[id.index()]) {
            let buffer = &program.buffers[one.at.buffer.index()];
            let positions = if one.moves() { program.positions } else { 1 };
            let mut runs = Vec::new();
            for position in 0..positions {
                let at = runs_at(buffer, one, position.into(), &mut kept)?;
                budget.take(1 + at.len() as u64, "following shared bytes")?;
                runs.push(at);
            }
            found.push(Self { of: one, runs });
        }
        found.sort_by_key(|bytes| (bytes.of.call(), bytes.of.at.operand));
        Ok(found)
    }

    pub(crate) fn at(&self, position: i64) -> &[Range<u64>] {
        let position = usize::try_from(position).unwrap_or(0).min(self.runs.len() - 1);
        &self.runs[position]
    }

    fn moves(&self) -> bool {
        self.runs.len() > 1
    }

    /// From the first byte to the last, at all positions together.
    fn hull(&self) -> Range<u64> {
        let runs = || self.runs.iter().flatten();
        runs().map(|run| run.start).min().unwrap_or(0)..runs().map(|run| run.end).max().unwrap_or(0)
    }

    /// Whether this at `p` and another at `q` share a byte.
    fn meets(&self, p: i64, other: &Self, q: i64, budget: &mut Budget) -> Result<bool, Refusal> {
        let (a, b) = (self.at(p), other.at(q));
        budget.take(1 + (a.len() + b.len()) as u64, "comparing shared bytes")?;
        let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            if x.start < y.end && y.start < x.end {
                return Ok(true);
            }
            if x.end <= y.end {
                a.next()
            } else {
                b.next()
            };
        }
        Ok(false)
    }

    /// Whether they share bytes at any two positions.
    pub(crate) fn ever(&self, other: &Self, positions: Span, budget: &mut Budget) -> Result<bool, Refusal> {
        let (a, b) = (self.hull(), other.hull());
        if a.end <= b.start || b.end <= a.start {
            return Ok(false);
        }
        let of = |bytes: &Self| if bytes.moves() { positions.first..=positions.last } else { 0..=0 };
        for p in of(self) {
            for q in of(other) {
                if self.meets(p, other, q, budget)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// A position at which they share bytes in one step.
    pub(crate) fn in_step(&self, other: &Self, positions: Span, budget: &mut Budget) -> Result<Option<i64>, Refusal> {
        self.apart(other, 0, positions, budget)
    }

    /// The least distance at which they share bytes, this first, and the first start position: L8
    /// is about tiles of one buffer, so an order is asked for in the longest launch.
    pub(crate) fn least(
        &self,
        other: &Self,
        distances: Distances,
        budget: &mut Budget,
    ) -> Result<Option<(i64, i64)>, Refusal> {
        let Distances { starts, positions, .. } = distances;
        if distances.is_still() {
            return Ok(self.apart(other, 0, positions, budget)?.map(|at| (1, at)));
        }
        for distance in 1..=positions.last - starts.first {
            let within = Span::new(starts.first, starts.last.min(positions.last - distance));
            if self.apart(other, distance, within, budget)?.is_some() {
                return Ok(Some((distance, starts.first)));
            }
        }
        Ok(None)
    }

    /// The first of some positions at which they share bytes, the other so many steps later.
    fn apart(&self, other: &Self, distance: i64, starts: Span, budget: &mut Budget) -> Result<Option<i64>, Refusal> {
        let last = if self.moves() || other.moves() { starts.last } else { starts.first };
        for p in starts.first..=last {
            if self.meets(p, other, p + distance, budget)? {
                return Ok(Some(p));
            }
        }
        Ok(None)
    }
}

/// The runs of bytes of a tile at a position, in order.
fn runs_at(buffer: &Buffer, one: Use<'_>, position: u64, kept: &mut Budget) -> Result<Vec<Range<u64>>, Refusal> {
    let size = u64::from(buffer.dtype.bytes());
    let mut runs = vec![Range { start: 0, end: 1 }];
    // Outermost first: each run of the dimensions before is cut, or stays whole.
    for (interval, &extent) in one.operand.region.intervals().iter().zip(&buffer.shape) {
        let (lo, hi, extent) = (interval.lo.at(position), interval.hi.at(position), u64::from(extent));
        let whole = lo == 0 && hi == extent;
        runs = if whole {
            runs.into_iter().map(|run| run.start * extent..run.end * extent).collect()
        } else {
            let count = runs.iter().map(|run| run.end - run.start).sum();
            kept.take(count, "following shared bytes")?;
            let rows = runs.into_iter().flatten();
            rows.map(|row| row * extent + lo..row * extent + hi).filter(|run| !run.is_empty()).collect()
        };
    }
    let place = buffer.place.unwrap_or(0);
    kept.take(1 + runs.len() as u64, "following shared bytes")?;
    Ok(runs.into_iter().map(|run| place + run.start * size..place + run.end * size).collect())
}

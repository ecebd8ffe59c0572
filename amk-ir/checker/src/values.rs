//! C3: in eager order, every element read has been written, and every element that must be kept is
//! kept.
//!
//! One step decides: at its end states, weights and inputs hold their own, as at its start.

use crate::budget::Budget;
use crate::refusal::Refusal;
use crate::uses::Use;
use amk_ir::certificate::Period;
use amk_ir::{Buffer, BufferId, BufferKind, Program, Region};
use std::collections::HashSet;

/// The most boxes into which the remainder of one falls.
const PIECES: usize = 1 << 20;

/// In each dimension, from one element to before another.
type Box4 = [(u64, u64); amk_ir::MAX_RANK];

fn box_at(region: &Region, position: u32) -> Box4 {
    let mut found = [(0, 1); amk_ir::MAX_RANK];
    for (own, interval) in found.iter_mut().zip(region.intervals()) {
        *own = (interval.lo.at(position.into()), interval.hi.at(position.into()));
    }
    found
}

fn is_empty(of: &Box4) -> bool {
    of.iter().any(|(lo, hi)| lo >= hi)
}

/// Adds the part of `from` outside `minus` to `rest`, in boxes.
fn subtract(mut from: Box4, minus: &Box4, rest: &mut Vec<Box4>) {
    if from.iter().zip(minus).any(|(a, b)| a.0.max(b.0) >= a.1.min(b.1)) {
        rest.push(from);
        return;
    }
    for n in 0..from.len() {
        let ((lo, hi), (from_lo, to_hi)) = (minus[n], from[n]);
        for side in [(from_lo, lo), (hi, to_hi)] {
            if side.0 < side.1 {
                let mut piece = from;
                piece[n] = side;
                rest.push(piece);
            }
        }
        from[n] = (from_lo.max(lo), to_hi.min(hi));
    }
}

/// The elements written in one step at one position, of a buffer that shares no bytes.
#[derive(Default)]
struct Written {
    boxes: Vec<Box4>,
    covered: HashSet<Box4>,
}

impl Written {
    fn add(&mut self, of: Box4) {
        if self.covered.insert(of) {
            self.boxes.push(of);
        }
    }

    /// Whether every element of a box has been written.
    fn covers(&mut self, of: Box4, budget: &mut Budget) -> Result<bool, Refusal> {
        if is_empty(&of) || self.covered.contains(&of) {
            return Ok(true);
        }
        let mut open = vec![of];
        for written in &self.boxes {
            budget.take(open.len() as u64, "following what is written")?;
            let mut rest = Vec::with_capacity(open.len());
            for piece in open {
                subtract(piece, written, &mut rest);
            }
            if rest.len() > PIECES {
                return Err(Refusal::TooLarge { what: "following what is written", most: PIECES as u64 });
            }
            open = rest;
            if open.is_empty() {
                self.covered.insert(of);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether the values of a buffer that shares no bytes are defined, in the first step of each
/// period.
pub(crate) fn check(
    program: &Program,
    id: BufferId,
    uses: &[Use<'_>],
    periods: &[Period],
    budget: &mut Budget,
) -> Result<(), Refusal> {
    let buffer = &program.buffers[id.index()];
    if matches!(buffer.kind, BufferKind::Weight | BufferKind::Input | BufferKind::State) {
        return Ok(());
    }
    if !uses.iter().any(Use::moves) {
        return check_at(buffer, id, uses, 0, budget);
    }
    let bounds = Bounds::of(buffer, uses);
    for &period in periods {
        bounds.keep_their_order(id, period, budget)?;
        check_at(buffer, id, uses, period.first, budget)?;
    }
    Ok(())
}

fn check_at(
    buffer: &Buffer,
    id: BufferId,
    uses: &[Use<'_>],
    position: u32,
    budget: &mut Budget,
) -> Result<(), Refusal> {
    let mut written = Written::default();
    for call in uses.chunk_by(|a, b| a.call() == b.call()) {
        budget.take(call.len() as u64, "following what is written")?;
        for read in call.iter().filter(|one| one.reads()) {
            if !written.covers(box_at(&read.operand.region, position), budget)? {
                return Err(Refusal::Undefined { at: Box::new(read.at), position });
            }
        }
        for write in call.iter().filter(|one| one.writes()) {
            written.add(box_at(&write.operand.region, position));
        }
    }
    let whole = box_at(&Region::full(&buffer.shape), position);
    if buffer.kind == BufferKind::Output && !written.covers(whole, budget)? {
        return Err(Refusal::NotKept { buffer: id, position });
    }
    Ok(())
}

/// By dimension, the fixed bounds of a buffer's tiles, in order, and the offsets from the position
/// of the moving ones. 0 is among the fixed ones: there a bound behind the position begins to move.
struct Bounds {
    fixed: Vec<Vec<i64>>,
    moving: Vec<HashSet<i64>>,
}

impl Bounds {
    fn of(buffer: &Buffer, uses: &[Use<'_>]) -> Self {
        let mut fixed: Vec<Vec<i64>> = buffer.shape.iter().map(|&extent| vec![0, extent.into()]).collect();
        let mut moving = vec![HashSet::new(); fixed.len()];
        for one in uses {
            for (n, interval) in one.operand.region.intervals().iter().enumerate() {
                for bound in [interval.lo, interval.hi] {
                    if bound.pos {
                        let base = i64::from(bound.base);
                        moving[n].insert(if bound.behind { -base } else { base });
                    } else {
                        fixed[n].push(bound.base.into());
                    }
                }
            }
        }
        for fixed in &mut fixed {
            fixed.sort_unstable();
            fixed.dedup();
        }
        Self { fixed, moving }
    }

    /// L7: no moving bound is at a fixed one within the period, unless the period is that position
    /// alone.
    fn keep_their_order(&self, buffer: BufferId, period: Period, budget: &mut Budget) -> Result<(), Refusal> {
        let Period { first, last } = period;
        if first == last {
            return Ok(());
        }
        for (dimension, (fixed, moving)) in self.fixed.iter().zip(&self.moving).enumerate() {
            budget.take(moving.len() as u64, "comparing the bounds of a period")?;
            for &offset in moving {
                let next = fixed.partition_point(|&fixed| fixed < offset + i64::from(first));
                if fixed.get(next).is_some_and(|&fixed| fixed <= offset + i64::from(last)) {
                    return Err(Refusal::Period { first, last, buffer, dimension });
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_less_boxes_are_what_is_left() {
        let interval = || (0..4).flat_map(|lo| (lo..4).map(move |hi| (lo, hi)));
        let boxes: Vec<Box4> = interval().flat_map(|a| interval().map(move |b| [a, b, (0, 1), (0, 1)])).collect();
        let has = |of: &Box4, x: u64, y: u64| (of[0].0..of[0].1).contains(&x) && (of[1].0..of[1].1).contains(&y);
        for from in &boxes {
            for minus in &boxes {
                let mut rest = Vec::new();
                subtract(*from, minus, &mut rest);
                for (x, y) in (0..4).flat_map(|x| (0..4).map(move |y| (x, y))) {
                    let left = rest.iter().filter(|piece| has(piece, x, y)).count();
                    let wanted = has(from, x, y) && !has(minus, x, y);
                    assert_eq!(left, usize::from(wanted), "{from:?} - {minus:?} at {x}, {y}");
                }
            }
        }
    }
}

//! Operands of calls, as ranges.

use amk_ir::{Access, Bound, BufferId, Interval, Operand, Region};
use std::ops::Range;

pub(super) fn operand(buffer: BufferId, ranges: &[Range<u32>], access: Access, early: bool) -> Operand {
    let intervals: Vec<Interval> =
        ranges.iter().map(|range| Interval { lo: Bound::fixed(range.start), hi: Bound::fixed(range.end) }).collect();
    let region = Region::new(&intervals).unwrap_or(Region::full(&[]));
    Operand { buffer, region, access, early, routed: None }
}

pub(super) fn read(buffer: BufferId, ranges: &[Range<u32>]) -> Operand {
    operand(buffer, ranges, Access::Read, false)
}

/// A read of what no task of a launch writes: it may come before every wait.
pub(super) fn early(buffer: BufferId, ranges: &[Range<u32>]) -> Operand {
    operand(buffer, ranges, Access::Read, true)
}

pub(super) fn write(buffer: BufferId, ranges: &[Range<u32>]) -> Operand {
    operand(buffer, ranges, Access::Write, false)
}

//! Operands of calls, as ranges.

use amk_ir::{Access, Bound, BufferId, Interval, Operand, Region};
use std::ops::Range;

/// An operand: the ranges of a buffer that a call accesses, one per dimension.
pub fn operand(buffer: BufferId, ranges: &[Range<u32>], access: Access, early: bool) -> Operand {
    let intervals: Vec<Interval> =
        ranges.iter().map(|range| Interval { lo: Bound::fixed(range.start), hi: Bound::fixed(range.end) }).collect();
    let region = Region::new(&intervals).unwrap_or(Region::full(&[]));
    Operand { buffer, region, access, early, routed: None }
}

/// A read.
pub fn read(buffer: BufferId, ranges: &[Range<u32>]) -> Operand {
    operand(buffer, ranges, Access::Read, false)
}

/// A read of elements that no task of a launch writes, which may precede every wait.
pub fn early(buffer: BufferId, ranges: &[Range<u32>]) -> Operand {
    operand(buffer, ranges, Access::Read, true)
}

/// A write of every element.
pub fn write(buffer: BufferId, ranges: &[Range<u32>]) -> Operand {
    operand(buffer, ranges, Access::Write, false)
}

//! Decoded calls, and refusals.

use crate::image::abi::Record;
use amk_ir::{Access, Bound, BufferId, Interval, Param, Region};
use core::fmt;
use std::ops::Range;

/// A mismatch between an image and the verified program.
#[derive(Debug)]
pub struct Refusal {
    field: &'static str,
    what: String,
}

impl Refusal {
    /// Returns a refusal that names a field: `{field}` {what}.
    pub fn new(field: &'static str, what: impl Into<String>) -> Self {
        Self { field, what: what.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {}", self.field, self.what)
    }
}

/// The location of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A buffer in device memory.
    Buffer(BufferId),
    /// Named memory of the worker that persists from task to task.
    Kept(&'static str),
    /// Registers or shared memory, between two calls of the task.
    Local(usize),
}

/// An operand, and the field of the record that locates it.
#[derive(Clone, Debug)]
pub struct DecodedOperand {
    /// The field.
    pub field: &'static str,
    /// Its location.
    pub place: Place,
    /// Its elements.
    pub region: Region,
    /// How the call accesses them.
    pub access: Access,
    /// Whether they may be read before the waits.
    pub early: bool,
}

/// A call executed by the device.
#[derive(Clone, Debug)]
pub struct DecodedCall<'p> {
    /// The path of the instruction.
    pub path: &'p str,
    /// The operands in order.
    pub operands: Vec<DecodedOperand>,
    /// The parameters in order.
    pub params: Vec<Param>,
    /// With rows, the rows that it is for; `None`: all.
    pub rows: Option<Range<u32>>,
    /// With rows, whether only wanted ones are computed.
    pub wanted: bool,
}

impl<'p> DecodedCall<'p> {
    /// Returns a call without parameters.
    pub fn new(path: &'p str, operands: Vec<DecodedOperand>) -> Self {
        Self { path, operands, params: Vec::new(), rows: None, wanted: false }
    }
}

/// Returns a region of fixed ranges, one per dimension.
pub fn region(ranges: &[Range<u32>]) -> Region {
    let intervals: Vec<Interval> =
        ranges.iter().map(|range| Interval { lo: Bound::fixed(range.start), hi: Bound::fixed(range.end) }).collect();
    Region::new(&intervals).unwrap_or(Region::full(&[]))
}

fn operand(field: &'static str, place: Place, ranges: &[Range<u32>], access: Access) -> DecodedOperand {
    DecodedOperand { field, place, region: region(ranges), access, early: false }
}

/// Returns a read.
pub fn read(field: &'static str, place: Place, ranges: &[Range<u32>]) -> DecodedOperand {
    operand(field, place, ranges, Access::Read)
}

/// Returns a write of every element.
pub fn write(field: &'static str, place: Place, ranges: &[Range<u32>]) -> DecodedOperand {
    operand(field, place, ranges, Access::Write)
}

/// Returns an update.
pub fn update(field: &'static str, place: Place, ranges: &[Range<u32>]) -> DecodedOperand {
    operand(field, place, ranges, Access::Update)
}

/// Returns a read of something that no task writes, such as a tape or a constant.
pub fn early(field: &'static str, place: Place, ranges: &[Range<u32>]) -> DecodedOperand {
    DecodedOperand { early: true, ..read(field, place, ranges) }
}

/// Refuses nonzero fields that the device ignores for a kind of record.
///
/// # Errors
/// The first such field.
pub fn only(record: &Record, used: &[&str]) -> Result<(), Refusal> {
    let Record { op: _, units, input, output, shape, row, norm, bias, layer, aux, partial, tape, more, .. } = *record;
    let fields = [
        ("units", u32::from(units)),
        ("input", input),
        ("output", output),
        ("shape", shape),
        ("row", row),
        ("norm", norm),
        ("bias", bias),
        ("layer", layer),
        ("aux", aux),
        ("partial", partial),
        ("tape", tape),
        ("more", more),
    ];
    match fields.into_iter().find(|(name, value)| *value != 0 && !used.contains(name)) {
        Some((name, value)) => Err(Refusal::new(name, format!("is {value}, but the instruction has no use for it"))),
        None => Ok(()),
    }
}

/// Makes decoded calls for some rows of a step; `None`: as they are.
pub fn for_rows<'p>(mut calls: Vec<DecodedCall<'p>>, rows: Option<&Range<u32>>) -> Vec<DecodedCall<'p>> {
    if rows.is_some() {
        calls.iter_mut().for_each(|call| call.rows = rows.cloned());
    }
    calls
}

/// Returns the rows that a record's units of `each` rows cover, from its first row on.
///
/// # Errors
/// If the rows overflow.
pub fn rows(record: &Record, each: u32) -> Result<Range<u32>, Refusal> {
    let end = record.row.checked_add(u32::from(record.units) * each);
    end.map(|end| record.row..end).ok_or_else(|| Refusal::new("row", format!("is {}, out of range", record.row)))
}

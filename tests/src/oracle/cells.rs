//! Memory as cells: a byte of the shared arena, or an element of a buffer with separate memory.
//!
//! Read-only buffers with separate memory have none: nothing can happen to them.

use super::source::{Bound, Buffer, Kind, Operand, Source};

/// The cells of all buffers.
#[derive(Clone, Debug, Default)]
pub struct Cells {
    /// Of each buffer: its first cell, cells of an element, cells of a slot.
    spans: Vec<(u64, u64, u64)>,
    /// Number of cells.
    pub count: u64,
}

/// More cells than this are not worth exploring.
const LIMIT: u64 = 1 << 16;

impl Cells {
    /// Lays the buffers out; `None` where there are too many cells.
    pub fn new(source: &Source) -> Option<Self> {
        let placed = || source.buffers.iter().filter_map(|b| b.place.map(|place| (place, b)));
        let origin = placed().map(|(place, _)| place).min().unwrap_or(0);
        let mut cells = Self { spans: Vec::new(), count: 0 };
        cells.count = placed()
            .map(|(place, b)| place - origin + b.elements() * b.width * b.slots.unwrap_or(1))
            .max()
            .unwrap_or(0);
        for buffer in &source.buffers {
            let (first, width) = match buffer.place {
                Some(place) => (place - origin, buffer.width),
                None => (cells.count, u64::from(!read_only(buffer))),
            };
            if width > 0 && buffer.elements() > LIMIT || cells.count > LIMIT {
                return None;
            }
            let slot = buffer.elements() * width;
            if buffer.place.is_none() {
                cells.count += slot * buffer.slots.unwrap_or(1);
            }
            cells.spans.push((first, width, slot));
        }
        (cells.count <= LIMIT).then_some(cells)
    }

    /// The cells of an element of a buffer in a step of the launch.
    pub fn of(&self, source: &Source, buffer: usize, element: u64, step: u64) -> core::ops::Range<usize> {
        let (first, width, slot) = self.spans[buffer];
        let start = first + slot * (step % source.buffers[buffer].slots.unwrap_or(1)) + element * width;
        start as usize..(start + width) as usize
    }
}

/// Whether a buffer has separate memory that nobody writes.
pub fn read_only(buffer: &Buffer) -> bool {
    buffer.place.is_none() && matches!(buffer.kind, Kind::Weight | Kind::Input)
}

/// The elements of an operand's tile at a position, in row-major order.
pub fn elements(buffer: &Buffer, operand: &Operand, position: u64) -> Vec<u64> {
    let fixed = |base| Bound { pos: false, base, back: false };
    let whole = |extent| (fixed(0), fixed(extent));
    let mut elements = vec![0];
    for (interval, &extent) in operand.tile.iter().zip(&buffer.shape) {
        let (lo, hi) = interval.unwrap_or_else(|| whole(extent));
        let inner = |outer: u64| (lo.at(position)..hi.at(position)).map(move |at| outer * extent + at);
        elements = elements.into_iter().flat_map(inner).collect();
    }
    elements
}

/// The cells of an operand's tile in a step of the launch at a position.
pub fn footprint(source: &Source, cells: &Cells, operand: &Operand, position: u64, step: u64) -> Vec<usize> {
    if read_only(&source.buffers[operand.buffer]) {
        return Vec::new();
    }
    let elements = elements(&source.buffers[operand.buffer], operand, position);
    elements.into_iter().flat_map(|element| cells.of(source, operand.buffer, element, step)).collect()
}

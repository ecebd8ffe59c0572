//! The memory of a tile: from a region of a buffer to a tensor and back.

use crate::tensor::{Cells, Pos, Shape, Tensor};
use amk_ir::{DType, MAX_RANK, Region};
use core::ptr::NonNull;
use half::bf16;
use half::slice::HalfFloatSliceExt;
use std::sync::Arc;

/// The inputs, other than the task, that its memory depends on.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    /// Steps before this one since the VM was made.
    pub(super) step: u64,
    /// The position of the step.
    pub(super) pos: Pos,
    /// The worker's memory for local buffers.
    pub(super) locals: NonNull<u8>,
    /// The row's number in the step.
    pub(super) row: usize,
    /// The row's number in the call.
    pub(super) row_of_call: usize,
}

impl Moment {
    /// While no worker runs: for buffers that are not local and have one slot.
    pub(super) const REST: Self = Self { step: 0, pos: Pos(0), locals: NonNull::dangling(), row: 0, row_of_call: 0 };
}

/// The location of a buffer.
#[derive(Clone)]
pub(super) enum Home {
    /// In memory that all workers share; `slots` copies, used in rotation.
    Shared { cells: Arc<Cells>, offset: usize, slots: u64, slot_bytes: usize },
    /// At an offset of the worker's own memory.
    Local { offset: usize },
}

impl Home {
    /// The buffer's first byte.
    fn first(&self, moment: Moment) -> NonNull<u8> {
        let (base, offset) = match self {
            Self::Shared { cells, offset, slots, slot_bytes } => {
                (cells.first(), offset + (moment.step % (*slots).max(1)) as usize * slot_bytes)
            }
            Self::Local { offset } => (moment.locals, *offset),
        };
        // SAFETY: the plan laid the buffer out inside the memory at `base`.
        unsafe { base.add(offset) }
    }
}

/// A tile of a buffer whose elements are words, or bf16 that instructions see as f32.
#[derive(Clone)]
pub(super) struct Area {
    home: Home,
    element: Element,
    /// Bytes from one row of the step to the next; 0 if all rows share the buffer.
    row_bytes: usize,
    /// The buffer's extents, of one row.
    whole: Shape,
    region: Region,
    /// Extents of a call's tensor: the region's, or the buffer's in dimensions in which the region
    /// moves.
    cut: Shape,
    /// Index of the first element, if the region is one run of elements at every position.
    run: Option<usize>,
}

/// An element in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Element {
    /// f32, or u32.
    Word,
    /// Rounded when it is written.
    BF16,
}

/// The ranges of a region at a position, clipped to the buffer.
fn ranges(region: &Region, whole: Shape, pos: Pos) -> [(usize, usize); MAX_RANK] {
    let mut out = [(0, 1); MAX_RANK];
    for ((range, interval), &extent) in out.iter_mut().zip(region.intervals()).zip(whole.iter()) {
        let bound = |value: u64| usize::try_from(value).map_or(extent, |value| value.min(extent));
        let hi = bound(interval.hi.at(u64::from(pos.0)));
        *range = (bound(interval.lo.at(u64::from(pos.0))).min(hi), hi);
    }
    out
}

impl Area {
    /// The tile `region` of a buffer of f32, bf16 or u32 with these extents; the region lies in the
    /// buffer at all positions.
    pub(super) fn new(home: Home, dtype: DType, whole: Shape, region: Region) -> Self {
        let element = if dtype == DType::BF16 { Element::BF16 } else { Element::Word };
        Self::of(home, element, whole, region)
    }

    /// The same of each row of a step: the buffer holds one such part for every row.
    pub(super) fn in_rows(self) -> Self {
        let element = match self.element {
            Element::Word => size_of::<f32>(),
            Element::BF16 => size_of::<bf16>(),
        };
        Self { row_bytes: self.whole.elements() * element, ..self }
    }

    fn of(home: Home, element: Element, whole: Shape, region: Region) -> Self {
        let fixed = ranges(&region, whole, Pos(0));
        let (mut cut, mut moving) = (whole, false);
        for (dim, interval) in region.intervals().iter().enumerate() {
            if interval.moves() {
                moving = true;
            } else {
                cut.set(dim, fixed[dim].1 - fixed[dim].0);
            }
        }
        // One run: after the first dimension of several elements all are whole.
        let several = cut.iter().position(|&extent| extent != 1).unwrap_or(cut.len());
        let is_run = !moving && (several + 1..cut.len()).all(|dim| cut[dim] == whole[dim]);
        let first = whole.strides().iter().zip(fixed).map(|(stride, (lo, _))| stride * lo).sum();
        Self { home, element, row_bytes: 0, whole, region, cut, run: is_run.then_some(first) }
    }

    /// The tile with these rows: a range of the first dimension.
    pub(super) fn rows(&self, rows: core::ops::Range<usize>) -> Self {
        let mut region = self.region;
        if let Some(first) = region.intervals_mut().first_mut() {
            *first = amk_ir::Interval::fixed(rows.start as u32, rows.end as u32);
        }
        Self::of(self.home.clone(), self.element, self.whole, region)
    }

    fn first<T>(&self, moment: Moment) -> NonNull<T> {
        let row = match self.home {
            Home::Shared { .. } => moment.row,
            Home::Local { .. } => moment.row_of_call,
        };
        // SAFETY: the buffer has a part for every row.
        unsafe { self.home.first(moment).add(row * self.row_bytes) }.cast()
    }

    /// Returns the tiles of several rows as one tensor, rows first; `moments` are the
    /// rows'. A view if they are one run of f32, otherwise a copy.
    ///
    /// # Safety
    /// As for [`Self::tensor`], for each row.
    pub(super) unsafe fn stacked(&self, moments: &[Moment]) -> Option<Tensor> {
        let extents: Vec<usize> = [moments.len()].into_iter().chain(self.cut.iter().copied()).collect();
        let (shape, first) = (Shape::new(&extents).ok()?, moments.first()?);
        let elements = self.cut.elements();
        let in_line = moments.windows(2).all(|pair| pair[0].row + 1 == pair[1].row);
        if let (Some(run), Element::Word) = (self.run, self.element)
            && in_line
            && self.row_bytes == elements * size_of::<f32>()
        {
            // SAFETY: the rows lie one after the other; unwritten as the caller promises.
            return Some(unsafe { Tensor::view(self.first::<f32>(*first).add(run), shape) });
        }
        let mut copy = Vec::with_capacity(moments.len() * elements);
        for &moment in moments {
            // SAFETY: as the caller promises.
            copy.extend_from_slice(unsafe { self.tensor(moment) }.data());
        }
        Tensor::new(&extents, copy).ok()
    }

    /// Returns the tile as a tensor: a view if it is one run of f32, otherwise a copy. A dimension
    /// that moves with the position is whole, and elements outside the region are 0.
    ///
    /// # Safety
    /// No one writes an element of the region before the tensor is dropped.
    pub(super) unsafe fn tensor(&self, moment: Moment) -> Tensor {
        if let (Some(run), Element::Word) = (self.run, self.element) {
            // SAFETY: the region lies in the buffer, the buffer in its memory; unwritten as the
            // caller promises.
            return unsafe { Tensor::view(self.first::<f32>(moment).add(run), self.cut) };
        }
        let mut copy = vec![0.0; self.cut.elements()];
        self.runs(moment.pos, |from, to, len| {
            let copy = &mut copy[to..to + len];
            match self.element {
                // SAFETY: a row of the region, as above.
                Element::Word => copy.copy_from_slice(unsafe { self.row::<f32>(moment, from, len) }),
                // SAFETY: likewise.
                Element::BF16 => unsafe { self.row::<bf16>(moment, from, len) }.convert_to_f32_slice(copy),
            }
        });
        Tensor::new(&self.cut, copy).unwrap_or_else(|_| Tensor::from([]))
    }

    /// Returns `len` elements, starting at element `from` of the buffer.
    ///
    /// # Safety
    /// They are in the region and of this type, and no one writes any of them while the slice
    /// exists.
    unsafe fn row<T>(&self, moment: Moment, from: usize, len: usize) -> &[T] {
        // SAFETY: the region lies in the buffer, the buffer in its memory; the rest is as the
        // caller promises.
        unsafe { core::slice::from_raw_parts(self.first::<T>(moment).as_ptr().add(from), len) }
    }

    /// Whether the region is one element, the same at all positions.
    pub(super) fn is_one(&self) -> bool {
        self.run.is_some() && self.cut.elements() == 1
    }

    /// Extents of the region at a position.
    pub(super) fn extents_at(&self, pos: Pos) -> Shape {
        let (mut extents, ranges) = (self.whole, ranges(&self.region, self.whole, pos));
        ranges[..self.whole.len()].iter().enumerate().for_each(|(dim, (lo, hi))| extents.set(dim, hi - lo));
        extents
    }

    /// Writes the region: `data` has its elements in row-major order, as many as the product of
    /// [`Self::extents_at`]. Stores to a bf16 buffer round to nearest, ties to even.
    ///
    /// # Safety
    /// No one else accesses an element of the region meanwhile.
    pub(super) unsafe fn store(&self, moment: Moment, data: &[f32]) {
        match self.element {
            // SAFETY: as the caller promises.
            Element::Word => unsafe { self.store_all(moment, data) },
            Element::BF16 => {
                let rounded: Vec<bf16> = data.iter().copied().map(bf16::from_f32).collect();
                // SAFETY: as the caller promises.
                unsafe { self.store_all(moment, &rounded) };
            }
        }
    }

    /// Writes the region, of elements that are `T` in memory.
    ///
    /// # Safety
    /// As for [`Self::store`].
    pub(super) unsafe fn store_all<T: Copy>(&self, moment: Moment, data: &[T]) {
        let (first, mut data) = (self.first::<T>(moment), data);
        self.runs(moment.pos, |to, _, len| {
            let (row, rest) = data.split_at(len.min(data.len()));
            data = rest;
            // SAFETY: a row of the region lies in its buffer; nobody else touches it, as the caller
            // promises.
            unsafe { first.as_ptr().add(to).copy_from_nonoverlapping(row.as_ptr(), row.len()) };
        });
    }

    /// The first word.
    ///
    /// # Safety
    /// As for [`Self::tensor`].
    pub(super) unsafe fn load_word(&self, moment: Moment) -> u32 {
        // SAFETY: the region has an element, in the buffer; unwritten as the caller promises.
        unsafe { self.first::<u32>(moment).add(self.run.unwrap_or(0)).read() }
    }

    /// Writes the first word.
    ///
    /// # Safety
    /// As for [`Self::store`].
    pub(super) unsafe fn store_word(&self, moment: Moment, word: u32) {
        // SAFETY: the region has an element, in the buffer; nobody else touches it, as the caller
        // promises.
        unsafe { self.first::<u32>(moment).add(self.run.unwrap_or(0)).write(word) }
    }

    /// All words of the region.
    ///
    /// # Safety
    /// As for [`Self::tensor`].
    pub(super) unsafe fn load_words(&self, moment: Moment) -> Vec<u32> {
        let mut words = Vec::new();
        // SAFETY: rows of the region; unwritten as the caller promises.
        self.runs(moment.pos, |from, _, len| words.extend_from_slice(unsafe { self.row::<u32>(moment, from, len) }));
        words
    }

    /// Each run of the last dimension of the region: its first element in the buffer and in the cut
    /// tensor, and its length.
    fn runs(&self, pos: Pos, mut each: impl FnMut(usize, usize, usize)) {
        let rank = self.whole.len();
        if rank == 0 {
            return each(0, 0, 1);
        }
        let ranges = ranges(&self.region, self.whole, pos);
        let (from, to) = (self.whole.strides(), self.cut.strides());
        let mut at = [0; MAX_RANK];
        at.iter_mut().zip(ranges).for_each(|(at, (lo, _))| *at = lo);
        if ranges[..rank].iter().any(|(lo, hi)| lo == hi) {
            return;
        }
        loop {
            // A dimension that moves is whole in the tensor, so its indices do not change.
            let origin = |dim: usize| if self.cut[dim] == self.whole[dim] { 0 } else { ranges[dim].0 };
            let source = (0..rank).map(|dim| at[dim] * from[dim]).sum();
            let target = (0..rank).map(|dim| (at[dim] - origin(dim)) * to[dim]).sum();
            each(source, target, ranges[rank - 1].1 - ranges[rank - 1].0);
            let Some(dim) = (0..rank - 1).rev().find(|&dim| at[dim] + 1 < ranges[dim].1) else { return };
            at[dim] += 1;
            (dim + 1..rank).for_each(|inner| at[inner] = ranges[inner].0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amk_ir::{Bound, Interval};

    fn area(whole: &[usize], intervals: &[Interval]) -> Area {
        let whole = Shape::new(whole).unwrap();
        let bytes = whole.elements() * 4;
        let cells = Arc::new(Cells::zeroed(bytes).unwrap());
        for i in 0..whole.elements() {
            // SAFETY: inside the cells, which nobody else has.
            unsafe { cells.first().cast::<f32>().add(i).write(i as f32) };
        }
        let home = Home::Shared { cells, offset: 0, slots: 1, slot_bytes: bytes };
        Area::new(home, DType::F32, whole, Region::new(intervals).unwrap())
    }

    fn moment(pos: u32) -> Moment {
        Moment { pos: Pos(pos), ..Moment::REST }
    }

    #[test]
    fn a_run_is_a_view_and_columns_are_gathered() {
        let rows = area(&[4, 3], &[Interval::fixed(1, 3), Interval::fixed(0, 3)]);
        assert!(rows.run.is_some());
        let columns = area(&[4, 3], &[Interval::fixed(0, 4), Interval::fixed(1, 2)]);
        assert!(columns.run.is_none());
        // SAFETY: one thread.
        let (rows, columns) = unsafe { (rows.tensor(moment(0)), columns.tensor(moment(0))) };
        assert_eq!((rows.shape(), rows.data()), (&[2, 3][..], &[3.0, 4.0, 5.0, 6.0, 7.0, 8.0][..]));
        assert_eq!((columns.shape(), columns.data()), (&[4, 1][..], &[1.0, 4.0, 7.0, 10.0][..]));
    }

    #[test]
    fn a_moving_dimension_is_passed_whole_with_zeros_outside() {
        let moving = Interval { lo: Bound::fixed(0), hi: Bound::at_pos(1) };
        let area = area(&[2, 3], &[Interval::fixed(1, 2), moving]);
        // SAFETY: one thread.
        let tensor = unsafe { area.tensor(moment(1)) };
        assert_eq!((tensor.shape(), tensor.data()), (&[1, 3][..], &[3.0, 4.0, 0.0][..]));
        assert_eq!(area.extents_at(Pos(1))[..], [1, 2]);
    }

    #[test]
    fn stores_touch_the_region_only() {
        let area = area(&[3, 4], &[Interval::fixed(1, 3), Interval::fixed(1, 3)]);
        // SAFETY: one thread; the view is made after the store.
        let all = unsafe {
            area.store(moment(0), &[-1.0, -2.0, -3.0, -4.0]);
            Area::new(area.home.clone(), DType::F32, area.whole, Region::full(&[3, 4])).tensor(moment(0))
        };
        assert_eq!(all.data(), [0.0, 1.0, 2.0, 3.0, 4.0, -1.0, -2.0, 7.0, 8.0, -3.0, -4.0, 11.0]);
    }
    #[test]
    fn elements_of_bf16_are_rounded_and_take_two_bytes() {
        let whole = Shape::new(&[2, 2]).unwrap();
        let cells = Arc::new(Cells::zeroed(8).unwrap());
        let home = Home::Shared { cells, offset: 0, slots: 1, slot_bytes: 8 };
        let all = |rows| {
            let region = Region::new(&[rows, Interval::fixed(0, 2)]).unwrap();
            Area::new(home.clone(), DType::BF16, whole, region)
        };
        // Halfway between two of them goes to the even one.
        let tie = 1.0 + 2f32.powi(-8);
        // SAFETY: one thread.
        let (second, both) = unsafe {
            all(Interval::fixed(1, 2)).store(moment(0), &[tie, 3.0 * tie]);
            (all(Interval::fixed(1, 2)).tensor(moment(0)), all(Interval::fixed(0, 2)).tensor(moment(0)))
        };
        assert_eq!(second.data(), [1.0, 3.0 + 2f32.powi(-6)]);
        assert_eq!(both.data(), [0.0, 0.0, 1.0, 3.0 + 2f32.powi(-6)]);
    }
}

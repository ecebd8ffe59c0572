//! State kept from step to step.

use super::{Cells, Pos, Shape, ShapeError, e4m3};
use crate::rows::{HOLE, PAGE, PageChange, PageEdit, PageTables};
use amk_ir::schedule::CACHES;
use amk_ir::{Bound, DType, MAX_RANK, Region};
use core::fmt;
use core::ops::{Deref, DerefMut, Range};
use half::bf16;
use std::alloc::{Layout, handle_alloc_error};
use std::sync::Arc;

/// A tensor that is kept from step to step, with at most 4 dimensions; a KV cache is
/// `[kv_heads, context, head_dim]`.
///
/// Its elements are f32. A program may keep them in bf16 or [`e4m3`]: stores then round to the
/// nearest value of that type, and loads return f32. It is read and written by rows, the runs of
/// the last dimension. In a VM an instruction gets a view that is restricted to the task's tile in
/// the fixed dimensions and spans the whole dimension that moves with the position. Accessing rows
/// outside the tile's region panics there, so a body that violates its region clause is detected. A
/// clone owns its elements.
pub struct State {
    cells: Arc<Cells>,
    /// Index of the first element in `cells`.
    offset: usize,
    shape: Shape,
    strides: Shape,
    /// The rows that may be touched: a range of each dimension.
    window: [(usize, usize); MAX_RANK],
    /// F32, or the type (BF16 or E4M3) to which the f32 elements in `cells` are rounded.
    dtype: DType,
    /// The location of a sequence's state in a pool of pages; `None`: contiguous.
    pages: Option<Pages>,
}

/// The pages of a state. A page holds [`PAGE`] positions and is row-major.
#[derive(Clone)]
struct Pages {
    /// The dimension of positions.
    dim: usize,
    /// The group of states that it belongs to.
    group: usize,
    /// The page of each block of positions of the sequence.
    table: Arc<[u32]>,
    /// Elements of a page.
    elements: usize,
}

/// A writable row of a [`State`]. When it is dropped, its elements are rounded to the state's
/// element type.
#[derive(Debug)]
pub struct RowMut<'a> {
    elements: &'a mut [f32],
    dtype: DType,
}

impl Deref for RowMut<'_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        self.elements
    }
}

impl DerefMut for RowMut<'_> {
    fn deref_mut(&mut self) -> &mut [f32] {
        self.elements
    }
}

impl Drop for RowMut<'_> {
    fn drop(&mut self) {
        let round = match self.dtype {
            DType::BF16 => |element: f32| bf16::from_f32(element).to_f32(),
            DType::E4M3 => |element| e4m3::widen(e4m3::narrow(element)),
            _ => return,
        };
        self.elements.iter_mut().for_each(|element| *element = round(*element));
    }
}

impl State {
    /// Returns a state of this shape whose elements are 0.
    ///
    /// # Errors
    /// If there are more than 4 dimensions, or more elements than the address space can hold.
    pub fn zeros(shape: &[usize]) -> Result<Self, ShapeError> {
        let shape = Shape::new(shape)?;
        Ok(Self::whole(Arc::new(cells(shape)), 0, shape, DType::F32))
    }

    /// The same elements, kept in an element type of [`CACHES`]: rounded to it now and when they
    /// are written.
    ///
    /// # Panics
    /// For any other element type.
    #[must_use]
    pub fn kept_in(&self, dtype: DType) -> Self {
        assert!(CACHES.contains(&dtype), "a state is kept in f32, bf16 or e4m3, not in {dtype}");
        let mut kept = Self::whole(Arc::new(cells(self.shape)), 0, self.shape, dtype);
        kept.copy_from(self);
        kept
    }

    /// The row-major state of this shape from f32 number `offset` of `cells`, which must have as
    /// many as elements; rounded to `dtype`.
    pub(crate) fn whole(cells: Arc<Cells>, offset: usize, shape: Shape, dtype: DType) -> Self {
        assert!((offset + shape.elements()) * size_of::<f32>() <= cells.bytes(), "a state should lie in its memory");
        let mut window = [(0, 0); MAX_RANK];
        for (range, &extent) in window.iter_mut().zip(shape.iter()) {
            *range = (0, extent);
        }
        Self { cells, offset, shape, strides: shape.strides(), window, dtype, pages: None }
    }

    /// Returns the handle of a pool of pages for states of this shape and group, whose dimension
    /// `dim` is the axis of positions. `None` if there is not enough memory.
    pub(crate) fn pool(pages: usize, shape: Shape, (dim, group): (usize, usize), dtype: DType) -> Option<Self> {
        let page = shape.with(dim, PAGE).ok()?;
        let elements = page.elements();
        let bytes = pages.checked_mul(elements)?.checked_mul(size_of::<f32>())?;
        let cells = Arc::new(Cells::zeroed(bytes)?);
        let mut window = [(0, 0); MAX_RANK];
        window.iter_mut().zip(shape.iter()).for_each(|(range, &extent)| *range = (0, extent));
        let pages = Some(Pages { dim, group, table: Arc::from([]), elements });
        Some(Self { cells, offset: 0, shape, strides: page.strides(), window, dtype, pages })
    }

    /// The state of a sequence in this pool, by its page tables.
    pub(crate) fn in_pages(&self, tables: &PageTables) -> Self {
        let mut state = self.handle();
        if let Some(pages) = &mut state.pages {
            pages.table = tables.shared(pages.group);
        }
        state
    }

    /// Changes a page of this pool, if the page belongs to its group.
    ///
    /// # Safety
    /// No one accesses the page meanwhile, nor the page that it is copied to.
    pub(crate) unsafe fn edit_page(&self, edit: PageEdit) {
        let Some(Pages { elements, dim, .. }) = self.pages.as_ref().filter(|pages| pages.group == edit.group) else {
            return;
        };
        let (elements, dim) = (*elements, *dim);
        let pages = self.cells.bytes() / size_of::<f32>() / elements;
        let all = self.cells.first().cast::<f32>().as_ptr();
        match edit.change {
            PageChange::Copy { from, to } => {
                let (from, to) = (from as usize, to as usize);
                assert!(from < pages && to < pages && from != to, "page {from} over page {to} of {pages}");
                // SAFETY: both pages lie in the cells and are different; nobody else accesses them,
                // as the caller promises.
                unsafe { all.add(to * elements).copy_from_nonoverlapping(all.add(from * elements), elements) };
            }
            PageChange::Clear { page, first } => {
                let (page, first) = (page as usize, (first as usize).min(PAGE));
                assert!(page < pages, "page {page} of {pages}");
                let block = PAGE * self.strides[dim];
                for start in (0..elements).step_by(block.max(1)) {
                    let from = page * elements + start + first * self.strides[dim];
                    // SAFETY: the rest of a block of positions lies in the page; see above.
                    unsafe { all.add(from).write_bytes(0, (PAGE - first) * self.strides[dim]) };
                }
            }
        }
    }

    /// A second handle on the same elements, for [`Self::view`] only.
    pub(crate) fn handle(&self) -> Self {
        Self {
            cells: Arc::clone(&self.cells),
            offset: self.offset,
            shape: self.shape,
            strides: self.strides,
            window: self.window,
            dtype: self.dtype,
            pages: self.pages.clone(),
        }
    }

    /// Returns a view of a region at a position: restricted to it in the dimensions that do not
    /// move, and whole in those that do, of which only the region may be accessed.
    ///
    /// # Safety
    /// While this view reads an element of the region, no one may write it; while it writes one, no
    /// one may access it.
    pub(crate) unsafe fn view(&self, region: &Region, pos: Pos) -> Self {
        let mut view = self.handle();
        for (dim, interval) in region.intervals().iter().enumerate() {
            let bound = |bound: Bound| (bound.at(u64::from(pos.0)) as usize).min(self.shape[dim]);
            let (lo, hi) = (bound(interval.lo), bound(interval.hi));
            let paged = self.pages.as_ref().is_some_and(|pages| pages.dim == dim);
            if interval.moves() || paged {
                view.window[dim] = (lo, hi);
            } else {
                view.offset += lo * self.strides[dim];
                view.shape.set(dim, hi - lo.min(hi));
                view.window[dim] = (0, hi - lo.min(hi));
            }
        }
        view
    }

    /// Copies the elements of a state of the same shape, rounded to this state's element type.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        let mut elements = other.to_vec();
        drop(RowMut { elements: &mut elements, dtype: self.dtype });
        assert_eq!(self.shape, other.shape, "states should have the same shape");
        assert!(self.pages.is_none() && self.strides == self.shape.strides(), "a state should be whole");
        // SAFETY: a whole row-major state lies in its cells from `offset` on; `&mut self` is the
        // only access to it.
        unsafe {
            self.cells
                .first()
                .cast::<f32>()
                .as_ptr()
                .add(self.offset)
                .copy_from_nonoverlapping(elements.as_ptr(), elements.len())
        };
    }

    /// The extents, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the row at these indices of all dimensions except the last.
    ///
    /// # Panics
    /// If the number of indices is not the rank minus one, or the row is outside the state or the
    /// task's region.
    pub fn row<const N: usize>(&self, at: [usize; N]) -> &[f32] {
        let first = self.element(&at);
        // SAFETY: `element` checked that the row lies in the cells; they are initialised, and
        // nobody writes them while `self` is borrowed: an owned state is only written through
        // `&mut self`, a view was promised it (`State::view`).
        unsafe { core::slice::from_raw_parts(self.cells.first().cast::<f32>().as_ptr().add(first), self.shape[N]) }
    }

    /// Returns the rows numbered `range` of the last dimension but one, at these indices of the
    /// preceding dimensions, in runs that are contiguous in memory: as few as the pieces of the
    /// state.
    ///
    /// # Panics
    /// If the number of indices is not the rank minus two, a row is outside the state or the task's
    /// region, or rows are not contiguous: a tile that splits the last dimension is read with
    /// [`Self::row`].
    pub fn runs<const N: usize>(&self, at: [usize; N], range: Range<usize>) -> impl Iterator<Item = &[f32]> {
        assert_eq!(
            N + 2,
            self.shape.len(),
            "runs of a state of shape {:?} have {} indices",
            self.shape,
            self.shape.len().saturating_sub(2)
        );
        let (lo, hi) = self.window[N];
        assert!(
            lo <= range.start && range.start <= range.end && range.end <= hi,
            "rows {range:?} of dimension {N} are outside {lo}..{hi}"
        );
        self.check(&at);
        let row_len = self.shape[N + 1];
        assert_eq!(self.strides[N], row_len, "the rows of a state of shape {:?} are not consecutive", self.shape);
        let run = if self.pages.as_ref().is_some_and(|pages| pages.dim == N) { PAGE } else { usize::MAX };
        let mut next = range.start;
        core::iter::from_fn(move || {
            let start = (next < range.end).then_some(next)?;
            next = range.end.min(start.saturating_add(run - start % run));
            let first = self.index_of(at.into_iter().chain([start]));
            let len = (next - start) * row_len;
            // SAFETY: the rows lie in the cells, as checked above, in one page if there are pages;
            // initialised and unwritten as in `row`.
            Some(unsafe { core::slice::from_raw_parts(self.cells.first().cast::<f32>().as_ptr().add(first), len) })
        })
    }

    /// Returns the row at these indices of all dimensions except the last, for writing.
    ///
    /// # Panics
    /// As for [`Self::row`].
    pub fn row_mut<const N: usize>(&mut self, at: [usize; N]) -> RowMut<'_> {
        let first = self.element(&at);
        let row = self.cells.first().cast::<f32>();
        // SAFETY: as in `row`; `&mut self` and the promise to `State::view` make the access
        // exclusive.
        let elements = unsafe { core::slice::from_raw_parts_mut(row.as_ptr().add(first), self.shape[N]) };
        RowMut { elements, dtype: self.dtype }
    }

    /// All elements in row-major order; 0 outside of the task's region, and at positions without a
    /// page.
    pub fn to_vec(&self) -> Vec<f32> {
        let rows = self.shape.split_last().map_or(1, |(_, outer)| outer.iter().product::<usize>());
        let row_len = self.shape.last().copied().unwrap_or(1);
        let mut out = Vec::with_capacity(rows * row_len);
        let mut at = [0; MAX_RANK];
        let outer = self.shape.len().saturating_sub(1);
        for row in 0..rows {
            let mut rest = row;
            for dim in (0..outer).rev() {
                at[dim] = rest % self.shape[dim];
                rest /= self.shape[dim];
            }
            let end = out.len() + row_len;
            let inside = at[..outer].iter().zip(&self.window).all(|(index, (lo, hi))| (lo..hi).contains(&index));
            let has_page = self
                .pages
                .as_ref()
                .is_none_or(|pages| pages.table.get(at[pages.dim] / PAGE).is_some_and(|&page| page != HOLE));
            if inside && has_page {
                let (lo, hi) = self.window[outer];
                let first = self.index_of(at[..outer].iter().copied()) + lo;
                out.resize(out.len() + lo, 0.0);
                // SAFETY: `first` is in a row of a state that lies in its cells; the region's part
                // of it is not written, as in `row`.
                out.extend_from_slice(unsafe {
                    core::slice::from_raw_parts(self.cells.first().cast::<f32>().as_ptr().add(first), hi.max(lo) - lo)
                });
            }
            out.resize(end, 0.0);
        }
        out
    }

    /// Index in the cells of the first element of a row.
    fn element(&self, at: &[usize]) -> usize {
        assert_eq!(
            at.len() + 1,
            self.shape.len(),
            "a row of a state of shape {:?} has {} indices",
            self.shape,
            self.shape.len().saturating_sub(1)
        );
        self.index(at)
    }

    /// Index in the cells of the first element at these indices of the first dimensions.
    fn index(&self, at: &[usize]) -> usize {
        self.check(at);
        self.index_of(at.iter().copied())
    }

    /// Panics if an index of the first dimensions is outside the task's region, or rows are
    /// partial.
    fn check(&self, at: &[usize]) {
        for (dim, &index) in at.iter().enumerate() {
            let (lo, hi) = self.window[dim];
            assert!(lo <= index && index < hi, "row {at:?}: index {index} of dimension {dim} is outside {lo}..{hi}");
        }
        let last = self.shape.len() - 1;
        let (window, extent) = (self.window[last], self.shape[last]);
        assert!(window == (0, extent), "a region with {window:?} of the last dimension, of {extent}, has no rows");
    }

    /// The same for indices that were checked.
    fn index_of(&self, at: impl Iterator<Item = usize>) -> usize {
        let mut first = self.offset;
        for (dim, index) in at.enumerate() {
            first += match &self.pages {
                Some(pages) if pages.dim == dim => {
                    pages.table[index / PAGE] as usize * pages.elements + index % PAGE * self.strides[dim]
                }
                _ => index * self.strides[dim],
            };
        }
        first
    }
}

impl Clone for State {
    fn clone(&self) -> Self {
        self.kept_in(self.dtype)
    }
}

/// Memory for a state of this shape; aborts the process if allocation fails, as vectors do.
fn cells(shape: Shape) -> Cells {
    let bytes = shape.elements() * size_of::<f32>();
    Cells::zeroed(bytes)
        .unwrap_or_else(|| handle_alloc_error(Layout::array::<f32>(shape.elements()).unwrap_or(Layout::new::<f32>())))
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "State({} {:?})", self.dtype, self.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amk_ir::Interval;

    #[test]
    fn a_view_is_cut_where_the_region_stays_and_guarded_where_it_moves() {
        let mut state = State::zeros(&[2, 3, 2]).unwrap();
        state.row_mut([1, 0]).copy_from_slice(&[1.0, 2.0]);
        state.row_mut([1, 1]).copy_from_slice(&[3.0, 4.0]);
        let until = Interval { lo: Bound::fixed(0), hi: Bound::at_pos(1) };
        let region = Region::new(&[Interval::fixed(1, 2), until, Interval::fixed(0, 2)]).unwrap();
        // SAFETY: one thread, and the state is not written while the view exists.
        let view = unsafe { state.view(&region, Pos(1)) };
        assert_eq!(view.shape(), [1, 3, 2]);
        assert_eq!(view.runs([0], 0..2).collect::<Vec<_>>(), [[1.0, 2.0, 3.0, 4.0]]);
        assert_eq!(view.row([0, 1]), [3.0, 4.0]);
        assert!(std::panic::catch_unwind(|| view.row([0, 2]).len()).is_err(), "a row after the region");
        assert!(std::panic::catch_unwind(|| view.runs([0], 0..3).count()).is_err(), "rows after the region");
        assert!(std::panic::catch_unwind(|| view.runs([1], 0..2).count()).is_err(), "rows beside the region");
        assert_eq!(view.to_vec(), [1.0, 2.0, 3.0, 4.0, 0.0, 0.0]);
    }

    #[test]
    fn a_region_that_moves_in_the_last_dimension_has_no_rows() {
        let mut state = State::zeros(&[2, 4]).unwrap();
        state.row_mut([1]).copy_from_slice(&[1.0, 2.0, 3.0, 4.0]);
        let moves = Interval { lo: Bound::at_pos(0), hi: Bound::at_pos(2) };
        let region = Region::new(&[Interval::fixed(1, 2), moves]).unwrap();
        // SAFETY: one thread, and the state is not written while the view exists.
        let view = unsafe { state.view(&region, Pos(1)) };
        assert!(std::panic::catch_unwind(|| view.row([0]).len()).is_err(), "elements beside the region");
        assert_eq!(view.to_vec(), [0.0, 2.0, 3.0, 0.0]);
    }

    /// Tables whose third is this one.
    fn tables(table: &[u32]) -> PageTables {
        [&[9][..], &[], table].into_iter().map(Arc::from).collect()
    }

    #[test]
    fn a_state_in_pages_is_that_in_one_piece() {
        let shape = Shape::new(&[2, 150, 3]).unwrap();
        let pool = State::pool(5, shape, (1, 2), DType::F32).unwrap();
        let mut paged = pool.in_pages(&tables(&[4, 1, 2]));
        let mut whole = State::zeros(&[2, 150, 3]).unwrap();
        for (head, t) in (0..2).flat_map(|head| (0..150).map(move |t| (head, t))) {
            let row = [head as f32, t as f32, 0.5];
            paged.row_mut([head, t]).copy_from_slice(&row);
            whole.row_mut([head, t]).copy_from_slice(&row);
        }
        assert_eq!(paged.to_vec(), whole.to_vec());
        let runs: Vec<&[f32]> = paged.runs([1], 10..150).collect();
        assert_eq!(runs.iter().map(|run| run.len() / 3).collect::<Vec<_>>(), [54, 64, 22]);
        assert_eq!(runs.concat(), whole.runs([1], 10..150).collect::<Vec<_>>().concat());
        // SAFETY: one thread.
        unsafe { pool.edit_page(PageEdit { group: 2, change: PageChange::Copy { from: 1, to: 3 } }) };
        let fork = pool.in_pages(&tables(&[4, 3]));
        assert_eq!(fork.row([0, 100]), [0.0, 100.0, 0.5]);
        assert_eq!(fork.to_vec()[128 * 3..150 * 3], [0.0; 22 * 3], "no page");
        // SAFETY: one thread.
        unsafe { pool.edit_page(PageEdit { group: 2, change: PageChange::Clear { page: 3, first: 6 } }) };
        // SAFETY: one thread.
        unsafe { pool.edit_page(PageEdit { group: 1, change: PageChange::Clear { page: 4, first: 0 } }) };
        let kept = |head: usize, t: usize| fork.row([head, t])[1];
        let ends = [(0, 69), (0, 70), (0, 127), (1, 69), (1, 70)];
        assert_eq!(ends.map(|(head, t)| kept(head, t)), [69.0, 0.0, 0.0, 69.0, 0.0]);
        assert_eq!(paged.row([0, 70]), [0.0, 70.0, 0.5], "the page that it was copied from");
    }

    #[test]
    fn what_is_written_to_a_narrow_state_is_rounded() {
        let shape = Shape::new(&[2, 2]).unwrap();
        let mut state = State::whole(Arc::new(cells(shape)), 0, shape, DType::BF16);
        // Half a unit above 1 goes to the even neighbour, which is 1; a little more goes up.
        let (tie, above) = (1.0 + 2f32.powi(-8), 1.0 + 2f32.powi(-8) + 2f32.powi(-20));
        state.row_mut([1]).copy_from_slice(&[tie, above]);
        assert_eq!(state.row([1]), [1.0, 1.0 + 2f32.powi(-7)]);
        let mut first = State::zeros(&[2, 2]).unwrap();
        first.row_mut([0]).copy_from_slice(&[above, tie]);
        state.copy_from(&first);
        assert_eq!(state.clone().to_vec(), [1.0 + 2f32.powi(-7), 1.0, 0.0, 0.0]);
        assert_eq!(format!("{state:?}"), "State(bf16 [2, 2])");
        let mut state = state.kept_in(DType::E4M3);
        assert_eq!(state.to_vec(), [1.0, 1.0, 0.0, 0.0]);
        state.row_mut([1]).copy_from_slice(&[1.1, -500.0]);
        assert_eq!((state.row([1]), format!("{state:?}")), (&[1.125, -448.0][..], "State(e4m3 [2, 2])".to_owned()));
    }

    #[test]
    fn a_clone_has_elements_of_its_own() {
        let mut state = State::zeros(&[2, 2]).unwrap();
        let copy = state.clone();
        state.row_mut([1])[0] = 5.0;
        assert_eq!((state.to_vec(), copy.to_vec()), (vec![0.0, 0.0, 5.0, 0.0], vec![0.0; 4]));
        assert_eq!(format!("{state:?}"), "State(f32 [2, 2])");
    }
}

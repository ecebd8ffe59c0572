//! Memory that several threads write in an order that the verifier has proven.

use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc};

/// Zero-initialised bytes on a cache line boundary. Every access goes through raw pointers.
pub(crate) struct Cells {
    first: NonNull<u8>,
    bytes: usize,
    /// The allocation: slightly larger than needed, so that `first` can be aligned within it.
    allocation: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the bytes are plain data that any thread may own; accesses are the business of whoever
// uses `first`.
unsafe impl Send for Cells {}
// SAFETY: `&Cells` gives out nothing but a raw pointer.
unsafe impl Sync for Cells {}

impl Cells {
    /// Alignment in bytes: a cache line, and the widest vector register.
    pub(crate) const ALIGN: usize = 64;

    /// Allocates `bytes` zeroed bytes; `None` when out of memory. Untouched pages take no memory: a
    /// cache for a long context costs only the part in use.
    pub(crate) fn zeroed(bytes: usize) -> Option<Self> {
        // The system has zeroed pages at hand for its own alignment only; for a larger one it would
        // write them.
        let layout = Layout::from_size_align(bytes.checked_add(Self::ALIGN)?, align_of::<u128>()).ok()?;
        // SAFETY: the layout's size is not 0.
        let allocation = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let skip = allocation.as_ptr().align_offset(Self::ALIGN);
        // SAFETY: `skip` is below the alignment, by which the allocation is longer.
        let first = unsafe { allocation.add(skip) };
        Some(Self { first, bytes, allocation, layout })
    }

    /// The first byte.
    pub(crate) fn first(&self) -> NonNull<u8> {
        self.first
    }

    /// Size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Cells {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this layout and not freed before.
        unsafe { dealloc(self.allocation.as_ptr(), self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_and_zero() {
        for bytes in [0, 1, 100, 1 << 20] {
            let cells = Cells::zeroed(bytes).unwrap();
            assert_eq!(cells.first().as_ptr().align_offset(Cells::ALIGN), 0);
            // SAFETY: inside the cells, which has no other owner.
            let all = unsafe { core::slice::from_raw_parts(cells.first().as_ptr(), cells.bytes()) };
            assert!(all.len() == bytes && all.iter().all(|&byte| byte == 0));
        }
    }
}

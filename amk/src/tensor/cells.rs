//! Memory that several threads write in an order that the verifier has proven.

use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc};

/// Zero-initialised bytes on a cache line boundary. Every access goes through raw pointers.
pub(crate) struct Cells {
    first: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the bytes are plain data that any thread may own; accesses are the business of whoever uses `first`.
unsafe impl Send for Cells {}
// SAFETY: `&Cells` gives out nothing but a raw pointer.
unsafe impl Sync for Cells {}

impl Cells {
    /// Alignment in bytes: a cache line, and the widest vector register.
    pub(crate) const ALIGN: usize = 64;

    /// `bytes` bytes, all 0; `None` where there is no such memory.
    pub(crate) fn zeroed(bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes.max(1), Self::ALIGN).ok()?;
        // SAFETY: the layout's size is not 0.
        let first = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { first, layout })
    }

    /// The first byte.
    pub(crate) fn first(&self) -> NonNull<u8> {
        self.first
    }

    /// Size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Cells {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this layout and not freed before.
        unsafe { dealloc(self.first.as_ptr(), self.layout) }
    }
}

//! Scales of a matrix as a tensor stores them.

use amk::ir::DType;

use super::super::row_source::Extent;

/// The scales of a matrix: of each element by its place.
#[derive(Debug)]
pub(super) struct Scales {
    extent: Extent,
    dtype: DType,
    /// Rows and columns that share a scale.
    share: [usize; 2],
    /// Distances between adjacent scales in a column and in a row; 0 if there is a single one.
    strides: [usize; 2],
}

impl Scales {
    pub(super) fn new(extent: Extent, dtype: DType, share: [usize; 2], strides: [usize; 2]) -> Self {
        Self { extent, dtype, share, strides }
    }

    pub(super) fn extent(&self) -> &Extent {
        &self.extent
    }

    pub(super) fn dtype(&self) -> DType {
        self.dtype
    }

    /// The bytes of the scale of an element, in the stored order of columns.
    pub(super) fn at(&self, row: usize, column: usize) -> &[u8] {
        let bytes = self.dtype.bytes() as usize;
        let at = row / self.share[0] * self.strides[0] + column / self.share[1] * self.strides[1];
        &self.extent.bytes()[at * bytes..][..bytes]
    }
}

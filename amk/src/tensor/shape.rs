//! Extents and strides of at most [`MAX_RANK`] dimensions, without an allocation.

use amk_ir::MAX_RANK;
use core::fmt;
use core::ops::Deref;

/// Extents, outermost first. Also holds strides, in elements.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    rank: u8,
    dims: [usize; MAX_RANK],
}

/// The reasons why a shape is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ShapeError {
    /// More dimensions than a buffer can have.
    #[error("{rank} dimensions; a tensor has at most {MAX_RANK}")]
    Rank {
        /// The dimensions that were asked for.
        rank: usize,
    },
    /// The number of elements does not fit the address space.
    #[error("a tensor of shape {shape:?} does not fit into memory")]
    TooLarge {
        /// The shape that was asked for.
        shape: Vec<usize>,
    },
    /// The data's length differs from the shape's.
    #[error("{found} elements for a tensor of shape {shape:?}, which has {expected}")]
    Length {
        /// The shape.
        shape: Vec<usize>,
        /// The product of its extents.
        expected: usize,
        /// Elements that were given.
        found: usize,
    },
}

impl Shape {
    pub(crate) fn new(dims: &[usize]) -> Result<Self, ShapeError> {
        let mut out = [0; MAX_RANK];
        out.get_mut(..dims.len()).ok_or(ShapeError::Rank { rank: dims.len() })?.copy_from_slice(dims);
        let elements = dims.iter().try_fold(1usize, |n, &extent| n.checked_mul(extent));
        // No element type has more than 4 bytes.
        match elements.and_then(|n| n.checked_mul(4)) {
            Some(bytes) if isize::try_from(bytes).is_ok() => Ok(Self { rank: dims.len() as u8, dims: out }),
            _ => Err(ShapeError::TooLarge { shape: dims.to_vec() }),
        }
    }

    /// Product of the extents.
    pub(crate) fn elements(&self) -> usize {
        self.iter().product()
    }

    /// The strides of a row-major tensor of this shape.
    pub(crate) fn strides(&self) -> Self {
        let mut strides = *self;
        let mut next = 1;
        for (stride, extent) in strides.dims[..usize::from(self.rank)].iter_mut().zip(self.iter()).rev() {
            *stride = next;
            next = next.saturating_mul(*extent); // beyond 64 bits only where there are no elements
        }
        strides
    }

    /// Replaces dimension `dim`, which exists.
    pub(crate) fn set(&mut self, dim: usize, extent: usize) {
        self.dims[..usize::from(self.rank)][dim] = extent;
    }

    /// The same with another extent of dimension `dim`, which exists.
    pub(crate) fn with(mut self, dim: usize, extent: usize) -> Result<Self, ShapeError> {
        self.set(dim, extent);
        Self::new(&self)
    }

    /// The extents of the box that the ranges select.
    pub(crate) fn of_ranges(ranges: &[core::ops::Range<usize>]) -> Self {
        let mut shape = Self { rank: ranges.len() as u8, dims: [0; MAX_RANK] };
        for (dim, range) in ranges.iter().enumerate() {
            shape.set(dim, range.len());
        }
        shape
    }
}

impl Deref for Shape {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.dims[..usize::from(self.rank)]
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_of_a_shape_without_elements_may_be_of_any_size() {
        let shape = Shape::new(&[0, 1 << 40, 1 << 40]).unwrap();
        assert_eq!((shape.elements(), shape.strides()[2]), (0, 1));
        assert!(Shape::new(&[1, 1 << 40, 1 << 40]).is_err());
    }
}

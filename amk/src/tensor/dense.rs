//! Activations.

use super::{Shape, ShapeError};
use core::fmt;
use core::ptr::NonNull;

/// A contiguous row-major tensor of f32 with at most 4 dimensions.
///
/// A clone owns its elements, even a clone of a view.
pub struct Tensor {
    shape: Shape,
    data: Data,
}

enum Data {
    Owned(Vec<f32>),
    /// `shape.elements()` initialised elements that outlive the tensor; see [`Tensor::view`].
    View(NonNull<f32>),
}

// SAFETY: the elements are plain data. A view is read only, and whoever makes one guarantees that
// nobody writes the elements while it exists, on any thread (see `Tensor::view`).
unsafe impl Send for Tensor {}
// SAFETY: as for `Send`; `&Tensor` only reads.
unsafe impl Sync for Tensor {}

impl Tensor {
    /// Returns a tensor of this shape with these elements.
    ///
    /// # Errors
    /// If there are more than 4 dimensions, or the number of elements is not the product of the
    /// extents.
    pub fn new(shape: &[usize], data: Vec<f32>) -> Result<Self, ShapeError> {
        let shape = Shape::new(shape)?;
        if data.len() != shape.elements() {
            return Err(ShapeError::Length { shape: shape.to_vec(), expected: shape.elements(), found: data.len() });
        }
        Ok(Self { shape, data: Data::Owned(data) })
    }

    /// Returns a tensor of this shape whose elements are 0.
    ///
    /// # Errors
    /// If there are more than 4 dimensions, or more elements than the address space can hold.
    pub fn zeros(shape: &[usize]) -> Result<Self, ShapeError> {
        let shape = Shape::new(shape)?;
        Ok(Self { shape, data: Data::Owned(vec![0.0; shape.elements()]) })
    }

    /// A view of `shape.elements()` elements from `first`.
    ///
    /// # Safety
    /// While the view or a reference into it exists the elements must be allocated, initialised and
    /// not written by anyone.
    pub(crate) unsafe fn view(first: NonNull<f32>, shape: Shape) -> Self {
        Self { shape, data: Data::View(first) }
    }

    /// The extents, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.elements()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements in row-major order.
    pub fn data(&self) -> &[f32] {
        match &self.data {
            Data::Owned(data) => data,
            // SAFETY: `view` was promised this many elements, initialised and unwritten while
            // `self` exists.
            Data::View(first) => unsafe { core::slice::from_raw_parts(first.as_ptr(), self.shape.elements()) },
        }
    }

    /// The elements in row-major order, for writing; a view is first copied into an owned tensor.
    pub fn data_mut(&mut self) -> &mut [f32] {
        if let Data::View(_) = self.data {
            *self = self.clone();
        }
        match &mut self.data {
            Data::Owned(data) => data,
            Data::View(_) => &mut [],
        }
    }

    /// The elements in row-major order.
    pub fn into_vec(self) -> Vec<f32> {
        match self.data {
            Data::Owned(data) => data,
            Data::View(_) => self.data().to_vec(),
        }
    }
}

impl Clone for Tensor {
    fn clone(&self) -> Self {
        Self { shape: self.shape, data: Data::Owned(self.data().to_vec()) }
    }
}

impl PartialEq for Tensor {
    fn eq(&self, other: &Self) -> bool {
        self.shape == other.shape && self.data() == other.data()
    }
}

impl From<Vec<f32>> for Tensor {
    /// A vector.
    fn from(data: Vec<f32>) -> Self {
        Self { shape: Shape::of_ranges(core::slice::from_ref(&(0..data.len()))), data: Data::Owned(data) }
    }
}

impl From<&[f32]> for Tensor {
    /// A vector.
    fn from(data: &[f32]) -> Self {
        Self::from(data.to_vec())
    }
}

impl<const N: usize> From<[f32; N]> for Tensor {
    /// A vector.
    fn from(data: [f32; N]) -> Self {
        Self::from(data.to_vec())
    }
}

impl FromIterator<f32> for Tensor {
    /// A vector.
    fn from_iter<I: IntoIterator<Item = f32>>(elements: I) -> Self {
        Self::from(elements.into_iter().collect::<Vec<_>>())
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor(f32 {:?})", self.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_is_made_of_as_many_elements_as_its_shape_has() {
        let tensor = Tensor::new(&[2, 3], vec![1.0; 6]).unwrap();
        assert_eq!((tensor.shape(), tensor.len()), (&[2, 3][..], 6));
        let error = Tensor::new(&[2, 3], vec![1.0; 5]).unwrap_err();
        assert_eq!(error.to_string(), "5 elements for a tensor of shape [2, 3], which has 6");
        assert_eq!(format!("{tensor:?}"), "Tensor(f32 [2, 3])");
    }

    #[test]
    fn writing_to_a_view_copies_it() {
        let elements = [1.0f32, 2.0];
        // SAFETY: the elements outlive the view and nobody writes them.
        let mut view = unsafe { Tensor::view(NonNull::from(&elements).cast(), Shape::new(&[2]).unwrap()) };
        view.data_mut()[0] = 9.0;
        assert_eq!((view.data(), elements), (&[9.0, 2.0][..], [1.0, 2.0]));
    }
}

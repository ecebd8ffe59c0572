//! A checkpoint's tensors.

use super::{Inputs, Shape, ShapeError};
use crate::encoding::{BF16, Encoding, F16, F32};
use amk_ir::DType;
use core::fmt;
use core::ops::Range;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use std::borrow::Cow;
use std::sync::Arc;

/// The owner of a weight's bytes: a mapped file, a vector.
pub type WeightOwner = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A read-only tensor of at most 4 dimensions in any [`Encoding`]: f32, f16, bf16, or blocks of
/// quantised values. Cloning and cutting are cheap: the bytes are shared.
///
/// It is read by rows, the runs of the last dimension, which are whole blocks; a vector is one row.
#[derive(Clone)]
pub struct Weight {
    owner: WeightOwner,
    /// Byte offset of the first element.
    offset: usize,
    encoding: &'static Encoding,
    inputs: Inputs,
    shape: Shape,
    /// Strides in elements; the last dimension's is 1.
    strides: Shape,
    /// The column index of each stored column, if they are permuted.
    order: Option<Arc<[u32]>>,
}

/// A run of the last dimension of a [`Weight`].
#[derive(Clone, Copy, Debug)]
pub enum Row<'a> {
    /// f32 elements.
    F32(&'a [f32]),
    /// f16 elements.
    F16(&'a [f16]),
    /// bf16 elements.
    BF16(&'a [bf16]),
    /// Whole blocks of another encoding.
    Blocks(&'static Encoding, &'a [u8]),
    /// Like [`Blocks`](Self::Blocks), with element `j` of a stored row being element `order[j]`.
    Reordered(&'static Encoding, &'a [u8], &'a [u32]),
}

/// The reasons why bytes cannot be a weight.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WeightError {
    /// The shape does not fit.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A row is not whole blocks.
    #[error("rows of {row} elements are not whole blocks of {} ({encoding})", encoding.block)]
    PartOfBlock {
        /// The encoding.
        encoding: &'static Encoding,
        /// Elements in a row.
        row: usize,
    },
    /// The bytes end before the tensor does.
    #[error("a weight of {encoding} {shape:?} needs {needed} bytes from byte {offset}; there are {found}")]
    Truncated {
        /// The encoding.
        encoding: &'static Encoding,
        /// The shape.
        shape: Vec<usize>,
        /// Where the tensor starts.
        offset: usize,
        /// Bytes that the shape needs.
        needed: usize,
        /// Bytes from the offset to the end.
        found: usize,
    },
    /// The first byte is not on a multiple of the element's size: the bytes must be copied.
    #[error("a weight of {encoding} does not start on a multiple of {} bytes; copy it", encoding.bytes)]
    Misaligned {
        /// The encoding, one of plain floats.
        encoding: &'static Encoding,
    },
    /// The encoding has no products with such inputs.
    #[error("weights of {encoding} have no products with inputs in {inputs}")]
    Inputs {
        /// The encoding.
        encoding: &'static Encoding,
        /// The inputs.
        inputs: Inputs,
    },
    /// The order is not a permutation of the columns.
    #[error("an order of columns of a weight of {encoding} {shape:?} {reason}")]
    Order {
        /// The encoding.
        encoding: &'static Encoding,
        /// The shape.
        shape: Vec<usize>,
        /// The defect.
        reason: &'static str,
    },
}

/// A vector that can be viewed as bytes.
struct Bytes<T>(Vec<T>);

macro_rules! bytes_of {
    ($($element:ty),*) => {$(
        impl AsRef<[u8]> for Bytes<$element> {
            fn as_ref(&self) -> &[u8] {
                // SAFETY: floats have no padding and every byte is initialised; u8 has no
                // alignment.
                unsafe { core::slice::from_raw_parts(self.0.as_ptr().cast(), size_of_val(self.0.as_slice())) }
            }
        }
    )*};
}

bytes_of!(f32, f16, bf16);

impl Weight {
    /// Returns a weight of f32 elements.
    ///
    /// # Errors
    /// If there are more than 4 dimensions, or the number of elements is not the product of the
    /// extents.
    pub fn f32(shape: &[usize], elements: Vec<f32>) -> Result<Self, ShapeError> {
        Self::owned(shape, &F32, elements.len(), Arc::new(Bytes(elements)))
    }

    /// Returns a weight of f16 elements.
    ///
    /// # Errors
    /// As for [`Self::f32`].
    pub fn f16(shape: &[usize], elements: Vec<f16>) -> Result<Self, ShapeError> {
        Self::owned(shape, &F16, elements.len(), Arc::new(Bytes(elements)))
    }

    /// Returns a weight of bf16 elements.
    ///
    /// # Errors
    /// As for [`Self::f32`].
    pub fn bf16(shape: &[usize], elements: Vec<bf16>) -> Result<Self, ShapeError> {
        Self::owned(shape, &BF16, elements.len(), Arc::new(Bytes(elements)))
    }

    fn owned(
        shape: &[usize],
        encoding: &'static Encoding,
        found: usize,
        owner: WeightOwner,
    ) -> Result<Self, ShapeError> {
        let shape = Shape::new(shape)?;
        if found != shape.elements() {
            return Err(ShapeError::Length { shape: shape.to_vec(), expected: shape.elements(), found });
        }
        Ok(Self { owner, offset: 0, encoding, inputs: Inputs::F32, shape, strides: shape.strides(), order: None })
    }

    /// Returns the row-major weight that starts at byte `offset` of the owner's bytes
    /// (little-endian, like the machines that run this).
    ///
    /// # Errors
    /// If the shape is not one of a weight, a row is not whole blocks, there are too few bytes, or
    /// plain floats are not aligned. The blocks themselves are not checked:
    /// [`Encoding::check_blocks`] does that.
    pub fn from_bytes(
        encoding: &'static Encoding,
        shape: &[usize],
        owner: WeightOwner,
        offset: usize,
    ) -> Result<Self, WeightError> {
        let shape = Shape::new(shape)?;
        let row = shape.last().copied().unwrap_or(1);
        if !row.is_multiple_of(encoding.block) {
            return Err(WeightError::PartOfBlock { encoding, row });
        }
        let too_large = || ShapeError::TooLarge { shape: shape.to_vec() };
        let needed = encoding.byte_len(shape.elements()).ok_or_else(too_large)?;
        let bytes = (*owner).as_ref();
        let found = bytes.len().saturating_sub(offset);
        if found < needed || offset > bytes.len() {
            return Err(WeightError::Truncated { encoding, shape: shape.to_vec(), offset, needed, found });
        }
        if encoding.float.is_some() && !(bytes.as_ptr() as usize + offset).is_multiple_of(encoding.bytes) {
            return Err(WeightError::Misaligned { encoding });
        }
        Ok(Self { owner, offset, encoding, inputs: Inputs::F32, shape, strides: shape.strides(), order: None })
    }

    /// Returns the row-major weight of these bytes.
    ///
    /// # Errors
    /// As for [`Self::from_bytes`], except that unaligned bytes are copied instead.
    pub fn from_vec(encoding: &'static Encoding, shape: &[usize], mut bytes: Vec<u8>) -> Result<Self, WeightError> {
        if encoding.float.is_none() || bytes.as_ptr().align_offset(encoding.bytes) == 0 {
            return Self::from_bytes(encoding, shape, Arc::new(bytes), 0);
        }
        let mut copy: Vec<u8> = Vec::with_capacity(bytes.len() + encoding.bytes);
        let start = copy.as_ptr().align_offset(encoding.bytes).min(encoding.bytes);
        copy.resize(start, 0);
        copy.append(&mut bytes);
        Self::from_bytes(encoding, shape, Arc::new(copy), start)
    }

    /// Returns the same weight, with products that take their inputs in this form, as do slices of
    /// it.
    ///
    /// # Errors
    /// If its encoding has no products with such inputs.
    pub fn with_inputs(self, inputs: Inputs) -> Result<Self, WeightError> {
        let encoding = self.encoding;
        match inputs {
            Inputs::Q8 if encoding.dot_q8.is_none() => Err(WeightError::Inputs { encoding, inputs }),
            _ => Ok(Self { inputs, ..self }),
        }
    }

    /// Returns the weight whose stored column `j` is column `order[j]`, as left by quantisers that
    /// group columns by importance (GPTQ's `desc_act`). Products gather their input in this order.
    ///
    /// # Errors
    /// [`WeightError::Order`] if the order does not have each column exactly once, or the weight
    /// does not consist of blocks.
    pub fn with_order(self, order: Arc<[u32]>) -> Result<Self, WeightError> {
        let mut seen = vec![false; self.row_len()];
        let mut is_new =
            |&column: &u32| seen.get_mut(column as usize).is_some_and(|seen| !core::mem::replace(seen, true));
        let reason = match order.len() == self.row_len() && order.iter().all(&mut is_new) {
            false => "does not have each column once",
            true if self.encoding.float.is_some() => "is for blocks alone",
            true => return Ok(Self { order: Some(order), ..self }),
        };
        Err(WeightError::Order { encoding: self.encoding, shape: self.shape.to_vec(), reason })
    }

    /// Returns the part that the ranges select, one range per dimension.
    ///
    /// # Panics
    /// If the number of ranges is not the rank, or a range exceeds its dimension, splits a block,
    /// or splits permuted columns.
    #[must_use]
    pub fn slice(&self, ranges: &[Range<usize>]) -> Self {
        assert_eq!(ranges.len(), self.shape.len(), "ranges for a weight of shape {:?}", self.shape);
        let mut part = self.clone();
        for (dim, range) in ranges.iter().enumerate() {
            assert!(
                range.start <= range.end && range.end <= self.shape[dim],
                "{ranges:?} of a weight of shape {:?}",
                self.shape
            );
            part.offset += self.encoding.bytes_of(range.start * self.strides[dim]);
        }
        let row = ranges.last().map_or(1, Range::len);
        assert!(row.is_multiple_of(self.encoding.block), "{ranges:?} cut a block of {}", self.encoding);
        assert!(self.order.is_none() || row == self.row_len(), "{ranges:?} cut columns that are not in order");
        part.shape = Shape::of_ranges(ranges);
        part
    }

    /// The extents, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// How its elements are stored.
    pub fn encoding(&self) -> &'static Encoding {
        self.encoding
    }

    /// How products with it take their inputs.
    pub fn inputs(&self) -> Inputs {
        self.inputs
    }

    /// The column index of each stored column, if they are permuted.
    pub fn order(&self) -> Option<&[u32]> {
        self.order.as_deref()
    }

    /// Bytes of its elements.
    pub fn bytes(&self) -> usize {
        self.encoding.bytes_of(self.len())
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.elements()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Elements in a row.
    pub fn row_len(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.shape.split_last().map_or(1, |(_, outer)| outer.iter().product())
    }

    /// Returns row number `row` in row-major order.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, row: usize) -> Row<'_> {
        self.elements(self.first(row), self.row_len())
    }

    /// Returns the stored bytes of row number `row`, in the stored [order](Self::order).
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row_bytes(&self, row: usize) -> &[u8] {
        self.bytes_at(self.first(row), self.row_len())
    }

    /// The first element of row number `row`.
    fn first(&self, row: usize) -> usize {
        assert!(row < self.rows(), "row {row} of a weight of shape {:?}", self.shape);
        let (mut rest, mut first) = (row, 0);
        for dim in (0..self.shape.len().saturating_sub(1)).rev() {
            first += rest % self.shape[dim] * self.strides[dim];
            rest /= self.shape[dim];
        }
        first
    }

    /// Returns all rows of a matrix: the elements from the first of the first row to the last of
    /// the last, and the distance between the first elements of two rows.
    ///
    /// # Panics
    /// If it does not have two dimensions.
    pub fn matrix(&self) -> (Row<'_>, usize) {
        let &[rows, row_len] = self.shape() else { panic!("a weight of shape {:?} is not a matrix", self.shape) };
        let stride = self.strides[0];
        let elements = rows.checked_sub(1).map_or(0, |before| before * stride + row_len);
        (self.elements(0, elements), stride)
    }

    /// `count` elements from element `first` on.
    fn elements(&self, first: usize, count: usize) -> Row<'_> {
        let (encoding, bytes) = (self.encoding, self.bytes_at(first, count));
        match encoding.float {
            Some(DType::F32) => Row::F32(cast(bytes)),
            Some(DType::F16) => Row::F16(cast(bytes)),
            Some(DType::BF16) => Row::BF16(cast(bytes)),
            _ => match self.order() {
                Some(order) => Row::Reordered(encoding, bytes, order),
                None => Row::Blocks(encoding, bytes),
            },
        }
    }

    /// The bytes of `count` elements from element `first` on.
    fn bytes_at(&self, first: usize, count: usize) -> &[u8] {
        let from = self.offset + self.encoding.bytes_of(first);
        &(*self.owner).as_ref()[from..][..self.encoding.bytes_of(count)]
    }

    /// All elements as f32 in row-major order.
    pub fn to_f32(&self) -> Vec<f32> {
        (0..self.rows()).flat_map(|row| self.row(row).to_f32().into_owned()).collect()
    }
}

/// The elements in bytes of a weight.
fn cast<T: Element>(bytes: &[u8]) -> &[T] {
    // SAFETY: every bit pattern is a value of an `Element`. The prefix and the suffix are empty:
    // constructors checked the alignment of the first element, and strides are whole elements.
    let (before, elements, after) = unsafe { bytes.align_to() };
    debug_assert!(before.is_empty() && after.is_empty(), "a weight should be aligned");
    elements
}

/// Plain floats: every bit pattern is a value.
trait Element {}
impl Element for f32 {}
impl Element for f16 {}
impl Element for bf16 {}

impl<'a> Row<'a> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(row) => row.len(),
            Self::F16(row) => row.len(),
            Self::BF16(row) => row.len(),
            Self::Blocks(encoding, bytes) | Self::Reordered(encoding, bytes, _) => encoding.elements(bytes.len()),
        }
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements as f32, exact.
    pub fn to_f32(&self) -> Cow<'a, [f32]> {
        match self {
            Self::F32(row) => Cow::Borrowed(row),
            Self::F16(row) => Cow::Owned(row.to_f32_vec()),
            Self::BF16(row) => Cow::Owned(row.to_f32_vec()),
            Self::Blocks(encoding, bytes) => {
                let mut out = vec![0.0; self.len()];
                (encoding.decode)(bytes, &mut out);
                Cow::Owned(out)
            }
            Self::Reordered(encoding, bytes, order) => {
                let stored = Row::Blocks(encoding, bytes).to_f32();
                let mut out = vec![0.0; stored.len()];
                for (stored, out) in stored.chunks(order.len()).zip(out.chunks_mut(order.len())) {
                    order.iter().zip(stored).for_each(|(&column, &element)| out[column as usize] = element);
                }
                Cow::Owned(out)
            }
        }
    }
}

impl fmt::Debug for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Weight({} {:?})", self.encoding, self.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(shape: &[usize]) -> Weight {
        Weight::bf16(shape, (0..shape.iter().product()).map(|i: usize| bf16::from_f32(i as f32)).collect()).unwrap()
    }

    #[test]
    fn cuts_share_the_bytes() {
        let part = counted(&[4, 3]).slice(&[1..3, 1..3]);
        assert_eq!((part.shape(), part.to_f32()), (&[2, 2][..], vec![4.0, 5.0, 7.0, 8.0]));
        let deep = counted(&[2, 3, 2]).slice(&[0..2, 1..3, 0..1]);
        assert_eq!(deep.to_f32(), [2.0, 4.0, 8.0, 10.0]);
        let (rows, stride) = part.matrix();
        assert_eq!((rows.to_f32().into_owned(), stride), (vec![4.0, 5.0, 6.0, 7.0, 8.0], 3));
        assert_eq!(counted(&[4, 3]).slice(&[2..2, 0..3]).matrix().0.len(), 0);
    }

    #[test]
    fn bytes_must_be_enough_and_aligned() {
        let owner: WeightOwner = Arc::new(Bytes(vec![1.0f32; 4]));
        let at = |encoding, shape: &[usize], offset| {
            Weight::from_bytes(encoding, shape, owner.clone(), offset).err().map(|error| error.to_string())
        };
        assert_eq!(at(&F32, &[3], 4), None);
        assert_eq!(at(&F32, &[4], 4).unwrap(), "a weight of f32 [4] needs 16 bytes from byte 4; there are 12");
        assert_eq!(
            at(&F32, &[1], usize::MAX).unwrap().split(';').next().unwrap(),
            "a weight of f32 [1] needs 4 bytes from byte 18446744073709551615"
        );
        assert_eq!(at(&F32, &[1], 2).unwrap(), "a weight of f32 does not start on a multiple of 4 bytes; copy it");
        assert_eq!(at(&PAIRS, &[2, 3], 0).unwrap(), "rows of 3 elements are not whole blocks of 2 (PAIRS)");
        assert_eq!(at(&F32, &[usize::MAX, 2], 0).unwrap().split(' ').next().unwrap(), "a");
        assert_eq!(at(&F32, &[1, 1, 1, 1, 1], 0).unwrap(), "5 dimensions; a tensor has at most 4");
    }

    /// Two elements a byte, 0 to 15.
    static PAIRS: Encoding = PAIRS_LIKE;
    const PAIRS_LIKE: Encoding = Encoding {
        name: "PAIRS",
        block: 2,
        bytes: 1,
        float: None,
        decode: |bytes, out| {
            for (byte, out) in bytes.iter().zip(out.as_chunks_mut().0) {
                *out = [f32::from(byte & 15), f32::from(byte >> 4)];
            }
        },
        encode: None,
        check: None,
        dot: None,
        dot_q8: None,
    };

    fn pairs() -> Weight {
        let owner: WeightOwner = Arc::new(vec![9u8, 0x10, 0x32, 0x54, 0x76]);
        Weight::from_bytes(&PAIRS, &[2, 4], owner, 1).unwrap()
    }

    #[test]
    fn blocks_are_cut_and_decoded() {
        assert_eq!((pairs().to_f32(), pairs().bytes()), ((0..8).map(|i| i as f32).collect(), 4));
        assert_eq!(pairs().slice(&[1..2, 2..4]).to_f32(), [6.0, 7.0]);
        assert_eq!(pairs().row_bytes(1), [0x54, 0x76]);
        assert_eq!(pairs().matrix().0.len(), 8);
        assert_eq!(format!("{:?}", pairs()), "Weight(PAIRS [2, 4])");
    }

    #[test]
    fn inputs_are_rounded_where_the_encoding_has_such_products() {
        let error = pairs().with_inputs(Inputs::Q8).unwrap_err();
        assert_eq!(error.to_string(), "weights of PAIRS have no products with inputs in q8");
        static ROUNDED: Encoding = Encoding { dot_q8: Some(|_, _, _, _, _| ()), ..PAIRS_LIKE };
        let weight = Weight::from_vec(&ROUNDED, &[2, 4], vec![0; 4]).unwrap();
        assert_eq!(weight.inputs(), Inputs::F32);
        let weight = weight.with_inputs(Inputs::Q8).unwrap();
        assert_eq!(weight.slice(&[1..2, 2..4]).inputs(), Inputs::Q8);
    }

    #[test]
    #[should_panic(expected = "cut a block of PAIRS")]
    fn a_cut_through_a_block_is_refused() {
        let _ = pairs().slice(&[0..2, 1..3]);
    }

    #[test]
    fn columns_out_of_order_are_put_in_their_places() {
        let ordered = |order: &[u32]| pairs().with_order(order.into());
        let weight = ordered(&[2, 0, 3, 1]).unwrap();
        assert_eq!(weight.to_f32(), [1.0, 3.0, 0.0, 2.0, 5.0, 7.0, 4.0, 6.0]);
        assert_eq!(weight.slice(&[1..2, 0..4]).row(0).to_f32().into_owned(), [5.0, 7.0, 4.0, 6.0]);
        let (rows, stride) = weight.matrix();
        assert_eq!((rows.to_f32().into_owned(), rows.len(), stride), (weight.to_f32(), 8, 4));
        for order in [&[0, 1, 2, 2][..], &[0, 1, 2, 4], &[0, 1, 2]] {
            let error = ordered(order).unwrap_err().to_string();
            assert_eq!(error, "an order of columns of a weight of PAIRS [2, 4] does not have each column once");
        }
        let error = counted(&[1, 2]).with_order([1, 0].as_slice().into()).unwrap_err().to_string();
        assert_eq!(error, "an order of columns of a weight of bf16 [1, 2] is for blocks alone");
    }

    #[test]
    #[should_panic(expected = "cut columns that are not in order")]
    fn a_cut_of_columns_out_of_order_is_refused() {
        let _ = pairs().with_order([2, 0, 3, 1].as_slice().into()).unwrap().slice(&[0..2, 0..2]);
    }

    #[test]
    fn debug_shows_no_elements() {
        assert_eq!(format!("{:?}", counted(&[4, 3])), "Weight(bf16 [4, 3])");
    }
}

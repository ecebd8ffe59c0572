//! One tensor as it is stored.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use amk::encoding::{BlockError, Encode, Encoding};

use super::{Extent, FormatCause, FormatError, RowSource, StoredType};

/// Tensors with at least this many elements are decoded by several threads.
const PARALLEL_ELEMENTS: usize = 1 << 20;

/// One tensor of a checkpoint. Cloning is cheap: the bytes are shared.
///
/// Its last dimension is contiguous; a *row* is one run of it, so a tensor of shape `[N, K]` has
/// `N` rows of `K` elements and a vector is one row.
#[derive(Clone, Debug)]
pub struct StoredTensor {
    pub(crate) name: String,
    /// The name in the file, if different.
    pub(crate) written: Option<Arc<str>>,
    pub(crate) stored_type: StoredType,
    pub(crate) shape: Vec<usize>,
    pub(crate) rows: RowSource,
    pub(crate) row_order: RowOrder,
    /// The column index of each stored column, if they are permuted.
    pub(crate) column_order: Option<Arc<[u32]>>,
}

/// The order in which a file stores the rows of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOrder {
    /// In the model's order.
    Natural,
    /// Query and key projections of checkpoints that rotate adjacent elements: within each head the
    /// two halves of the rotary dimensions are interleaved, because the model rotates element `j`
    /// with element `j + rotary_dims/2`.
    InterleavedHalves {
        /// Rows of one head.
        head_dim: usize,
        /// Leading rows of a head that are rotated; even and at most `head_dim`.
        rotary_dims: usize,
    },
    /// One of several projections of equal size that the file has head by head: the first head of
    /// each, then the second.
    ByHead {
        /// Rows of one head.
        head_dim: usize,
        /// The number of this projection among them.
        part: usize,
        /// The number of projections.
        parts: usize,
    },
}

impl RowOrder {
    /// The row in the file that holds row `row` of the model.
    pub(super) fn stored_row(self, row: usize) -> usize {
        match self {
            Self::Natural => row,
            Self::InterleavedHalves { head_dim, rotary_dims } => {
                let (head, within) = (row / head_dim, row % head_dim);
                let half = rotary_dims / 2;
                if within >= rotary_dims {
                    return row;
                }
                head * head_dim + 2 * (within % half) + within / half
            }
            Self::ByHead { head_dim, part, parts } => (row / head_dim * parts + part) * head_dim + row % head_dim,
        }
    }
}

/// The deviation of encoded elements from the exact ones.
#[derive(Clone, Copy, Default, Debug)]
pub struct Deviation {
    /// Sum of the squares of the differences.
    pub error: f64,
    /// Sum of the squares of the exact elements.
    pub total: f64,
}

impl Deviation {
    /// Adds elements.
    pub fn add(&mut self, exact: &[f32], encoded: &[f32]) {
        for (&exact, &encoded) in exact.iter().zip(encoded) {
            let (exact, encoded) = (f64::from(exact), f64::from(encoded));
            self.error += (exact - encoded).powi(2);
            self.total += exact.powi(2);
        }
    }

    /// Merges the statistics of other elements.
    pub fn merge(&mut self, other: Self) {
        self.error += other.error;
        self.total += other.total;
    }

    /// The rms of the differences divided by the rms of the elements; 0 if there are no elements.
    pub fn relative(&self) -> f64 {
        if self.total == 0.0 { 0.0 } else { (self.error / self.total).sqrt() }
    }
}

impl StoredTensor {
    /// Its Hugging Face name, for instance `model.layers.0.self_attn.q_proj.weight`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its name in the file, for messages. Several tensors have one if they are stacked there.
    pub fn name_in_file(&self) -> &str {
        self.written.as_deref().unwrap_or(&self.name)
    }

    /// How its elements are written.
    pub fn stored_type(&self) -> StoredType {
        self.stored_type
    }

    /// The encoding of its elements.
    ///
    /// # Panics
    /// For [`StoredType::Other`], which [`TensorSet::claim`](super::TensorSet::claim) never
    /// returns.
    pub fn encoding(&self) -> &'static Encoding {
        let encoding = self.stored_type.encoding();
        encoding.unwrap_or_else(|| panic!("`{}` is stored as {}, which is not decoded", self.name, self.stored_type))
    }

    /// Its shape, outermost dimension first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The number of elements in a row: of a vector all, or one if they are in another order.
    pub fn row_len(&self) -> usize {
        match self.shape[..] {
            [_] if self.row_order != RowOrder::Natural => 1,
            _ => self.shape.last().copied().unwrap_or(1),
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        match self.shape[..] {
            [elements] if self.row_order != RowOrder::Natural => elements,
            _ => self.shape.split_last().map_or(1, |(_, outer)| outer.iter().product()),
        }
    }

    /// Bytes in the file.
    pub fn stored_len(&self) -> usize {
        match &self.rows {
            RowSource::File(extent) | RowSource::Doubles(extent) => match self.row_order {
                RowOrder::ByHead { parts, .. } => extent.range.len() / parts,
                RowOrder::Natural | RowOrder::InterleavedHalves { .. } => extent.range.len(),
            },
            RowSource::Quantized { matrix, .. } => matrix.stored_len(self.rows()),
        }
    }

    /// The bytes in the file that are the tensor's, if there are such: of whole rows in the model's
    /// order.
    pub(crate) fn mapped(&self) -> Option<&Extent> {
        match &self.rows {
            RowSource::File(extent) if self.row_order == RowOrder::Natural => Some(extent),
            _ => None,
        }
    }

    /// The tensor of some of its stored rows.
    pub(crate) fn part(&self, name: String, rows: Range<usize>) -> Self {
        let source = self.rows.part(&rows, self.stored_row_bytes());
        let shape = [&[rows.len()], &self.shape[1..]].concat();
        Self { name, shape, rows: source, ..self.clone() }
    }

    /// The error that there is another tensor of its name.
    pub(crate) fn duplicate(&self) -> FormatError {
        self.rows.place().error(FormatCause::Duplicate { what: "tensor", name: self.name_in_file().to_owned() })
    }

    /// Bytes of a stored row, whatever is in them.
    fn stored_row_bytes(&self) -> usize {
        match &self.rows {
            RowSource::File(extent) | RowSource::Doubles(extent) => {
                extent.range.len() / self.shape.first().copied().unwrap_or(1).max(1)
            }
            RowSource::Quantized { .. } => self.encoding().bytes_of(self.row_len()),
        }
    }

    /// The bytes of a row, in the model's row order.
    fn row_bytes(&self, row: usize) -> Cow<'_, [u8]> {
        self.rows.row(self.row_order.stored_row(row), self.encoding().bytes_of(self.row_len()))
    }

    /// Decodes a row of these bytes into `out`.
    fn decode(&self, bytes: &[u8], out: &mut [f32]) {
        (self.encoding().decode)(bytes, out);
        if let Some(order) = &self.column_order {
            let stored = out.to_vec();
            order.iter().zip(stored).for_each(|(&column, element)| out[column as usize] = element);
        }
    }

    /// Decodes the rows `rows` into `out` as f32, in the model's order of rows and columns. This is
    /// exact: every encoding's values are computed in f32 as it defines them.
    ///
    /// # Panics
    /// If `rows` exceeds the tensor, or `out` is not `rows.len() * row_len()` long, and as for
    /// [`Self::encoding`].
    pub fn decode_rows(&self, rows: Range<usize>, out: &mut [f32]) {
        let row_len = self.row_len();
        assert!(rows.end <= self.rows(), "rows {rows:?} of a tensor with {} rows", self.rows());
        assert_eq!(out.len(), rows.len() * row_len, "length of the output of rows {rows:?}");
        for (row, out) in rows.zip(out.chunks_exact_mut(row_len.max(1))) {
            self.decode(&self.row_bytes(row), out);
        }
    }

    /// The whole tensor as f32, in the model's order.
    ///
    /// # Panics
    /// As for [`Self::encoding`].
    pub fn to_f32(&self) -> Vec<f32> {
        let mut out = vec![0.0; self.elements()];
        self.for_row_chunks(self.row_len(), &mut out, |rows, chunk| self.decode_rows(rows, chunk));
        out
    }

    /// Whether all rows have the same values as in another tensor of the same shape: the same
    /// bytes, where both are stored alike.
    pub(super) fn has_the_rows_of(&self, other: &Self) -> bool {
        let alike = self.stored_type == other.stored_type && self.column_order == other.column_order;
        if let (true, Some(own), Some(other)) = (alike, self.mapped(), other.mapped()) {
            return own.bytes() == other.bytes();
        }
        if self.stored_type.encoding().is_none() || other.stored_type.encoding().is_none() {
            return false;
        }
        if alike {
            return (0..self.rows()).all(|row| self.row_bytes(row) == other.row_bytes(row));
        }
        let (mut first, mut second) = (vec![0.0; self.row_len()], vec![0.0; self.row_len()]);
        self.rows() == other.rows()
            && (0..self.rows()).all(|row| {
                self.decode_rows(row..row + 1, &mut first);
                other.decode_rows(row..row + 1, &mut second);
                first == second
            })
    }

    /// The bytes of all rows in the model's row order, with their columns in the stored order.
    ///
    /// # Panics
    /// As for [`Self::encoding`].
    pub fn to_stored(&self) -> Vec<u8> {
        let row_bytes = self.encoding().bytes_of(self.row_len());
        let mut out = vec![0; self.rows() * row_bytes];
        self.for_row_chunks(row_bytes, &mut out, |rows, chunk| {
            for (row, out) in rows.zip(chunk.chunks_exact_mut(row_bytes.max(1))) {
                out.copy_from_slice(&self.row_bytes(row));
            }
        });
        out
    }

    /// Checks elements from number `first` on.
    ///
    /// # Errors
    /// The block of the first one that is not finite.
    pub fn all_finite(&self, elements: &[f32], first: usize) -> Result<(), BlockError> {
        let Some(at) = elements.iter().position(|element| !element.is_finite()) else { return Ok(()) };
        let Encoding { name, block, .. } = self.encoding();
        let reason = "has an element that is not finite";
        Err(BlockError { encoding: name, block: (first + at) / block, reason })
    }

    /// Converts the whole tensor to another encoding, in the model's order; also returns the
    /// deviation.
    ///
    /// `encode` is [`Encoding::encode`] of `encoding`; rows must be whole blocks.
    ///
    /// # Errors
    /// A block that cannot belong to a weight, or that has a non-finite element.
    ///
    /// # Panics
    /// If a row is not whole blocks, and as for [`Self::encoding`].
    pub fn to_encoding(&self, encoding: &'static Encoding, encode: Encode) -> Result<(Vec<u8>, Deviation), BlockError> {
        let row_len = self.row_len();
        let row_bytes = encoding.bytes_of(row_len);
        let mut out = vec![0; self.rows() * row_bytes];
        let total = Mutex::new(Ok(Deviation::default()));
        self.for_row_chunks(row_bytes, &mut out, |rows, chunk| {
            let (mut exact, mut encoded, mut deviation) =
                (vec![0.0; row_len], vec![0.0; row_len], Deviation::default());
            for (row, out) in rows.zip(chunk.chunks_exact_mut(row_bytes.max(1))) {
                let bytes = self.row_bytes(row);
                if let Err(error) = self.encoding().check_blocks(&bytes) {
                    let block = error.block + row * (row_len / self.encoding().block);
                    *total.lock().unwrap_or_else(PoisonError::into_inner) = Err(BlockError { block, ..error });
                    return;
                }
                self.decode(&bytes, &mut exact);
                if let Err(error) = self.all_finite(&exact, row * row_len) {
                    *total.lock().unwrap_or_else(PoisonError::into_inner) = Err(error);
                    return;
                }
                encode(&exact, out);
                (encoding.decode)(out, &mut encoded);
                deviation.add(&exact, &encoded);
            }
            if let Ok(total) = &mut *total.lock().unwrap_or_else(PoisonError::into_inner) {
                total.merge(deviation);
            }
        });
        total.into_inner().unwrap_or_else(PoisonError::into_inner).map(|deviation| (out, deviation))
    }

    /// Runs `work(rows, their part of out)` over all rows, each `row_len` elements of `out`, on
    /// several threads for a large tensor.
    fn for_row_chunks<T: Send>(&self, row_len: usize, out: &mut [T], work: impl Fn(Range<usize>, &mut [T]) + Sync) {
        let rows = self.rows();
        if out.is_empty() {
            return;
        }
        let threads = match self.elements() {
            0..PARALLEL_ELEMENTS => 1,
            _ => std::thread::available_parallelism().map_or(1, |n| n.get()),
        };
        let chunk_rows = rows.div_ceil(threads);
        std::thread::scope(|scope| {
            let mut chunks = out.chunks_mut(chunk_rows * row_len).enumerate().peekable();
            while let Some((index, chunk)) = chunks.next() {
                let start = index * chunk_rows;
                let range = start..start + chunk.len() / row_len;
                // The last chunk runs here, so that small tensors start no thread.
                if chunks.peek().is_some() {
                    scope.spawn(|| work(range, chunk));
                } else {
                    work(range, chunk);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_part_are_found_in_each_head() {
        let order = RowOrder::ByHead { head_dim: 2, part: 1, parts: 3 };
        let stored: Vec<_> = (0..6).map(|row| order.stored_row(row)).collect();
        assert_eq!(stored, [2, 3, 8, 9, 14, 15]);
    }

    #[test]
    fn interleaved_halves_are_put_apart() {
        let order = RowOrder::InterleavedHalves { head_dim: 6, rotary_dims: 4 };
        let stored: Vec<_> = (0..12).map(|row| order.stored_row(row)).collect();
        // Head 0 in the file: a0 b0 a1 b1 and two rows that are not rotated; the model wants a0 a1
        // b0 b1.
        assert_eq!(stored, [0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11]);
    }
}

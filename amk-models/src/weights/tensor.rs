//! One tensor as it lies in a file.

use std::ops::Range;
use std::sync::Arc;

use half::bf16;

use super::block::decode;
use super::{Encoding, MappedFile};

/// Tensors with at least this many elements are decoded by several threads.
const PARALLEL_ELEMENTS: usize = 1 << 20;

/// One tensor as it lies in a mapped file. Cloning is cheap: the bytes are shared.
///
/// Its last dimension is contiguous; a *row* is one run of it, so a tensor of shape `[N, K]` has
/// `N` rows of `K` elements and a vector is one row.
#[derive(Clone, Debug)]
pub struct StoredTensor {
    pub(crate) name: String,
    pub(crate) encoding: Encoding,
    pub(crate) shape: Vec<usize>,
    pub(crate) file: Arc<MappedFile>,
    /// The tensor's bytes in the file; readers have checked that they exist and fit shape and
    /// encoding.
    pub(crate) extent: Range<usize>,
    pub(crate) row_order: RowOrder,
}

/// In which order a file holds the rows of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOrder {
    /// As the model numbers them.
    Natural,
    /// Query and key projections of llama GGUF files: within each head the two halves of the rotary
    /// dimensions are interleaved, because llama.cpp rotates neighbouring elements where Hugging
    /// Face rotates element `j` with element `j + rotary_dims/2`.
    InterleavedHalves {
        /// Rows of one head.
        head_dim: usize,
        /// Leading rows of a head that are rotated; even and at most `head_dim`.
        rotary_dims: usize,
    },
}

impl RowOrder {
    /// The row in the file that holds row `row` of the model.
    fn stored_row(self, row: usize) -> usize {
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
        }
    }
}

impl StoredTensor {
    /// Its Hugging Face name, for instance `model.layers.0.self_attn.q_proj.weight`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How its elements are written.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Its shape, outermost dimension first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Elements in a row.
    pub fn row_len(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.shape.split_last().map_or(1, |(_, outer)| outer.iter().product())
    }

    /// The bytes in the file, in [`Self::encoding`]; rows may be stored in another order (see
    /// [`Self::row_order`]).
    pub fn stored_bytes(&self) -> &[u8] {
        &self.file.bytes()[self.extent.clone()]
    }

    /// The order of the rows in [`Self::stored_bytes`].
    pub fn row_order(&self) -> RowOrder {
        self.row_order
    }

    /// Decodes the rows `rows` into `out` as f32, in the model's row order. Exact: every encoding's
    /// values are computed in f32 as GGML computes them.
    ///
    /// # Panics
    /// When `rows` leaves the tensor, when `out` is not `rows.len() * row_len()` long, or for
    /// [`Encoding::Other`], which [`TensorSet::claim`](super::TensorSet::claim) never hands out.
    pub fn decode_rows(&self, rows: Range<usize>, out: &mut [f32]) {
        let row_len = self.row_len();
        assert!(rows.end <= self.rows(), "rows {rows:?} of a tensor with {} rows", self.rows());
        assert_eq!(out.len(), rows.len() * row_len, "length of the output of rows {rows:?}");
        let row_bytes = self.encoding.byte_len(row_len).expect("a claimed tensor should have a decoded encoding");
        let stored = self.stored_bytes();
        if self.row_order == RowOrder::Natural {
            return decode(self.encoding, &stored[rows.start * row_bytes..rows.end * row_bytes], out);
        }
        for (row, out) in rows.zip(out.chunks_exact_mut(row_len.max(1))) {
            let start = self.row_order.stored_row(row) * row_bytes;
            decode(self.encoding, &stored[start..start + row_bytes], out);
        }
    }

    /// The whole tensor as f32, in the model's row order.
    ///
    /// # Panics
    /// For [`Encoding::Other`], as [`Self::decode_rows`].
    pub fn to_f32(&self) -> Vec<f32> {
        let mut out = vec![0.0; self.elements()];
        self.for_row_chunks(&mut out, |rows, chunk| self.decode_rows(rows, chunk));
        out
    }

    /// The whole tensor as bf16, in the model's row order: each f32 value rounded to nearest even,
    /// bf16 elements unchanged.
    ///
    /// # Panics
    /// For [`Encoding::Other`], as [`Self::decode_rows`].
    pub fn to_bf16(&self) -> Vec<bf16> {
        let mut out = vec![bf16::ZERO; self.elements()];
        let row_len = self.row_len();
        self.for_row_chunks(&mut out, |rows, chunk| {
            let mut decoded = vec![0.0; row_len];
            for (row, out) in rows.zip(chunk.chunks_exact_mut(row_len.max(1))) {
                self.decode_rows(row..row + 1, &mut decoded);
                for (out, &value) in out.iter_mut().zip(&decoded) {
                    *out = bf16::from_f32(value);
                }
            }
        });
        out
    }

    /// Runs `work(rows, their part of out)` over all rows, on several threads for a large tensor.
    fn for_row_chunks<T: Send>(&self, out: &mut [T], work: impl Fn(Range<usize>, &mut [T]) + Sync) {
        let (rows, row_len) = (self.rows(), self.row_len());
        if out.is_empty() {
            return;
        }
        let threads = match out.len() {
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
    fn interleaved_halves_are_put_apart() {
        let order = RowOrder::InterleavedHalves { head_dim: 6, rotary_dims: 4 };
        let stored: Vec<_> = (0..12).map(|row| order.stored_row(row)).collect();
        // Head 0 in the file: a0 b0 a1 b1 and two rows that are not rotated; the model wants a0 a1
        // b0 b1.
        assert_eq!(stored, [0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11]);
    }
}

//! The origin of a tensor's rows.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::quantized::Quantized;
use super::{FormatCause, FormatError, MappedFile};

/// Some bytes of a mapped file. Readers have checked that the file has them.
#[derive(Clone, Debug)]
pub(crate) struct Extent {
    pub(crate) file: Arc<MappedFile>,
    pub(crate) range: Range<usize>,
}

impl Extent {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.file.bytes()[self.range.clone()]
    }

    /// The rows `rows`, of this many bytes each.
    fn part(&self, rows: &Range<usize>, row_bytes: usize) -> Self {
        let start = self.range.start + rows.start * row_bytes;
        Self { file: Arc::clone(&self.file), range: start..start + rows.len() * row_bytes }
    }

    /// An error at the first byte.
    pub(crate) fn error(&self, cause: FormatCause) -> FormatError {
        self.file.error(self.range.start, cause)
    }
}

/// The origin of the bytes of a tensor's rows.
#[derive(Clone, Debug)]
pub(crate) enum RowSource {
    /// A file that stores them one after the other.
    File(Extent),
    /// A file with the elements in f64, which are rounded to f32 on demand.
    Doubles(Extent),
    /// Codes, scales and zero points in separate tensors, from which rows are assembled on demand.
    Quantized {
        /// The whole matrix.
        matrix: Arc<Quantized>,
        /// The index of the first row in it.
        first: usize,
    },
}

impl RowSource {
    /// The rows `rows`, of this many bytes each in the file.
    pub(super) fn part(&self, rows: &Range<usize>, row_bytes: usize) -> Self {
        match self {
            Self::File(extent) => Self::File(extent.part(rows, row_bytes)),
            Self::Doubles(extent) => Self::Doubles(extent.part(rows, row_bytes)),
            Self::Quantized { matrix, first } => {
                Self::Quantized { matrix: Arc::clone(matrix), first: first + rows.start }
            }
        }
    }

    /// The bytes of row number `row`, this many of them.
    pub(super) fn row(&self, row: usize, row_bytes: usize) -> Cow<'_, [u8]> {
        match self {
            Self::File(extent) => Cow::Borrowed(&extent.bytes()[row * row_bytes..][..row_bytes]),
            Self::Doubles(extent) => {
                let doubles = &extent.bytes()[2 * row * row_bytes..][..2 * row_bytes];
                let rounded = doubles.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes) as f32);
                Cow::Owned(rounded.flat_map(f32::to_le_bytes).collect())
            }
            Self::Quantized { matrix, first } => Cow::Owned(matrix.row(first + row)),
        }
    }

    /// Where the tensor, or that with its codes, is.
    pub(super) fn place(&self) -> &Extent {
        match self {
            Self::File(extent) | Self::Doubles(extent) => extent,
            Self::Quantized { matrix, .. } => matrix.place(),
        }
    }
}

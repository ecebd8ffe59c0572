//! Matrices that folders store as several tensors: codes, scales, zero points.
//!
//! ```text
//! model.layers.0.mlp.up_proj.qweight ─┐
//! model.layers.0.mlp.up_proj.qzeros  ─┼─► Quantized ─row─► blocks of an encoding
//! model.layers.0.mlp.up_proj.scales  ─┘       └─► model.layers.0.mlp.up_proj.weight: StoredTensor
//! ```
//!
//! Opening a folder checks only types and shapes, and reads the orders of columns. Rows are
//! assembled, by several threads, when a model is loaded.

mod codes;
mod compressed;
mod fp8;
mod gptq;
mod mxfp4;
mod order;
mod parts;
mod scales;

use std::sync::Arc;

use amk::Encoding;
use amk_kernels::encoding::{GroupCodes, GroupFormat};

use super::row_source::Extent;
use super::{FormatError, RowOrder, RowSource, StoredTensor, StoredType, TensorSet};
use crate::config::Quantization;
use codes::Codes;
use mxfp4::Mxfp4;
use parts::refusal;
use scales::Scales;

/// A matrix that is made of parts.
#[derive(Debug)]
pub(crate) enum Quantized {
    /// Integers or fp8 in groups.
    Groups(Groups),
    /// MXFP4.
    Mxfp4(Mxfp4),
}

/// A matrix of integers or fp8 in groups.
#[derive(Debug)]
pub(crate) struct Groups {
    codes: Codes,
    scales: Scales,
    zeros: Option<Codes>,
    shape: [usize; 2],
    /// Columns of a group of the file.
    group: usize,
    /// The column index of each stored column, if groups are not of consecutive columns.
    order: Option<Arc<[u32]>>,
    /// The format of the rows produced. Its groups are parts of the file's.
    format: GroupFormat,
}

impl TensorSet {
    /// Replaces the parts of quantised matrices by the matrices.
    ///
    /// # Errors
    /// [`FormatCause::BadTensor`](super::FormatCause::BadTensor) if parts contradict each other or
    /// the config, or have an unsupported form.
    pub(crate) fn join(&mut self, quantization: &Quantization) -> Result<(), FormatError> {
        match quantization {
            Quantization::CompressedTensors(config) => compressed::join(self, config),
            Quantization::Fp8(config) => fp8::join(self, config),
            Quantization::Gptq(config) => gptq::join(self, config),
        }
    }
}

impl Quantized {
    /// Returns the blocks of a row.
    ///
    /// # Panics
    /// If there is no such row, or unpacking the blocks does not return what they were packed from.
    pub(super) fn row(&self, row: usize) -> Vec<u8> {
        match self {
            Self::Groups(groups) => groups.row(row),
            Self::Mxfp4(matrix) => matrix.row(row),
        }
    }

    /// Where the codes are.
    pub(super) fn place(&self) -> &Extent {
        match self {
            Self::Groups(groups) => groups.codes.extent(),
            Self::Mxfp4(matrix) => matrix.place(),
        }
    }

    /// The share of this many rows in the bytes of all parts in the file.
    pub(super) fn stored_len(&self, rows: usize) -> usize {
        match self {
            Self::Groups(groups) => groups.stored_len(rows),
            Self::Mxfp4(matrix) => matrix.stored_len(rows),
        }
    }
}

impl Groups {
    fn row(&self, row: usize) -> Vec<u8> {
        let [_, columns] = self.shape;
        let mut codes = vec![0; columns];
        self.codes.row(row, &mut codes);
        if let Some(order) = &self.order {
            codes = order.iter().map(|&column| codes[column as usize]).collect();
        }
        let mut zeros = vec![0; columns.div_ceil(self.group)];
        if let Some(stored) = &self.zeros {
            stored.row(row, &mut zeros);
        }
        let (len, mut unpacked) = (self.format.len, vec![0; self.format.len]);
        let mut blocks = Vec::with_capacity(columns / len * self.format.block_bytes());
        for (number, codes) in codes.chunks_exact(len).enumerate() {
            let start = blocks.len();
            let (scale, zero) = (self.scales.at(row, number * len), zeros[number * len / self.group]);
            blocks.resize(start + self.format.block_bytes(), 0);
            self.format.join(&scale, zero, codes, &mut blocks[start..]);
            let (found, found_zero) = self.format.split(&blocks[start..], &mut unpacked);
            let lossless = found == &*scale && found_zero.is_none_or(|found| found == zero) && unpacked == codes;
            assert!(lossless, "block {number} of row {row} is not what it was made of");
        }
        blocks
    }

    fn stored_len(&self, rows: usize) -> usize {
        let parts = [Some(self.codes.extent()), Some(self.scales.extent()), self.zeros.as_ref().map(Codes::extent)];
        let all: usize = parts.into_iter().flatten().map(|extent| extent.range.len()).sum();
        all * rows / self.shape[0]
    }
}

/// The parts of a matrix, with types and shapes checked.
struct Checked {
    codes: Codes,
    scales: Scales,
    zeros: Option<Codes>,
    shape: [usize; 2],
    group: usize,
    order: Option<Arc<[u32]>>,
    kind: GroupCodes,
}

/// Codes of integers of 4 or 8 bits.
fn integers(bits: u32) -> GroupCodes {
    if bits == 4 { GroupCodes::Int4 } else { GroupCodes::Int8 }
}

/// Adds the matrix of a module, whose codes are the tensor `of`, under the name `module.weight`.
fn insert(set: &mut TensorSet, module: &str, of: &StoredTensor, parts: Checked) -> Result<(), FormatError> {
    let Checked { codes, scales, zeros, shape, group, order, kind } = parts;
    let fits = |len: &usize| group.is_multiple_of(*len) && shape[1].is_multiple_of(*len);
    let Some(len) = [128, 64, 32].into_iter().find(fits) else {
        let reason =
            format!("groups of {group} in rows of {} are not read; a multiple of 32 must divide both", shape[1]);
        return Err(refusal(of, reason));
    };
    let format = GroupFormat { codes: kind, zero: zeros.is_some(), scale: scales.dtype(), len };
    let Some(encoding) = format.encoding() else {
        return Err(refusal(of, format!("nothing decodes `{}`", format.name())));
    };
    let column_order = order.clone();
    let matrix = Quantized::Groups(Groups { codes, scales, zeros, shape, group, order, format });
    insert_matrix(set, module, of, (matrix, shape, encoding), column_order)
}

/// Adds a matrix of a module, whose codes are the tensor `of`, under the name `module.weight`.
fn insert_matrix(
    set: &mut TensorSet,
    module: &str,
    of: &StoredTensor,
    (matrix, shape, encoding): (Quantized, [usize; 2], &'static Encoding),
    column_order: Option<Arc<[u32]>>,
) -> Result<(), FormatError> {
    let tensor = StoredTensor {
        name: format!("{module}.weight"),
        written: None,
        stored_type: StoredType::Encoded(encoding),
        shape: shape.to_vec(),
        rows: RowSource::Quantized { matrix: Arc::new(matrix), first: 0 },
        row_order: RowOrder::Natural,
        column_order,
    };
    set.insert(tensor).map_err(|tensor| refusal(of, format!("there is `{}`, too", tensor.name)))
}

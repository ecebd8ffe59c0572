//! MXFP4 of compressed-tensors (`mxfp4-pack-quantized`; OCP Microscaling Formats 1.0).
//!
//! | part | |
//! |---|---|
//! | `weight_packed` | U8 `[N, K / 2]`: two e2m1 floats per byte, the first in the lower half |
//! | `weight_scale` | U8 `[N, K / 32]`: exponents of two, plus 127 |
//!
//! A block of the encoding has the same numbers; its lower halves are the first 16 elements.

use amk::Encoding;

use super::super::row_source::Extent;
use super::super::{FormatError, StoredTensor, TensorSet};
use super::parts::{Type, expect, matrix, refusal};
use super::{Quantized, insert_matrix};

const NAME: &str = "MXFP4";
/// Elements that share a scale.
const GROUP: usize = 32;

/// A matrix in MXFP4.
#[derive(Debug)]
pub(crate) struct Mxfp4 {
    codes: Extent,
    exponents: Extent,
    columns: usize,
}

impl Mxfp4 {
    /// The blocks of a row.
    pub(super) fn row(&self, row: usize) -> Vec<u8> {
        let (groups, bytes) = (self.columns / GROUP, self.columns / 2);
        let exponents = &self.exponents.bytes()[row * groups..][..groups];
        let codes = self.codes.bytes()[row * bytes..][..bytes].as_chunks::<{ GROUP / 2 }>().0;
        let mut blocks = Vec::with_capacity(groups * (1 + GROUP / 2));
        for (exponent, pairs) in exponents.iter().zip(codes) {
            let code = |at: usize| pairs[at / 2] >> (at % 2 * 4) & 15;
            blocks.push(*exponent);
            blocks.extend((0..GROUP / 2).map(|at| code(at) | code(at + GROUP / 2) << 4));
        }
        blocks
    }

    /// Where the codes are.
    pub(super) fn place(&self) -> &Extent {
        &self.codes
    }

    /// The bytes of this many rows in the file.
    pub(super) fn stored_len(&self, rows: usize) -> usize {
        rows * (self.columns / 2 + self.columns / GROUP)
    }
}

/// Adds the matrix of a module.
pub(super) fn insert(
    set: &mut TensorSet,
    module: &str,
    packed: &StoredTensor,
    scale: &StoredTensor,
) -> Result<(), FormatError> {
    let [rows, bytes] = matrix(packed)?;
    let columns = 2 * bytes;
    expect(packed, Type::U8, &[rows, bytes])?;
    if !columns.is_multiple_of(GROUP) {
        return Err(refusal(packed, format!("rows of {columns} are not read; they must be a multiple of {GROUP}")));
    }
    expect(scale, Type::U8, &[rows, columns / GROUP])?;
    let Some(encoding) = Encoding::find(NAME) else {
        return Err(refusal(packed, format!("nothing decodes `{NAME}`")));
    };
    let [codes, exponents] = [packed, scale].map(|part| part.rows.place().clone());
    let quantized = Quantized::Mxfp4(Mxfp4 { codes, exponents, columns });
    insert_matrix(set, module, packed, (quantized, [rows, columns], encoding), None)
}

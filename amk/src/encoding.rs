//! The storage of a weight's elements: plain floats, or blocks of quantised values.
//!
//! A crate registers an [`Encoding`] with [`encoding!`](crate::encoding!); checkpoint readers look
//! it up by name. `decode` defines its values exactly: all code that computes with blocks either
//! agrees with it bit for bit or states its error.

use crate::tensor::Q8Block;
use amk_ir::DType;
use core::fmt;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// How blocks of elements along the last dimension of a weight are stored.
pub struct Encoding {
    /// The name, as in the format that defines it: `bf16`, `Q4_K`. Looked up case-insensitively.
    pub name: &'static str,
    /// Elements in a block; 1 for plain floats.
    pub block: usize,
    /// Bytes in a block.
    pub bytes: usize,
    /// The element type of plain floats.
    pub float: Option<DType>,
    /// Decodes whole blocks; as many elements as the blocks have.
    pub decode: fn(blocks: &[u8], elements: &mut [f32]),
    /// Encodes elements; `None`: encoding is not supported.
    pub encode: Option<Encode>,
    /// Returns why a block cannot belong to a weight, for instance because its scale is not finite;
    /// `None`: every block is valid, and none is checked.
    pub check: Option<CheckBlock>,
    /// Inner products of a vector with `out.len()` rows of whole blocks, whose first blocks are
    /// `stride` bytes apart, bit-identical to products with decoded rows; `None`: rows are decoded.
    pub dot: Option<Dot>,
    /// Inner products with inputs rounded to bytes; `None`: not supported, and such weights are
    /// multiplied by f32 inputs.
    pub dot_q8: Option<DotQ8>,
}

/// Returns why a block cannot belong to a weight.
pub type CheckBlock = fn(block: &[u8]) -> Result<(), &'static str>;

/// Encodes elements as whole blocks, each block independently: `encode(elements, blocks)`.
pub type Encode = fn(elements: &[f32], blocks: &mut [u8]);

/// Inner products computed directly from blocks: `dot(x, rows, stride, out)`.
pub type Dot = fn(x: &[f32], rows: &[u8], stride: usize, out: &mut [f32]);

/// Inner products of rounded vectors, of `xs.len() / vectors` blocks each, with
/// `out.len() / vectors` rows, computed directly from their blocks:
/// `dot_q8(xs, vectors, rows, stride, out)`. The products of a vector are contiguous in `out`. A
/// product does not depend on what is computed beside it.
pub type DotQ8 = fn(xs: &[Q8Block], vectors: usize, rows: &[u8], stride: usize, out: &mut [f32]);

/// A registered [`Encoding`].
#[doc(hidden)]
pub struct Registered(pub &'static Encoding);

inventory::collect!(Registered);

/// Registers a `static` [`Encoding`], so that files may contain it and `--weights` accepts its
/// name.
///
/// ```ignore
/// static NIBBLES: Encoding = Encoding { name: "NIBBLES", block: 32, .. };
/// amk::encoding!(NIBBLES);
/// ```
#[macro_export]
macro_rules! encoding {
    ($encoding:path) => {
        $crate::__private::inventory::submit! { $crate::encoding::Registered(&$encoding) }
    };
}

/// A block that cannot belong to a weight.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("block {block} of {encoding} {reason}")]
pub struct BlockError {
    /// The encoding's name.
    pub encoding: &'static str,
    /// The block's number.
    pub block: usize,
    /// The defect.
    pub reason: &'static str,
}

impl Encoding {
    /// Returns the encoding with this name, ignoring case.
    pub fn find(name: &str) -> Option<&'static Self> {
        Self::all().find(|encoding| encoding.name.eq_ignore_ascii_case(name))
    }

    /// Returns all registered encodings, in no particular order.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        inventory::iter::<Registered>.into_iter().map(|registered| registered.0)
    }

    /// Returns the size of `elements` elements in bytes; `None` if they are not whole blocks or too
    /// many.
    pub fn byte_len(&self, elements: usize) -> Option<usize> {
        if !elements.is_multiple_of(self.block) {
            return None;
        }
        (elements / self.block).checked_mul(self.bytes)
    }

    /// Returns the size in bytes of elements that are in memory.
    ///
    /// # Panics
    /// If they are not whole blocks.
    pub fn bytes_of(&self, elements: usize) -> usize {
        assert!(elements.is_multiple_of(self.block), "{elements} elements cut a block of {self}");
        elements / self.block * self.bytes
    }

    /// Returns the number of elements in `bytes` bytes of whole blocks.
    pub fn elements(&self, bytes: usize) -> usize {
        bytes / self.bytes * self.block
    }

    /// Checks every block.
    ///
    /// # Errors
    /// The first block that cannot belong to a weight.
    pub fn check_blocks(&self, bytes: &[u8]) -> Result<(), BlockError> {
        let Some(check) = self.check else { return Ok(()) };
        let mut blocks = bytes.chunks_exact(self.bytes).map(check).enumerate();
        let refused = blocks.find_map(|(block, checked)| Some((block, checked.err()?)));
        refused.map_or(Ok(()), |(block, reason)| Err(BlockError { encoding: self.name, block, reason }))
    }
}

impl fmt::Debug for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Encoding {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Encoding {}

/// Elements of a plain float type.
macro_rules! float {
    ($name:ident, $dtype:ident, $type:ty, $decode:expr, $encode:expr) => {
        #[doc = concat!("Plain `", stringify!($type), "`, little endian.")]
        pub static $name: Encoding = Encoding {
            name: stringify!($type),
            block: 1,
            bytes: size_of::<$type>(),
            float: Some(DType::$dtype),
            decode: $decode,
            encode: Some($encode),
            // Infinities and NaNs are the checkpoint's own business.
            check: None,
            dot: None,
            dot_q8: None,
        };
        encoding!($name);
    };
}

float!(F32, F32, f32, decode_f32, |from, to| each(from, to, |x| x.to_le_bytes()));
float!(F16, F16, f16, decode_f16, |from, to| each(from, to, |x| f16::from_f32(x).to_le_bytes()));
float!(BF16, BF16, bf16, decode_bf16, |from, to| each(from, to, |x| bf16::from_f32(x).to_le_bytes()));

/// Writes each element's bytes.
fn each<const N: usize>(elements: &[f32], bytes: &mut [u8], write: impl Fn(f32) -> [u8; N]) {
    bytes.as_chunks_mut().0.iter_mut().zip(elements).for_each(|(bytes, &element)| *bytes = write(element));
}

fn decode_f32(bytes: &[u8], out: &mut [f32]) {
    bytes.as_chunks().0.iter().zip(out).for_each(|(bytes, out)| *out = f32::from_le_bytes(*bytes));
}

fn decode_f16(bytes: &[u8], out: &mut [f32]) {
    const BATCH: usize = 64;
    for (bytes, out) in bytes.chunks(2 * BATCH).zip(out.chunks_mut(BATCH)) {
        let mut halves = [f16::ZERO; BATCH];
        bytes.as_chunks().0.iter().zip(&mut halves).for_each(|(bytes, half)| *half = f16::from_le_bytes(*bytes));
        halves[..out.len()].convert_to_f32_slice(out);
    }
}

fn decode_bf16(bytes: &[u8], out: &mut [f32]) {
    let widen = |bytes: &[u8; 2]| f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
    bytes.as_chunks().0.iter().zip(out).for_each(|(bytes, out)| *out = widen(bytes));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_found_and_decode_at_any_alignment() {
        assert_eq!(Encoding::find("BF16").map(|found| found.bytes), Some(2));
        assert_eq!(Encoding::find("nothing"), None);
        let mut out = [0.0; 2];
        (F32.decode)(&[0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0], &mut out);
        assert_eq!(out, [1.0, -2.0]);
        (F16.decode)(&[0, 0x3c, 0, 0xc0], &mut out);
        assert_eq!(out, [1.0, -2.0]);
        (BF16.decode)(&[0x80, 0x3f, 0, 0xc0], &mut out);
        assert_eq!(out, [1.0, -2.0]);
    }

    #[test]
    fn a_bad_block_is_named() {
        static ODD: Encoding = Encoding {
            name: "ODD",
            check: Some(|block| if block[0] % 2 == 1 { Ok(()) } else { Err("is even") }),
            ..F32_LIKE
        };
        const F32_LIKE: Encoding = Encoding {
            name: "",
            block: 1,
            bytes: 4,
            float: None,
            decode: decode_f32,
            encode: None,
            check: None,
            dot: None,
            dot_q8: None,
        };
        let error = ODD.check_blocks(&[1, 0, 0, 0, 2, 0, 0, 0]).unwrap_err();
        assert_eq!(error.to_string(), "block 1 of ODD is even");
        assert_eq!(ODD.check_blocks(&[1, 0, 0, 0]), Ok(()));
    }
}

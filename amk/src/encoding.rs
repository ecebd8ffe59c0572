//! How the elements of a weight are stored: plain floats, or blocks of quantised values.
//!
//! A crate registers an [`Encoding`] with [`encoding!`](crate::encoding!); readers of checkpoints
//! find it by its name. Its values are defined by `decode`, exactly: everything that computes with
//! blocks agrees with that bit for bit, or says how far it is off.

use crate::tensor::Q8Block;
use amk_ir::DType;
use core::fmt;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// How blocks of elements along the last dimension of a weight are stored.
pub struct Encoding {
    /// The name, as the format that defines it writes it: `bf16`, `Q4_K`. Found in any case.
    pub name: &'static str,
    /// Elements in a block; 1 for plain floats.
    pub block: usize,
    /// Bytes in a block.
    pub bytes: usize,
    /// The element type of plain floats.
    pub float: Option<DType>,
    /// Decodes whole blocks; as many elements as the blocks have.
    pub decode: fn(blocks: &[u8], elements: &mut [f32]),
    /// How elements are encoded; `None`: nothing here does it.
    pub encode: Option<Encode>,
    /// Why a block is none of a weight, for instance that its scale is not finite; `None`: every
    /// block is one, and none is looked at.
    pub check: Option<CheckBlock>,
    /// Inner products of a vector with `out.len()` rows of whole blocks, whose first blocks are
    /// `stride` bytes apart, with the bits of the products with decoded rows; `None`: rows are
    /// decoded.
    pub dot: Option<Dot>,
    /// Inner products with inputs that were rounded to bytes; `None`: there are none, and such
    /// weights are multiplied with inputs in f32.
    pub dot_q8: Option<DotQ8>,
}

/// Why a block is none of a weight.
pub type CheckBlock = fn(block: &[u8]) -> Result<(), &'static str>;

/// Encodes elements of whole blocks, each block for itself: `encode(elements, blocks)`.
pub type Encode = fn(elements: &[f32], blocks: &mut [u8]);

/// Inner products straight from blocks: `dot(x, rows, stride, out)`.
pub type Dot = fn(x: &[f32], rows: &[u8], stride: usize, out: &mut [f32]);

/// Inner products of rounded vectors, `xs.len() / vectors` blocks each, with `out.len() / vectors`
/// rows, straight from their blocks: `dot_q8(xs, vectors, rows, stride, out)`, where the products
/// of a vector are next to each other in `out`. A product is the same whatever is computed beside
/// it.
pub type DotQ8 = fn(xs: &[Q8Block], vectors: usize, rows: &[u8], stride: usize, out: &mut [f32]);

/// A registered [`Encoding`].
#[doc(hidden)]
pub struct Registered(pub &'static Encoding);

inventory::collect!(Registered);

/// Registers a `static` [`Encoding`], so that files may have it and `--weights` names it.
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

/// A block that is none of a weight.
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
    /// The encoding with this name, in any case.
    pub fn find(name: &str) -> Option<&'static Self> {
        Self::all().find(|encoding| encoding.name.eq_ignore_ascii_case(name))
    }

    /// All registered encodings, in no order.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        inventory::iter::<Registered>.into_iter().map(|registered| registered.0)
    }

    /// Bytes of so many elements; `None` when they are not whole blocks or too many.
    pub fn byte_len(&self, elements: usize) -> Option<usize> {
        if !elements.is_multiple_of(self.block) {
            return None;
        }
        (elements / self.block).checked_mul(self.bytes)
    }

    /// Bytes of elements that are in memory.
    ///
    /// # Panics
    /// When they are not whole blocks.
    pub fn bytes_of(&self, elements: usize) -> usize {
        assert!(elements.is_multiple_of(self.block), "{elements} elements cut a block of {self}");
        elements / self.block * self.bytes
    }

    /// Elements in so many bytes of whole blocks.
    pub fn elements(&self, bytes: usize) -> usize {
        bytes / self.bytes * self.block
    }

    /// Checks every block.
    ///
    /// # Errors
    /// The first block that is none of a weight.
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
            // A checkpoint's own infinities and NaNs are its business.
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

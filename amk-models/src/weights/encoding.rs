//! How a stored tensor's elements are written.

use std::fmt;

/// How the elements of a stored tensor are written: plain floats, or blocks of quantised values
/// along the last dimension.
///
/// The block layouts are GGML's (`ggml-common.h` of llama.cpp); [`StoredTensor::decode_rows`]
/// decodes them all.
///
/// [`StoredTensor::decode_rows`]: super::StoredTensor::decode_rows
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    Bf16,
    /// 32 values: `d * q`, q in 4 bits minus 8.
    Q4_0,
    /// 32 values: `d * q + m`, q in 4 bits.
    Q4_1,
    /// 32 values: `d * q`, q in 5 bits minus 16.
    Q5_0,
    /// 32 values: `d * q + m`, q in 5 bits.
    Q5_1,
    /// 32 values: `d * q`, q a signed byte.
    Q8_0,
    /// 256 values in 8 groups of 32: `d * scale * q - dmin * min`, q in 4 bits, scale and min in 6.
    Q4K,
    /// 256 values in 8 groups of 32: `d * scale * q - dmin * min`, q in 5 bits, scale and min in 6.
    Q5K,
    /// 256 values in 16 groups of 16: `d * scale * q`, q in 6 bits minus 32, scale a signed byte.
    Q6K,
    /// A type that is stored but not decoded (integers, 8-bit floats, other quantisations), by its
    /// name in the file. A model cannot claim it.
    Other(&'static str),
}

impl Encoding {
    /// Elements in a block: 1 for plain floats.
    pub fn block_len(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 | Self::Other(_) => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => 32,
            Self::Q4K | Self::Q5K | Self::Q6K => 256,
        }
    }

    /// Bytes in a block; `None` for a type that is not decoded.
    pub fn block_bytes(self) -> Option<usize> {
        Some(match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q4_0 => 2 + 16,
            Self::Q4_1 => 4 + 16,
            Self::Q5_0 => 2 + 4 + 16,
            Self::Q5_1 => 4 + 4 + 16,
            Self::Q8_0 => 2 + 32,
            Self::Q4K => 4 + 12 + 128,
            Self::Q5K => 4 + 12 + 32 + 128,
            Self::Q6K => 128 + 64 + 16 + 2,
            Self::Other(_) => return None,
        })
    }

    /// Bytes of `elements` elements; `None` when they are not whole blocks, when the count
    /// overflows, or for a type that is not decoded.
    pub fn byte_len(self, elements: usize) -> Option<usize> {
        if !elements.is_multiple_of(self.block_len()) {
            return None;
        }
        (elements / self.block_len()).checked_mul(self.block_bytes()?)
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q8_0 => "Q8_0",
            Self::Q4K => "Q4_K",
            Self::Q5K => "Q5_K",
            Self::Q6K => "Q6_K",
            Self::Other(name) => name,
        })
    }
}

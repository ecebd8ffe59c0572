//! Element types of buffers.

use core::fmt;
use serde::{Deserialize, Serialize};

/// The element type of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    BF16,
    /// fp8 e4m3: a sign, four bits of exponent, three of mantissa; stores saturate at 448.
    #[serde(alias = "fp8")]
    E4M3,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned 32-bit integer.
    U32,
    /// Signed 8-bit integer.
    I8,
    /// Unsigned 8-bit integer.
    U8,
}

impl DType {
    /// All element types.
    pub const ALL: [Self; 8] = [Self::F32, Self::F16, Self::BF16, Self::E4M3, Self::I32, Self::U32, Self::I8, Self::U8];

    /// Size of an element in bytes.
    pub const fn bytes(self) -> u32 {
        match self {
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::E4M3 | Self::I8 | Self::U8 => 1,
        }
    }

    /// The name in the text format.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::E4M3 => "e4m3",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::I8 => "i8",
            Self::U8 => "u8",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

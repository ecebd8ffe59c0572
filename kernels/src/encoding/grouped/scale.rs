//! Types of scales.

use super::super::half_at;
use half::{bf16, f16};

/// A type of scales, which a block starts with.
pub(crate) trait Scale: 'static {
    const BYTES: usize;

    /// Reads the scale, which must be finite. Inlined into loops over blocks.
    fn read(block: &[u8]) -> f32;
    fn is_finite(block: &[u8]) -> bool;
    /// Writes the nearest scale.
    fn write(block: &mut [u8], scale: f32);
}

macro_rules! scale {
    ($type:ty, $round:expr, $read:expr) => {
        impl Scale for $type {
            const BYTES: usize = size_of::<$type>();

            #[inline(always)]
            fn read(block: &[u8]) -> f32 {
                $read(block)
            }

            fn is_finite(block: &[u8]) -> bool {
                block.first_chunk().is_some_and(|bytes| <$type>::from_le_bytes(*bytes).is_finite())
            }

            fn write(block: &mut [u8], scale: f32) {
                block[..Self::BYTES].copy_from_slice(&$round(scale).to_le_bytes());
            }
        }
    };
}

// Functions and not closures, which would not be compiled for the caller's instruction set.
scale!(f16, f16::from_f32, first_half);
scale!(bf16, bf16::from_f32, first_bfloat);
scale!(f32, core::convert::identity, first_float);

#[inline(always)]
fn first_half(block: &[u8]) -> f32 {
    half_at(block, 0)
}

#[inline(always)]
fn first_bfloat(block: &[u8]) -> f32 {
    f32::from_le_bytes([0, 0, block[0], block[1]])
}

#[inline(always)]
fn first_float(block: &[u8]) -> f32 {
    f32::from_le_bytes([block[0], block[1], block[2], block[3]])
}

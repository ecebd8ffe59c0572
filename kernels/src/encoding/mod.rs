//! Block encodings: GGML's (llama.cpp, `ggml-common.h` and the `dequantize_row_*` functions of
//! `ggml-quants.c`), and the group encodings of folders.
//!
//! GGML's are little endian; `d`, `m` and `dmin` are binary16; products are formed in f32 in GGML's
//! order, so decoded values are bit-identical to GGML's.

pub(crate) mod code;
pub(crate) mod five;
pub(crate) mod four;
mod grid;
pub(crate) mod grouped;
pub(crate) mod k;
pub(crate) mod lanes;
mod look_up;
pub(crate) mod q8_0;
mod words;

pub(crate) use code::{IQ4_NL, MXFP4};
pub(crate) use five::{Q5_0, Q5_1};
pub(crate) use four::{Q4_0, Q4_1};
pub use grid::{Grid, Step};
pub use grouped::{GroupCodes, GroupFormat};
pub(crate) use k::{Q4_K, Q5_K, Q6_K};
pub use lanes::{Factors, Lanes, Place, Places, ROWS};
pub(crate) use q8_0::Q8_0;

use crate::dot;
use amk::encoding::Encoding;
use half::f16;

/// Elements that are decoded at a time.
pub const GROUP: usize = 32;

/// An encoding in blocks of `BYTES` bytes and [`GROUPS`](Self::GROUPS) groups of 32 elements.
/// [`encoding`] makes the record from its groups, with inner products computed directly from
/// blocks.
pub trait Blocks<const BYTES: usize>: 'static {
    /// Groups in a block.
    const GROUPS: usize;

    /// Decodes the elements of group number `group`. Inlined into loops over blocks and compiled
    /// there for each instruction set: it is vectorised if it has plain loops, no closures, and no
    /// branches that depend on the data.
    fn group(block: &[u8; BYTES], group: usize) -> [f32; GROUP];

    /// Checks whether a block can belong to a weight.
    ///
    /// # Errors
    /// The defect, to follow the words "block N of NAME".
    fn check(block: &[u8; BYTES]) -> Result<(), &'static str>;
}

/// Blocks whose elements are affine in integers: with `h` the half of its group that contains the
/// element,
///
/// ```text
/// element = scales[h] * (code - BIAS) + addend                   or TABLE[code] for the code
/// ```
///
/// up to rounding. [`integer_encoding`] makes the record, with inner products of integers for
/// inputs that were rounded to bytes ([`amk::tensor::Inputs::Q8`]). All functions are inlined into
/// loops over blocks, as [`Blocks::group`] is.
pub trait IntegerBlocks<const BYTES: usize>: Blocks<BYTES> + Sized {
    /// The largest code; at most 127 is faster if a processor has no sums of four products.
    const MOST: u8;
    /// If codes are indices of bytes in a table: the table, whose bytes then replace the codes.
    const TABLE: Option<&'static [u8; 16]> = None;
    /// The number subtracted from codes.
    const BIAS: i32 = 0;
    /// Whether the halves of a group have scales of their own.
    const HALVES: bool = false;
    /// Whether a group has an addend.
    const ADDEND: bool = false;

    /// The codes of a group.
    fn codes(block: &[u8; BYTES], group: usize) -> [u8; GROUP];
    /// The scales of the halves of a group; without [`HALVES`](Self::HALVES) the first applies to
    /// both.
    fn scales(block: &[u8; BYTES], group: usize) -> [f32; 2];
    /// The addend of a group, if it has one.
    fn addend(_: &[u8; BYTES], _: usize) -> f32 {
        0.0
    }

    /// The places where [`codes`](Self::codes) finds the codes of half a group, so that they can be
    /// unpacked for several rows at once; `None` if they are not bits of consecutive bytes.
    fn places(_group: usize, _half: usize) -> Option<Places> {
        None
    }

    /// The factors of each group of a block, in 16 rows at once. Each is bit-identical to
    /// [`scales`](Self::scales) and [`addend`](Self::addend); without an addend, its value does not
    /// matter.
    #[inline(always)]
    fn factors<L: Lanes>(lanes: L, blocks: &[&[u8; BYTES]; ROWS], factors: &mut [Factors<L::Floats>]) {
        lanes::factors_of_each::<BYTES, Self, L>(lanes, blocks, factors);
    }
}

/// The places and the factors of blocks of one group with codes of four bits, low nibbles first.
macro_rules! nibble_lanes {
    ($block:literal, $at:literal, $factors:ident) => {
        #[inline(always)]
        fn places(_: usize, half: usize) -> Option<Places> {
            Some(Places::of($at, 4 * half as u32, 0xf))
        }

        #[inline(always)]
        fn factors<L: Lanes>(lanes: L, blocks: &[&[u8; $block]; ROWS], factors: &mut [Factors<L::Floats>]) {
            $crate::encoding::lanes::$factors(lanes, blocks, factors);
        }
    };
}
use nibble_lanes;

/// Blocks of codes of a few bits, separated into parts: a device stores the codes of a group and
/// the scales in different places.
pub trait Coded: 'static {
    /// Bits of a code: 4, 5, 6 or 8.
    const BITS: usize;
    /// Groups of 32 elements in a block.
    const GROUPS: usize;
    /// Bytes of a block.
    const BLOCK: usize;
    /// Bytes of its separated scales: the block's, then each group's.
    const SCALES: usize;
    /// Bytes of them that belong to each group alone.
    const OWN: usize = 0;
    /// The places of the bits of a lane's word of codes, of 4 or 8 bits: masks, and how far the
    /// masked bits are rotated left. `CodedTile` in C++ defines the order of codes before that.
    const MOVED: &'static [(u32, u32)] = &[(u32::MAX, 0)];
    /// Whether an element is a code, less a number, times one scale of its group. Then four warps
    /// of a GPU, a team, multiply tiles together in steps of 17 to 32 rows.
    const TEAMS: bool = true;

    /// The codes of a group.
    fn codes(block: &[u8], group: usize) -> [u8; GROUP];
    /// Writes the codes of a group into a block that is initially 0 there.
    fn set_codes(block: &mut [u8], group: usize, codes: &[u8; GROUP]);
    /// Extracts the scales: whole bytes, in the order in which `CodedTile` in C++ reads them.
    fn scales(block: &[u8], scales: &mut [u8]);
    /// The inverse of `scales`, into a block that is initially 0 there.
    fn set_scales(block: &mut [u8], scales: &[u8]);
}

/// N adjacent blocks of one group each, treated as one block.
pub struct InPacks<B, const N: usize>(B);

impl<B: Coded, const N: usize> InPacks<B, N> {
    const ONE_GROUP: () = assert!(B::GROUPS == 1, "blocks of one group");
}

impl<B: Coded, const N: usize> Coded for InPacks<B, N> {
    const BITS: usize = B::BITS;
    const GROUPS: usize = N;
    const BLOCK: usize = N * B::BLOCK;
    const SCALES: usize = N * B::SCALES;
    const OWN: usize = B::SCALES;
    const MOVED: &'static [(u32, u32)] = B::MOVED;
    const TEAMS: bool = B::TEAMS;

    fn codes(block: &[u8], group: usize) -> [u8; GROUP] {
        const { Self::ONE_GROUP };
        B::codes(&block[group * B::BLOCK..][..B::BLOCK], 0)
    }

    fn set_codes(block: &mut [u8], group: usize, codes: &[u8; GROUP]) {
        B::set_codes(&mut block[group * B::BLOCK..][..B::BLOCK], 0, codes);
    }

    fn scales(block: &[u8], scales: &mut [u8]) {
        let of_blocks = scales.chunks_exact_mut(B::SCALES).zip(block.chunks_exact(B::BLOCK));
        of_blocks.for_each(|(scales, block)| B::scales(block, scales));
    }

    fn set_scales(block: &mut [u8], scales: &[u8]) {
        let of_blocks = block.chunks_exact_mut(B::BLOCK).zip(scales.chunks_exact(B::SCALES));
        of_blocks.for_each(|(block, scales)| B::set_scales(block, scales));
    }
}

/// Implements [`Coded`] for a block of 32 whose scales are its first bytes.
macro_rules! coded_block {
    ($type:ty, $bits:literal, $scales:literal, $block:literal, $codes:expr, $set:expr $(, $moved:expr)?) => {
        impl $crate::encoding::Coded for $type {
            const BITS: usize = $bits;
            const GROUPS: usize = 1;
            const BLOCK: usize = $block;
            const SCALES: usize = $scales;
            const TEAMS: bool = $scales == 2; // otherwise a minimum as well
            $(const MOVED: &'static [(u32, u32)] = $moved;)?

            fn codes(block: &[u8], _: usize) -> [u8; $crate::encoding::GROUP] {
                $codes(&block[$scales..])
            }

            fn set_codes(block: &mut [u8], _: usize, codes: &[u8; $crate::encoding::GROUP]) {
                $set(&mut block[$scales..], *codes);
            }

            fn scales(block: &[u8], scales: &mut [u8]) {
                scales.copy_from_slice(&block[..$scales]);
            }

            fn set_scales(block: &mut [u8], scales: &[u8]) {
                block[..$scales].copy_from_slice(scales);
            }
        }
    };
}
use coded_block;

/// The record of an encoding in blocks, to be registered with `amk::encoding!`.
pub const fn encoding<const BYTES: usize, B: Blocks<BYTES>>(name: &'static str) -> Encoding {
    Encoding {
        name,
        block: GROUP * B::GROUPS,
        bytes: BYTES,
        float: None,
        decode: dot::decode::<BYTES, B>,
        encode: None,
        check: Some(|block| block.as_array().map_or(Err("is cut short"), B::check)),
        dot: Some(dot::block_products::<BYTES, B>),
        dot_q8: None,
    }
}

/// The same with inner products of integers.
pub const fn integer_encoding<const BYTES: usize, B: IntegerBlocks<BYTES>>(name: &'static str) -> Encoding {
    Encoding { dot_q8: Some(dot::q8_products::<BYTES, B>), ..encoding::<BYTES, B>(name) }
}

/// The binary16 at byte `at`, which is finite, as checked by [`Blocks::check`]: a few inlined
/// instructions, whereas `f16::to_f32` detects the processor's features.
#[inline(always)]
pub(crate) fn half_at(block: &[u8], at: usize) -> f32 {
    let bits = i32::from(i16::from_le_bytes([block[at], block[at + 1]]));
    // The sign, five bits of exponent and the mantissa, placed where binary32 has them. The
    // exponent is 112 less than that of binary32; the product is also right for subnormals.
    f32::from_bits((bits << 13) as u32 & 0x8fff_e000) * f32::from_bits((112 + 127) << 23)
}

/// `q * factor + addend` for each quant.
#[inline(always)]
fn affine<Q: Into<i32>>(quants: [Q; GROUP], factor: f32, addend: f32) -> [f32; GROUP] {
    let mut out = [0.0; GROUP];
    for (out, quant) in out.iter_mut().zip(quants) {
        *out = (quant.into() as f32).mul_add(factor, addend);
    }
    out
}

/// `(q - bias) * factor` for each quant.
#[inline(always)]
fn biased<Q: Into<i32>>(quants: [Q; GROUP], bias: i32, factor: f32) -> [f32; GROUP] {
    let mut out = [0.0; GROUP];
    for (out, quant) in out.iter_mut().zip(quants) {
        *out = (quant.into() - bias) as f32 * factor;
    }
    out
}

/// Writes a binary16 at byte `at`.
fn set_half(block: &mut [u8], at: usize, value: f32) {
    block[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
}

/// Checks the binary16 numbers at these bytes.
fn finite(block: &[u8], halves: &[usize]) -> Result<(), &'static str> {
    match halves.iter().all(|&at| f16::from_le_bytes([block[at], block[at + 1]]).is_finite()) {
        true => Ok(()),
        false => Err("has a scale that is not finite"),
    }
}

/// Encodes blocks one by one.
fn encode<const BYTES: usize, const LEN: usize>(
    elements: &[f32],
    blocks: &mut [u8],
    encode: impl Fn(&[f32; LEN], &mut [u8; BYTES]),
) {
    elements.as_chunks().0.iter().zip(blocks.as_chunks_mut().0).for_each(|(from, to)| encode(from, to));
}

/// The element with the largest magnitude; the first of several.
fn extreme(elements: &[f32]) -> f32 {
    elements.iter().fold(0.0, |most: f32, &x| if x.abs() > most.abs() { x } else { most })
}

/// `1 / x`, and 0 for 0.
fn inverse(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { 1.0 / x }
}

#[cfg(test)]
mod tests;

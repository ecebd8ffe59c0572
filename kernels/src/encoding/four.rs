//! Four bits per element in blocks of 32: Q4_0 and Q4_1.
//!
//! The low nibble of byte `i` is element `i`, the high nibble element `i + 16`.

use super::{
    Blocks, Factors, GROUP, IntegerBlocks, Lanes, Places, ROWS, affine, biased, coded_block, encode, extreme, finite,
    half_at, integer_encoding, inverse, nibble_lanes, set_half, words,
};
use amk::encoding::Encoding;

/// `d: f16, quants: 16 bytes`; an element is `d * (q - 8)`.
pub(crate) struct Symmetric;

/// `d: f16, m: f16, quants: 16 bytes`; an element is `d * q + m`.
pub(crate) struct Affine;

pub(crate) static Q4_0: Encoding = Encoding {
    encode: Some(|from, to| encode(from, to, encode_symmetric)),
    ..integer_encoding::<18, Symmetric>("Q4_0")
};
pub(crate) static Q4_1: Encoding =
    Encoding { encode: Some(|from, to| encode(from, to, encode_affine)), ..integer_encoding::<20, Affine>("Q4_1") };
amk::encoding!(Q4_0);
amk::encoding!(Q4_1);
coded_block!(Symmetric, 4, 2, 18, words::nibbles, set_nibbles);
coded_block!(Affine, 4, 4, 20, words::nibbles, set_nibbles);

/// The nibbles of 16 bytes in the order of the elements.
#[inline(always)]
pub(super) fn nibbles(bytes: &[u8]) -> [u8; GROUP] {
    let mut out = [0; GROUP];
    for (i, &byte) in bytes[..16].iter().enumerate() {
        out[i] = byte & 0xf;
        out[i + 16] = byte >> 4;
    }
    out
}

/// Writes nibbles to 16 bytes.
pub(super) fn set_nibbles(bytes: &mut [u8], quants: [u8; GROUP]) {
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = quants[i] | quants[i + 16] << 4;
    }
}

impl Blocks<18> for Symmetric {
    const GROUPS: usize = 1;

    #[inline(always)]
    fn group(block: &[u8; 18], _: usize) -> [f32; GROUP] {
        biased(nibbles(&block[2..]), 8, half_at(block, 0))
    }

    fn check(block: &[u8; 18]) -> Result<(), &'static str> {
        finite(block, &[0])
    }
}

impl Blocks<20> for Affine {
    const GROUPS: usize = 1;

    #[inline(always)]
    fn group(block: &[u8; 20], _: usize) -> [f32; GROUP] {
        // 4 bits times 11: the product is exact, so one rounding is GGML's two.
        affine(nibbles(&block[4..]), half_at(block, 0), half_at(block, 2))
    }

    fn check(block: &[u8; 20]) -> Result<(), &'static str> {
        finite(block, &[0, 2])
    }
}

impl IntegerBlocks<18> for Symmetric {
    const MOST: u8 = 15;
    const BIAS: i32 = 8;

    #[inline(always)]
    fn codes(block: &[u8; 18], _: usize) -> [u8; GROUP] {
        nibbles(&block[2..])
    }

    #[inline(always)]
    fn scales(block: &[u8; 18], _: usize) -> [f32; 2] {
        [half_at(block, 0); 2]
    }

    nibble_lanes!(18, 2, half_factors);
}

impl IntegerBlocks<20> for Affine {
    const MOST: u8 = 15;
    const ADDEND: bool = true;

    #[inline(always)]
    fn codes(block: &[u8; 20], _: usize) -> [u8; GROUP] {
        nibbles(&block[4..])
    }

    #[inline(always)]
    fn scales(block: &[u8; 20], _: usize) -> [f32; 2] {
        [half_at(block, 0); 2]
    }

    #[inline(always)]
    fn addend(block: &[u8; 20], _: usize) -> f32 {
        half_at(block, 2)
    }

    nibble_lanes!(20, 4, two_half_factors);
}

/// Like GGML's `quantize_row_q4_0_ref`.
fn encode_symmetric(elements: &[f32; GROUP], block: &mut [u8; 18]) {
    let d = extreme(elements) / -8.0;
    set_half(block, 0, d);
    let inverse = inverse(d);
    set_nibbles(&mut block[2..], elements.map(|x| ((x * inverse + 8.5) as u8).min(15)));
}

/// Like GGML's `quantize_row_q4_1_ref`.
fn encode_affine(elements: &[f32; GROUP], block: &mut [u8; 20]) {
    let (low, high) = elements.iter().fold((f32::MAX, f32::MIN), |(low, high), &x| (low.min(x), high.max(x)));
    let d = (high - low) / 15.0;
    set_half(block, 0, d);
    set_half(block, 2, low);
    let inverse = inverse(d);
    set_nibbles(&mut block[4..], elements.map(|x| (((x - low) * inverse + 0.5) as u8).min(15)));
}

//! Five bits per element in blocks of 32: Q5_0 and Q5_1.
//!
//! Nibbles as with four bits; bit `i` of the 32 high bits is the fifth bit of element `i`.

use super::four::{nibbles, set_nibbles};
use super::lanes::{half_factors, two_half_factors};
use super::{
    Blocks, Factors, GROUP, IntegerBlocks, Lanes, ROWS, affine, biased, coded_block, encode, extreme, finite, half_at,
    integer_encoding, inverse, set_half,
};
use amk::encoding::Encoding;

/// `d: f16, high bits: u32, nibbles: 16 bytes`; an element is `d * (q - 16)`.
pub(crate) struct Symmetric;

/// `d: f16, m: f16, high bits: u32, nibbles: 16 bytes`; an element is `d * q + m`.
pub(crate) struct Affine;

pub(crate) static Q5_0: Encoding = Encoding {
    encode: Some(|from, to| encode(from, to, encode_symmetric)),
    ..integer_encoding::<22, Symmetric>("Q5_0")
};
pub(crate) static Q5_1: Encoding =
    Encoding { encode: Some(|from, to| encode(from, to, encode_affine)), ..integer_encoding::<24, Affine>("Q5_1") };
amk::encoding!(Q5_0);
amk::encoding!(Q5_1);
coded_block!(Symmetric, 5, 2, 22, codes, set_quants);
coded_block!(Affine, 5, 4, 24, codes, set_quants);

#[inline(always)]
fn quants(high: &[u8], low: &[u8]) -> [i32; GROUP] {
    let high = u32::from_le_bytes([high[0], high[1], high[2], high[3]]);
    let (low, mut quants) = (nibbles(low), [0; GROUP]);
    for (i, quant) in quants.iter_mut().enumerate() {
        // As wide as the integer of the bits, so that it vectorises.
        *quant = i32::from(low[i]) + if high & 1 << i == 0 { 0 } else { 16 };
    }
    quants
}

/// The codes after the scales.
#[inline(always)]
pub(super) fn codes(bytes: &[u8]) -> [u8; GROUP] {
    let mut codes = nibbles(&bytes[4..]);
    for (i, code) in codes.iter_mut().enumerate() {
        // A whole byte of the high bits for each code, for vectors.
        *code |= if bytes[i / 8] & 1 << (i % 8) == 0 { 0 } else { 16 };
    }
    codes
}

/// Writes the high bits to 4 bytes, then the nibbles.
pub(super) fn set_quants(bytes: &mut [u8], quants: [u8; GROUP]) {
    let high = quants.iter().enumerate().fold(0, |high, (i, &quant)| high | u32::from(quant >> 4) << i);
    bytes[..4].copy_from_slice(&high.to_le_bytes());
    set_nibbles(&mut bytes[4..], quants.map(|quant| quant & 0xf));
}

impl Blocks<22> for Symmetric {
    const GROUPS: usize = 1;

    #[inline(always)]
    fn group(block: &[u8; 22], _: usize) -> [f32; GROUP] {
        biased(quants(&block[2..6], &block[6..]), 16, half_at(block, 0))
    }

    fn check(block: &[u8; 22]) -> Result<(), &'static str> {
        finite(block, &[0])
    }
}

impl Blocks<24> for Affine {
    const GROUPS: usize = 1;

    #[inline(always)]
    fn group(block: &[u8; 24], _: usize) -> [f32; GROUP] {
        // 5 bits times 11: the product is exact, so one rounding is GGML's two.
        affine(quants(&block[4..8], &block[8..]), half_at(block, 0), half_at(block, 2))
    }

    fn check(block: &[u8; 24]) -> Result<(), &'static str> {
        finite(block, &[0, 2])
    }
}

impl IntegerBlocks<22> for Symmetric {
    const MOST: u8 = 31;
    const BIAS: i32 = 16;

    #[inline(always)]
    fn codes(block: &[u8; 22], _: usize) -> [u8; GROUP] {
        codes(&block[2..])
    }

    #[inline(always)]
    fn scales(block: &[u8; 22], _: usize) -> [f32; 2] {
        [half_at(block, 0); 2]
    }

    #[inline(always)]
    fn factors<L: Lanes>(lanes: L, blocks: &[&[u8; 22]; ROWS], factors: &mut [Factors<L::Floats>]) {
        half_factors(lanes, blocks, factors);
    }
}

impl IntegerBlocks<24> for Affine {
    const MOST: u8 = 31;
    const ADDEND: bool = true;

    #[inline(always)]
    fn codes(block: &[u8; 24], _: usize) -> [u8; GROUP] {
        codes(&block[4..])
    }

    #[inline(always)]
    fn scales(block: &[u8; 24], _: usize) -> [f32; 2] {
        [half_at(block, 0); 2]
    }

    #[inline(always)]
    fn addend(block: &[u8; 24], _: usize) -> f32 {
        half_at(block, 2)
    }

    #[inline(always)]
    fn factors<L: Lanes>(lanes: L, blocks: &[&[u8; 24]; ROWS], factors: &mut [Factors<L::Floats>]) {
        two_half_factors(lanes, blocks, factors);
    }
}

/// Like GGML's `quantize_row_q5_0_ref`.
fn encode_symmetric(elements: &[f32; GROUP], block: &mut [u8; 22]) {
    let d = extreme(elements) / -16.0;
    set_half(block, 0, d);
    let inverse = inverse(d);
    set_quants(&mut block[2..], elements.map(|x| ((x * inverse + 16.5) as u8).min(31)));
}

/// Like GGML's `quantize_row_q5_1_ref`.
fn encode_affine(elements: &[f32; GROUP], block: &mut [u8; 24]) {
    let (low, high) = elements.iter().fold((f32::MAX, f32::MIN), |(low, high), &x| (low.min(x), high.max(x)));
    let d = (high - low) / 31.0;
    set_half(block, 0, d);
    set_half(block, 2, low);
    let inverse = inverse(d);
    set_quants(&mut block[4..], elements.map(|x| (((x - low) * inverse + 0.5) as u8).min(31)));
}

//! A signed byte per element in blocks of 32.

use super::lanes::half_factors;
use super::{
    Blocks, Factors, GROUP, IntegerBlocks, Lanes, Places, ROWS, coded_block, encode, extreme, finite, half_at,
    integer_encoding, inverse, set_half,
};
use amk::encoding::Encoding;

/// `d: f16, quants: 32 signed bytes`; an element is `d * q`.
pub(crate) struct Bytes;

pub(crate) static Q8_0: Encoding =
    Encoding { encode: Some(|from, to| encode(from, to, encode_block)), ..integer_encoding::<34, Bytes>("Q8_0") };
amk::encoding!(Q8_0);
coded_block!(Bytes, 8, 2, 34, codes, |bytes: &mut [u8], of: [u8; GROUP]| bytes.copy_from_slice(&codes(&of)));

/// Converts signed bytes to codes by adding 128; and the inverse.
fn codes(bytes: &[u8]) -> [u8; GROUP] {
    let mut codes = [0; GROUP];
    codes.iter_mut().zip(bytes).for_each(|(code, &quant)| *code = quant ^ 0x80);
    codes
}

impl Blocks<34> for Bytes {
    const GROUPS: usize = 1;

    #[inline(always)]
    fn group(block: &[u8; 34], _: usize) -> [f32; GROUP] {
        let d = half_at(block, 0);
        let mut out = [0.0; GROUP];
        for (out, &quant) in out.iter_mut().zip(&block[2..]) {
            *out = f32::from(quant as i8) * d;
        }
        out
    }

    fn check(block: &[u8; 34]) -> Result<(), &'static str> {
        finite(block, &[0])
    }
}

impl IntegerBlocks<34> for Bytes {
    const MOST: u8 = 255;
    const BIAS: i32 = 128;

    #[inline(always)]
    fn codes(block: &[u8; 34], _: usize) -> [u8; GROUP] {
        codes(&block[2..])
    }

    #[inline(always)]
    fn scales(block: &[u8; 34], _: usize) -> [f32; 2] {
        [half_at(block, 0); 2]
    }

    #[inline(always)]
    fn places(_: usize, half: usize) -> Option<Places> {
        Some(Places { flipped: 0x80, ..Places::of(2 + 16 * half, 0, 0xff) })
    }

    #[inline(always)]
    fn factors<L: Lanes>(lanes: L, blocks: &[&[u8; 34]; ROWS], factors: &mut [Factors<L::Floats>]) {
        half_factors(lanes, blocks, factors);
    }
}

/// Like GGML's `quantize_row_q8_0_ref`.
fn encode_block(elements: &[f32; GROUP], block: &mut [u8; 34]) {
    let d = extreme(elements).abs() / 127.0;
    set_half(block, 0, d);
    let inverse = inverse(d);
    block[2..].iter_mut().zip(elements).for_each(|(q, x)| *q = (x * inverse).round() as i8 as u8);
}

//! Four bits an element that number 16 values: IQ4_NL and MXFP4, in blocks of 32.

use super::four::nibbles;
use super::look_up::look_up;
use super::{Blocks, GROUP, IntegerBlocks, biased, finite, half_at, integer_encoding};
use amk::encoding::Encoding;

/// `d: f16, codes: 16 bytes`; an element is `d * VALUES[code]`.
pub(crate) struct Nonlinear;

/// `e: u8, codes: 16 bytes`; an element is `2^(e - 127)` times an e2m1 float (OCP Microscaling
/// Formats 1.0).
pub(crate) struct Microscaled;

static IQ4_NL: Encoding = integer_encoding::<18, Nonlinear>("IQ4_NL");
static MXFP4: Encoding = integer_encoding::<17, Microscaled>("MXFP4");
amk::encoding!(IQ4_NL);
amk::encoding!(MXFP4);

/// `kvalues_iq4nl` of GGML, each with 128 added.
const VALUES: [u8; 16] = [1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241];

/// Twice the e2m1 floats, each with 12 added.
const TWICE_E2M1: [u8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];

/// Twice the e2m1 float of these bits: sign, two of exponent, one of mantissa.
#[inline(always)]
fn twice_e2m1(bits: u8) -> f32 {
    let (exponent, mantissa) = ((u32::from(bits) >> 1) & 3, u32::from(bits) & 1);
    let magnitude = if exponent == 0 { mantissa } else { (2 | mantissa) << ((exponent - 1) & 3) };
    f32::from_bits((magnitude as f32).to_bits() | (u32::from(bits) & 8) << 28)
}

impl Blocks<18> for Nonlinear {
    const GROUPS: usize = 1;

    #[inline(always)]
    fn group(block: &[u8; 18], _: usize) -> [f32; GROUP] {
        biased(look_up(&VALUES, nibbles(&block[2..])), Self::BIAS, half_at(block, 0))
    }

    fn check(block: &[u8; 18]) -> Result<(), &'static str> {
        finite(block, &[0])
    }
}

impl IntegerBlocks<18> for Nonlinear {
    const MOST: u8 = VALUES[15];
    const TABLE: Option<&'static [u8; 16]> = Some(&VALUES);
    const BIAS: i32 = 128;

    #[inline(always)]
    fn codes(block: &[u8; 18], _: usize) -> [u8; GROUP] {
        nibbles(&block[2..])
    }

    #[inline(always)]
    fn scales(block: &[u8; 18], _: usize) -> [f32; 2] {
        [half_at(block, 0); 2]
    }
}

impl Microscaled {
    /// Half of the scale. Below 2^-126 it is subnormal; 255 is NaN and refused by `check`.
    #[inline(always)]
    fn half(block: &[u8; 17]) -> f32 {
        f32::from_bits(match u32::from(block[0]) {
            exponent @ 0..2 => 1 << (21 + exponent),
            exponent => (exponent - 1) << 23,
        })
    }
}

impl Blocks<17> for Microscaled {
    const GROUPS: usize = 1;

    #[inline(always)]
    fn group(block: &[u8; 17], _: usize) -> [f32; GROUP] {
        let (half, mut out) = (Self::half(block), [0.0; GROUP]);
        for (out, code) in out.iter_mut().zip(nibbles(&block[1..])) {
            *out = twice_e2m1(code) * half;
        }
        out
    }

    fn check(block: &[u8; 17]) -> Result<(), &'static str> {
        if block[0] == u8::MAX { Err("has a scale that is not finite") } else { Ok(()) }
    }
}

impl IntegerBlocks<17> for Microscaled {
    const MOST: u8 = 24;
    const TABLE: Option<&'static [u8; 16]> = Some(&TWICE_E2M1);
    const BIAS: i32 = 12;

    #[inline(always)]
    fn codes(block: &[u8; 17], _: usize) -> [u8; GROUP] {
        nibbles(&block[1..])
    }

    #[inline(always)]
    fn scales(block: &[u8; 17], _: usize) -> [f32; 2] {
        [Self::half(block); 2]
    }
}

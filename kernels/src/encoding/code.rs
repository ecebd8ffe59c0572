//! Four bits an element that number 16 values: IQ4_NL and MXFP4, in blocks of 32.

use super::four::nibbles;
use super::{Blocks, GROUP, encoding, finite, half_at};
use amk::encoding::Encoding;

/// `d: f16, codes: 16 bytes`; an element is `d * VALUES[code]`.
struct Nonlinear;

/// `e: u8, codes: 16 bytes`; an element is `2^(e - 127)` times an e2m1 float (OCP Microscaling
/// Formats 1.0).
struct Microscaled;

static IQ4_NL: Encoding = encoding::<18, Nonlinear>("IQ4_NL");
static MXFP4: Encoding = encoding::<17, Microscaled>("MXFP4");
amk::encoding!(IQ4_NL);
amk::encoding!(MXFP4);

/// `kvalues_iq4nl` of GGML.
const VALUES: [f32; 16] =
    [-127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0];

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
        let (d, mut out) = (half_at(block, 0), [0.0; GROUP]);
        for (out, code) in out.iter_mut().zip(nibbles(&block[2..])) {
            *out = VALUES[usize::from(code & 0xf)] * d;
        }
        out
    }

    fn check(block: &[u8; 18]) -> Result<(), &'static str> {
        finite(block, &[0])
    }
}

impl Blocks<17> for Microscaled {
    const GROUPS: usize = 1;

    #[inline(always)]
    fn group(block: &[u8; 17], _: usize) -> [f32; GROUP] {
        // Half the scale. Below 2^-126 it is subnormal; 255 is NaN and refused by `check`.
        let half = match u32::from(block[0]) {
            exponent @ 0..2 => 1 << (21 + exponent),
            exponent => (exponent - 1) << 23,
        };
        let mut out = [0.0; GROUP];
        for (out, code) in out.iter_mut().zip(nibbles(&block[1..])) {
            *out = twice_e2m1(code) * f32::from_bits(half);
        }
        out
    }

    fn check(block: &[u8; 17]) -> Result<(), &'static str> {
        if block[0] == u8::MAX { Err("has a scale that is not finite") } else { Ok(()) }
    }
}

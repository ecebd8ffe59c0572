//! Four bits per element that index 16 values: IQ4_NL and MXFP4, in blocks of 32.

use super::four::{nibbles, set_nibbles};
use super::look_up::look_up;
use super::{
    Blocks, Coded, Factors, GROUP, IntegerBlocks, Lanes, Places, ROWS, biased, coded_block, encode, extreme, finite,
    half_at, integer_encoding, nibble_lanes, set_half, words,
};
use amk::encoding::Encoding;

/// `d: f16, codes: 16 bytes`; an element is `d * VALUES[code]`.
pub(crate) struct Nonlinear;

/// `e: u8, codes: 16 bytes`; an element is `2^(e - 127)` times an e2m1 float (OCP Microscaling
/// Formats 1.0).
pub(crate) struct Microscaled;

pub(crate) static IQ4_NL: Encoding = Encoding {
    encode: Some(|from, to| encode(from, to, encode_nonlinear)),
    ..integer_encoding::<18, Nonlinear>("IQ4_NL")
};
pub(crate) static MXFP4: Encoding = Encoding {
    encode: Some(|from, to| encode(from, to, encode_microscaled)),
    ..integer_encoding::<17, Microscaled>("MXFP4")
};
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

    nibble_lanes!(18, 2, half_factors);
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

    #[inline(always)]
    fn places(_: usize, half: usize) -> Option<Places> {
        Some(Places::of(1, 4 * half as u32, 0xf))
    }
}

/// The code of the nearest value, the first of several.
fn nearest(table: &[u8; 16], bias: i32, scale: f32, x: f32) -> u8 {
    let off = |code: u8| ((i32::from(table[usize::from(code)]) - bias) as f32 * scale - x).abs();
    (1..16).fold(0, |best, code| if off(code) < off(best) { code } else { best })
}

/// The largest magnitude becomes the first value. GGML's search finds scales with smaller errors.
fn encode_nonlinear(elements: &[f32; GROUP], block: &mut [u8; 18]) {
    set_half(block, 0, extreme(elements) / (i32::from(VALUES[0]) - Nonlinear::BIAS) as f32);
    let scale = half_at(block, 0);
    set_nibbles(&mut block[2..], elements.map(|x| nearest(&VALUES, Nonlinear::BIAS, scale, x)));
}

/// Like gguf-py: the largest magnitude is from 4 to 8 times the scale.
fn encode_microscaled(elements: &[f32; GROUP], block: &mut [u8; 17]) {
    let exponent = extreme(elements).abs().to_bits() >> 23;
    block[0] = exponent.saturating_sub(2) as u8;
    let half = Microscaled::half(block);
    set_nibbles(&mut block[1..], elements.map(|x| nearest(&TWICE_E2M1, Microscaled::BIAS, half, x)));
}

// A device looks the low three bits of a code up in two tables at once. The high bit selects
// between them; in that format it is the low bit, so that values of one sign are together. The
// codes are in the order of bytes.
coded_block!(
    Nonlinear,
    4,
    2,
    18,
    words::nibbles,
    set_nibbles,
    &[(0x1100_0011, 3), (0xee00_00ee, 31), (0x0000_1100, 11), (0x0000_ee00, 7), (0x0011_0000, 27), (0x00ee_0000, 23),]
);

impl Coded for Microscaled {
    const BITS: usize = 4;
    const GROUPS: usize = 1;
    const BLOCK: usize = 17;
    /// The scale as a bf16.
    const SCALES: usize = 2;
    /// The bits of three of four codes are as far from each other as in bf16.
    const MOVED: &'static [(u32, u32)] = &[
        (0x0007_0007, 6),
        (0x0008_0008, 12),
        (0x0070_0070, 31),
        (0x0080_0080, 5),
        (0x0700_0700, 24),
        (0x0800_0800, 30),
        (0x1000_1000, 1),
        (0x6000_6000, 29),
        (0x8000_8000, 31),
    ];

    fn codes(block: &[u8], _: usize) -> [u8; GROUP] {
        words::nibbles(&block[1..])
    }

    fn set_codes(block: &mut [u8], _: usize, codes: &[u8; GROUP]) {
        set_nibbles(&mut block[1..], *codes);
    }

    fn scales(block: &[u8], scales: &mut [u8]) {
        // 2^-127 is subnormal.
        let bits = if block[0] == 0 { 1 << 6 } else { u16::from(block[0]) << 7 };
        scales.copy_from_slice(&bits.to_le_bytes());
    }

    fn set_scales(block: &mut [u8], scales: &[u8]) {
        block[0] = (u16::from_le_bytes([scales[0], scales[1]]) >> 7) as u8;
    }
}

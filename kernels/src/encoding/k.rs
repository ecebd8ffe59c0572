//! Blocks of 256 elements whose groups have scales of a few bits: Q4_K, Q5_K and Q6_K.

use super::{Blocks, GROUP, affine, encoding, finite, half_at};
use amk::encoding::Encoding;

/// `d: f16, dmin: f16, scales and mins: 12 bytes, quants: 128 bytes`. Each 32 bytes of quants have
/// two groups: the low nibbles, then the high nibbles.
struct Four;

/// `d: f16, dmin: f16, scales and mins: 12 bytes, high bits: 32 bytes, quants: 128 bytes`. As
/// [`Four`]; bit `group` of high byte `i` is the fifth bit of element `i` of that group.
struct Five;

/// `low nibbles: 128 bytes, high pairs of bits: 64 bytes, scales: 16 signed bytes, d: f16`, in two
/// halves of 128 elements. In a half, group `k` takes nibbles from bytes `32 * (k % 2)..`, low for
/// the first two groups and high for the last two, and its upper two bits from bits `2k` of the
/// half's 32 high bytes; each 16 elements have a scale.
struct Six;

static Q4_K: Encoding = encoding::<144, Four>("Q4_K");
static Q5_K: Encoding = encoding::<176, Five>("Q5_K");
static Q6_K: Encoding = encoding::<210, Six>("Q6_K");
amk::encoding!(Q4_K);
amk::encoding!(Q5_K);
amk::encoding!(Q6_K);

/// The 6-bit scale and min of group `group` (0..8), packed in 12 bytes: bytes 0..4 and 4..8 hold
/// scales and mins of groups 0..4 in their low six bits; bytes 8..12 hold the low nibbles of groups
/// 4..8, whose upper two bits are the top bits of bytes 0..8.
#[inline(always)]
fn scale_min(packed: &[u8], group: usize) -> (f32, f32) {
    let (scale, min) = match group {
        0..4 => (packed[group] & 63, packed[group + 4] & 63),
        _ => (
            (packed[group + 4] & 0xf) | (packed[group - 4] >> 6) << 4,
            (packed[group + 4] >> 4) | (packed[group] >> 6) << 4,
        ),
    };
    (f32::from(scale), f32::from(min))
}

/// The factor and the subtrahend of a group.
#[inline(always)]
fn factors(block: &[u8], group: usize) -> (f32, f32) {
    let (scale, min) = scale_min(&block[4..16], group);
    (half_at(block, 0) * scale, half_at(block, 2) * min)
}

/// The nibbles of a group.
#[inline(always)]
fn nibbles(quants: &[u8], group: usize) -> [u8; GROUP] {
    let mut out = [0; GROUP];
    let shift = 4 * (group % 2);
    for (out, byte) in out.iter_mut().zip(&quants[GROUP * (group / 2)..][..GROUP]) {
        *out = byte >> shift & 0xf;
    }
    out
}

impl Blocks<144> for Four {
    const GROUPS: usize = 8;

    #[inline(always)]
    fn group(block: &[u8; 144], group: usize) -> [f32; GROUP] {
        let (scale, min) = factors(block, group);
        // 4 bits times 17: the product is exact, so one rounding is GGML's two.
        affine(nibbles(&block[16..], group), scale, -min)
    }

    fn check(block: &[u8; 144]) -> Result<(), &'static str> {
        finite(block, &[0, 2])
    }
}

impl Blocks<176> for Five {
    const GROUPS: usize = 8;

    #[inline(always)]
    fn group(block: &[u8; 176], group: usize) -> [f32; GROUP] {
        let (scale, min) = factors(block, group);
        let mut quants = nibbles(&block[48..], group);
        for (quant, high) in quants.iter_mut().zip(&block[16..48]) {
            *quant |= (high >> group & 1) << 4;
        }
        // 5 bits times 17: the product is exact, so one rounding is GGML's two.
        affine(quants, scale, -min)
    }

    fn check(block: &[u8; 176]) -> Result<(), &'static str> {
        finite(block, &[0, 2])
    }
}

impl Blocks<210> for Six {
    const GROUPS: usize = 8;

    #[inline(always)]
    fn group(block: &[u8; 210], group: usize) -> [f32; GROUP] {
        let (half, quarter) = (group / 4, group % 4);
        let low = &block[64 * half + GROUP * (quarter % 2)..][..GROUP];
        let high = &block[128 + GROUP * half..][..GROUP];
        let d = half_at(block, 208);
        let scales = [d * f32::from(block[192 + 2 * group] as i8), d * f32::from(block[193 + 2 * group] as i8)];
        let mut out = [0.0; GROUP];
        for (i, out) in out.iter_mut().enumerate() {
            let quant = (low[i] >> (4 * (quarter / 2)) & 0xf) | (high[i] >> (2 * quarter) & 3) << 4;
            *out = scales[i / 16] * (i32::from(quant) - 32) as f32;
        }
        out
    }

    fn check(block: &[u8; 210]) -> Result<(), &'static str> {
        finite(block, &[208])
    }
}

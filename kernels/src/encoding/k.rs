//! Blocks of 256 elements whose groups have scales of a few bits: Q4_K, Q5_K and Q6_K.

use super::lanes::{Place, four_words_at, words_at};
use super::words;
use super::{
    Blocks, Coded, Factors, GROUP, IntegerBlocks, Lanes, Places, ROWS, affine, encode, extreme, finite, half_at,
    integer_encoding, inverse, set_half,
};
use amk::encoding::Encoding;

/// `d: f16, dmin: f16, scales and mins: 12 bytes, quants: 128 bytes`. Each 32 bytes of quants have
/// two groups: the low nibbles, then the high nibbles.
pub(crate) struct Four;

/// `d: f16, dmin: f16, scales and mins: 12 bytes, high bits: 32 bytes, quants: 128 bytes`. As
/// [`Four`]; bit `group` of high byte `i` is the fifth bit of element `i` of that group.
pub(crate) struct Five;

/// `low nibbles: 128 bytes, high pairs of bits: 64 bytes, scales: 16 signed bytes, d: f16`, in two
/// halves of 128 elements. In a half, group `k` takes nibbles from bytes `32 * (k % 2)..`, low for
/// the first two groups and high for the last two, and its upper two bits from bits `2k` of the
/// half's 32 high bytes; each 16 elements have a scale.
pub(crate) struct Six;

pub(crate) static Q4_K: Encoding = Encoding {
    encode: Some(|from, to| encode(from, to, encode_scaled::<144, Four>)),
    ..integer_encoding::<144, Four>("Q4_K")
};
pub(crate) static Q5_K: Encoding = Encoding {
    encode: Some(|from, to| encode(from, to, encode_scaled::<176, Five>)),
    ..integer_encoding::<176, Five>("Q5_K")
};
pub(crate) static Q6_K: Encoding =
    Encoding { encode: Some(|from, to| encode(from, to, encode_six)), ..integer_encoding::<210, Six>("Q6_K") };
amk::encoding!(Q4_K);
amk::encoding!(Q5_K);
amk::encoding!(Q6_K);

/// The 6-bit scale and min of group `group` (0..8), packed in 12 bytes: bytes 0..4 and 4..8 hold
/// scales and mins of groups 0..4 in their low six bits; bytes 8..12 hold the low nibbles of groups
/// 4..8, whose upper two bits are the top bits of bytes 0..8.
#[inline(always)]
fn scale_min(packed: &[u8], group: usize) -> [u8; 2] {
    match group {
        0..4 => [packed[group] & 63, packed[group + 4] & 63],
        _ => [
            (packed[group + 4] & 0xf) | (packed[group - 4] >> 6) << 4,
            (packed[group + 4] >> 4) | (packed[group] >> 6) << 4,
        ],
    }
}

/// Writes scale and min of a group, for groups in order, into bytes that are initially 0.
fn set_scale_min(packed: &mut [u8], group: usize, [scale, min]: [u8; 2]) {
    match group {
        0..4 => (packed[group], packed[group + 4]) = (scale, min),
        _ => {
            packed[group + 4] = scale & 0xf | min << 4;
            packed[group - 4] |= scale >> 4 << 6;
            packed[group] |= min >> 4 << 6;
        }
    }
}

/// The factor and the subtrahend of a group.
#[inline(always)]
fn factors(block: &[u8], group: usize) -> (f32, f32) {
    let [scale, min] = scale_min(&block[4..16], group);
    (half_at(block, 0) * f32::from(scale), half_at(block, 2) * f32::from(min))
}

/// Implements [`Coded`] for blocks with `d`, `dmin` and packed scales: these four bytes, then scale
/// and min of each group.
macro_rules! coded_scaled {
    ($type:ty, $bits:literal, $block:literal) => {
        impl Coded for $type {
            const BITS: usize = $bits;
            const GROUPS: usize = 8;
            const BLOCK: usize = $block;
            const SCALES: usize = 20;
            const OWN: usize = 2;
            const TEAMS: bool = false;

            fn codes(block: &[u8], group: usize) -> [u8; GROUP] {
                let (nibbles, shift) = (&block[Self::NIBBLES + GROUP * (group / 2)..], 4 * (group % 2));
                match $bits {
                    5 => words::both(nibbles, &block[16..], |low, high| {
                        low >> shift & 0x0f0f_0f0f | (high >> group & 0x0101_0101) << 4
                    }),
                    _ => words::each(nibbles, |low| low >> shift & 0x0f0f_0f0f),
                }
            }

            fn set_codes(block: &mut [u8], group: usize, codes: &[u8; GROUP]) {
                let nibbles = Self::NIBBLES + GROUP * (group / 2);
                for (code, byte) in codes.iter().zip(&mut block[nibbles..]) {
                    *byte |= (code & 0xf) << (4 * (group % 2));
                }
                if $bits == 5 {
                    for (code, byte) in codes.iter().zip(&mut block[16..]) {
                        *byte |= (code >> 4) << group;
                    }
                }
            }

            fn scales(block: &[u8], scales: &mut [u8]) {
                scales[..4].copy_from_slice(&block[..4]);
                for (group, pair) in scales[4..].as_chunks_mut().0.iter_mut().enumerate() {
                    *pair = scale_min(&block[4..16], group);
                }
            }

            fn set_scales(block: &mut [u8], scales: &[u8]) {
                block[..4].copy_from_slice(&scales[..4]);
                for (group, &pair) in scales[4..].as_chunks().0.iter().enumerate() {
                    set_scale_min(&mut block[4..16], group, pair);
                }
            }
        }
    };
}
coded_scaled!(Four, 4, 144);
coded_scaled!(Five, 5, 176);

impl Four {
    const NIBBLES: usize = 16;

    #[inline(always)]
    fn quants(block: &[u8], group: usize) -> [u8; GROUP] {
        nibbles(&block[Self::NIBBLES..], group)
    }
}

impl Five {
    const NIBBLES: usize = 48;

    #[inline(always)]
    fn quants(block: &[u8], group: usize) -> [u8; GROUP] {
        let mut quants = nibbles(&block[Self::NIBBLES..], group);
        for (quant, high) in quants.iter_mut().zip(&block[16..48]) {
            *quant |= (high >> group & 1) << 4;
        }
        quants
    }
}

impl Six {
    /// The first nibble and the first upper pair of bits of a group, each with its shift.
    #[inline(always)]
    fn parts(group: usize) -> [(usize, usize); 2] {
        let (half, quarter) = (group / 4, group % 4);
        [(64 * half + GROUP * (quarter % 2), 4 * (quarter / 2)), (128 + GROUP * half, 2 * quarter)]
    }

    #[inline(always)]
    fn quants(block: &[u8], group: usize) -> [u8; GROUP] {
        let [(low, low_shift), (high, high_shift)] = Self::parts(group);
        let (low, high) = (&block[low..][..GROUP], &block[high..][..GROUP]);
        let mut quants = [0; GROUP];
        for (i, quant) in quants.iter_mut().enumerate() {
            *quant = (low[i] >> low_shift & 0xf) | (high[i] >> high_shift & 3) << 4;
        }
        quants
    }
}

/// `d`, then the scales of the halves of each group.
impl Coded for Six {
    const BITS: usize = 6;
    const GROUPS: usize = 8;
    const BLOCK: usize = 210;
    const SCALES: usize = 18;
    const OWN: usize = 2;
    const TEAMS: bool = false;

    fn codes(block: &[u8], group: usize) -> [u8; GROUP] {
        let [(low, low_shift), (high, high_shift)] = Self::parts(group);
        words::both(&block[low..], &block[high..], |low, high| {
            low >> low_shift & 0x0f0f_0f0f | (high >> high_shift & 0x0303_0303) << 4
        })
    }

    fn set_codes(block: &mut [u8], group: usize, codes: &[u8; GROUP]) {
        let [(low, low_shift), (high, high_shift)] = Self::parts(group);
        for (i, code) in codes.iter().enumerate() {
            block[low + i] |= (code & 0xf) << low_shift;
            block[high + i] |= (code >> 4) << high_shift;
        }
    }

    fn scales(block: &[u8], scales: &mut [u8]) {
        scales[..2].copy_from_slice(&block[208..]);
        scales[2..].copy_from_slice(&block[192..208]);
    }

    fn set_scales(block: &mut [u8], scales: &[u8]) {
        block[208..].copy_from_slice(&scales[..2]);
        block[192..208].copy_from_slice(&scales[2..]);
    }
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
        affine(Self::quants(block, group), scale, -min)
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
        // 5 bits times 17: the product is exact, so one rounding is GGML's two.
        affine(Self::quants(block, group), scale, -min)
    }

    fn check(block: &[u8; 176]) -> Result<(), &'static str> {
        finite(block, &[0, 2])
    }
}

impl Blocks<210> for Six {
    const GROUPS: usize = 8;

    #[inline(always)]
    fn group(block: &[u8; 210], group: usize) -> [f32; GROUP] {
        let codes = Self::quants(block, group);
        let scales = <Self as IntegerBlocks<210>>::scales(block, group);
        let mut out = [0.0; GROUP];
        for (i, out) in out.iter_mut().enumerate() {
            *out = scales[i / 16] * (i32::from(codes[i]) - 32) as f32;
        }
        out
    }

    fn check(block: &[u8; 210]) -> Result<(), &'static str> {
        finite(block, &[208])
    }
}

/// The factors of 16 blocks whose first 16 bytes these words are: [`scale_min`] for four groups at
/// a time.
#[inline(always)]
fn scaled_factors<L: Lanes>(lanes: L, words: [L::Ints; 4], factors: &mut [Factors<L::Floats>]) {
    let [both, low, middle, high] = words;
    let [d, dmin] = [lanes.half(both), lanes.negated(lanes.half(lanes.bits(both, 16, 0xffff)))];
    let fours = [
        [lanes.bits(low, 0, 0x3f3f_3f3f), lanes.bits(middle, 0, 0x3f3f_3f3f)],
        [
            lanes.or(lanes.bits(high, 0, 0x0f0f_0f0f), lanes.bits(low, 2, 0x3030_3030)),
            lanes.or(lanes.bits(high, 4, 0x0f0f_0f0f), lanes.bits(middle, 2, 0x3030_3030)),
        ],
    ];
    for (group, factors) in factors.iter_mut().enumerate() {
        let ([scale, min], shift) = (fours[group / 4], 8 * (group as u32 % 4));
        let scale = lanes.times(d, lanes.unsigned(lanes.bits(scale, shift, 0xff)));
        let addend = lanes.times(dmin, lanes.unsigned(lanes.bits(min, shift, 0xff)));
        *factors = Factors { scales: [scale; 2], addend };
    }
}

/// Implements [`IntegerBlocks`] for blocks with `d`, `dmin` and packed scales.
macro_rules! integer_scaled {
    ($type:ty, $most:literal, $block:literal) => {
        impl IntegerBlocks<$block> for $type {
            const MOST: u8 = $most;
            const ADDEND: bool = true;

            #[inline(always)]
            fn codes(block: &[u8; $block], group: usize) -> [u8; GROUP] {
                Self::quants(block, group)
            }

            #[inline(always)]
            fn scales(block: &[u8; $block], group: usize) -> [f32; 2] {
                [factors(block, group).0; 2]
            }

            #[inline(always)]
            fn addend(block: &[u8; $block], group: usize) -> f32 {
                -factors(block, group).1
            }

            #[inline(always)]
            fn places(group: usize, half: usize) -> Option<Places> {
                let (at, shift) = (Self::NIBBLES + GROUP * (group / 2) + 16 * half, 4 * (group % 2) as u32);
                let fifth = Place { at: 16 + 16 * half, shift: group as u32, mask: 1 };
                let high = if $most > 15 { Some((fifth, 4)) } else { None };
                Some(Places { high, ..Places::of(at, shift, 0xf) })
            }

            #[inline(always)]
            fn factors<L: Lanes>(lanes: L, blocks: &[&[u8; $block]; ROWS], factors: &mut [Factors<L::Floats>]) {
                scaled_factors(lanes, four_words_at(lanes, blocks, 0), factors);
            }
        }
    };
}
integer_scaled!(Four, 15, 144);
integer_scaled!(Five, 31, 176);

impl IntegerBlocks<210> for Six {
    const MOST: u8 = 63;
    const BIAS: i32 = 32;
    const HALVES: bool = true;

    #[inline(always)]
    fn codes(block: &[u8; 210], group: usize) -> [u8; GROUP] {
        Self::quants(block, group)
    }

    #[inline(always)]
    fn scales(block: &[u8; 210], group: usize) -> [f32; 2] {
        let d = half_at(block, 208);
        [d * f32::from(block[192 + 2 * group] as i8), d * f32::from(block[193 + 2 * group] as i8)]
    }

    #[inline(always)]
    fn places(group: usize, half: usize) -> Option<Places> {
        let [(low, low_shift), (high, high_shift)] = Self::parts(group);
        let high = Place { at: high + 16 * half, shift: high_shift as u32, mask: 3 };
        Some(Places { high: Some((high, 4)), ..Places::of(low + 16 * half, low_shift as u32, 0xf) })
    }

    #[inline(always)]
    fn factors<L: Lanes>(lanes: L, blocks: &[&[u8; 210]; ROWS], factors: &mut [Factors<L::Floats>]) {
        let words = four_words_at(lanes, blocks, 192);
        let d = lanes.half(lanes.bits(words_at(lanes, blocks, 206), 16, 0xffff));
        for (group, factors) in factors.iter_mut().enumerate() {
            let (pairs, shift) = (words[group / 2], 16 * (group as u32 % 2));
            let first = lanes.times(d, lanes.signed_byte(pairs, shift));
            let last = lanes.times(d, lanes.signed_byte(pairs, shift + 8));
            *factors = Factors { scales: [first, last], addend: d };
        }
    }
}

/// Rounds to the nearest values of a block whose groups range from their smallest element, or 0, to
/// their largest. GGML searches for scales with smaller squared errors.
fn encode_scaled<const BYTES: usize, B: Coded>(elements: &[f32; 256], block: &mut [u8; BYTES]) {
    let most = f32::from((1u8 << B::BITS) - 1);
    let groups = elements.as_chunks::<GROUP>().0;
    let reach = |group: &[f32; GROUP]| {
        let (low, high) = group.iter().fold((0f32, f32::MIN), |(low, high), &x| (low.min(x), high.max(x)));
        [(high - low).max(0.0) / most, -low]
    };
    let reaches: Vec<[f32; 2]> = groups.iter().map(reach).collect();
    let largest = |of: usize| reaches.iter().fold(0f32, |largest, reach| largest.max(reach[of]));
    block.fill(0);
    set_half(block, 0, largest(0) / 63.0);
    set_half(block, 2, largest(1) / 63.0);
    let [d, dmin] = [0, 2].map(|at| half_at(block, at));
    for (number, (group, reach)) in groups.iter().zip(&reaches).enumerate() {
        let [scale, min] = [reach[0] * inverse(d), reach[1] * inverse(dmin)].map(|x| x.round().min(63.0) as u8);
        set_scale_min(&mut block[4..16], number, [scale, min]);
        let (step, min) = (inverse(d * f32::from(scale)), dmin * f32::from(min));
        B::set_codes(block, number, &group.map(|x| ((x + min) * step).round().clamp(0.0, most) as u8));
    }
}

/// Rounds to the nearest values of a block whose scales are set by the largest magnitude of each 16
/// elements.
fn encode_six(elements: &[f32; 256], block: &mut [u8; 210]) {
    let halves = elements.as_chunks::<16>().0;
    let reach = |half: &[f32; 16]| extreme(half) / -32.0;
    let largest = extreme(&halves.iter().map(reach).collect::<Vec<_>>());
    block.fill(0);
    set_half(block, 208, largest / -128.0);
    let d = half_at(block, 208);
    for (at, half) in halves.iter().enumerate() {
        block[192 + at] = (reach(half) * inverse(d)).round().clamp(-128.0, 127.0) as i8 as u8;
    }
    for (number, group) in elements.as_chunks::<GROUP>().0.iter().enumerate() {
        let mut codes = [0; GROUP];
        for (i, code) in codes.iter_mut().enumerate() {
            let step = d * f32::from(block[192 + 2 * number + i / 16] as i8);
            *code = ((group[i] * inverse(step)).round().clamp(-32.0, 31.0) + 32.0) as u8;
        }
        Six::set_codes(block, number, &codes);
    }
}

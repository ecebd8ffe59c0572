//! Decoders of the block encodings, one block at a time.
//!
//! Layouts and arithmetic follow GGML (llama.cpp, `ggml-common.h` and the `dequantize_row_*`
//! functions of `ggml-quants.c`): little endian; `d`, `m` and `dmin` are binary16; products are
//! formed in f32 in GGML's order, so decoded values are bit-identical to GGML's.

use half::{bf16, f16};

use super::Encoding;

/// Decodes whole blocks of `encoding` from `bytes` into `out`.
///
/// # Panics
/// When `out` and `bytes` do not hold the same whole number of blocks, or for [`Encoding::Other`].
pub(super) fn decode(encoding: Encoding, bytes: &[u8], out: &mut [f32]) {
    assert_eq!(encoding.byte_len(out.len()), Some(bytes.len()), "{encoding} blocks of {} elements", out.len());
    match encoding {
        Encoding::F32 => {
            each_block(bytes, out, |block: &[u8; 4], out: &mut [f32; 1]| out[0] = f32::from_le_bytes(*block))
        }
        Encoding::F16 => each_block(bytes, out, |block: &[u8; 2], out: &mut [f32; 1]| out[0] = half_at(block, 0)),
        Encoding::Bf16 => each_block(bytes, out, |block: &[u8; 2], out: &mut [f32; 1]| {
            out[0] = bf16::from_le_bytes(*block).to_f32();
        }),
        Encoding::Q4_0 => each_block(bytes, out, q4_0),
        Encoding::Q4_1 => each_block(bytes, out, q4_1),
        Encoding::Q5_0 => each_block(bytes, out, q5_0),
        Encoding::Q5_1 => each_block(bytes, out, q5_1),
        Encoding::Q8_0 => each_block(bytes, out, q8_0),
        Encoding::Q4K => each_block(bytes, out, q4_k),
        Encoding::Q5K => each_block(bytes, out, q5_k),
        Encoding::Q6K => each_block(bytes, out, q6_k),
        Encoding::Other(name) => panic!("{name} is not decoded"),
    }
}

fn each_block<const BYTES: usize, const LEN: usize>(
    bytes: &[u8],
    out: &mut [f32],
    decode_block: impl Fn(&[u8; BYTES], &mut [f32; LEN]),
) {
    for (block, out) in bytes.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
        decode_block(block, out);
    }
}

/// The binary16 at byte `at`.
fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// `d: f16, quants: 16 bytes`; the low nibble of byte `i` is element `i`, the high nibble element
/// `i + 16`.
fn q4_0(block: &[u8; 18], out: &mut [f32; 32]) {
    let d = half_at(block, 0);
    for (i, &byte) in block[2..].iter().enumerate() {
        out[i] = (i32::from(byte & 0xf) - 8) as f32 * d;
        out[i + 16] = (i32::from(byte >> 4) - 8) as f32 * d;
    }
}

/// `d: f16, m: f16, quants: 16 bytes`, nibbles as in Q4_0.
fn q4_1(block: &[u8; 20], out: &mut [f32; 32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    for (i, &byte) in block[4..].iter().enumerate() {
        out[i] = f32::from(byte & 0xf) * d + m;
        out[i + 16] = f32::from(byte >> 4) * d + m;
    }
}

/// The 5-bit quants of a block: nibbles as in Q4_0, bit `i` of `high` is the fifth bit of element
/// `i`.
fn five_bit(high: u32, nibbles: &[u8], mut element: impl FnMut(usize, u8)) {
    for (i, &byte) in nibbles.iter().enumerate() {
        element(i, (byte & 0xf) | (((high >> i) & 1) as u8) << 4);
        element(i + 16, (byte >> 4) | (((high >> (i + 16)) & 1) as u8) << 4);
    }
}

/// `d: f16, high bits: u32, quants: 16 bytes`.
fn q5_0(block: &[u8; 22], out: &mut [f32; 32]) {
    let d = half_at(block, 0);
    let high = u32::from_le_bytes([block[2], block[3], block[4], block[5]]);
    five_bit(high, &block[6..], |i, q| out[i] = (i32::from(q) - 16) as f32 * d);
}

/// `d: f16, m: f16, high bits: u32, quants: 16 bytes`.
fn q5_1(block: &[u8; 24], out: &mut [f32; 32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    let high = u32::from_le_bytes([block[4], block[5], block[6], block[7]]);
    five_bit(high, &block[8..], |i, q| out[i] = f32::from(q) * d + m);
}

/// `d: f16, quants: 32 signed bytes`.
fn q8_0(block: &[u8; 34], out: &mut [f32; 32]) {
    let d = half_at(block, 0);
    for (out, &q) in out.iter_mut().zip(&block[2..]) {
        *out = f32::from(q as i8) * d;
    }
}

/// The 6-bit scale and min of group `group` (0..8), packed in 12 bytes: bytes 0..4 and 4..8 hold
/// scales and mins of groups 0..4 in their low six bits; bytes 8..12 hold the low nibbles of groups
/// 4..8, whose upper two bits are the top bits of bytes 0..8.
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

/// `d: f16, dmin: f16, scales and mins: 12 bytes, quants: 128 bytes`. Each 32 bytes of quants hold
/// two groups of 32: the low nibbles, then the high nibbles.
fn q4_k(block: &[u8; 144], out: &mut [f32; 256]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    let (packed, quants) = (&block[4..16], &block[16..]);
    for (group, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, min) = scale_min(packed, group);
        let (scale, min) = (d * scale, dmin * min);
        let shift = 4 * (group % 2);
        for (out, &byte) in out.iter_mut().zip(&quants[32 * (group / 2)..]) {
            *out = scale * f32::from((byte >> shift) & 0xf) - min;
        }
    }
}

/// `d: f16, dmin: f16, scales and mins: 12 bytes, high bits: 32 bytes, quants: 128 bytes`. As Q4_K;
/// bit `group` of high byte `i` is the fifth bit of element `i` of that group.
fn q5_k(block: &[u8; 176], out: &mut [f32; 256]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    let (packed, high, quants) = (&block[4..16], &block[16..48], &block[48..]);
    for (group, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, min) = scale_min(packed, group);
        let (scale, min) = (d * scale, dmin * min);
        let shift = 4 * (group % 2);
        for ((out, &byte), &high) in out.iter_mut().zip(&quants[32 * (group / 2)..]).zip(high) {
            let q = ((byte >> shift) & 0xf) | ((high >> group) & 1) << 4;
            *out = scale * f32::from(q) - min;
        }
    }
}

/// `low nibbles: 128 bytes, high pairs of bits: 64 bytes, scales: 16 signed bytes, d: f16`, in two
/// halves of 128 elements. In a half, quarter `k` (32 elements) takes nibbles from bytes
/// `32 * (k % 2)..`, low for the first two quarters and high for the last two, and its upper two
/// bits from bits `2k` of the half's 32 high bytes; each 16 elements have a scale.
fn q6_k(block: &[u8; 210], out: &mut [f32; 256]) {
    let d = half_at(block, 208);
    for (half, out) in out.as_chunks_mut::<128>().0.iter_mut().enumerate() {
        let low = &block[64 * half..][..64];
        let high = &block[128 + 32 * half..][..32];
        let scales = &block[192 + 8 * half..][..8];
        for (i, out) in out.iter_mut().enumerate() {
            let (quarter, at) = (i / 32, i % 32);
            let nibble = (low[32 * (quarter % 2) + at] >> (4 * (quarter / 2))) & 0xf;
            let q = nibble | ((high[at] >> (2 * quarter)) & 3) << 4;
            *out = d * f32::from(scales[i / 16] as i8) * (i32::from(q) - 32) as f32;
        }
    }
}

#[cfg(test)]
#[path = "block_tests.rs"]
mod tests;

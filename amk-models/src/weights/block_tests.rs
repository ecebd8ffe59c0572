//! Block decoders against gguf-py (`gguf.quants.dequantize`, gguf 0.19.0): the same bytes, the same
//! bits.

use half::f16;

use super::*;

/// Byte `i` is `31 i² + 73 i + 11 mod 256`, with the given binary16 values written over it.
fn block(len: usize, halves: &[(usize, f32)]) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|i| ((i * i * 31 + i * 73 + 11) % 256) as u8).collect();
    for &(at, value) in halves {
        bytes[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
    }
    bytes
}

/// FNV-1a of the decoded values' bytes.
fn hash(values: &[f32]) -> u64 {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[track_caller]
fn check(encoding: Encoding, halves: &[(usize, f32)], first_and_last: [f32; 2], expected: u64) {
    let bytes = block(encoding.block_bytes().unwrap(), halves);
    let mut out = vec![f32::NAN; encoding.block_len()];
    decode(encoding, &bytes, &mut out);
    // Two values first: they say more than a hash when a decoder is wrong.
    assert_eq!([out[0], out[out.len() - 1]], first_and_last);
    assert_eq!(hash(&out), expected, "{encoding}: {out:?}");
}

const D: (usize, f32) = (0, 0.37);
const M: (usize, f32) = (2, -1.9);

#[test]
fn q4_0_decodes_as_gguf_py() {
    check(Encoding::Q4_0, &[D], [0.370_117_2, 2.220_703_1], 0x92c8_58c8_6223_9f97);
}

#[test]
fn q4_1_decodes_as_gguf_py() {
    check(Encoding::Q4_1, &[D, M], [3.651_367_2, -1.160_156_2], 0x98f1_9e35_5e03_50a7);
}

#[test]
fn q5_0_decodes_as_gguf_py() {
    check(Encoding::Q5_0, &[D], [4.811_523_4, -3.701_171_9], 0xe329_87ca_41dc_f09a);
}

#[test]
fn q5_1_decodes_as_gguf_py() {
    check(Encoding::Q5_1, &[D, M], [5.131_836, 7.722_656_2], 0x7463_0068_41c7_f600);
}

#[test]
fn q8_0_decodes_as_gguf_py() {
    check(Encoding::Q8_0, &[D], [9.252_93, 30.719_727], 0xc982_618f_db14_9118);
}

#[test]
fn q4_k_decodes_as_gguf_py() {
    check(Encoding::Q4K, &[D, M], [162.317_38, 126.458_01], 0x0c92_d8a9_58d3_3d12);
}

#[test]
fn q5_k_decodes_as_gguf_py() {
    check(Encoding::Q5K, &[D, M], [345.895_5, 525.444_34], 0xa536_4ee6_ae40_7ef4);
}

#[test]
fn q6_k_decodes_as_gguf_py() {
    check(Encoding::Q6K, &[(208, 0.37)], [-529.637_7, 452.283_2], 0xe127_6917_4293_875e);
}

#[test]
fn plain_floats_decode_at_any_alignment() {
    let mut out = [0.0; 2];
    decode(Encoding::F32, &[0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0], &mut out);
    assert_eq!(out, [1.0, -2.0]);
    decode(Encoding::F16, &[0, 0x3c, 0, 0xc0], &mut out);
    assert_eq!(out, [1.0, -2.0]);
    decode(Encoding::Bf16, &[0x80, 0x3f, 0, 0xc0], &mut out);
    assert_eq!(out, [1.0, -2.0]);
}

//! Helpers shared by the tests of the instructions.

use amk::Encoding;

/// Returns pseudo-random numbers in -1..1 from a seed.
pub(crate) fn random(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Asserts that each element is within `tolerance` of the exact one, relative to 1 or to its size.
#[track_caller]
pub(crate) fn close(found: &[f32], exact: &[f64], tolerance: f64) {
    assert_eq!(found.len(), exact.len());
    for (i, (found, exact)) in found.iter().zip(exact).enumerate() {
        let error = (f64::from(*found) - exact).abs();
        assert!(error <= tolerance * exact.abs().max(1.0), "element {i}: {found} instead of {exact}");
    }
}

/// Random blocks whose scales are finite.
pub(crate) fn random_blocks(seed: u64, encoding: &Encoding, count: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    let mut bytes = Vec::new();
    while bytes.len() < count * encoding.bytes {
        let block: Vec<u8> = (0..encoding.bytes).map(|_| next()).collect();
        if encoding.check_blocks(&block).is_ok() {
            bytes.extend(block);
        }
    }
    bytes
}

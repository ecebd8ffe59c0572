//! Rounding inputs to bytes.

use amk::tensor::Q8Block;

/// The blocks of vectors whose lengths are whole blocks.
///
/// # Panics
/// If the elements are not whole blocks.
pub(crate) fn rounded(xs: &[f32]) -> Vec<Q8Block> {
    let (blocks, rest) = xs.as_chunks();
    assert!(rest.is_empty(), "{} inputs are not whole blocks of {}", xs.len(), Q8Block::LEN);
    let mut out = vec![Q8Block { scale: 0.0, sums: [0; 2], codes: [0; Q8Block::LEN] }; blocks.len()];
    #[cfg(target_arch = "x86_64")]
    {
        if super::avx512::is_there() {
            // SAFETY: the processor supports the function's target features.
            unsafe { round_avx512(blocks, &mut out) };
            return out;
        }
        if super::avx2::is_there() {
            // SAFETY: the processor supports the function's target features.
            unsafe { round_avx2(blocks, &mut out) };
            return out;
        }
    }
    round(blocks, &mut out);
    out
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn round_avx512(blocks: &[[f32; Q8Block::LEN]], out: &mut [Q8Block]) {
    round(blocks, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn round_avx2(blocks: &[[f32; Q8Block::LEN]], out: &mut [Q8Block]) {
    round(blocks, out);
}

/// The integers from here on are one step of f32 apart.
const ROUND: f32 = 12_582_912.0;

#[inline(always)]
fn round(blocks: &[[f32; Q8Block::LEN]], out: &mut [Q8Block]) {
    for (block, out) in blocks.iter().zip(out) {
        // As bits, where NaN is larger than all numbers.
        let mut most = 0;
        for x in block {
            most = most.max(x.abs().to_bits());
        }
        let most = f32::from_bits(most);
        let scale = most / 127.0;
        if scale < f32::MIN_POSITIVE {
            continue;
        }
        if !scale.is_finite() {
            out.scale = f32::NAN;
            continue;
        }
        let inverse = 127.0 / most;
        let mut codes = [0; Q8Block::LEN];
        for (code, x) in codes.iter_mut().zip(block) {
            // Adding leaves the nearest integer in the lowest bits.
            *code = (x * inverse + ROUND).to_bits() as i32 - ROUND.to_bits() as i32;
        }
        for (to, code) in out.codes.iter_mut().zip(codes) {
            *to = code as i8;
        }
        for (sum, codes) in out.sums.iter_mut().zip(codes.as_chunks::<16>().0) {
            for code in codes {
                *sum += code;
            }
        }
        out.scale = scale;
    }
}

//! The softmax of scores, with the widest vector registers of the machine.
//!
//! The order of rounding is fixed, so a result does not depend on the machine: element `i` is added
//! to lane `i mod 16`, then lanes 8, 4, 2 and 1 apart are added.

use crate::dot::Level;

const LANES: usize = 16;

/// Replaces each score `s` by its share `exp(s - max) / sum` of the sum of exponentials, and
/// returns the logarithm of the sum.
pub(super) fn softmax(scores: &mut [f32]) -> f32 {
    match Level::best() {
        // SAFETY: the processor supports the function's target features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { softmax_avx512(scores) },
        // SAFETY: the processor supports the function's target features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { softmax_avx2(scores) },
        Level::Plain => softmax_of(scores),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn softmax_avx512(scores: &mut [f32]) -> f32 {
    softmax_of(scores)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn softmax_avx2(scores: &mut [f32]) -> f32 {
    softmax_of(scores)
}

#[inline(always)]
fn softmax_of(scores: &mut [f32]) -> f32 {
    let max = largest(scores);
    let mut sums = [0.0f32; LANES];
    let (chunks, rest) = scores.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for (score, sum) in chunk.iter_mut().zip(&mut sums) {
            *score = exponential(*score - max);
            *sum += *score;
        }
    }
    for (score, sum) in rest.iter_mut().zip(&mut sums) {
        *score = exponential(*score - max);
        *sum += *score;
    }
    for half in [8, 4, 2, 1] {
        for lane in 0..half {
            sums[lane] += sums[lane + half];
        }
    }
    // At least 1: the largest score gives exp(0).
    let norm = 1.0 / sums[0];
    for score in scores {
        *score *= norm;
    }
    max + sums[0].ln()
}

/// The largest score that is a number.
#[inline(always)]
fn largest(scores: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = scores.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, score) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, *score);
        }
    }
    for (lane, score) in lanes.iter_mut().zip(rest) {
        *lane = larger(*lane, *score);
    }
    lanes.into_iter().fold(f32::NEG_INFINITY, larger)
}

/// `exp(x)` of a number that is not above 0, within 2 units in the last place; 0 if it is not a
/// normal number. Source: Moshier, Cephes, `expf`.
#[inline(always)]
fn exponential(x: f32) -> f32 {
    /// Adding it to a number leaves the nearest integer in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    /// The logarithm of the least normal number.
    const LEAST: f32 = -87.336_54;
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    const TERMS: [f32; 6] = [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_6e-1, 0.5];
    let shifted = x.mul_add(core::f32::consts::LOG2_E, ROUND);
    let power = shifted - ROUND;
    let rest = power.mul_add(-LN_2[1], power.mul_add(-LN_2[0], x));
    let mut sum = TERMS[0];
    for term in &TERMS[1..] {
        sum = sum.mul_add(rest, *term);
    }
    let sum = (sum * rest).mul_add(rest, rest) + 1.0;
    let two_to_power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    if x < LEAST { 0.0 } else { sum * two_to_power }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random;

    #[test]
    fn exponentials_are_within_two_units_in_the_last_place() {
        for step in 0..=87_000 {
            let x = step as f32 / -1000.0;
            let (found, exact) = (exponential(x), f64::from(x).exp());
            let error = (f64::from(found) - exact).abs() / exact;
            assert!(error < 2.0 * f64::from(f32::EPSILON), "exp({x}) is {found} instead of {exact}");
        }
        assert_eq!([0.0, -87.4, f32::MIN, f32::NEG_INFINITY].map(exponential), [1.0, 0.0, 0.0, 0.0]);
        assert!(exponential(f32::NAN).is_nan());
    }

    #[test]
    fn all_registers_give_the_same_bits() {
        let bits = |softmax: fn(&mut [f32]) -> f32, len| {
            let mut scores: Vec<f32> = random(len as u64, len).iter().map(|x| 30.0 * x).collect();
            let sum = softmax(&mut scores);
            scores.iter().chain([&sum]).map(|x| x.to_bits()).collect::<Vec<_>>()
        };
        for len in [1, 2, 15, 16, 17, 64, 1000] {
            assert_eq!(bits(softmax, len), bits(softmax_of, len), "{len} scores");
            #[cfg(target_arch = "x86_64")]
            if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
                // SAFETY: the processor supports the function's target features.
                assert_eq!(bits(|scores| unsafe { softmax_avx2(scores) }, len), bits(softmax_of, len), "{len} scores");
            }
        }
    }

    #[test]
    fn scores_that_are_no_numbers_are_seen() {
        let mut scores = [0.0, f32::NAN, 1.0];
        softmax(&mut scores);
        assert!(scores.iter().all(|share| share.is_nan()));
    }
}

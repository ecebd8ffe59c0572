//! Philox4x32-10, a counter-based random number generator (Salmon et al. 2011, "Parallel random
//! numbers: as easy as 1, 2, 3", section 3.3 and table 2).
//!
//! A number is a function of key and counter, so any thread computes any number without state: the
//! key is the seed, the counter is the step and the token. Its 32-bit multiplications are as cheap
//! on a GPU, where the same function yields the same words.

/// The two multipliers.
const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
/// Increments of the two key words after each round.
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
const ROUNDS: usize = 10;

/// Four random words for a counter under a key.
pub fn philox4x32_10(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let [high0, low0] = multiply(MULTIPLIERS[0], counter[0]);
        let [high1, low1] = multiply(MULTIPLIERS[1], counter[2]);
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// Upper and lower half of the product.
fn multiply(a: u32, b: u32) -> [u32; 2] {
    let product = u64::from(a) * u64::from(b);
    [(product >> 32) as u32, product as u32]
}

/// The random word of token `token` at step `step`: lane `token % 4` of counter
/// `(token / 4, 0, step)` under the key `seed`, both 64-bit numbers split into low and high words.
pub fn word(seed: u64, step: u64, token: u32) -> u32 {
    let counter = [token / 4, 0, step as u32, (step >> 32) as u32];
    philox4x32_10(counter, [seed as u32, (seed >> 32) as u32])[token as usize % 4]
}

/// A standard exponential number, `-ln(1 - v)` with `v = (word + 1/2) / 2^32`, computed in f32 and
/// always positive and finite.
pub fn exponential(seed: u64, step: u64, token: u32) -> f32 {
    const LARGEST_BELOW_1: f32 = 1.0 - f32::EPSILON / 2.0;
    let v = (word(seed, step, token) as f32 + 0.5) * (-32.0_f32).exp2();
    -(-v.min(LARGEST_BELOW_1)).ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers of the authors' Random123 library (`kat_vectors`, philox4x32 with 10
    /// rounds).
    #[test]
    fn words_are_the_published_ones() {
        assert_eq!(philox4x32_10([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox4x32_10([!0; 4], [!0; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox4x32_10([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn exponentials_have_mean_and_variance_one() {
        let draws: Vec<f64> = (0..200_000).map(|token| exponential(7, 3, token).into()).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|draw| (draw - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        // Standard errors are 0.0022 and 0.0063.
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
        assert!((variance - 1.0).abs() < 0.03, "{variance}");
        assert!(draws.iter().all(|draw| draw.is_finite() && *draw > 0.0));
    }

    #[test]
    fn seeds_steps_and_tokens_are_independent_words() {
        let words =
            [word(1, 0, 0), word(2, 0, 0), word(1 << 32, 0, 0), word(1, 1, 0), word(1, 1 << 32, 0), word(1, 0, 1)];
        for (i, a) in words.iter().enumerate() {
            assert!(!words[i + 1..].contains(a), "{words:x?}");
        }
    }
}

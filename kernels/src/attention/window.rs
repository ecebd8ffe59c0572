//! Attention over the last positions, and with capped scores.

use super::attend;
use amk::prelude::*;
use core::ops::Range;

/// [`attention`](super::attention) over the last `window` positions, `pos - window + 1..=pos`, or
/// all if there are fewer.
///
/// `q: [Q]` f32 of `H = Q / D` heads; `k: [G, C, D]`, `v: [G, C, D]` f32; `y: [Q]` f32. Source:
/// Beltagy et al., Longformer, 2020, section 3.1; `sliding_window` of `MistralAttention`.
///
/// # Panics
/// If the shapes do not match or the position is outside the cache.
#[instruction(
    op = "window_attention",
    shape = "q: [Q], k: [G, C, D], v: [G, C, D], window: W -> y: [Q]",
    multiples = "Q % D, Q / D % G",
    task = "h in 0..Q step D: y[h..h+D] <- q[h..h+D], k[h*G/Q..h*G/Q+1, max(0, pos-W+1)..pos+1, ..], \
            v[h*G/Q..h*G/Q+1, max(0, pos-W+1)..pos+1, ..]",
    cuda = "body.cuh"
)]
pub fn window_attention(q: &Tensor, k: &State, v: &State, scale: f32, window: usize, pos: Pos) -> Tensor {
    attend(q, k, v, last(window, pos), |scores| scores.iter_mut().for_each(|score| *score *= scale))
}

/// [`window_attention`] with scores between `-cap` and `cap`: `cap * tanh(scale * q . k[t] / cap)`.
///
/// `q: [Q]` f32 of `H = Q / D` heads; `k: [G, C, D]`, `v: [G, C, D]` f32; `cap` above 0; `y: [Q]`
/// f32. Source: Gemma Team, Gemma 2, 2024, section 2; `attn_logit_softcapping`.
///
/// # Panics
/// If the shapes do not match or the position is outside the cache.
#[instruction(
    op = "capped_attention",
    shape = "q: [Q], k: [G, C, D], v: [G, C, D], window: W -> y: [Q]",
    multiples = "Q % D, Q / D % G",
    task = "h in 0..Q step D: y[h..h+D] <- q[h..h+D], k[h*G/Q..h*G/Q+1, max(0, pos-W+1)..pos+1, ..], \
            v[h*G/Q..h*G/Q+1, max(0, pos-W+1)..pos+1, ..]",
    cuda = "body.cuh"
)]
pub fn capped_attention(q: &Tensor, k: &State, v: &State, scale: f32, cap: f32, window: usize, pos: Pos) -> Tensor {
    attend(q, k, v, last(window, pos), |scores| scores.iter_mut().for_each(|score| *score = capped(*score, scale, cap)))
}

/// The bounded score of an inner product.
pub(super) fn capped(product: f32, scale: f32, cap: f32) -> f32 {
    cap * (scale * product / cap).tanh()
}

/// The last `window` positions up to `pos`.
pub(super) fn last(window: usize, pos: Pos) -> Range<usize> {
    let end = pos.index() + 1;
    end.saturating_sub(window)..end
}

#[cfg(test)]
mod tests {
    use super::super::attention;
    use super::*;
    use crate::testing::{close, random};

    fn caches(positions: usize) -> [State; 2] {
        let dims = 4;
        [1, 2].map(|seed| {
            let mut cache = State::zeros(&[2, positions, dims]).unwrap();
            for (at, row) in random(seed, 2 * positions * dims).chunks(dims).enumerate() {
                cache.row_mut([at / positions, at % positions]).copy_from_slice(row);
            }
            cache
        })
    }

    #[test]
    fn a_window_that_holds_all_positions_is_attention() {
        let [k, v] = caches(9);
        let q = Tensor::from(random(3, 16));
        for pos in 0..9 {
            let whole = attention(&q, &k, &v, 0.5, Pos(pos));
            assert_eq!(window_attention(&q, &k, &v, 0.5, 9, Pos(pos)).data(), whole.data());
            let open = capped_attention(&q, &k, &v, 0.5, 1e4, 100, Pos(pos));
            close(open.data(), &whole.data().iter().map(|&y| f64::from(y)).collect::<Vec<_>>(), 1e-4);
        }
    }

    #[test]
    fn positions_before_the_window_do_not_count() {
        let [mut k, mut v] = caches(9);
        let q = Tensor::from(random(3, 16));
        let before = window_attention(&q, &k, &v, 0.5, 3, Pos(7));
        for at in [0, 4, 8] {
            k.row_mut([0, at]).fill(9.0);
            v.row_mut([1, at]).fill(-9.0);
        }
        assert_eq!(window_attention(&q, &k, &v, 0.5, 3, Pos(7)).data(), before.data());
        k.row_mut([0, 5]).fill(9.0);
        assert_ne!(window_attention(&q, &k, &v, 0.5, 3, Pos(7)).data(), before.data());
    }

    #[test]
    fn capped_scores_have_a_bound() {
        let (mut k, mut v) = (State::zeros(&[1, 2, 1]).unwrap(), State::zeros(&[1, 2, 1]).unwrap());
        k.row_mut([0, 1])[0] = 1000.0;
        v.row_mut([0, 1])[0] = 1.0;
        // The scores are 0 and the cap.
        let y = capped_attention(&Tensor::from([1.0]), &k, &v, 1.0, 2.0, 2, Pos(1));
        close(y.data(), &[1.0 / (1.0 + (-2f64).exp())], 1e-6);
    }
}

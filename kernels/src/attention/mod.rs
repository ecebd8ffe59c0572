//! Attention of one query position over the cache.

mod decode;
mod decode_rows;
mod division;
mod form;
mod formula;
pub(crate) mod group;
mod part;
mod phase;
mod rows;
mod softmax;
mod split;
mod window;

pub(crate) use decode::{JOIN, SPLIT};
pub(crate) use decode_rows::{APPEND, ATTEND_ROWS, BLOCK_PARTS, JOIN_PARTS, JOIN_ROWS, PARTS, copies, step_rows};
pub(crate) use division::block;
pub use form::{AttentionForm, RotaryTable};
pub(crate) use form::{cache_of, defines};
pub(crate) use group::Attentions;
pub use part::{attention_part, capped_attention_part};
pub use phase::{Attend, BLOCK, Combine, LayerBuffers, Partials, SLICE};
pub use rows::{Append, AttendRows, BlockParts, JoinParts, JoinRows, Parts};
pub use split::{
    attention_split, capped_attention_split, combine_splits, normed_attention_split, unturned_attention_split,
};
pub use window::{capped_attention, window_attention};

use crate::dot::{combine, products};
use amk::prelude::*;
use amk::tensor::Row;
use core::ops::Range;
use softmax::softmax;

/// Grouped-query attention: for each query head `h` and its key/value head `g = h * G / H`
///
/// ```text
/// s[t] = scale * sum over d of q[h, d] * k[g, t, d]      for t in 0..=pos
/// y[h, d] = sum over t of exp(s[t] - max s) * v[g, t, d] / sum over t of exp(s[t] - max s)
/// ```
///
/// `q: [Q]` f32 of `H = Q / D` heads; `k: [G, C, D]`, `v: [G, C, D]` f32, of which positions
/// `0..=pos` are read; `scale` is `1 / sqrt(D)` in most models; `y: [Q]` f32. Source: Ainslie et
/// al., GQA, 2023; Vaswani et al., Attention Is All You Need, 2017, section 3.2.1.
///
/// # Panics
/// If the shapes do not match or the position is outside the cache.
#[instruction(
    op = "attention",
    shape = "q: [Q], k: [G, C, D], v: [G, C, D] -> y: [Q]",
    multiples = "Q % D, Q / D % G",
    task = "h in 0..Q step D: y[h..h+D] <- q[h..h+D], k[h*G/Q..h*G/Q+1, 0..pos+1, ..], v[h*G/Q..h*G/Q+1, 0..pos+1, ..]",
    cuda = "body.cuh"
)]
pub fn attention(q: &Tensor, k: &State, v: &State, scale: f32, pos: Pos) -> Tensor {
    attend(q, k, v, 0..pos.index() + 1, |scores| scores.iter_mut().for_each(|score| *score *= scale))
}

/// Attention over some positions, with scores that `finish` computes from the inner products.
fn attend(q: &Tensor, k: &State, v: &State, positions: Range<usize>, finish: impl Fn(&mut [f32])) -> Tensor {
    let &[groups, _, dim] = k.shape() else { panic!("attention over a cache of shape {:?}", k.shape()) };
    let heads = q.len() / dim.max(1);
    assert!(
        k.shape() == v.shape() && q.len() == heads * dim && groups > 0 && heads.is_multiple_of(groups),
        "attention of q: [{}] over k: {:?} and v: {:?}",
        q.len(),
        k.shape(),
        v.shape()
    );
    let mut y = vec![0.0; q.len()];
    let mut weights = vec![0.0; positions.len()];
    for (head, (q, y)) in q.data().chunks_exact(dim).zip(y.chunks_exact_mut(dim)).enumerate() {
        let group = head * groups / heads;
        scores(q, k.runs([group], positions.clone()), &mut weights);
        finish(&mut weights);
        softmax(&mut weights);
        combine(&weights, v.runs([group], positions.clone()), y);
    }
    Tensor::from(y)
}

/// The inner products of a query with keys, which come in runs of several.
fn scores<'k>(q: &[f32], keys: impl Iterator<Item = &'k [f32]>, out: &mut [f32]) {
    let mut rest = out;
    for keys in keys {
        let (scores, after) = rest.split_at_mut(keys.len() / q.len());
        products(q, Row::F32(keys), q.len(), scores);
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{close, random};
    use proptest::prelude::*;

    fn cache(seed: u64, groups: usize, context: usize, dim: usize) -> (State, Vec<f32>) {
        let mut state = State::zeros(&[groups, context, dim]).unwrap();
        let data = random(seed, groups * context * dim);
        for (row, values) in data.chunks(dim).enumerate() {
            state.row_mut([row / context, row % context]).copy_from_slice(values);
        }
        (state, data)
    }

    /// One head in f64. `k` and `v` are the cache's rows from this head on.
    fn naive(q: &[f32], k: &[f32], v: &[f32], scale: f64, positions: usize) -> Vec<f64> {
        let dim = q.len();
        let product = |row: &[f32]| q.iter().zip(row).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        let scores: Vec<f64> = k.chunks(dim).take(positions).map(|row| scale * product(row)).collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().map(|s| (s - max).exp()).sum();
        let mut y = vec![0.0; dim];
        for (s, row) in scores.iter().zip(v.chunks(dim)) {
            y.iter_mut().zip(row).for_each(|(y, v)| *y += (s - max).exp() / sum * f64::from(*v));
        }
        y
    }

    proptest! {
        #[test]
        fn equals_the_formula_in_f64(
            groups in 1usize..4, each in 1usize..4, dim in 1usize..40,
            pos in 0usize..50, seed in 0u64..100,
        ) {
            let context = 50;
            let heads = groups * each;
            let (k, keys) = cache(seed, groups, context, dim);
            let (v, values) = cache(seed + 1, groups, context, dim);
            let q = random(seed + 2, heads * dim);
            let y = attention(&Tensor::from(q.as_slice()), &k, &v, 0.3, Pos(pos as u32));
            let exact: Vec<f64> = (0..heads)
                .flat_map(|head| {
                    let at = head / each * context * dim;
                    naive(&q[head * dim..][..dim], &keys[at..], &values[at..], f64::from(0.3f32), pos + 1)
                })
                .collect();
            close(y.data(), &exact, 1e-5);
        }
    }

    #[test]
    fn large_scores_do_not_overflow() {
        let mut k = State::zeros(&[1, 2, 1]).unwrap();
        let mut v = State::zeros(&[1, 2, 1]).unwrap();
        for t in 0..2 {
            k.row_mut([0, t])[0] = 1000.0 * t as f32;
            v.row_mut([0, t])[0] = t as f32;
        }
        assert_eq!(attention(&Tensor::from([1.0]), &k, &v, 1.0, Pos(1)).data(), [1.0]);
    }
}

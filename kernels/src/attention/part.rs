//! Attention over a part of the positions of a cache, which several workers compute in parallel.

use super::scores;
use super::softmax::softmax;
use super::window::{capped, last};
use crate::dot::combine;
use amk::prelude::*;
use core::ops::Range;

/// The log-sum-exp of a part without positions: its share of any sum is 0.
const NOTHING: f32 = f32::MIN;

/// Grouped-query attention over a part of the positions `0..=pos`, which are distributed over
/// `splits` splits in runs of `run`: position `t` belongs to split `t / run % splits`. For each
/// query head, with `t` over the positions of split `split` among the last `window`,
///
/// ```text
/// s[t]       = scale * sum over d of q[h, d] * k[t, d]
/// lse[h]     = log(sum over t of exp(s[t]))
/// partial[h] = sum over t of exp(s[t] - lse[h]) * v[t]
/// ```
///
/// A split without positions yields 0 and the lowest finite f32. [`super::combine_splits`] merges
/// the results.
///
/// `q: [G * P * D]` f32 of `G` key/value heads with `group = P` query heads each; `k`, `v`: `[G, C,
/// D]`; `partial: [G * P, 1, D]`, `lse: [G * P, 1]` f32. Source: Dao et al., Flash-Decoding, 2023.
///
/// # Panics
/// If the shapes do not match, or `run` or `splits` is 0.
#[instruction(
    op = "attention_part",
    shape = "q: [G*P*D], k: [G, C, D], v: [G, C, D], group: P, run: RUN, splits: SPLITS, split: SPLIT, window: WINDOW \
             -> (partial: [G*P, 1, D], lse: [G*P, 1])",
    task = "g in 0..G step 1: partial[g*P..(g+1)*P, .., ..], lse[g*P..(g+1)*P, ..] <- q[g*P*D..(g+1)*P*D], \
            k[g..g+1, max(0, pos-WINDOW+1)..pos+1, ..], v[g..g+1, max(0, pos-WINDOW+1)..pos+1, ..]"
)]
#[allow(clippy::too_many_arguments, reason = "the geometry of the splits")]
pub fn attention_part(
    q: &Tensor,
    k: &State,
    v: &State,
    group: usize,
    run: usize,
    splits: usize,
    split: usize,
    scale: f32,
    window: usize,
    pos: Pos,
) -> (Tensor, Tensor) {
    attend_part(q, k, v, group, Deal { run, splits, split }, |product| product * scale, last(window, pos))
}

/// Computes [`attention_part`] with scores between `-cap` and `cap`: `cap * tanh(s[t] / cap)`.
///
/// `cap` above 0. The other operands are the same. Source: Gemma Team, Gemma 2, 2024, section 2.
///
/// # Panics
/// As for [`attention_part`].
#[instruction(
    op = "attention_part",
    shape = "q: [G*P*D], k: [G, C, D], v: [G, C, D], group: P, run: RUN, splits: SPLITS, split: SPLIT, window: WINDOW \
             -> (partial: [G*P, 1, D], lse: [G*P, 1])",
    task = "g in 0..G step 1: partial[g*P..(g+1)*P, .., ..], lse[g*P..(g+1)*P, ..] <- q[g*P*D..(g+1)*P*D], \
            k[g..g+1, max(0, pos-WINDOW+1)..pos+1, ..], v[g..g+1, max(0, pos-WINDOW+1)..pos+1, ..]"
)]
#[allow(clippy::too_many_arguments, reason = "the geometry of the splits")]
pub fn capped_attention_part(
    q: &Tensor,
    k: &State,
    v: &State,
    group: usize,
    run: usize,
    splits: usize,
    split: usize,
    scale: f32,
    cap: f32,
    window: usize,
    pos: Pos,
) -> (Tensor, Tensor) {
    attend_part(q, k, v, group, Deal { run, splits, split }, |product| capped(product, scale, cap), last(window, pos))
}

/// One split of the positions.
#[derive(Clone, Copy)]
struct Deal {
    /// Positions per run.
    run: usize,
    splits: usize,
    split: usize,
}

/// Attends to the part of `positions` in a split, with scores that `score` computes from the inner
/// products.
fn attend_part(
    q: &Tensor,
    k: &State,
    v: &State,
    group: usize,
    Deal { run, splits, split }: Deal,
    score: impl Fn(f32) -> f32,
    positions: Range<usize>,
) -> (Tensor, Tensor) {
    let &[groups, _, dim] = k.shape() else { panic!("`attention_part` over a cache of shape {:?}", k.shape()) };
    let heads = groups * group;
    assert!(
        k.shape() == v.shape() && q.len() == heads * dim && run > 0 && splits > 0,
        "`attention_part` of q: [{}] over k: {:?} and v: {:?} in {splits} splits of {run}",
        q.len(),
        k.shape(),
        v.shape()
    );
    let runs = || runs_of(run, splits, split, positions.clone());
    let count = runs().map(|run| run.len()).sum();
    let (mut partial, mut lse) = (vec![0.0; heads * dim], vec![NOTHING; heads]);
    let outputs = q.data().chunks_exact(dim).zip(partial.chunks_exact_mut(dim)).zip(&mut lse);
    for (head, ((q, y), lse)) in outputs.enumerate().filter(|_| count > 0) {
        let place = [head / group];
        let mut shares = vec![0.0; count];
        scores(q, runs().flat_map(|run| k.runs(place, run)), &mut shares);
        shares.iter_mut().for_each(|share| *share = score(*share));
        *lse = softmax(&mut shares);
        combine(&shares, runs().flat_map(|run| v.runs(place, run)), y);
    }
    let tensor = |shape: &[usize], data| Tensor::new(shape, data).unwrap_or_else(|error| panic!("{error}"));
    (tensor(&[heads, 1, dim], partial), tensor(&[heads, 1], lse))
}

/// The runs of a split among some positions.
fn runs_of(run: usize, splits: usize, split: usize, positions: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let Range { start, end } = positions;
    let first = if split < splits { split * run } else { end };
    let runs = (first..end).step_by(run * splits).map(move |first| first.max(start)..(first + run).min(end));
    runs.filter(|run| !run.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{close, random};
    use crate::{combine_splits, window_attention};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_joined_are_the_attention_over_the_cache(
            (groups, group) in (1usize..3, 1usize..4), run in 1usize..6, splits in 1usize..5, pos in 0usize..40,
            window in prop_oneof![Just(usize::MAX), 1usize..20],
        ) {
            let (dim, context, scale) = (8, 40, 0.4);
            let caches = [1, 2].map(|seed| {
                let mut cache = State::zeros(&[groups, context, dim]).unwrap();
                for (row, values) in random(seed, groups * context * dim).chunks(dim).enumerate() {
                    cache.row_mut([row / context, row % context]).copy_from_slice(values);
                }
                cache
            });
            let (heads, at) = (groups * group, Pos(pos as u32));
            let q = Tensor::from(random(3, heads * dim));
            let (mut partial, mut lse) = (vec![0.0; heads * splits * dim], vec![0.0; heads * splits]);
            for split in 0..splits {
                let (part, its) = attention_part(&q, &caches[0], &caches[1], group, run, splits, split, scale, window, at);
                for head in 0..heads {
                    partial[(head * splits + split) * dim..][..dim].copy_from_slice(&part.data()[head * dim..][..dim]);
                    lse[head * splits + split] = its.data()[head];
                }
            }
            let partial = Tensor::new(&[heads, splits, dim], partial).unwrap();
            let lse = Tensor::new(&[heads, splits], lse).unwrap();
            let exact: Vec<f64> =
                window_attention(&q, &caches[0], &caches[1], scale, window, at).data().iter().map(|&x| f64::from(x)).collect();
            close(combine_splits(&partial, &lse).data(), &exact, 1e-5);
        }
    }
}

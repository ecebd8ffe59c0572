//! Attention over splits of the cache, which several workers compute in parallel, and the
//! combination of their results.

use super::scores;
use super::softmax::softmax;
use super::window::capped;
use crate::dot::combine;
use crate::{head_norm, rope};
use amk::prelude::*;
use core::ops::Range;

/// The log-sum-exp of a split without positions: its share of any sum is 0.
const NOTHING: f32 = f32::MIN;

/// Grouped-query attention over some splits of a cache, fused with the rotary embedding of query
/// and key and with the KV append.
///
/// The positions of a cache are distributed over its `splits` splits in runs of `run`: position `t`
/// belongs to split `t / run % splits`, at row `t / (run * splits) * run + t % run`. The operands
/// hold the splits `split..split + S`. The key and value of this position are written to the split
/// that owns it. Then, for each query head and each split, with `t` over the split's positions
/// among the last `window` up to and including this one,
///
/// ```text
/// s[t]       = score_scale * sum over d of rope(q)[h, d] * keys[t, d]
/// lse[h]     = log(sum over t of exp(s[t]))
/// partial[h] = sum over t of exp(s[t] - lse[h]) * values[t]
/// ```
///
/// A split without positions, or beyond the last one, yields 0 and the lowest finite f32.
/// [`combine_splits`] merges the results.
///
/// `q: [G * P * D]`, `k: [G * D]`, `v: [G * D]` f32 of `G` key/value heads with `group = P` query
/// heads each; `freqs: [R]` and `rope_scale` as in [`rope`]; `keys`, `values`: `[G, S, C, D]`;
/// `partial: [G * P, S, D]`, `lse: [G * P, S]` f32. Source: Dao et al., Flash-Decoding, 2023.
///
/// # Panics
/// If the shapes do not match, `run` or `splits` is 0, or a position is outside its split's rows.
#[instruction(
    op = "attention_split",
    shape = "q: [G*P*D], k: [G*D], v: [G*D], freqs: [R], keys: [G, S, C, D], values: [G, S, C, D], group: P, run: RUN, \
             splits: SPLITS, split: SPLIT, window: WINDOW -> (partial: [G*P, S, D], lse: [G*P, S])",
    task = "g in 0..G step 1: partial[g*P..(g+1)*P, .., ..], lse[g*P..(g+1)*P, ..], keys[g..g+1, .., .., ..], \
            values[g..g+1, .., .., ..] <- q[g*P*D..(g+1)*P*D], k[g*D..(g+1)*D], v[g*D..(g+1)*D], freqs[..], \
            keys[g..g+1, .., .., ..], values[g..g+1, .., .., ..]"
)]
#[allow(clippy::too_many_arguments, reason = "a task's operands and the geometry of its splits")]
pub fn attention_split(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    freqs: &Weight,
    keys: &mut State,
    values: &mut State,
    group: usize,
    run: usize,
    splits: usize,
    split: usize,
    rope_scale: f32,
    score_scale: f32,
    window: usize,
    pos: Pos,
) -> (Tensor, Tensor) {
    let splits = Splits::new(keys, values, [q, k, v], group, Deal { run, splits, first: split });
    let turned = |x| rope(x, freqs, splits.dim, rope_scale, pos);
    splits.append(&turned(k), v, keys, values, pos);
    splits.attend(&turned(q), keys, values, |product| product * score_scale, window, pos)
}

/// Computes [`attention_split`] of queries and keys that are not rotated.
///
/// The operands that it has are the same.
///
/// # Panics
/// As for [`attention_split`].
#[instruction(
    op = "attention_split",
    shape = "q: [G*P*D], k: [G*D], v: [G*D], keys: [G, S, C, D], values: [G, S, C, D], group: P, run: RUN, \
             splits: SPLITS, split: SPLIT, window: WINDOW -> (partial: [G*P, S, D], lse: [G*P, S])",
    task = "g in 0..G step 1: partial[g*P..(g+1)*P, .., ..], lse[g*P..(g+1)*P, ..], keys[g..g+1, .., .., ..], \
            values[g..g+1, .., .., ..] <- q[g*P*D..(g+1)*P*D], k[g*D..(g+1)*D], v[g*D..(g+1)*D], \
            keys[g..g+1, .., .., ..], values[g..g+1, .., .., ..]"
)]
#[allow(clippy::too_many_arguments, reason = "a task's operands and the geometry of its splits")]
pub fn unturned_attention_split(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    keys: &mut State,
    values: &mut State,
    group: usize,
    run: usize,
    splits: usize,
    split: usize,
    score_scale: f32,
    window: usize,
    pos: Pos,
) -> (Tensor, Tensor) {
    let splits = Splits::new(keys, values, [q, k, v], group, Deal { run, splits, first: split });
    splits.append(k, v, keys, values, pos);
    splits.attend(q, keys, values, |product| product * score_scale, window, pos)
}

/// Computes [`attention_split`] with scores between `-cap` and `cap`: `cap * tanh(s[t] / cap)`.
///
/// `cap` above 0. The other operands are the same. Source: Gemma Team, Gemma 2, 2024, section 2.
///
/// # Panics
/// As for [`attention_split`].
#[instruction(
    op = "attention_split",
    shape = "q: [G*P*D], k: [G*D], v: [G*D], freqs: [R], keys: [G, S, C, D], values: [G, S, C, D], group: P, run: RUN, \
             splits: SPLITS, split: SPLIT, window: WINDOW -> (partial: [G*P, S, D], lse: [G*P, S])",
    task = "g in 0..G step 1: partial[g*P..(g+1)*P, .., ..], lse[g*P..(g+1)*P, ..], keys[g..g+1, .., .., ..], \
            values[g..g+1, .., .., ..] <- q[g*P*D..(g+1)*P*D], k[g*D..(g+1)*D], v[g*D..(g+1)*D], freqs[..], \
            keys[g..g+1, .., .., ..], values[g..g+1, .., .., ..]"
)]
#[allow(clippy::too_many_arguments, reason = "a task's operands and the geometry of its splits")]
pub fn capped_attention_split(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    freqs: &Weight,
    keys: &mut State,
    values: &mut State,
    group: usize,
    run: usize,
    splits: usize,
    split: usize,
    rope_scale: f32,
    score_scale: f32,
    cap: f32,
    window: usize,
    pos: Pos,
) -> (Tensor, Tensor) {
    let splits = Splits::new(keys, values, [q, k, v], group, Deal { run, splits, first: split });
    let turned = |x| rope(x, freqs, splits.dim, rope_scale, pos);
    splits.append(&turned(k), v, keys, values, pos);
    splits.attend(&turned(q), keys, values, |product| capped(product, score_scale, cap), window, pos)
}

/// Computes [`attention_split`] of queries and keys that are first normalised per head by
/// [`head_norm`].
///
/// `q_norm`, `k_norm`: `[D]` f32, f16 or bf16. The other operands are the same.
///
/// # Panics
/// As for [`attention_split`].
#[instruction(
    op = "attention_split",
    shape = "q: [G*P*D], k: [G*D], v: [G*D], q_norm: [D], k_norm: [D], freqs: [R], keys: [G, S, C, D], \
             values: [G, S, C, D], group: P, run: RUN, splits: SPLITS, split: SPLIT, window: WINDOW \
             -> (partial: [G*P, S, D], lse: [G*P, S])",
    task = "g in 0..G step 1: partial[g*P..(g+1)*P, .., ..], lse[g*P..(g+1)*P, ..], keys[g..g+1, .., .., ..], \
            values[g..g+1, .., .., ..] <- q[g*P*D..(g+1)*P*D], k[g*D..(g+1)*D], v[g*D..(g+1)*D], q_norm[..], \
            k_norm[..], freqs[..], keys[g..g+1, .., .., ..], values[g..g+1, .., .., ..]"
)]
#[allow(clippy::too_many_arguments, reason = "a task's operands and the geometry of its splits")]
pub fn normed_attention_split(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    q_norm: &Weight,
    k_norm: &Weight,
    freqs: &Weight,
    keys: &mut State,
    values: &mut State,
    group: usize,
    run: usize,
    splits: usize,
    split: usize,
    eps: f32,
    rope_scale: f32,
    score_scale: f32,
    window: usize,
    pos: Pos,
) -> (Tensor, Tensor) {
    let (q, k) = (head_norm(q, q_norm, eps), head_norm(k, k_norm, eps));
    attention_split(&q, &k, v, freqs, keys, values, group, run, splits, split, rope_scale, score_scale, window, pos)
}

/// Combines the results of [`attention_split`] for all splits into attention over the whole cache:
///
/// ```text
/// y[h, d] = sum over s of exp(lse[h, s]) * partial[h, s, d] / sum over s of exp(lse[h, s])
/// ```
///
/// `partial: [H, S, D]`, `lse: [H, S]` f32; `y: [H * D]` f32. Any range of dims can be combined on
/// its own.
///
/// # Panics
/// If the shapes do not match.
#[instruction(
    op = "combine_splits",
    shape = "partial: [H, S, D], lse: [H, S] -> y: [H*D]",
    task = "h in 0..H step 1: y[h*D..(h+1)*D] <- partial[h..h+1, .., ..], lse[h..h+1, ..]"
)]
pub fn combine_splits(partial: &Tensor, lse: &Tensor) -> Tensor {
    let &[heads, splits, dim] = partial.shape() else { panic!("`combine_splits` of {:?}", partial.shape()) };
    assert_eq!(lse.shape(), [heads, splits], "`combine_splits` of partial: {:?}", partial.shape());
    let mut y = vec![0.0; heads * dim];
    let heads = partial.data().chunks_exact(splits * dim).zip(lse.data().chunks_exact(splits));
    for ((partial, lse), y) in heads.zip(y.chunks_exact_mut(dim)) {
        let mut shares = lse.to_vec();
        softmax(&mut shares);
        combine(&shares, [partial], y);
    }
    Tensor::from(y)
}

/// The distribution of positions over splits.
#[derive(Clone, Copy)]
struct Deal {
    /// Positions per run.
    run: usize,
    /// Splits of the whole cache.
    splits: usize,
    /// Index of the first split in the operands.
    first: usize,
}

impl Deal {
    /// Returns the split that owns a position, and the row in it.
    fn place(self, pos: usize) -> (usize, usize) {
        let round = self.run * self.splits;
        (pos / self.run % self.splits, pos / round * self.run + pos % self.run)
    }

    /// Returns the rows of a split that hold its share of the first `positions` positions.
    fn rows(self, split: usize, positions: usize) -> Range<usize> {
        if split >= self.splits {
            return 0..0;
        }
        let round = self.run * self.splits;
        let last = (positions % round).saturating_sub(split * self.run).min(self.run);
        0..positions / round * self.run + last
    }
}

/// The splits in the operands of a call.
struct Splits {
    deal: Deal,
    /// Splits in the operands.
    present: usize,
    /// Query heads per key head.
    group: usize,
    dim: usize,
}

impl Splits {
    fn new(keys: &State, values: &State, [q, k, v]: [&Tensor; 3], group: usize, deal: Deal) -> Self {
        let &[heads, present, _, dim] = keys.shape() else { panic!("`attention_split` over {:?}", keys.shape()) };
        assert!(
            keys.shape() == values.shape()
                && (q.len(), k.len(), v.len()) == (heads * group * dim, heads * dim, heads * dim),
            "`attention_split` of q: [{}], k: [{}], v: [{}] over {:?} and {:?} with {group} heads each",
            q.len(),
            k.len(),
            v.len(),
            keys.shape(),
            values.shape()
        );
        assert!(deal.run > 0 && deal.splits > 0, "`attention_split` of {} splits in runs of {}", deal.splits, deal.run);
        Self { deal, present, group, dim }
    }

    /// Writes key and value of a position, if the operands hold the split that owns it.
    fn append(&self, k: &Tensor, v: &Tensor, keys: &mut State, values: &mut State, pos: Pos) {
        let (split, row) = self.deal.place(pos.index());
        let Some(split) = split.checked_sub(self.deal.first).filter(|&split| split < self.present) else { return };
        for (cache, x) in [(keys, k), (values, v)] {
            for (head, x) in x.data().chunks_exact(self.dim).enumerate() {
                cache.row_mut([head, split, row]).copy_from_slice(x);
            }
        }
    }

    fn attend(
        &self,
        q: &Tensor,
        keys: &State,
        values: &State,
        score: impl Fn(f32) -> f32,
        window: usize,
        pos: Pos,
    ) -> (Tensor, Tensor) {
        let heads = q.len() / self.dim;
        let (mut partial, mut lse) = (vec![0.0; heads * self.present * self.dim], vec![NOTHING; heads * self.present]);
        let outputs = partial.chunks_exact_mut(self.dim).zip(&mut lse).enumerate();
        for (at, (y, lse)) in outputs {
            let (head, split) = (at / self.present, at % self.present);
            let [before, through] = {
                let positions = super::window::last(window, pos);
                [positions.start, positions.end].map(|end| self.deal.rows(self.deal.first + split, end).end)
            };
            let rows = before..through;
            if rows.is_empty() {
                continue;
            }
            let (place, mut shares) = ([head / self.group, split], vec![0.0; rows.len()]);
            let q = &q.data()[head * self.dim..][..self.dim];
            scores(q, keys.runs(place, rows.clone()), &mut shares);
            shares.iter_mut().for_each(|share| *share = score(*share));
            *lse = softmax(&mut shares);
            combine(&shares, values.runs(place, rows), y);
        }
        let shape = [heads, self.present, self.dim];
        let tensor = |shape: &[usize], data| Tensor::new(shape, data).unwrap_or_else(|error| panic!("{error}"));
        (tensor(&shape, partial), tensor(&shape[..2], lse))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{close, random};
    use crate::{kv_append, window_attention};
    use proptest::prelude::*;

    #[test]
    fn every_position_has_one_row_of_one_split() {
        for (run, splits) in [(1, 1), (1, 5), (64, 1), (4, 3), (128, 7)] {
            let deal = Deal { run, splits, first: 0 };
            let mut next = vec![0; splits];
            for pos in 0..2000 {
                let (split, row) = deal.place(pos);
                assert_eq!(row, next[split], "rows of a split are in the order of the positions");
                next[split] += 1;
                let rows: Vec<usize> = (0..splits).map(|split| deal.rows(split, pos + 1).end).collect();
                assert_eq!(rows, next, "{run} x {splits} at {pos}");
            }
        }
    }

    /// The operations on heads of queries and keys.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Heads {
        Turned,
        Normed,
        Bare,
    }

    /// Runs steps of attention over `splits` splits, `present` per call, and combines them. Also
    /// runs the unsplit functions.
    fn both(
        groups: usize,
        group: usize,
        run: usize,
        splits: usize,
        present: usize,
        heads: Heads,
        window: usize,
    ) -> Vec<(Vec<f32>, Vec<f32>)> {
        let (dim, half, steps) = (8, 3, 3 * run * splits + 2);
        let share = steps.div_ceil(run * splits) * run;
        let (scale, rope_scale, eps) = (0.4, 1.25, 1e-5);
        let freqs = Weight::f32(&[half], vec![1.0, 0.3, 0.01]).unwrap();
        let norms = [3, 4].map(|seed| Weight::f32(&[dim], random(seed, dim)).unwrap());
        let [mut k, mut v] = [0; 2].map(|_| State::zeros(&[groups, steps, dim]).unwrap());
        let mut caches: Vec<[State; 2]> = (0..splits / present)
            .map(|_| [0; 2].map(|_| State::zeros(&[groups, present, share, dim]).unwrap()))
            .collect();
        let step = |pos: usize| {
            let seed = 10 + 3 * pos as u64;
            let query = Tensor::from(random(seed, groups * group * dim));
            let [key, value] = [1, 2].map(|more| Tensor::from(random(seed + more, groups * dim)));
            let at = Pos(pos as u32);
            let turned = |x: &Tensor, w| match heads {
                Heads::Turned => rope(x, &freqs, dim, rope_scale, at),
                Heads::Normed => rope(&head_norm(x, w, eps), &freqs, dim, rope_scale, at),
                Heads::Bare => x.clone(),
            };
            kv_append(&mut k, &turned(&key, &norms[1]), at);
            kv_append(&mut v, &value, at);
            let whole = window_attention(&turned(&query, &norms[0]), &k, &v, scale, window, at);
            let (mut partial, mut lse) = (vec![0.0; groups * group * splits * dim], vec![0.0; groups * group * splits]);
            for (n, [keys, values]) in caches.iter_mut().enumerate() {
                let (q, first) = (&query, n * present);
                let (part, its) = match heads {
                    Heads::Normed => normed_attention_split(
                        q, &key, &value, &norms[0], &norms[1], &freqs, keys, values, group, run, splits, first, eps,
                        rope_scale, scale, window, at,
                    ),
                    Heads::Turned => attention_split(
                        q, &key, &value, &freqs, keys, values, group, run, splits, first, rope_scale, scale, window, at,
                    ),
                    Heads::Bare => unturned_attention_split(
                        q, &key, &value, keys, values, group, run, splits, first, scale, window, at,
                    ),
                };
                for head in 0..groups * group {
                    let (to, len) = (head * splits + first, present * dim);
                    partial[to * dim..][..len].copy_from_slice(&part.data()[head * len..][..len]);
                    lse[to..][..present].copy_from_slice(&its.data()[head * present..][..present]);
                }
            }
            let partial = Tensor::new(&[groups * group, splits, dim], partial).unwrap();
            let lse = Tensor::new(&[groups * group, splits], lse).unwrap();
            (combine_splits(&partial, &lse).into_vec(), whole.into_vec())
        };
        (0..steps).map(step).collect()
    }

    proptest! {
        #[test]
        fn splits_joined_are_the_attention_over_the_cache(
            (groups, group) in (1usize..3, 1usize..4), run in 1usize..6, splits in 1usize..5,
            alone in any::<bool>(), heads in prop_oneof![Just(Heads::Turned), Just(Heads::Normed), Just(Heads::Bare)],
            window in prop_oneof![Just(usize::MAX), 1usize..20],
        ) {
            for (joined, whole) in both(groups, group, run, splits, if alone { 1 } else { splits }, heads, window) {
                let exact: Vec<f64> = whole.into_iter().map(f64::from).collect();
                close(&joined, &exact, 1e-5);
            }
        }
    }

    #[test]
    fn one_split_with_positions_is_the_result_itself() {
        for (at, (joined, whole)) in both(1, 2, 4, 3, 1, Heads::Turned, 9).into_iter().enumerate().take(4) {
            assert_eq!(
                joined.iter().map(|x| x.to_bits()).collect::<Vec<_>>(),
                whole.iter().map(|x| x.to_bits()).collect::<Vec<_>>(),
                "{at}"
            );
        }
    }

    #[test]
    fn a_split_that_there_is_not_has_no_positions() {
        let x = Tensor::from([1.0; 2]);
        let [mut keys, mut values] = [0; 2].map(|_| State::zeros(&[1, 1, 1, 2]).unwrap());
        let freqs = Weight::f32(&[1], vec![1.0]).unwrap();
        let (partial, lse) =
            attention_split(&x, &x, &x, &freqs, &mut keys, &mut values, 1, 1, 4, 4, 1.0, 1.0, 9, Pos(0));
        assert_eq!((partial.data(), lse.data(), keys.to_vec()), (&[0.0; 2][..], &[NOTHING][..], vec![0.0; 2]));
    }
}

//! f64 reference formulas for attention, whole and in splits.

use crate::rms_norm::formula::norm;
use crate::rope::formula::rope;
use amk::formula;
use amk::formula::{Exact, Operands};

formula!("amk_kernels::attention", attention);
formula!("amk_kernels::attention_part", attention_part);
formula!("amk_kernels::attention_split", attention_split);
formula!("amk_kernels::capped_attention", capped_attention);
formula!("amk_kernels::capped_attention_part", capped_attention_part);
formula!("amk_kernels::capped_attention_split", capped_attention_split);
formula!("amk_kernels::combine_splits", combine_splits);
formula!("amk_kernels::normed_attention_split", normed_attention_split);
formula!("amk_kernels::unturned_attention_split", unturned_attention_split);
formula!("amk_kernels::window_attention", window_attention);

/// `y = sum over t <= pos of p[t] * v[t]` with `p` the softmax of `scale * q . k[t]`, for each
/// query head.
fn attention(o: &mut Operands) -> Vec<Exact> {
    let scale = o.floats[0];
    of_heads(o, 0, |q, k, v| attend(q, k, v, scale))
}

/// [`attention`] over the last positions.
fn window_attention(o: &mut Operands) -> Vec<Exact> {
    let scale = o.floats[0];
    of_heads(o, before(o), |q, k, v| attend(q, k, v, scale))
}

/// [`window_attention`] with scores `cap * tanh(s / cap)`.
fn capped_attention(o: &mut Operands) -> Vec<Exact> {
    let (scale, cap) = (o.floats[0], o.floats[1]);
    of_heads(o, before(o), |q, k, v| weigh(capped_scores(q, k, scale, cap), v, q.len()))
}

/// The scores `cap * tanh(s / cap)`.
fn capped_scores(q: &[f64], k: &[f64], scale: f64, cap: f64) -> Vec<Exact> {
    let capped = |score: Exact| {
        let tangent = (score.value / cap).tanh();
        // An error in the score counts times the slope, and the tanh itself is rounded.
        let magnitude = score.magnitude * (1.0 - tangent * tangent) + (cap * tangent).abs();
        Exact { value: cap * tangent, magnitude }
    };
    scores(q, k, scale).into_iter().map(capped).collect()
}

/// The positions before the window.
fn before(o: &Operands) -> usize {
    (o.pos + 1).saturating_sub(o.dims[0])
}

/// Applies `head` to each query head with its keys and values, from position `first` on.
fn of_heads(o: &Operands, first: usize, head: impl Fn(&[f64], &[f64], &[f64]) -> Vec<Exact>) -> Vec<Exact> {
    let [groups, positions, dim] = o.tensor(1).shape[..] else { return Vec::new() };
    let (q, k, v) = (o.data(0), o.data(1), o.data(2));
    let heads = q.len() / dim;
    let one = |h: usize| {
        let start = h * groups / heads * positions;
        let rows = (start + first) * dim..(start + o.pos + 1) * dim;
        head(&q[h * dim..][..dim], &k[rows.clone()], &v[rows])
    };
    (0..heads).flat_map(one).collect()
}

/// Computes one head.
fn attend(q: &[f64], k: &[f64], v: &[f64], scale: f64) -> Vec<Exact> {
    weigh(scores(q, k, scale), v, q.len())
}

fn scores(q: &[f64], k: &[f64], scale: f64) -> Vec<Exact> {
    let rows = k.chunks_exact(q.len());
    rows.map(|row| Exact::sum(row.iter().zip(q).map(|(k, q)| scale * k * q))).collect()
}

/// The values weighted by the softmax of the scores. An error in a score moves weight between
/// `v[t]` and the result, so it counts times the distance between them. The sum over positions may
/// be long: its partial sums are also rounded, in order, each independently.
fn weigh(scores: Vec<Exact>, v: &[f64], dim: usize) -> Vec<Exact> {
    let largest = scores.iter().map(|score| score.value).fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = scores.iter().map(|score| (score.value - largest).exp()).sum();
    let shares: Vec<f64> = scores.iter().map(|score| (score.value - largest).exp() / total).collect();
    let element = |d: usize| {
        let column = || v.iter().skip(d).step_by(dim);
        let mut y = Exact::sum(shares.iter().zip(column()).map(|(share, v)| share * v));
        let moved = |((share, v), score): ((&f64, &f64), &Exact)| share * (v - y.value).abs() * score.magnitude;
        y.magnitude += shares.iter().zip(column()).zip(&scores).map(moved).sum::<f64>();
        let mut partial = 0.0;
        let squares = shares.iter().zip(column()).map(|(share, v)| {
            partial += share * v;
            partial * partial
        });
        y.magnitude += squares.sum::<f64>().sqrt();
        y
    };
    (0..dim).map(element).collect()
}

/// Iterates over the positions `0..=pos` of a split, each with its row there. Split `t / run %
/// splits` owns position `t`, and its rows are in position order.
fn dealt(split: usize, run: usize, splits: usize, pos: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..=pos).filter(move |t| t / run % splits == split).enumerate().map(|(row, t)| (t, row))
}

/// [`attention`] over the positions of each split, after rope and append, and the logarithm of the
/// sum of exponentials.
fn attention_split(o: &mut Operands) -> Vec<Exact> {
    let (turn, scale) = (o.floats[0], o.floats[1]);
    split(o, Some(turn), |q, k| scores(q, k, scale))
}

/// [`attention_split`] without a rotation.
fn unturned_attention_split(o: &mut Operands) -> Vec<Exact> {
    let scale = o.floats[0];
    split(o, None, |q, k| scores(q, k, scale))
}

/// [`attention_split`] with capped scores.
fn capped_attention_split(o: &mut Operands) -> Vec<Exact> {
    let (turn, scale, cap) = (o.floats[0], o.floats[1], o.floats[2]);
    split(o, Some(turn), |q, k| capped_scores(q, k, scale, cap))
}

/// Splits whose scores `scores` computes from a query and keys, which are rotated with a scale if
/// there is one.
fn split(o: &mut Operands, turn: Option<f64>, scores: impl Fn(&[f64], &[f64]) -> Vec<Exact>) -> Vec<Exact> {
    // Queries, keys and values, then the frequencies, if there are any, and the caches.
    let cache = if turn.is_some() { 4 } else { 3 };
    let [groups, splits_here, rows, dim] = o.tensor(cache).shape[..] else { return Vec::new() };
    let [group, run, splits, first, window] = o.dims[..] else { return Vec::new() };
    let pos = o.pos;
    let turned = |x: &std::sync::Arc<amk::formula::Array>| match turn {
        Some(turn) => {
            let tensors = vec![x.clone(), o.tensors[3].clone()];
            rope(&mut Operands { tensors, floats: vec![turn], dims: vec![dim], pos })
        }
        None => x.data.iter().map(|&x| Exact::copied(x)).collect(),
    };
    let (q, k, v) = (turned(&o.tensors[0]), turned(&o.tensors[1]), o.tensors[2].clone());
    let at = |g: usize, s: usize, row: usize| ((g * splits_here + s) * rows + row) * dim;
    for (g, s) in (0..groups).flat_map(|g| (0..splits_here).map(move |s| (g, s))) {
        if let Some((_, row)) = dealt(first + s, run, splits, pos).last().filter(|(t, _)| *t == pos) {
            for d in 0..dim {
                o.state(cache).data[at(g, s, row) + d] = k[g * dim + d].value;
                o.state(cache + 1).data[at(g, s, row) + d] = v.data[g * dim + d];
            }
        }
    }
    let (mut outputs, mut sums) = (Vec::new(), Vec::new());
    for (h, s) in (0..groups * group).flat_map(|h| (0..splits_here).map(move |s| (h, s))) {
        let count = dealt(first + s, run, splits, pos).count();
        let before = dealt(first + s, run, splits, pos).filter(|(t, _)| t + window <= pos).count();
        let held = at(h / group, s, before)..at(h / group, s, count);
        let q: Vec<f64> = q[h * dim..][..dim].iter().map(|q| q.value).collect();
        let (keys, values) = (&o.data(cache)[held.clone()], &o.data(cache + 1)[held]);
        if count == before {
            outputs.extend(vec![Exact::copied(0.0); dim]);
            sums.push(Exact::copied(f64::from(f32::MIN)));
        } else {
            sums.push(log_sum_exp(&scores(&q, keys)));
            outputs.extend(weigh(scores(&q, keys), values, dim));
        }
    }
    [outputs, sums].concat()
}

/// [`attention`] over the positions of one split, and the logarithm of the sum of exponentials.
fn attention_part(o: &mut Operands) -> Vec<Exact> {
    let scale = o.floats[0];
    part(o, |q, k| scores(q, k, scale))
}

/// [`attention_part`] with capped scores.
fn capped_attention_part(o: &mut Operands) -> Vec<Exact> {
    let (scale, cap) = (o.floats[0], o.floats[1]);
    part(o, |q, k| capped_scores(q, k, scale, cap))
}

/// The part of a split whose scores `scores` computes from a query and keys.
fn part(o: &Operands, scores: impl Fn(&[f64], &[f64]) -> Vec<Exact>) -> Vec<Exact> {
    let [groups, positions, dim] = o.tensor(1).shape[..] else { return Vec::new() };
    let [group, run, splits, split, window] = o.dims[..] else { return Vec::new() };
    let (q, k, v) = (o.data(0), o.data(1), o.data(2));
    let own: Vec<usize> = dealt(split, run, splits, o.pos).map(|(t, _)| t).filter(|t| t + window > o.pos).collect();
    let (mut outputs, mut sums) = (Vec::new(), Vec::new());
    for h in 0..groups * group {
        let rows = |x: &[f64]| -> Vec<f64> {
            own.iter().flat_map(|t| x[(h / group * positions + t) * dim..][..dim].to_vec()).collect()
        };
        let (q, keys, values) = (&q[h * dim..][..dim], rows(k), rows(v));
        if own.is_empty() {
            outputs.extend(vec![Exact::copied(0.0); dim]);
            sums.push(Exact::copied(f64::from(f32::MIN)));
        } else {
            sums.push(log_sum_exp(&scores(q, &keys)));
            outputs.extend(weigh(scores(q, &keys), &values, dim));
        }
    }
    [outputs, sums].concat()
}

/// `log(sum over t of exp(s[t]))`. An error in a score counts by its share. The
/// logarithm of the sum is rounded as well.
fn log_sum_exp(scores: &[Exact]) -> Exact {
    let largest = scores.iter().map(|score| score.value).fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = scores.iter().map(|score| (score.value - largest).exp()).sum();
    let share = |score: &Exact| (score.value - largest).exp() / sum * (score.magnitude + (score.value - largest).abs());
    let magnitude = scores.iter().map(share).sum::<f64>() + largest.abs() + sum.ln() + 1.0;
    Exact { value: largest + sum.ln(), magnitude }
}

/// [`attention_split`] after [`norm`] of queries and keys.
fn normed_attention_split(o: &mut Operands) -> Vec<Exact> {
    let normed = |x: usize, w: usize| {
        let tensors = vec![o.tensors[x].clone(), o.tensors[w].clone()];
        let x = norm(&mut Operands { tensors, floats: vec![o.floats[0]], ..Operands::default() });
        let data: Vec<f64> = x.iter().map(|x| x.value).collect();
        std::sync::Arc::new(amk::formula::Array { shape: vec![data.len()], data })
    };
    let (q, k) = (normed(0, 3), normed(1, 4));
    let [v, freqs] = [2, 5].map(|at| o.tensors[at].clone());
    let [keys, values] = [6, 7].map(|at| std::mem::take(&mut o.tensors[at]));
    let tensors = vec![q, k, v, freqs, keys, values];
    let mut bare = Operands { tensors, floats: o.floats[1..].to_vec(), dims: o.dims.clone(), pos: o.pos };
    let mut results = attention_split(&mut bare);
    // The norms are rounded first.
    results.iter_mut().for_each(|result| result.magnitude *= 3.0);
    for (at, from) in [(6, 4), (7, 5)] {
        o.tensors[at] = std::mem::take(&mut bare.tensors[from]);
    }
    results
}

/// `y[h, d] = sum over s of exp(lse[h, s]) * partial[h, s, d] / sum over s of exp(lse[h, s])`.
fn combine_splits(o: &mut Operands) -> Vec<Exact> {
    let [heads, splits, dim] = o.tensor(0).shape[..] else { return Vec::new() };
    let (partial, lse) = (o.data(0), o.data(1));
    let element = |h: usize, d: usize| {
        let lse = &lse[h * splits..][..splits];
        let largest = lse.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = lse.iter().map(|lse| (lse - largest).exp()).sum();
        // Both the exponent and its exponential are rounded.
        let term = |s: usize| {
            let value = (lse[s] - largest).exp() / sum * partial[(h * splits + s) * dim + d];
            Exact { value, magnitude: value.abs() * (2.0 + (lse[s] - largest).abs()) }
        };
        let terms = (0..splits).map(term);
        terms.fold(Exact::copied(0.0), |a, b| Exact { value: a.value + b.value, magnitude: a.magnitude + b.magnitude })
    };
    (0..heads * dim).map(|i| element(i / dim, i % dim)).collect()
}

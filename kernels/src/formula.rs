//! The instructions' formulas in f64, from their definitions.

use amk::formula;
use amk::formula::{Exact, Operands};

formula!("amk_kernels::add", add);
formula!("amk_kernels::add_bias", add);
formula!("amk_kernels::adopt", adopt);
formula!("amk_kernels::argmax", argmax);
formula!("amk_kernels::attention", attention);
formula!("amk_kernels::attention_split", attention_split);
formula!("amk_kernels::best", best);
formula!("amk_kernels::choose", choose);
formula!("amk_kernels::combine_splits", combine_splits);
formula!("amk_kernels::embed", embed);
formula!("amk_kernels::first_probe", nothing);
formula!("amk_kernels::gelu_mul", gelu_mul);
formula!("amk_kernels::head_norm", norm);
formula!("amk_kernels::kv_append", kv_append);
formula!("amk_kernels::linear", linear);
formula!("amk_kernels::no_best", no_best);
formula!("amk_kernels::no_first_probe", nothing);
formula!("amk_kernels::no_probe", nothing);
formula!("amk_kernels::normed_attention_split", normed_attention_split);
formula!("amk_kernels::probe", nothing);
formula!("amk_kernels::rms_norm", norm);
formula!("amk_kernels::rope", rope);
formula!("amk_kernels::silu_mul", silu_mul);

/// `z[i] = x[i] + y[i]`.
fn add(o: &mut Operands) -> Vec<Exact> {
    o.data(0).iter().zip(o.data(1)).map(|(&x, &y)| Exact::sum([x, y])).collect()
}

/// The first `i` of which no `x[j]` is larger; 0 where no element is a number.
fn argmax(o: &mut Operands) -> Vec<Exact> {
    let x = o.data(0);
    let largest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    vec![Exact::copied(x.iter().position(|&x| x == largest).unwrap_or(0) as f64)]
}

/// `y[i] = table[token, i]`.
fn embed(o: &mut Operands) -> Vec<Exact> {
    let (width, token) = (o.tensor(0).shape[1], o.data(1)[0] as usize);
    o.data(0)[token * width..][..width].iter().map(|&x| Exact::copied(x)).collect()
}

/// `y[n] = sum over k of w[n, k] * x[k]`.
fn linear(o: &mut Operands) -> Vec<Exact> {
    let (x, w) = (o.data(0), o.data(1));
    w.chunks_exact(x.len()).map(|row| Exact::sum(row.iter().zip(x).map(|(w, x)| w * x))).collect()
}

/// `y[i] = w[i mod D] * x[i] / sqrt(mean over its D elements of x^2 + eps)`; a norm of all elements is one of a single head.
fn norm(o: &mut Operands) -> Vec<Exact> {
    let (w, eps) = (o.data(1), o.floats[0]);
    let head = |x: &[f64]| {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        x.iter().zip(w).map(|(x, w)| Exact::product(w * x / (mean + eps).sqrt())).collect::<Vec<_>>()
    };
    o.data(0).chunks_exact(w.len()).flat_map(head).collect()
}

/// The pair `(x[j], x[j + R])` of a head turned by the angle `pos * freqs[j]`, which is defined to be rounded to f32.
fn rope(o: &mut Operands) -> Vec<Exact> {
    let (x, freqs, dim, scale) = (o.data(0), o.data(1), o.dims[0], o.floats[0]);
    let half = freqs.len();
    let element = |i: usize| {
        let (head, d) = (i / dim * dim, i % dim);
        if d >= 2 * half {
            return Exact::copied(x[i]);
        }
        let j = d % half;
        let (sine, cosine) = f64::from(o.pos as f32 * freqs[j] as f32).sin_cos();
        let (a, b) = (x[head + j], x[head + j + half]);
        let terms = if d < half { [a * cosine, -b * sine] } else { [b * cosine, a * sine] };
        Exact::sum(terms.map(|term| scale * term))
    };
    (0..x.len()).map(element).collect()
}

/// `cache[g, pos, d] = x[g * D + d]`.
fn kv_append(o: &mut Operands) -> Vec<Exact> {
    let (x, pos) = (o.tensors[1].clone(), o.pos);
    let cache = o.state(0);
    let (positions, dim) = (cache.shape[1], cache.shape[2]);
    for (g, x) in x.data.chunks_exact(dim).enumerate() {
        cache.data[(g * positions + pos) * dim..][..dim].copy_from_slice(x);
    }
    Vec::new()
}

/// `y = sum over t <= pos of p[t] * v[t]` with `p` the softmax of `scale * q . k[t]`, for each query head.
fn attention(o: &mut Operands) -> Vec<Exact> {
    let [groups, positions, dim] = o.tensor(1).shape[..] else { return Vec::new() };
    let (q, k, v) = (o.data(0), o.data(1), o.data(2));
    let heads = q.len() / dim;
    let head = |h: usize| {
        let rows = h * groups / heads * positions * dim..;
        let rows = rows.start..rows.start + (o.pos + 1) * dim;
        attend(&q[h * dim..][..dim], &k[rows.clone()], &v[rows], o.floats[0])
    };
    (0..heads).flat_map(head).collect()
}

/// One head. An error of a score moves weight between `v[t]` and the result, so it counts times their distance. The sum over positions may
/// be long: its partial sums, in order, are rounded too, each by chance.
fn attend(q: &[f64], k: &[f64], v: &[f64], scale: f64) -> Vec<Exact> {
    let rows = k.chunks_exact(q.len());
    let scores: Vec<Exact> = rows.map(|row| Exact::sum(row.iter().zip(q).map(|(k, q)| scale * k * q))).collect();
    let largest = scores.iter().map(|score| score.value).fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = scores.iter().map(|score| (score.value - largest).exp()).sum();
    let shares: Vec<f64> = scores.iter().map(|score| (score.value - largest).exp() / total).collect();
    let element = |d: usize| {
        let column = || v.iter().skip(d).step_by(q.len());
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
    (0..q.len()).map(element).collect()
}

/// `y = gate / (1 + exp(-gate)) * up`.
fn silu_mul(o: &mut Operands) -> Vec<Exact> {
    o.data(0).iter().zip(o.data(1)).map(|(gate, up)| Exact::product(gate / (1.0 + (-gate).exp()) * up)).collect()
}

/// `y = gate / 2 * (1 + tanh(u)) * up` with `u = sqrt(2 / pi) * (gate + 0.044715 gate^3)`. The sum of 1 and the tangent may cancel, and an
/// error of `u` counts times the slope of the tangent.
fn gelu_mul(o: &mut Operands) -> Vec<Exact> {
    let element = |(gate, up): (&f64, &f64)| {
        let u = core::f64::consts::FRAC_2_PI.sqrt() * (gate + 0.044_715 * gate.powi(3));
        let (tangent, outer) = (u.tanh(), gate / 2.0 * up);
        let magnitude = outer.abs() * (1.0 + tangent.abs() + u.abs() * (1.0 - tangent * tangent));
        Exact { value: outer * (1.0 + tangent), magnitude }
    };
    o.data(0).iter().zip(o.data(1)).map(element).collect()
}

/// `y[i] = x[i]`.
fn adopt(o: &mut Operands) -> Vec<Exact> {
    o.data(0).iter().map(|&x| Exact::copied(x)).collect()
}

/// The positions `0..=pos` that a split has, each with its row there: position `t` is the split's
/// where `t / run % splits` is its number, and the rows are in their order.
fn dealt(split: usize, run: usize, splits: usize, pos: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..=pos).filter(move |t| t / run % splits == split).enumerate().map(|(row, t)| (t, row))
}

/// [`attention`] over the positions of each split, after rope and append, and the logarithm of the
/// sum of its exponentials.
fn attention_split(o: &mut Operands) -> Vec<Exact> {
    let [groups, here, rows, dim] = o.tensor(4).shape[..] else { return Vec::new() };
    let [group, run, splits, first] = o.dims[..] else { return Vec::new() };
    let (turn, scale) = (o.floats[0], o.floats[1]);
    let (freqs, pos) = (o.tensors[3].clone(), o.pos);
    let turned = |x: &std::sync::Arc<amk::formula::Array>| {
        let tensors = vec![x.clone(), freqs.clone()];
        rope(&mut Operands { tensors, floats: vec![turn], dims: vec![dim], pos })
    };
    let (q, k, v) = (turned(&o.tensors[0]), turned(&o.tensors[1]), o.tensors[2].clone());
    let at = |g: usize, s: usize, row: usize| ((g * here + s) * rows + row) * dim;
    for (g, s) in (0..groups).flat_map(|g| (0..here).map(move |s| (g, s))) {
        if let Some((_, row)) = dealt(first + s, run, splits, pos).last().filter(|(t, _)| *t == pos) {
            for d in 0..dim {
                o.state(4).data[at(g, s, row) + d] = k[g * dim + d].value;
                o.state(5).data[at(g, s, row) + d] = v.data[g * dim + d];
            }
        }
    }
    let (mut outputs, mut sums) = (Vec::new(), Vec::new());
    for (h, s) in (0..groups * group).flat_map(|h| (0..here).map(move |s| (h, s))) {
        let count = dealt(first + s, run, splits, pos).count();
        let held = at(h / group, s, 0)..at(h / group, s, count);
        let q: Vec<f64> = q[h * dim..][..dim].iter().map(|q| q.value).collect();
        let (keys, values) = (&o.data(4)[held.clone()], &o.data(5)[held]);
        if count == 0 {
            outputs.extend(vec![Exact::copied(0.0); dim]);
            sums.push(Exact::copied(f64::from(f32::MIN)));
        } else {
            outputs.extend(attend(&q, keys, values, scale));
            sums.push(log_sum_exp(&q, keys, scale));
        }
    }
    [outputs, sums].concat()
}

/// `log(sum over t of exp(scale * q . k[t]))`. An error of a score counts by its share; the
/// logarithm of the sum is rounded, too.
fn log_sum_exp(q: &[f64], k: &[f64], scale: f64) -> Exact {
    let rows = k.chunks_exact(q.len());
    let scores: Vec<Exact> = rows.map(|row| Exact::sum(row.iter().zip(q).map(|(k, q)| scale * k * q))).collect();
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
    // The norms are rounded before anything else is.
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
        // An exponent is rounded, and so is what it is the exponent of.
        let term = |s: usize| {
            let value = (lse[s] - largest).exp() / sum * partial[(h * splits + s) * dim + d];
            Exact { value, magnitude: value.abs() * (2.0 + (lse[s] - largest).abs()) }
        };
        let terms = (0..splits).map(term);
        terms.fold(Exact::copied(0.0), |a, b| Exact { value: a.value + b.value, magnitude: a.magnitude + b.magnitude })
    };
    (0..heads * dim).map(|i| element(i / dim, i % dim)).collect()
}

/// The first of the largest logits with its token; then three zeros. Without a number among them,
/// the token is infinity.
fn best(o: &mut Operands) -> Vec<Exact> {
    let (logits, first) = (o.data(0), o.dims[0]);
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let token = logits.iter().position(|&x| x == largest).map_or(f64::INFINITY, |at| (first + at) as f64);
    [largest, token, 0.0, 0.0, 0.0].map(Exact::copied).to_vec()
}

/// [`best`] of nothing.
fn no_best(_: &mut Operands) -> Vec<Exact> {
    [f64::NEG_INFINITY, f64::INFINITY, 0.0, 0.0, 0.0].map(Exact::copied).to_vec()
}

/// The token of the largest logit, the lowest of several.
fn choose(o: &mut Operands) -> Vec<Exact> {
    let best = o.data(0).chunks_exact(2);
    let largest = best.clone().map(|best| best[0]).fold(f64::NEG_INFINITY, f64::max);
    let tokens = best.filter(|best| best[0] == largest).map(|best| best[1]);
    vec![Exact::copied(tokens.fold(f64::INFINITY, f64::min).max(0.0).trunc())]
}

/// What a greedy choice looks for.
fn nothing(_: &mut Operands) -> Vec<Exact> {
    vec![Exact::copied(0.0); 8 * 5 + 30]
}

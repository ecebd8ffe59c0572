//! The instructions' formulas in f64, from their definitions.

use amk::formula;
use amk::formula::{Exact, Operands};

formula!("amk_kernels::add", add);
formula!("amk_kernels::add_bias", add);
formula!("amk_kernels::argmax", argmax);
formula!("amk_kernels::attention", attention);
formula!("amk_kernels::embed", embed);
formula!("amk_kernels::gelu_mul", gelu_mul);
formula!("amk_kernels::head_norm", norm);
formula!("amk_kernels::kv_append", kv_append);
formula!("amk_kernels::linear", linear);
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

//! Root-mean-square normalisation.

mod decode;
mod deferred;
pub(crate) mod formula;
mod group;
mod phase;

pub(crate) use decode::{NORM, NORM_ROWS};
pub(crate) use deferred::{Deferral, defer, deferred};
pub use deferred::{Deferred, Scale, scale_by_squares, sum_squares, weigh};
pub(crate) use group::LastSum;
pub use group::Sum;
pub(crate) use group::{NormedResidual, NormedResiduals, leave_scale, settle, unsettled};
pub use phase::{Norm, NormBy, NormOutput, NormRows};
pub(crate) use phase::{Vector, norm_all, normed};

use crate::dot::dot;
use amk::prelude::*;

/// `y[i] = w[i] * x[i] / sqrt(mean(x^2) + eps)`.
///
/// `x: [N]` f32, `w: [N]` f32, f16 or bf16; `y: [N]` f32. Source: Zhang and Sennrich, Root Mean
/// Square Layer Normalization, 2019; `LlamaRMSNorm`.
///
/// # Panics
/// If the lengths differ.
#[instruction(op = "rms_norm", shape = "x: [N], w: [N] -> y: [N]", task = "y[..] <- x[..], w[..]", cuda = "body.cuh")]
pub fn rms_norm(x: &Tensor, w: &Weight, eps: f32) -> Tensor {
    assert_eq!(x.shape(), w.shape(), "`rms_norm` with a weight of another shape");
    normalise(x.data(), &w.row(0).to_f32(), eps).collect()
}

/// Normalises each head as [`rms_norm`] does, all with the same weight.
///
/// `x: [N]` f32 of `N / D` heads, `w: [D]` f32, f16 or bf16; `y: [N]` f32. Source: `Qwen3Attention`
/// (`q_norm`, `k_norm`).
///
/// # Panics
/// If `w` is not a vector or its length does not divide `x`'s.
#[instruction(
    op = "head_norm",
    shape = "x: [N], w: [D] -> y: [N]",
    multiples = "N % D",
    task = "h in 0..N step D: y[h..h+D] <- x[h..h+D], w[..]",
    cuda = "body.cuh"
)]
pub fn head_norm(x: &Tensor, w: &Weight, eps: f32) -> Tensor {
    assert!(
        matches!(w.shape(), [d] if *d > 0 && x.len().is_multiple_of(*d)),
        "`head_norm` of x: [{}] with w: {:?}",
        x.len(),
        w.shape()
    );
    let w = w.row(0).to_f32();
    x.data().chunks_exact(w.len()).flat_map(|head| normalise(head, &w, eps)).collect()
}

fn normalise<'a>(x: &'a [f32], w: &'a [f32], eps: f32) -> impl Iterator<Item = f32> + 'a {
    let mean = dot(x, x) / x.len() as f32;
    let scale = 1.0 / (mean + eps).sqrt();
    x.iter().zip(w).map(move |(x, w)| w * (x * scale))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{close, random};
    use proptest::prelude::*;

    fn naive(x: &[f32], w: &[f32], eps: f64) -> Vec<f64> {
        let mean = x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / x.len() as f64;
        x.iter().zip(w).map(|(&x, &w)| f64::from(w) * f64::from(x) / (mean + eps).sqrt()).collect()
    }

    proptest! {
        #[test]
        fn equals_the_formula_in_f64(heads in 1usize..6, dim in 1usize..200, seed in 0u64..1000) {
            let (x, w) = (random(seed, heads * dim), random(seed + 1, dim));
            let weight = Weight::f32(&[dim], w.clone()).unwrap();
            let exact: Vec<f64> = x.chunks(dim).flat_map(|head| naive(head, &w, 1e-5)).collect();
            close(head_norm(&Tensor::from(x.as_slice()), &weight, 1e-5).data(), &exact, 1e-5);
            close(rms_norm(&Tensor::from(&x[..dim]), &weight, 1e-5).data(), &exact[..dim], 1e-5);
        }
    }
}

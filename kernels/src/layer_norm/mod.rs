//! Layer normalisation.

mod formula;
mod group;

pub(crate) use group::{CENTRED, CentredNorm, CentredNorms};

use amk::prelude::*;

/// `y[i] = w[i] * (x[i] - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) + bias[i]`.
///
/// `x: [N]` f32, `w: [N]`, `bias: [N]` f32, f16 or bf16; `y: [N]` f32. Source: Ba et al., Layer
/// Normalization, 2016; `torch.nn.LayerNorm`.
///
/// # Panics
/// If the lengths differ.
#[instruction(
    op = "layer_norm",
    shape = "x: [N], w: [N], bias: [N] -> y: [N]",
    task = "y[..] <- x[..], w[..], bias[..]",
    cuda = "body.cuh"
)]
pub fn layer_norm(x: &Tensor, w: &Weight, bias: &Weight, eps: f32) -> Tensor {
    assert!(x.shape() == w.shape() && x.shape() == bias.shape(), "`layer_norm` with weights of another shape");
    let (w, bias) = (w.row(0).to_f32(), bias.row(0).to_f32());
    let normed = centred(x.data(), eps);
    normed.zip(&*w).zip(&*bias).map(|((x, w), bias)| w * x + bias).collect()
}

/// Like [`layer_norm`] without a bias: `y[i] = w[i] * (x[i] - mean(x)) / sqrt(mean((x -
/// mean(x))^2) + eps)`.
///
/// `x: [N]` f32, `w: [N]` f32, f16 or bf16; `y: [N]` f32. Source: `CohereLayerNorm`.
///
/// # Panics
/// If the lengths differ.
#[instruction(
    op = "centred_norm",
    shape = "x: [N], w: [N] -> y: [N]",
    task = "y[..] <- x[..], w[..]",
    cuda = "body.cuh"
)]
pub fn centred_norm(x: &Tensor, w: &Weight, eps: f32) -> Tensor {
    assert_eq!(x.shape(), w.shape(), "`centred_norm` with a weight of another shape");
    centred(x.data(), eps).zip(&*w.row(0).to_f32()).map(|(x, w)| w * x).collect()
}

/// `(x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps)`. The differences are squared: squaring the
/// elements themselves loses all digits if the mean is large.
fn centred(x: &[f32], eps: f32) -> impl Iterator<Item = f32> + '_ {
    let mean = x.iter().sum::<f32>() / x.len() as f32;
    let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / x.len() as f32;
    let scale = 1.0 / (variance + eps).sqrt();
    x.iter().map(move |x| (x - mean) * scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{close, random};
    use proptest::prelude::*;

    fn naive(x: &[f32], eps: f64) -> Vec<f64> {
        let x: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64;
        x.iter().map(|x| (x - mean) / (variance + eps).sqrt()).collect()
    }

    proptest! {
        #[test]
        fn equals_the_formula_in_f64(len in 2usize..300, seed in 0u64..1000, shift in -4f32..4.0) {
            let x: Vec<f32> = random(seed, len).into_iter().map(|x| x + shift).collect();
            let (w, bias) = (random(seed + 1, len), random(seed + 2, len));
            let weight = |values: &[f32]| Weight::f32(&[len], values.to_vec()).unwrap();
            let normed = naive(&x, 1e-3);
            let scaled: Vec<f64> = normed.iter().zip(&w).map(|(x, &w)| x * f64::from(w)).collect();
            let exact: Vec<f64> = scaled.iter().zip(&bias).map(|(x, &bias)| x + f64::from(bias)).collect();
            let x = Tensor::from(x);
            close(layer_norm(&x, &weight(&w), &weight(&bias), 1e-3).data(), &exact, 1e-4);
            close(centred_norm(&x, &weight(&w), 1e-3).data(), &scaled, 1e-4);
        }
    }
}

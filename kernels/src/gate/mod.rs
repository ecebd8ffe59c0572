//! Activations of an MLP, and gates without one.

mod formula;

use amk::prelude::*;
use amk_cuda::Pointwise;

amk_cuda::pointwise!(Pointwise {
    instruction: "amk_kernels::silu_mul",
    function: "silu_gate",
    code: include_str!("pointwise.cuh"),
});

amk_cuda::pointwise!(Pointwise {
    instruction: "amk_kernels::gelu_mul",
    function: "gelu_gate",
    code: include_str!("pointwise.cuh"),
});

amk_cuda::pointwise!(Pointwise {
    instruction: "amk_kernels::gelu",
    function: "gelu_of",
    code: include_str!("pointwise.cuh"),
});

amk_cuda::pointwise!(Pointwise {
    instruction: "amk_kernels::gelu_erf",
    function: "gelu_erf_of",
    code: include_str!("pointwise.cuh"),
});

amk_cuda::pointwise!(Pointwise {
    instruction: "amk_kernels::mul",
    function: "gated",
    code: include_str!("pointwise.cuh"),
});

amk_cuda::pointwise!(Pointwise {
    instruction: "amk_kernels::relu_squared",
    function: "relu_squared_of",
    code: include_str!("pointwise.cuh"),
});

/// `y = gate * x`: a gate without an activation.
///
/// `gate: [N]`, `x: [N]`, `y: [N]`, all f32. Source: Poli et al., Hyena Hierarchy, 2023, section 3;
/// `Lfm2ShortConv`.
///
/// # Panics
/// If the lengths differ.
#[instruction(
    op = "mul",
    shape = "gate: [N], x: [N] -> y: [N]",
    tile = "T = 16",
    task = "n in 0..N step T: y[n..n+T] <- gate[n..n+T], x[n..n+T]",
    cuda = "body.cuh"
)]
pub fn mul(gate: &Tensor, x: &Tensor) -> Tensor {
    gated(gate, x, |gate| gate)
}

/// `y = silu(gate) * up` with `silu(x) = x / (1 + exp(-x))`.
///
/// `gate: [N]`, `up: [N]`, `y: [N]`, all f32. Source: Shazeer, GLU Variants Improve Transformer,
/// 2020 (SwiGLU); `LlamaMLP`.
///
/// # Panics
/// If the lengths differ.
#[instruction(
    op = "silu_mul",
    shape = "gate: [N], up: [N] -> y: [N]",
    tile = "T = 16",
    task = "n in 0..N step T: y[n..n+T] <- gate[n..n+T], up[n..n+T]",
    cuda = "body.cuh"
)]
pub fn silu_mul(gate: &Tensor, up: &Tensor) -> Tensor {
    gated(gate, up, |x| x / (1.0 + (-x).exp()))
}

/// `y = gelu(gate) * up` with `gelu(x) = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`.
///
/// `gate: [N]`, `up: [N]`, `y: [N]`, all f32. Source: Hendrycks and Gimpel, Gaussian Error Linear
/// Units, 2016, section 2; `gelu_pytorch_tanh`.
///
/// # Panics
/// If the lengths differ.
#[instruction(
    op = "gelu_mul",
    shape = "gate: [N], up: [N] -> y: [N]",
    tile = "T = 16",
    task = "n in 0..N step T: y[n..n+T] <- gate[n..n+T], up[n..n+T]",
    cuda = "body.cuh"
)]
pub fn gelu_mul(gate: &Tensor, up: &Tensor) -> Tensor {
    gated(gate, up, gelu_of)
}

/// `y = gelu(x)`, as in [`gelu_mul`]: the activation of an MLP without a gate.
///
/// `x: [N]`, `y: [N]`, all f32. Source: as [`gelu_mul`].
#[instruction(
    op = "gelu",
    shape = "x: [N] -> y: [N]",
    tile = "T = 16",
    task = "n in 0..N step T: y[n..n+T] <- x[n..n+T]",
    cuda = "body.cuh"
)]
pub fn gelu(x: &Tensor) -> Tensor {
    x.data().iter().copied().map(gelu_of).collect()
}

/// `y = x / 2 * (1 + erf(x / sqrt(2)))`: the activation of an MLP without a gate.
///
/// `x: [N]`, `y: [N]`, all f32. Source: as [`gelu_mul`]; `gelu` of transformers.
#[instruction(
    op = "gelu_erf",
    shape = "x: [N] -> y: [N]",
    tile = "T = 16",
    task = "n in 0..N step T: y[n..n+T] <- x[n..n+T]",
    cuda = "body.cuh"
)]
pub fn gelu_erf(x: &Tensor) -> Tensor {
    let of = |x: f64| 0.5 * x * (1.0 + erf(x * core::f64::consts::FRAC_1_SQRT_2));
    x.data().iter().map(|&x| of(f64::from(x)) as f32).collect()
}

/// `y = max(x, 0)^2`: the activation of an MLP without a gate.
///
/// `x: [N]`, `y: [N]`, all f32. Source: So et al., Primer, 2021, section 4.
#[instruction(
    op = "relu_squared",
    shape = "x: [N] -> y: [N]",
    tile = "T = 16",
    task = "n in 0..N step T: y[n..n+T] <- x[n..n+T]",
    cuda = "body.cuh"
)]
pub fn relu_squared(x: &Tensor) -> Tensor {
    x.data().iter().map(|x| x.max(0.0) * x.max(0.0)).collect()
}

fn gelu_of(x: f32) -> f32 {
    const FACTOR: f32 = core::f32::consts::FRAC_2_SQRT_PI * core::f32::consts::FRAC_1_SQRT_2;
    0.5 * x * (1.0 + (FACTOR * (x + 0.044_715 * x * x * x)).tanh())
}

/// The error function, by a series of terms of one sign. Source: Abramowitz and Stegun, 7.1.6.
fn erf(x: f64) -> f64 {
    // Beyond, it is 1 in f64.
    let x = x.clamp(-6.0, 6.0);
    let mut term = core::f64::consts::FRAC_2_SQRT_PI * x * (-x * x).exp();
    let (mut sum, mut odd) = (term, 1.0);
    while term.abs() > f64::EPSILON * sum.abs() {
        odd += 2.0;
        term *= 2.0 * x * x / odd;
        sum += term;
    }
    sum
}

fn gated(gate: &Tensor, up: &Tensor, activation: impl Fn(f32) -> f32) -> Tensor {
    assert_eq!(gate.shape(), up.shape(), "a gate and a value of different shapes");
    gate.data().iter().zip(up.data()).map(|(gate, up)| activation(*gate) * up).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{close, random};

    fn check(function: fn(&Tensor, &Tensor) -> Tensor, activation: fn(f64) -> f64) {
        let (gate, up) = (random(1, 500), random(2, 500));
        let gate: Vec<f32> = gate.into_iter().map(|x| 8.0 * x).chain([0.0, -100.0, 100.0]).collect();
        let up: Vec<f32> = up.into_iter().chain([1.0; 3]).collect();
        let exact: Vec<f64> =
            gate.iter().zip(&up).map(|(&gate, &up)| activation(f64::from(gate)) * f64::from(up)).collect();
        close(function(&Tensor::from(gate), &Tensor::from(up)).data(), &exact, 1e-5);
    }

    #[test]
    fn a_gate_without_an_activation_is_a_product() {
        assert_eq!(mul(&Tensor::from([2.0, -3.0]), &Tensor::from([0.5, 4.0])).data(), [1.0, -12.0]);
    }

    /// Values of the standard normal distribution function.
    #[test]
    fn gelu_by_the_error_function_is_the_input_times_a_probability() {
        let x = [0.0, 1.0, -1.0, 2.5, -3.0, 40.0, -40.0];
        let share = [0.5, 0.841_344_746, 0.158_655_254, 0.993_790_335, 0.001_349_898, 1.0, 0.0];
        let exact: Vec<f64> = x.iter().zip(share).map(|(&x, share)| f64::from(x) * share).collect();
        close(gelu_erf(&Tensor::from(x)).data(), &exact, 1e-6);
        assert!(gelu_erf(&Tensor::from([f32::NAN])).data()[0].is_nan());
    }

    #[test]
    fn negative_inputs_have_no_square() {
        assert_eq!(relu_squared(&Tensor::from([-2.0, 0.0, 0.5, 3.0])).data(), [0.0, 0.0, 0.25, 9.0]);
    }

    #[test]
    fn silu_equals_the_formula_in_f64() {
        check(silu_mul, |x| x / (1.0 + (-x).exp()));
    }

    #[test]
    fn gelu_without_a_gate_is_that_of_a_gated_mlp() {
        let x = Tensor::from(random(3, 100));
        let ones = Tensor::from(vec![1.0; 100]);
        assert_eq!(gelu(&x).data(), gelu_mul(&x, &ones).data());
    }

    #[test]
    fn gelu_equals_the_formula_in_f64() {
        check(gelu_mul, |x| {
            0.5 * x * (1.0 + ((2.0 / core::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
        });
    }
}

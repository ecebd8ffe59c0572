//! Values with a bound.

mod formula;

use amk::prelude::*;
use amk_cuda::Pointwise;

amk_cuda::pointwise!(Pointwise {
    instruction: "amk_kernels::soft_cap",
    function: "capped",
    code: include_str!("pointwise.cuh"),
});

/// `y = cap * tanh(x / cap)`: values between `-cap` and `cap`.
///
/// `x: [N]`, `y: [N]`, all f32; `cap` above 0. Source: Gemma Team, Gemma 2, 2024, section 2;
/// `final_logit_softcapping`.
#[instruction(
    op = "soft_cap",
    shape = "x: [N] -> y: [N]",
    tile = "T = 16",
    task = "n in 0..N step T: y[n..n+T] <- x[n..n+T]",
    cuda = "body.cuh"
)]
pub fn soft_cap(x: &Tensor, cap: f32) -> Tensor {
    x.data().iter().map(|x| cap * (x / cap).tanh()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_values_stay_and_large_ones_end_at_the_cap() {
        let y = soft_cap(&Tensor::from([0.0, 1e-3, 1e6, -1e6]), 30.0);
        assert_eq!(y.data(), [0.0, 1e-3, 30.0, -30.0]);
    }
}

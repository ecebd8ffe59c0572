//! Multiplication by a constant.

mod formula;

use amk::prelude::*;
use amk_cuda::Pointwise;

amk_cuda::pointwise!(Pointwise {
    instruction: "amk_kernels::scale",
    function: "scaled",
    code: include_str!("pointwise.cuh"),
});

/// `y = factor * x`: the multipliers of embeddings, residuals and logits.
///
/// `x: [N]`, `y: [N]`, all f32. Source: Yang et al., Tensor Programs V, 2022; `GraniteModel`.
#[instruction(
    op = "scale",
    shape = "x: [N] -> y: [N]",
    tile = "T = 16",
    task = "n in 0..N step T: y[n..n+T] <- x[n..n+T]",
    cuda = "body.cuh"
)]
pub fn scale(x: &Tensor, factor: f32) -> Tensor {
    x.data().iter().map(|x| factor * x).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiplies_each_element() {
        assert_eq!(scale(&Tensor::from([1.0, -2.5]), 0.5).data(), [0.5, -1.25]);
    }
}

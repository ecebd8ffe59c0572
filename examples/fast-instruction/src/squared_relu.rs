//! A rectifier that squares.

use amk::formula::{Exact, Operands};
use amk::prelude::*;
use amk_cuda::Pointwise;

/// `y = max(x, 0)^2`, element by element.
///
/// `x: [N]` f32, `y: [N]` f32. Source: So et al., Primer, 2021, section 4.1.
#[instruction(
    op = "squared_relu",
    shape = "x: [N] -> y: [N]",
    tile = "T = 16",
    task = "n in 0..N step T: y[n..n+T] <- x[n..n+T]",
    cuda = "squared_relu.cuh"
)]
pub fn squared_relu(x: &Tensor) -> Tensor {
    x.data().iter().map(|x| x.max(0.0).powi(2)).collect()
}

amk::formula!("amk_fast_instruction::squared_relu", |o: &mut Operands| {
    o.data(0).iter().map(|x| Exact::product(x.max(0.0).powi(2))).collect()
});

// ANCHOR: POINTWISE
amk_cuda::pointwise!(Pointwise {
    instruction: "amk_fast_instruction::squared_relu",
    function: "squared_relu_of",
    code: "AMK_DEVICE float squared_relu_of(float x) { const float v = fmaxf(x, 0.0f); return v * v; }\n",
});
// ANCHOR_END: POINTWISE

//! A squared-ReLU gate.

use amk::formula::{Exact, Operands};
use amk::prelude::*;

/// `y = max(gate, 0)^2 * up`.
///
/// `gate: [N]`, `up: [N]`, `y: [N]`, all f32. Source: So et al., Primer, 2021, section 4.1 (squared
/// ReLU), as a gate.
///
/// # Panics
/// When the lengths differ.
#[instruction(
    op = "relu_squared_mul",
    shape = "gate: [N], up: [N] -> y: [N]",
    tile = "T = 16",
    task = "n in 0..N step T: y[n..n+T] <- gate[n..n+T], up[n..n+T]",
    cuda = "relu_squared.cuh"
)]
pub fn relu_squared_mul(gate: &Tensor, up: &Tensor) -> Tensor {
    assert_eq!(gate.shape(), up.shape(), "a gate and a value of different shapes");
    gate.data().iter().zip(up.data()).map(|(gate, up)| gate.max(0.0).powi(2) * up).collect()
}

amk::formula!("amk_user_instruction::relu_squared_mul", |o: &mut Operands| {
    o.data(0).iter().zip(o.data(1)).map(|(gate, up)| Exact::product(gate.max(0.0).powi(2) * up)).collect()
});

//! A megakernel returns what an op has computed.

use amk::prelude::*;
use amk_kernels::linear;

#[derive(WeightLayout)]
struct Mlp {
    #[weight("up", [FFN, HIDDEN])]
    up: Weight,
}

#[megakernel(dims(HIDDEN, FFN), inputs(x: [HIDDEN]))]
fn kernel(x: &Tensor, w: &Mlp) -> (Tensor, f32) {
    (linear(x, &w.up), 1.0)
}

fn main() {}

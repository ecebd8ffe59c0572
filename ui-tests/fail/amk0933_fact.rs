//! A fact about dims is a multiple or an equality.

use amk::prelude::*;
use amk_kernels::linear;

#[derive(WeightLayout)]
struct Mlp {
    #[weight("up", [FFN, HIDDEN])]
    up: Weight,
}

#[megakernel(dims(HIDDEN, FFN), where(FFN > HIDDEN), inputs(x: [HIDDEN]))]
fn kernel(x: &Tensor, w: &Mlp) -> Tensor {
    linear(x, &w.up)
}

fn main() {}

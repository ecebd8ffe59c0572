//! A variable keeps its shape.

use amk::prelude::*;
use amk_kernels::{add, linear};

#[derive(WeightLayout)]
struct Mlp {
    #[weight("up", [FFN, HIDDEN])]
    up: Weight,
    #[weight("down", [HIDDEN, FFN])]
    down: Weight,
}

#[megakernel(
    dims(HIDDEN, FFN),
    inputs(x: [HIDDEN])
)]
fn kernel(x: &Tensor, w: &Mlp) -> Tensor {
    let mut y = add(x, x);
    y = linear(&y, &w.up);
    linear(&y, &w.up)
}

fn main() {}

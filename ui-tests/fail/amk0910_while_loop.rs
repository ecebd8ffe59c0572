//! The number of iterations of a loop is a dim.

use amk::prelude::*;
use amk_kernels::{add, linear};

#[derive(WeightLayout)]
struct Mlp {
    #[weight("up", [FFN, HIDDEN])]
    up: Weight,
    #[weight("down", [HIDDEN, FFN])]
    down: Weight,
}

#[megakernel(dims(HIDDEN, FFN), inputs(x: [HIDDEN]))]
fn kernel(x: &Tensor, w: &Mlp) -> Tensor {
    let mut y = add(x, x);
    while y.data()[0] < 1.0 {
        y = linear(&linear(&y, &w.up), &w.down);
    }
    y
}

fn main() {}

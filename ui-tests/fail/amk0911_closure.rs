//! A closure has no signature, wherever it is called.

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
    let mlp = |x: &Tensor| linear(&relu(&linear(x, &w.up)), &w.down);
    add(x, &mlp(x))
}

fn relu(x: &Tensor) -> Tensor {
    x.data().iter().map(|x| x.max(0.0)).collect()
}

fn main() {}

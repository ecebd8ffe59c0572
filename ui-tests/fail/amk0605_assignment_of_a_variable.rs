//! A variable assigned in a loop keeps its shape, even where another has the same name.

use amk::prelude::*;
use amk_kernels::{add, linear};

#[derive(WeightLayout)]
struct Mlp {
    #[weight("up", [FFN, HIDDEN])]
    up: Weight,
    #[weight("down", [HIDDEN, FFN])]
    down: Weight,
}

#[megakernel(dims(HIDDEN, FFN, LAYERS), inputs(x: [HIDDEN]), schedule(workers = 4))]
fn kernel(x: &Tensor, w: &Mlp) -> Tensor {
    let mut x = add(x, x);
    for _ in 0..LAYERS {
        let g = linear(&x, &w.up);
        x = g;
    }
    linear(&x, &w.up)
}

const LAYERS: usize = 2;

fn main() {}

//! A number is due, and a word is given.

use amk::prelude::*;
use amk_kernels::linear;

#[derive(WeightLayout)]
struct Mlp {
    #[weight("up", [FFN, HIDDEN])]
    up: Weight,
    #[weight("down", [HIDDEN, FFN])]
    down: Weight,
}

#[megakernel(dims(HIDDEN, FFN), inputs(x: [HIDDEN]), schedule(workers = many))]
fn kernel(x: &Tensor, w: &Mlp) -> Tensor {
    linear(&linear(x, &w.up), &w.down)
}

fn main() {}

//! The exchange belongs to a whole program, not to an edge between two calls.

use amk::prelude::*;
use amk_kernels::linear;

#[derive(WeightLayout)]
struct Mlp {
    #[weight("up", [FFN, HIDDEN])]
    up: Weight,
    #[weight("down", [HIDDEN, FFN])]
    down: Weight,
}

#[megakernel(dims(HIDDEN, FFN), inputs(x: [HIDDEN]), schedule(exchange(linear = packets)))]
fn kernel(x: &Tensor, w: &Mlp) -> Tensor {
    linear(&linear(x, &w.up), &w.down)
}

fn main() {}

//! Flags decide which calls a graph has.

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
    if x.len() > 1 { linear(&linear(x, &w.up), &w.down) } else { add(x, x) }
}

fn main() {}

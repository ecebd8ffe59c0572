//! Both branches of an `if` give a value of one shape.

use amk::prelude::*;
use amk_kernels::linear;

#[derive(WeightLayout)]
struct Mlp {
    #[weight("up", [FFN, HIDDEN])]
    up: Weight,
    #[weight("down", [HIDDEN, FFN])]
    down: Weight,
    #[flag]
    wide: bool,
}

#[megakernel(dims(HIDDEN, FFN), inputs(x: [HIDDEN]))]
fn kernel(x: &Tensor, w: &Mlp) -> Tensor {
    if w.wide {
        linear(x, &w.up)
    } else {
        linear(&linear(x, &w.up), &w.down)
    }
}

fn main() {}

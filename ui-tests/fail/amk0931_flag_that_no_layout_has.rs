//! An instance says which branch is verified: its flags and numbers are fields of the layouts.

use amk::prelude::*;
use amk_kernels::{add, linear};

#[derive(WeightLayout)]
struct Mlp {
    #[weight("up", [FFN, HIDDEN])]
    up: Weight,
    #[weight("down", [HIDDEN, FFN])]
    down: Weight,
    #[flag]
    residual: bool,
}

#[megakernel(
    dims(HIDDEN, FFN), inputs(x: [HIDDEN]),
    instances(
        tiny(HIDDEN = 64, FFN = 128, w.residaul = true),
        small(HIDDEN = 64, FFN = 256, w.residual = 1.5)
    )
)]
fn kernel(x: &Tensor, w: &Mlp) -> Tensor {
    let y = linear(&linear(x, &w.up), &w.down);
    if w.residual { add(x, &y) } else { y }
}

fn main() {}

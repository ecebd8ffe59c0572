//! An instance meets what is declared of the dims.

use amk::prelude::*;
use amk_kernels::linear;

#[derive(WeightLayout)]
struct Mlp {
    #[weight("up", [FFN, HIDDEN])]
    up: Weight,
    #[weight("down", [HIDDEN, FFN])]
    down: Weight,
}

#[megakernel(
    dims(HIDDEN, FFN),
    where(FFN % HIDDEN),
    inputs(x: [HIDDEN]),
    instances(tiny(HIDDEN = 64, FFN = 96))
)]
fn kernel(x: &Tensor, w: &Mlp) -> Tensor {
    linear(&linear(x, &w.up), &w.down)
}

fn main() {}

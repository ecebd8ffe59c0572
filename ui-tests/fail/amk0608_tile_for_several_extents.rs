//! A tile divides the extents of all calls of its instruction; so does the one that is advised.

use amk::prelude::*;
use amk_kernels::linear;

#[derive(WeightLayout)]
struct Mlp {
    #[weight("up", [FFN, HIDDEN])]
    up: Weight,
    #[weight("down", [HIDDEN, FFN])]
    down: Weight,
}

#[megakernel(dims(HIDDEN, FFN), inputs(x: [HIDDEN]),
    instances(tiny(HIDDEN = 72, FFN = 96, schedule(workers = 4, tile(linear = 32)))),
    schedule(workers = 4, tile(linear = 8))
)]
fn kernel(x: &Tensor, w: &Mlp) -> Tensor {
    linear(&linear(x, &w.up), &w.down)
}

fn main() {}

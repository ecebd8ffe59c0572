//! Every tile's element exists.

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
    inputs(x: [HIDDEN]),
    instances(tiny(HIDDEN = 64, FFN = 128)),
    schedule(workers = 4, tile(linear = 32)),
    events(up_done[2])
)]
fn kernel(x: &Tensor, w: &Mlp) -> Tensor {
    #[signal(up_done[n])]
    let h = linear(x, &w.up);
    linear(&h, &w.down)
}

fn main() {}

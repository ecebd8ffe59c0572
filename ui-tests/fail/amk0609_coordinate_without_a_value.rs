//! Coordinates are over tile numbers, loop indices and dims.

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
    events(up_done[FFN])
)]
fn kernel(x: &Tensor, w: &Mlp) -> Tensor {
    #[signal(up_done[tile])]
    let h = linear(x, &w.up);
    linear(&h, &w.down)
}

fn main() {}

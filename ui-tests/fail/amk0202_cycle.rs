//! The classic eight, 1: A cycle: `up` waits for `down`, which reads what `up` computes.

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
    dims(HIDDEN, FFN), inputs(x: [HIDDEN]),
    instances(tiny(HIDDEN = 64, FFN = 128)),
    schedule(workers = 4, tile(linear = 32)),
    events(done)
)]
fn kernel(x: &Tensor, w: &Mlp) -> Tensor {
    #[wait(done == 2)]
    let h = linear(x, &w.up);
    #[signal(done)]
    let y = linear(&h, &w.down);
    y
}

fn main() {}

//! Pipelined steps: the next step's writes wait for this step's reads.

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
    schedule(workers = 4, tile(linear = 32), steps = pipelined),
    events(up_done)
)]
fn kernel(x: &Tensor, w: &Mlp) -> Tensor {
    #[signal(up_done)]
    let h = linear(x, &w.up);
    #[wait(up_done == 4)]
    let y = linear(&h, &w.down);
    y
}

fn main() {}

//! A wait stands on the statement of its op: on an argument it would be lost.

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
    events(up_done)
)]
fn kernel(x: &Tensor, w: &Mlp) -> Tensor {
    #[signal(up_done)]
    let h = linear(x, &w.up);
    let y = #[wait(up_done == 4)] linear(&h, &w.down);
    y
}

fn main() {}

//! The classic eight, 3: Waits by hand replace the derived ones: here the one for `h` is forgotten.

use amk::prelude::*;
use amk_kernels::{add, linear};

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
    schedule(workers = 4, tile(linear = 32, add = whole)),
    events(x_done)
)]
fn kernel(x: &Tensor, w: &Mlp) -> Tensor {
    #[signal(x_done)]
    let z = add(x, x);
    let h = linear(&z, &w.up);
    #[wait(x_done == 1)]
    let y = add(&z, &linear(&h, &w.down));
    y
}

fn main() {}

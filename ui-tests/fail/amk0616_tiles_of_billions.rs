//! So are the tasks, whatever makes them many, and the counters.

use amk::prelude::*;
use amk_kernels::linear;

#[derive(WeightLayout)]
struct Mlp {
    #[weight("up", [FFN, HIDDEN])]
    up: Weight,
    #[weight("down", [HIDDEN, FFN])]
    down: Weight,
}

#[megakernel(dims(HIDDEN, FFN), inputs(x: [HIDDEN]), events(e[FFN]),
    instances(
        tiles(HIDDEN = 64, FFN = 2_000_000_000, schedule(tile(linear = 1))),
        counters(HIDDEN = 64, FFN = 2_000_000_000),
        workers(HIDDEN = 64, FFN = 128, schedule(workers = 4_000_000_000)),
    )
)]
fn kernel(x: &Tensor, w: &Mlp) -> Tensor {
    linear(&linear(x, &w.up), &w.down)
}

fn main() {}

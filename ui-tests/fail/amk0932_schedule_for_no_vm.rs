//! The CPU VM alone has one queue for all workers, and GPUs alone have splits.

use amk::prelude::*;
use amk_kernels::linear;

#[derive(WeightLayout)]
struct Mlp {
    #[weight("up", [FFN, HIDDEN])]
    up: Weight,
    #[weight("down", [HIDDEN, FFN])]
    down: Weight,
}

#[megakernel(dims(HIDDEN, FFN), inputs(x: [HIDDEN]), schedule(queue = ticket, splits = 4))]
fn kernel(x: &Tensor, w: &Mlp) -> Tensor {
    linear(&linear(x, &w.up), &w.down)
}

fn main() {}

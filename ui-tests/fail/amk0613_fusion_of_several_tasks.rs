//! A call that is fused into its consumers has one task.

use amk::prelude::*;
use amk_kernels::linear;

#[derive(WeightLayout)]
struct Mlp {
    #[weight("down", [HIDDEN, FFN])]
    down: Weight,
}

#[instruction(
    op = "square_tile",
    shape = "x: [N] -> y: [N]",
    multiples = "N % 16",
    task = "n in 0..N step 16: y[n..n+16] <- x[n..n+16]"
)]
fn square(x: &Tensor) -> Tensor {
    x.data().iter().map(|x| x * x).collect()
}

#[megakernel(
    dims(HIDDEN, FFN),
    where(FFN % 16),
    inputs(x: [FFN]),
    instances(tiny(HIDDEN = 64, FFN = 128)),
    schedule(workers = 4, tile(linear = 32), fuse(square = consumers))
)]
fn kernel(x: &Tensor, w: &Mlp) -> Tensor {
    linear(&square(x), &w.down)
}

fn main() {}

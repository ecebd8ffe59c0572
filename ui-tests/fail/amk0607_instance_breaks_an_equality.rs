//! An instance meets declared equalities.

use amk::prelude::*;
use amk_kernels::linear;

#[derive(WeightLayout)]
struct Gate {
    #[weight("up", [FFN, HIDDEN])]
    up: Weight,
    #[weight("down", [HIDDEN, FFN])]
    down: Weight,
}

#[megakernel(
    dims(HIDDEN, FFN),
    where(FFN == 2 * HIDDEN),
    inputs(x: [HIDDEN]),
    instances(tiny(HIDDEN = 64, FFN = 256))
)]
fn kernel(x: &Tensor, w: &Gate) -> Tensor {
    linear(&linear(x, &w.up), &w.down)
}

fn main() {}

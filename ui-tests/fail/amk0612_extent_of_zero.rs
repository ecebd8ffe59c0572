//! Every extent is positive.

use amk::prelude::*;
use amk_kernels::add;

#[megakernel(
    dims(HIDDEN),
    inputs(x: [HIDDEN - 64]),
    instances(tiny(HIDDEN = 64))
)]
fn kernel(x: &Tensor) -> Tensor {
    add(x, x)
}

fn main() {}

//! A result that nothing uses would be computed in every step.

use amk::prelude::*;
use amk_kernels::add;

#[megakernel(dims(HIDDEN), inputs(x: [HIDDEN]))]
fn kernel(x: &Tensor) -> Tensor {
    add(x, x);
    add(x, x)
}

fn main() {}

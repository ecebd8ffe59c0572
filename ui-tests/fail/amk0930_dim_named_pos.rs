//! `pos` is the position of the step, not a dim.

use amk::prelude::*;
use amk_kernels::add;

#[megakernel(dims(pos), inputs(x: [pos]))]
fn kernel(x: &Tensor) -> Tensor {
    add(x, x)
}

fn main() {}

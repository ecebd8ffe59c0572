//! Tensors are computed by instructions.

use amk::prelude::*;
use amk_kernels::add;

#[megakernel(dims(HIDDEN), inputs(x: [HIDDEN]))]
fn kernel(x: &Tensor) -> Tensor {
    let y = add(x, x);
    y + x
}

fn main() {}

//! Behind its binding a name is the variable.

use amk::prelude::*;
use amk_kernels::add;

#[megakernel(dims(HIDDEN), inputs(x: [HIDDEN]))]
fn kernel(x: &Tensor) -> Tensor {
    let add = add(x, x);
    add(&add, x)
}

fn main() {}

//! A constant is a dim, or the macro cannot see it.

use amk::prelude::*;
use amk_kernels::add;

#[megakernel(dims(HIDDEN), inputs(x: [HIDDEN]))]
fn kernel(x: &Tensor) -> Tensor {
    let mut y = add(x, x);
    for _ in 0..LAYERS {
        y = add(&y, x);
    }
    y
}

const LAYERS: usize = 2;

fn main() {}

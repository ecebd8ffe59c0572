//! Loops count from 0.

use amk::prelude::*;
use amk_kernels::add;

#[megakernel(dims(HIDDEN, LAYERS), inputs(x: [HIDDEN]))]
fn kernel(x: &Tensor) -> Tensor {
    let mut y = add(x, x);
    for _ in 1..LAYERS {
        y = add(&y, x);
    }
    y
}

const LAYERS: usize = 2;

fn main() {}

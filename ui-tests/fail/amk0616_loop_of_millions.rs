//! The rounds of a loop are counted before they are made.

use amk::prelude::*;
use amk_kernels::add;

const DEPTH: usize = 3_000_000;

#[megakernel(dims(HIDDEN, DEPTH), inputs(x: [HIDDEN]), instances(deep(HIDDEN = 64, DEPTH = 3_000_000)))]
fn kernel(x: &Tensor) -> Tensor {
    let mut y = add(x, x);
    for _ in 0..DEPTH {
        y = add(&y, x);
    }
    y
}

fn main() {}

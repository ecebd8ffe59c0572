//! Numbers and flags are fields of a layout.

use amk::prelude::*;
use amk_kernels::add;

#[megakernel(dims(HIDDEN), inputs(x: [HIDDEN]))]
fn kernel(x: &Tensor, rounds: usize, eps: f32, double: bool) -> Tensor {
    let _ = (rounds, eps, double);
    add(x, x)
}

fn main() {}

//! Every step runs all of the graph.

use amk::prelude::*;
use amk_kernels::add;

#[megakernel(dims(HIDDEN), inputs(x: [HIDDEN]))]
fn kernel(x: &Tensor) -> Tensor {
    return add(x, x);
}

fn main() {}

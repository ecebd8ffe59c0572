//! A struct is a layout by its derive.

use amk::prelude::*;
use amk_kernels::linear;

struct Mlp {
    up: Weight,
}

#[megakernel(dims(HIDDEN, FFN), inputs(x: [HIDDEN]))]
fn kernel(x: &Tensor, w: &Mlp) -> Tensor {
    linear(x, &w.up)
}

fn main() {}

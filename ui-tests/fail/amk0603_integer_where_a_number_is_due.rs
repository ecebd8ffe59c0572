//! An `f32` is written as one.

use amk::prelude::*;
use amk_kernels::rms_norm;

#[derive(WeightLayout)]
struct Norm {
    #[weight("norm", [HIDDEN])]
    norm: Weight,
    #[dim(HIDDEN)]
    hidden: usize,
}

#[megakernel(dims(HIDDEN), inputs(x: [HIDDEN]))]
fn kernel(x: &Tensor, w: &Norm) -> Tensor {
    let y = rms_norm(x, &w.norm, 1);
    rms_norm(&y, &w.norm, w.hidden)
}

fn main() {}

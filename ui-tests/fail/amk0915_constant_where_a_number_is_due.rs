//! A number that is a constant is no dim.

use amk::prelude::*;
use amk_kernels::rms_norm;

const EPS: f32 = 1e-5;

#[derive(WeightLayout)]
struct Norm {
    #[weight("norm", [HIDDEN])]
    norm: Weight,
}

#[megakernel(dims(HIDDEN), inputs(x: [HIDDEN]))]
fn kernel(x: &Tensor, w: &Norm) -> Tensor {
    let y = rms_norm(x, &w.norm, EPS);
    rms_norm(&y, &w.norm, f32::EPSILON)
}

fn main() {}

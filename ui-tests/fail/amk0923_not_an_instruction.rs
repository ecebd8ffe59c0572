//! A plain function has no companion: a constant reports it next to rustc's missing macro.

use amk::prelude::*;
use amk_kernels::add;

#[megakernel(dims(HIDDEN), inputs(x: [HIDDEN]))]
fn kernel(x: &Tensor) -> Tensor {
    relu(&add(x, x))
}

fn relu(x: &Tensor) -> Tensor {
    x.data().iter().map(|x| x.max(0.0)).collect()
}

fn main() {}

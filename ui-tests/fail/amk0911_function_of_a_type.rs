//! A function of a type has no companion.

use amk::prelude::*;
use amk_kernels::add;

struct Relu;

impl Relu {
    fn of(x: &Tensor) -> Tensor {
        x.data().iter().map(|x| x.max(0.0)).collect()
    }
}

#[megakernel(dims(HIDDEN), inputs(x: [HIDDEN]))]
fn kernel(x: &Tensor) -> Tensor {
    Relu::of(&add(x, x))
}

fn main() {}

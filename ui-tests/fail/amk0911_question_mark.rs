//! Instructions do not fail, and a step does not end in the middle.

use amk::prelude::*;
use amk_kernels::add;

#[megakernel(dims(HIDDEN), inputs(x: [HIDDEN]))]
fn kernel(x: &Tensor) -> Option<Tensor> {
    let y = Some(add(x, x))?;
    Some(add(&y, x))
}

fn main() {}

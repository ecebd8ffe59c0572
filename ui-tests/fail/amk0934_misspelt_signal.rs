//! An attribute that is nearly a signal.

use amk::prelude::*;
use amk_kernels::add;

#[megakernel(dims(HIDDEN), inputs(x: [HIDDEN]), events(e))]
fn kernel(x: &Tensor) -> Tensor {
    #[signals(e)]
    let y = add(x, x);
    add(&y, x)
}

fn main() {}

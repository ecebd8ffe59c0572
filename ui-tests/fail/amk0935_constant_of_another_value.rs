//! A function that counts to a dim also runs eagerly: the constant has to match the instance.

use amk::prelude::*;
use amk_kernels::add;

const LAYERS: usize = 3;

#[megakernel(dims(HIDDEN, LAYERS), inputs(x: [HIDDEN]), instances(tiny(HIDDEN = 64, LAYERS = 2)))]
fn kernel(x: &Tensor) -> Tensor {
    let mut y = add(x, x);
    for _ in 0..LAYERS {
        y = add(&y, x);
    }
    y
}

fn main() {}

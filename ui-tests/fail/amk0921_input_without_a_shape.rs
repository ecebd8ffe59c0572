//! An input tensor has its shape in the attribute.

use amk::prelude::*;
use amk_kernels::linear;

#[derive(WeightLayout)]
struct Mlp {
    #[weight("up", [FFN, HIDDEN])]
    up: Weight,
}

#[megakernel(dims(HIDDEN, FFN))]
fn kernel(x: &Tensor, w: &Mlp) -> Tensor {
    linear(x, &w.up)
}

fn main() {}

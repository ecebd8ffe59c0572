//! Flags and parameters of a list's elements are named by the element, of which there are as many
//! as the list is long.

use amk::prelude::*;
use amk_kernels::{add, linear, scale};

#[derive(WeightLayout)]
struct Layer {
    #[weight("layers.{l}.up", [HIDDEN, HIDDEN])]
    up: Weight,
    #[flag]
    residual: bool,
    #[param]
    factor: f32,
}

#[derive(WeightLayout)]
struct Net {
    #[list(LAYERS)]
    layers: Vec<Layer>,
}

#[megakernel(
    dims(HIDDEN, LAYERS), inputs(x: [HIDDEN]),
    instances(
        third(HIDDEN = 64, LAYERS = 2, w.layers[2].residual = true),
        all(HIDDEN = 64, LAYERS = 2, w.layers.factor = 0.5)
    )
)]
fn net(x: &Tensor, w: &Net) -> Tensor {
    let mut y = linear(x, &w.layers[0].up);
    for lw in &w.layers {
        let h = scale(&linear(&y, &lw.up), lw.factor);
        y = if lw.residual { add(&y, &h) } else { scale(&h, 1.0) };
    }
    y
}

fn main() {}

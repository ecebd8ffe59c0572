//! Shapes are compared for all dims, at the argument.

use amk::prelude::*;

#[instruction(op = "gemv", shape = "x: [K], w: [N, K] -> y: [N]", task = "y[..] <- x[..], w[.., ..]")]
fn linear(x: &Tensor, w: &Weight) -> Tensor {
    w.to_f32().chunks(x.len()).map(|row| row.iter().zip(x.data()).map(|(w, x)| w * x).sum()).collect()
}

#[instruction(op = "add", shape = "x: [N], y: [N] -> z: [N]", task = "z[..] <- x[..], y[..]")]
fn add(x: &Tensor, y: &Tensor) -> Tensor {
    x.data().iter().zip(y.data()).map(|(x, y)| x + y).collect()
}

#[derive(WeightLayout)]
struct Mlp {
    #[weight("up", [FFN, HIDDEN])]
    up: Weight,
    #[weight("down", [HIDDEN, FFN])]
    down: Weight,
}

#[megakernel(dims(HIDDEN, FFN), inputs(x: [HIDDEN]))]
fn kernel(x: &Tensor, w: &Mlp) -> Tensor {
    let h = linear(x, &w.up);
    add(x, &linear(&h, &w.up))
}

fn main() {}

//! An operand's class is checked (rustc checks its type too).

use amk::prelude::*;

#[instruction(op = "gemv", shape = "x: [K], w: [N, K] -> y: [N]", task = "y[..] <- x[..], w[.., ..]")]
fn linear(x: &Tensor, w: &Weight) -> Tensor {
    w.to_f32().chunks(x.len()).map(|row| row.iter().zip(x.data()).map(|(w, x)| w * x).sum()).collect()
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
    linear(&w.up, &w.down)
}

fn main() {}

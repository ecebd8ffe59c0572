//! 1. An instruction is a plain function, and a clause that says which part of it a task computes.
//!
//! `scale_by` reads a vector and a weight of the same size. The task clause cuts it into tiles of T
//! elements: task `n` writes `y[n..n+T]` and reads `x[n..n+T]` and `w[n..n+T]`. A task *is* a call
//! of the function on those parts, so the function is written once, for any size.

use amk::prelude::*;

#[instruction(
    op = "scale_tile",
    shape = "x: [N], w: [N] -> y: [N]",
    tile = "T = 4",
    task = "n in 0..N step T: y[n..n+T] <- x[n..n+T], w[n..n+T]"
)]
pub fn scale_by(x: &Tensor, w: &Weight) -> Tensor {
    let products = x.data().iter().zip(w.to_f32()).map(|(x, w)| x * w).collect();
    Tensor::new(x.shape(), products).expect("as many as x has")
}

fn main() {
    // It is still a function.
    let x = Tensor::new(&[2], vec![1.0, 2.0]).expect("two elements");
    let w = Weight::f32(&[2], vec![3.0, 4.0]).expect("two elements");
    assert_eq!(scale_by(&x, &w).data(), [3.0, 8.0]);
}

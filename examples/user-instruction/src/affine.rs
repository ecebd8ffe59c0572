//! A projection with a factor and a bias.

use amk::formula::{Exact, Operands};
use amk::prelude::*;
use amk_kernels::linear;

/// `y = a * (w x) + b`, the product accumulated in f32 as by [`linear`].
///
/// `x: [K]` f32, `w: [N, K]` and `b: [N]` f32, f16 or bf16; `y: [N]` f32.
///
/// # Panics
/// When `w` is not a matrix of rows of `x`'s length.
#[instruction(
    op = "affine",
    shape = "x: [K], w: [N, K], b: [N] -> y: [N]",
    tile = "T = 16",
    task = "n in 0..N step T: y[n..n+T] <- x[..], w[n..n+T, ..], b[n..n+T]",
    cuda = "affine.cuh"
)]
pub fn affine(x: &Tensor, w: &Weight, b: &Weight, a: f32) -> Tensor {
    linear(x, w).data().iter().zip(&*b.row(0).to_f32()).map(|(y, b)| a * y + b).collect()
}

amk::formula!("amk_user_instruction::affine", |o: &mut Operands| {
    let (x, w, b, a) = (o.data(0), o.data(1), o.data(2), o.floats[0]);
    let element = |(row, b): (&[f64], &f64)| Exact::sum(row.iter().zip(x).map(|(w, x)| a * w * x).chain([*b]));
    w.chunks_exact(x.len()).zip(b).map(element).collect()
});

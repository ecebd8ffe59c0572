//! A projection whose results are capped softly.

use crate::layout::{LAYOUT, PAIR, UNIT, width};
use amk::formula::{Exact, Operands};
use amk::prelude::*;
use amk_cuda::Stream;
use amk_kernels::linear;

/// `y = cap * tanh((w x) / cap)`, the product accumulated in f32 as by [`linear`].
///
/// `x: [K]` f32, `w: [N, K]` f32, f16 or bf16, `cap` above 0; `y: [N]` f32. Source: Gemma Team,
/// Gemma 2, 2024, section 2 (logit soft-capping).
///
/// # Panics
/// When `w` is not a matrix of rows of `x`'s length.
#[instruction(
    op = "capped_linear",
    shape = "x: [K], w: [N, K] -> y: [N]",
    tile = "T = 16",
    task = "n in 0..N step T: y[n..n+T] <- x[..], w[n..n+T, ..]",
    cuda = "capped_linear.cuh"
)]
pub fn capped_linear(x: &Tensor, w: &Weight, cap: f32) -> Tensor {
    linear(x, w).data().iter().map(|y| cap * (y / cap).tanh()).collect()
}

// An error of the product counts times the slope of the tangent.
amk::formula!("amk_fast_instruction::capped_linear", |o: &mut Operands| {
    let (x, w, cap) = (o.data(0), o.data(1), o.floats[0]);
    let element = |row: &[f64]| {
        let product = Exact::sum(row.iter().zip(x).map(|(w, x)| w * x));
        let tangent = (product.value / cap).tanh();
        let value = cap * tangent;
        Exact { value, magnitude: value.abs() + product.magnitude * (1.0 - tangent * tangent) }
    };
    w.chunks_exact(x.len()).map(element).collect()
});

amk_cuda::stream!(Stream {
    instruction: "amk_fast_instruction::capped_linear",
    operand: "w",
    unit: UNIT as u32,
    takes: |rows, columns| rows.is_multiple_of(UNIT as u32) && columns.is_multiple_of(PAIR as u32),
    block: |columns| (UNIT * width(columns as usize) * 2) as u32,
    arrives: &["x"],
    layout: LAYOUT,
});

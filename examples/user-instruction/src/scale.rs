//! A learned per-channel scale.

use amk::formula::{Exact, Operands};
use amk::prelude::*;

/// `y = x * w`, element by element.
///
/// `x: [N]` f32, `w: [N]` f32, f16 or bf16; `y: [N]` f32. Source: Touvron et al., Going deeper with
/// Image Transformers, 2021 (LayerScale).
///
/// # Panics
/// When the lengths differ.
#[instruction(
    op = "scale_tile",
    shape = "x: [N], w: [N] -> y: [N]",
    tile = "T = 16",
    task = "n in 0..N step T: y[n..n+T] <- x[n..n+T], w[n..n+T]",
    cuda = "scale.cuh"
)]
pub fn scale_by(x: &Tensor, w: &Weight) -> Tensor {
    assert_eq!(x.shape(), w.shape(), "`scale_by` with a weight of another shape");
    x.data().iter().zip(&*w.row(0).to_f32()).map(|(x, w)| x * w).collect()
}

amk::formula!("amk_user_instruction::scale_by", |o: &mut Operands| {
    o.data(0).iter().zip(o.data(1)).map(|(x, w)| Exact::product(x * w)).collect()
});

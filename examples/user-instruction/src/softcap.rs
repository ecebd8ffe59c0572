//! A soft cap.

use amk::formula::{Exact, Operands};
use amk::prelude::*;

/// `y = cap * tanh(x / cap)`; `x`, `y`: `[N]` f32. Source: Gemma 2 report, section 2.
#[instruction(
    op = "softcap",
    shape = "x: [N] -> y: [N]",
    tile = "T = 16",
    task = "n in 0..N step T: y[n..n+T] <- x[n..n+T]",
    cuda = "softcap.cuh"
)]
pub fn softcap(x: &Tensor, cap: f32) -> Tensor {
    x.data().iter().map(|x| cap * (x / cap).tanh()).collect()
}

amk::formula!("amk_user_instruction::softcap", |o: &mut Operands| {
    let cap = o.floats[0];
    o.data(0).iter().map(|x| Exact::product(cap * (x / cap).tanh())).collect()
});

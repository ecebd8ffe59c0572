//! A grid that leaves the last elements unwritten where the extent is not a multiple of 16.

use amk::prelude::*;

#[instruction(
    op = "negate",
    shape = "x: [N] -> y: [N]",
    task = "n in 0..N/16 step 1: y[16*n..16*n+16] <- x[16*n..16*n+16]"
)]
pub fn negate(x: &Tensor) -> Tensor {
    x.data().iter().map(|x| -x).collect()
}

fn main() {}

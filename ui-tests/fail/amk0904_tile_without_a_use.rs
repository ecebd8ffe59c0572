//! A tile cuts something.

use amk::prelude::*;

#[instruction(
    op = "id",
    shape = "x: [N] -> y: [N]",
    tile = "T = 4, U = 8",
    task = "n in 0..N step T: y[n..n+T] <- x[n..n+T]"
)]
fn id(x: &Tensor) -> Tensor {
    x.data().iter().copied().collect()
}

fn main() {}

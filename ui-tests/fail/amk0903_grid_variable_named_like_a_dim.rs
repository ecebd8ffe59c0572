//! A name has one meaning in all clauses.

use amk::prelude::*;

#[instruction(
    op = "id",
    shape = "x: [N] -> y: [N]",
    tile = "T = 4",
    task = "N in 0..N step T: y[N..N+T] <- x[N..N+T]"
)]
fn id(x: &Tensor) -> Tensor {
    x.data().iter().copied().collect()
}

fn main() {}

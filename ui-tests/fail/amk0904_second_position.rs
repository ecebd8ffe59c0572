//! A task has one position.

use amk::prelude::*;

#[instruction(
    op = "later",
    shape = "x: [C, N] -> y: [N]",
    tile = "T = 4",
    task = "n in 0..N step T: y[n..n+T] <- x[0..pos+1, n..n+T]"
)]
fn later(x: &State, pos: Pos, later: Pos) -> Tensor {
    let _ = (pos, later);
    x.row([0]).iter().copied().collect()
}

fn main() {}

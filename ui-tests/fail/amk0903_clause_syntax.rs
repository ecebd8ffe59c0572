//! Clauses are read when the instruction is declared.

use amk::prelude::*;

#[instruction(op = "id", shape = "x: [N] -> y: [N]", task = "n in 0..N: y[n] <- x[n]")]
fn id(x: &Tensor) -> Tensor {
    x.data().iter().copied().collect()
}

fn main() {}

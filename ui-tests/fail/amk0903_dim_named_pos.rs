//! `pos` is the position in every clause.

use amk::prelude::*;

#[instruction(op = "first", shape = "x: [pos] -> y: [pos]", task = "y[..] <- x[0..pos]")]
fn first(x: &Tensor) -> Tensor {
    x.data().iter().copied().collect()
}

fn main() {}

//! An op has a name.

use amk::prelude::*;

#[instruction(op = "", shape = "x: [N] -> y: [N]", task = "y[..] <- x[..]")]
fn id(x: &Tensor) -> Tensor {
    x.data().iter().copied().collect()
}

fn main() {}

//! The shape clause and the parameters agree.

use amk::prelude::*;

#[instruction(op = "sum", shape = "x: [N] -> z: [N]", task = "z[..] <- x[..], y[..]")]
fn sum(x: &Tensor, y: &Tensor) -> Tensor {
    x.data().iter().zip(y.data()).map(|(x, y)| x + y).collect()
}

fn main() {}

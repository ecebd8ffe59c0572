//! A companion of that name would hide the macro.

use amk::prelude::*;

#[instruction(op = "concat", shape = "x: [N], y: [M] -> z: [N + M]", task = "z[..] <- x[..], y[..]")]
fn concat(x: &Tensor, y: &Tensor) -> Tensor {
    x.data().iter().chain(y.data()).copied().collect()
}

fn main() {}

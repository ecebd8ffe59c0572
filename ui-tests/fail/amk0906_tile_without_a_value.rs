//! Every name in the task clause has a value.

use amk::prelude::*;

#[instruction(op = "id", shape = "x: [N] -> y: [N]", task = "n in 0..N step T: y[n..n+T] <- x[n..n+T]")]
fn id(x: &Tensor) -> Tensor {
    x.data().iter().copied().collect()
}

fn main() {}

//! Every instruction says what a task reads and writes.

use amk::prelude::*;

#[instruction(op = "id", shape = "x: [N] -> y: [N]")]
fn id(x: &Tensor) -> Tensor {
    x.data().iter().copied().collect()
}

fn main() {}

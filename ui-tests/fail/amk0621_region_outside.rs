//! A task that reads one element past the end.

use amk::prelude::*;

#[instruction(op = "slope", shape = "x: [N] -> y: [N]", task = "n in 0..N step 1: y[n..n+1] <- x[n..n+2]")]
pub fn slope(x: &Tensor) -> Tensor {
    x.data().windows(2).map(|pair| pair[1] - pair[0]).collect()
}

fn main() {}

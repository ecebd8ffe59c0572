//! A state that a task writes is `&mut`.

use amk::prelude::*;

#[instruction(op = "put", shape = "s: [C, N], x: [N]", task = "s[pos..pos+1, ..] <- x[..]")]
fn put(s: &State, x: &Tensor, pos: Pos) {
    let _ = (s, x, pos);
}

fn main() {}

//! The window of the first positions would begin before them: `max(0, pos - W + 1)`.

use amk::prelude::*;

#[instruction(op = "last", shape = "k: [C, D], window: W -> y: [D]", task = "y[..] <- k[pos-W+1..pos+1, ..]")]
pub fn last(k: &State, window: usize, pos: Pos) -> Tensor {
    let first = pos.index() + 1 - window;
    k.row([first]).into()
}

fn main() {}

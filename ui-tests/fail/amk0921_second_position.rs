//! A step has one token and one position.

use amk::prelude::*;
use amk_kernels::{add, embed, rope};

#[derive(WeightLayout)]
struct Model {
    #[weight("embed", [VOCAB, HIDDEN])]
    embed: Weight,
    #[table([HIDDEN / 2])]
    frequencies: Weight,
    #[dim(HIDDEN)]
    hidden: usize,
}

#[megakernel(dims(VOCAB, HIDDEN), where(HIDDEN % 2))]
fn kernel(token: Token, pos: Pos, later: Pos, next: Token, w: &Model) -> Tensor {
    let x = rope(&embed(&w.embed, token), &w.frequencies, w.hidden, 1.0, pos);
    let y = rope(&embed(&w.embed, next), &w.frequencies, w.hidden, 1.0, later);
    add(&x, &y)
}

fn main() {}

//! What an instruction needs of its dims is declared.

use amk::prelude::*;
use amk_kernels::attention;

#[derive(WeightLayout)]
struct Kv {
    #[state([HEADS, CONTEXT, HEAD_DIM])]
    k: State,
    #[state([HEADS, CONTEXT, HEAD_DIM])]
    v: State,
}

#[megakernel(dims(Q, HEADS, CONTEXT, HEAD_DIM), inputs(q: [Q]))]
fn kernel(q: &Tensor, kv: &Kv, pos: Pos) -> Tensor {
    attention(q, &kv.k, &kv.v, 1.0, pos)
}

fn main() {}

//! An instruction's requirements on its dims are declared.

use amk::prelude::*;

#[instruction(
    op = "by_heads",
    shape = "q: [Q], k: [G, C, D] -> y: [Q]",
    multiples = "Q % D, Q / D % G",
    task = "y[..] <- q[..], k[.., .., ..]"
)]
fn by_heads(q: &Tensor, k: &State) -> Tensor {
    q.data().iter().map(|q| q * k.shape().len() as f32).collect()
}

#[derive(WeightLayout)]
struct Kv {
    #[state([HEADS, CONTEXT, HEAD_DIM])]
    k: State,
}

#[megakernel(dims(Q, HEADS, CONTEXT, HEAD_DIM), inputs(q: [Q]))]
fn kernel(q: &Tensor, kv: &Kv) -> Tensor {
    by_heads(q, &kv.k)
}

fn main() {}

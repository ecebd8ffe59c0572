//! The classic eight, 4: Attention that waits for the query, but not for the append to the cache.

use amk::prelude::*;
use amk_kernels::{add, attention, kv_append};

#[derive(WeightLayout)]
struct Kv {
    #[state([HEADS, CONTEXT, HEAD_DIM])]
    k: State,
    #[state([HEADS, CONTEXT, HEAD_DIM])]
    v: State,
}

#[megakernel(
    dims(HEADS, CONTEXT, HEAD_DIM),
    inputs(q: [HEADS * HEAD_DIM], k: [HEADS * HEAD_DIM]),
    instances(tiny(HEADS = 2, CONTEXT = 16, HEAD_DIM = 8)),
    schedule(workers = 2, queue = ticket),
    events(q_done)
)]
fn kernel(q: &Tensor, k: &Tensor, kv: &mut Kv, pos: Pos) -> Tensor {
    kv_append(&mut kv.k, k, pos);
    kv_append(&mut kv.v, k, pos);
    #[signal(q_done)]
    let q = add(q, q);
    #[wait(q_done == 1)]
    let y = attention(&q, &kv.k, &kv.v, 1.0, pos);
    y
}

fn main() {}

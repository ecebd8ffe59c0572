//! Two writes of the same elements have an order.

use amk::prelude::*;
use amk_kernels::{add, kv_append};

#[derive(WeightLayout)]
struct Kv {
    #[state([HEADS, CONTEXT, HEAD_DIM])]
    k: State,
}

#[megakernel(
    dims(HEADS, CONTEXT, HEAD_DIM),
    inputs(a: [HEADS * HEAD_DIM]),
    instances(tiny(HEADS = 2, CONTEXT = 16, HEAD_DIM = 8)),
    schedule(workers = 2, queue = ticket),
    events(a_done)
)]
fn kernel(a: &Tensor, kv: &mut Kv, pos: Pos) -> Tensor {
    #[signal(a_done)]
    let b = add(a, a);
    kv_append(&mut kv.k, a, pos);
    #[wait(a_done == 1)]
    kv_append(&mut kv.k, &b, pos);
    b
}

fn main() {}

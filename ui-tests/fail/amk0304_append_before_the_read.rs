//! A write waits for those who read what was there before.

use amk::prelude::*;
use amk_kernels::{add, attention, kv_append};

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
    let y = attention(&b, &kv.k, &kv.k, 1.0, pos);
    #[wait(a_done == 1)]
    kv_append(&mut kv.k, &b, pos);
    y
}

fn main() {}

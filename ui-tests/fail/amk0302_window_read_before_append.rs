//! Attention to a window reads the position of the step too, so it waits for the append.

use amk::prelude::*;
use amk_kernels::{add, kv_append, window_attention};

#[derive(WeightLayout)]
struct Kv {
    #[state([HEADS, CONTEXT, HEAD_DIM])]
    k: State,
    #[state([HEADS, CONTEXT, HEAD_DIM])]
    v: State,
}

#[derive(WeightLayout)]
struct Settings {
    #[dim(WINDOW)]
    window: usize,
}

#[megakernel(
    dims(HEADS, CONTEXT, HEAD_DIM, WINDOW),
    inputs(q: [HEADS * HEAD_DIM], k: [HEADS * HEAD_DIM]),
    instances(tiny(HEADS = 2, CONTEXT = 16, HEAD_DIM = 8, WINDOW = 4)),
    schedule(workers = 2, queue = ticket),
    events(q_done)
)]
fn kernel(q: &Tensor, k: &Tensor, w: &Settings, kv: &mut Kv, pos: Pos) -> Tensor {
    kv_append(&mut kv.k, k, pos);
    kv_append(&mut kv.v, k, pos);
    #[signal(q_done)]
    let q = add(q, q);
    #[wait(q_done == 1)]
    let y = window_attention(&q, &kv.k, &kv.v, 1.0, w.window, pos);
    y
}

fn main() {}

//! 4. A decoder: a loop over layers, a cache that is kept from step to step, the position, flags,
//!    and a schedule.
//!
//! `State` is what outlives a step. The region that a task reads of it may depend on the position,
//! and one program serves all positions. A schedule is data: it says how the graph becomes tasks on
//! workers, and cannot change what is computed.

use amk::prelude::*;
use amk_kernels::{add, attention, embed, kv_append, linear, rms_norm, rope};

#[derive(WeightLayout)]
pub struct Layer {
    #[weight("layers.{l}.norm", [HIDDEN])]
    pub norm: Weight,
    #[weight("layers.{l}.q", [HEADS * HEAD_DIM, HIDDEN])]
    pub q: Weight,
    #[weight("layers.{l}.k", [KV_HEADS * HEAD_DIM, HIDDEN])]
    pub k: Weight,
    #[weight("layers.{l}.v", [KV_HEADS * HEAD_DIM, HIDDEN])]
    pub v: Weight,
    #[weight("layers.{l}.o", [HIDDEN, HEADS * HEAD_DIM])]
    pub o: Weight,
}

#[derive(WeightLayout)]
pub struct Decoder {
    #[weight("embed", [VOCAB, HIDDEN])]
    pub embed: Weight,
    #[list(LAYERS)]
    pub layers: Vec<Layer>,
    #[weight("head", or = "embed", [VOCAB, HIDDEN])]
    pub head: Weight,
    #[table([HEAD_DIM / 2])]
    pub freqs: Weight,
    #[param]
    pub eps: f32,
    #[dim(HEAD_DIM)]
    pub head_dim: usize,
    #[flag]
    pub last_norm: bool,
}

#[derive(WeightLayout)]
pub struct Cache {
    #[state([KV_HEADS, CONTEXT, HEAD_DIM])]
    pub k: State,
    #[state([KV_HEADS, CONTEXT, HEAD_DIM])]
    pub v: State,
}

#[derive(WeightLayout)]
pub struct Caches {
    #[list(LAYERS)]
    pub layers: Vec<Cache>,
}

#[megakernel(
    dims(VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, CONTEXT),
    where(HEADS % KV_HEADS, HEAD_DIM % 2),
    instances(
        tiny(
            VOCAB = 64, HIDDEN = 32, LAYERS = 2,
            HEADS = 4, KV_HEADS = 2, HEAD_DIM = 8, CONTEXT = 16, w.last_norm = true
        ),
        tickets(
            VOCAB = 64, HIDDEN = 32, LAYERS = 2,
            HEADS = 4, KV_HEADS = 2, HEAD_DIM = 8, CONTEXT = 16, w.last_norm = false,
            schedule(workers = 3, tile(linear = 8, add = whole), queue = ticket)
        ),
    ),
    schedule(workers = 4, assign = balanced)
)]
pub fn decode(token: Token, pos: Pos, w: &Decoder, kv: &mut Caches) -> Tensor {
    let mut x = embed(&w.embed, token);
    for (lw, cache) in w.layers.iter().zip(&mut kv.layers) {
        let h = rms_norm(&x, &lw.norm, w.eps);
        let (q, k, v) = (linear(&h, &lw.q), linear(&h, &lw.k), linear(&h, &lw.v));
        kv_append(&mut cache.k, &rope(&k, &w.freqs, w.head_dim, 1.0, pos), pos);
        kv_append(&mut cache.v, &v, pos);
        let q = rope(&q, &w.freqs, w.head_dim, 1.0, pos);
        x = add(&x, &linear(&attention(&q, &cache.k, &cache.v, 0.35, pos), &lw.o));
    }
    if w.last_norm {
        x = rms_norm(&x, &w.layers[0].norm, w.eps);
    }
    linear(&x, &w.head)
}

fn main() {
    let tiny = DECODE.instance("tiny").expect("an instance");
    let tickets = DECODE.instance("tickets").expect("an instance");
    let tasks = |instance| DECODE.lower(instance, None).expect("a program").program.tasks.len();
    // The flag decides what the graph has: without the last norm there is an op less a tile.
    assert!(tasks(tiny) > 0 && tasks(tickets) > 0);
}

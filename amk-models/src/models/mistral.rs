//! Mistral with a sliding window: a Llama that attends only to the last positions.

use super::kv::KvCache;
use super::parts::{Ends, Layer, Rotary};
use amk::prelude::*;
use amk_kernels::{add, embed, kv_append, linear, rms_norm, rope, silu_mul, window_attention};

/// The weights and the constants of the configuration.
#[derive(WeightLayout)]
pub struct Mistral {
    /// Embeddings, last norm and head.
    #[layout]
    pub ends: Ends,
    /// The layers.
    #[list(LAYERS)]
    pub layers: Vec<Layer>,
    /// Rotary embedding.
    #[layout]
    pub rotary: Rotary,
    /// Positions that a sliding-window layer attends to.
    #[dim(WINDOW)]
    pub window: usize,
    /// Factor on the attention scores.
    #[param]
    pub score_scale: f32,
    /// The norms' epsilon.
    #[param]
    pub eps: f32,
}

/// One step: the logits `[VOCAB]` of the token after `token` at position `pos`.
#[megakernel(
    dims(VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, ROTARY, FFN, WINDOW, CONTEXT),
    where(HEADS % KV_HEADS, ROTARY % 2),
    instances(
        mistral_7b(
            VOCAB = 32000, HIDDEN = 4096, LAYERS = 32, HEADS = 32, KV_HEADS = 8,
            HEAD_DIM = 128, ROTARY = 128, FFN = 14336, WINDOW = 4096, CONTEXT = 32768
        ),
    )
)]
pub fn decode(token: Token, pos: Pos, w: &Mistral, kv: &mut KvCache) -> Tensor {
    let r = &w.rotary;
    let mut x = embed(&w.ends.embed, token);
    for (lw, cache) in w.layers.iter().zip(&mut kv.layers) {
        let h = rms_norm(&x, &lw.norms.attn, w.eps);
        let (q, k, v) = (linear(&h, &lw.attn.q), linear(&h, &lw.attn.k), linear(&h, &lw.attn.v));
        kv_append(&mut cache.k, &rope(&k, &r.freqs, r.head_dim, r.scale, pos), pos);
        kv_append(&mut cache.v, &v, pos);
        let q = rope(&q, &r.freqs, r.head_dim, r.scale, pos);
        let a = window_attention(&q, &cache.k, &cache.v, w.score_scale, w.window, pos);
        x = add(&x, &linear(&a, &lw.attn.o));
        let h = rms_norm(&x, &lw.norms.mlp, w.eps);
        let m = silu_mul(&linear(&h, &lw.mlp.gate), &linear(&h, &lw.mlp.up));
        x = add(&x, &linear(&m, &lw.mlp.down));
    }
    linear(&rms_norm(&x, &w.ends.norm, w.eps), &w.ends.lm_head)
}

//! Qwen3, dense: queries and keys are normalised per head.

use super::kv::KvCache;
use super::parts::{Attention, Ends, HeadNorms, Mlp, Norms, Rotary};
use crate::import::{Gguf, Import, Window};
use amk::prelude::*;
use amk_kernels::{add, attention, embed, head_norm, kv_append, linear, rms_norm, rope, silu_mul};

/// The checkpoints of this family.
pub const IMPORTS: &[Import] = &[Import {
    family: "qwen3",
    model_type: "qwen3",
    class: "Qwen3ForCausalLM",
    gguf: Some(Gguf::of("qwen3")),
    head_dim: Some(128),
    window: Window::Switched,
    ..Import::LLAMA
}];

/// A decoder layer.
#[derive(WeightLayout)]
pub struct Layer {
    /// Norms.
    #[layout]
    pub norms: Norms,
    /// Projections of attention.
    #[layout]
    pub attn: Attention,
    /// Norms of queries and keys.
    #[layout]
    pub heads: HeadNorms,
    /// The MLP.
    #[layout]
    pub mlp: Mlp,
}

/// The weights and the constants of the configuration.
#[derive(WeightLayout)]
pub struct Qwen3 {
    /// Embeddings, last norm and head.
    #[layout]
    pub ends: Ends,
    /// The layers.
    #[list(LAYERS)]
    pub layers: Vec<Layer>,
    /// Rotary embedding.
    #[layout]
    pub rotary: Rotary,
    /// Factor on the attention scores.
    #[param]
    pub score_scale: f32,
    /// The norms' epsilon.
    #[param]
    pub eps: f32,
}

/// One step: the logits `[VOCAB]` of the token after `token` at position `pos`.
#[megakernel(
    dims(VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, ROTARY, FFN, CONTEXT),
    where(HEADS % KV_HEADS, ROTARY % 2),
    instances(
        qwen3_0_6b(
            VOCAB = 151936, HIDDEN = 1024, LAYERS = 28,
            HEADS = 16, KV_HEADS = 8, HEAD_DIM = 128, ROTARY = 128, FFN = 3072, CONTEXT = 40960
        ),
        qwen3_4b(
            VOCAB = 151936, HIDDEN = 2560, LAYERS = 36,
            HEADS = 32, KV_HEADS = 8, HEAD_DIM = 128, ROTARY = 128, FFN = 9728, CONTEXT = 40960
        ),
        qwen3_8b(
            VOCAB = 151936, HIDDEN = 4096, LAYERS = 36,
            HEADS = 32, KV_HEADS = 8, HEAD_DIM = 128, ROTARY = 128, FFN = 12288, CONTEXT = 40960
        ),
    )
)]
pub fn decode(token: Token, pos: Pos, w: &Qwen3, kv: &mut KvCache) -> Tensor {
    let r = &w.rotary;
    let mut x = embed(&w.ends.embed, token);
    for (lw, cache) in w.layers.iter().zip(&mut kv.layers) {
        let h = rms_norm(&x, &lw.norms.attn, w.eps);
        let q = head_norm(&linear(&h, &lw.attn.q), &lw.heads.q, w.eps);
        let k = head_norm(&linear(&h, &lw.attn.k), &lw.heads.k, w.eps);
        let v = linear(&h, &lw.attn.v);
        kv_append(&mut cache.k, &rope(&k, &r.freqs, r.head_dim, r.scale, pos), pos);
        kv_append(&mut cache.v, &v, pos);
        let q = rope(&q, &r.freqs, r.head_dim, r.scale, pos);
        let a = attention(&q, &cache.k, &cache.v, w.score_scale, pos);
        x = add(&x, &linear(&a, &lw.attn.o));
        let h = rms_norm(&x, &lw.norms.mlp, w.eps);
        let m = silu_mul(&linear(&h, &lw.mlp.gate), &linear(&h, &lw.mlp.up));
        x = add(&x, &linear(&m, &lw.mlp.down));
    }
    linear(&rms_norm(&x, &w.ends.norm, w.eps), &w.ends.lm_head)
}

//! Gemma: a Llama with a scaled embedding and GELU.

use super::kv::KvCache;
use super::parts::{Ends, Layer, Rotary};
use crate::import::{Activation, Gguf, Import};
use amk::prelude::*;
use amk_kernels::{add, attention, embed, gelu_mul, kv_append, linear, rms_norm, rope, scale};

/// The checkpoints of this family. In the first ones, `gelu` means the tanh approximation.
pub const IMPORTS: &[Import] = &[Import {
    family: "gemma",
    model_type: "gemma",
    class: "GemmaForCausalLM",
    gguf: Some(Gguf::of("gemma")),
    unread: &["hidden_activation"],
    head_dim: Some(256),
    activation: Activation::GeluTanh,
    activation_names: &[("gelu", Activation::GeluTanh)],
    norms_less_one: true,
    tied: true,
    ..Import::LLAMA
}];

/// The weights and the constants of the configuration.
#[derive(WeightLayout)]
pub struct Gemma {
    /// Embeddings, last norm and head.
    #[layout]
    pub ends: Ends,
    /// The layers.
    #[list(LAYERS)]
    pub layers: Vec<Layer>,
    /// Rotary embedding.
    #[layout]
    pub rotary: Rotary,
    /// Factor on the embedding: the square root of its length.
    #[param]
    pub embedding_scale: f32,
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
        gemma_2b(
            VOCAB = 256000, HIDDEN = 2048, LAYERS = 18, HEADS = 8, KV_HEADS = 1,
            HEAD_DIM = 256, ROTARY = 256, FFN = 16384, CONTEXT = 8192
        ),
    )
)]
pub fn decode(token: Token, pos: Pos, w: &Gemma, kv: &mut KvCache) -> Tensor {
    let r = &w.rotary;
    let mut x = scale(&embed(&w.ends.embed, token), w.embedding_scale);
    for (lw, cache) in w.layers.iter().zip(&mut kv.layers) {
        let h = rms_norm(&x, &lw.norms.attn, w.eps);
        let (q, k, v) = (linear(&h, &lw.attn.q), linear(&h, &lw.attn.k), linear(&h, &lw.attn.v));
        kv_append(&mut cache.k, &rope(&k, &r.freqs, r.head_dim, r.scale, pos), pos);
        kv_append(&mut cache.v, &v, pos);
        let q = rope(&q, &r.freqs, r.head_dim, r.scale, pos);
        let a = attention(&q, &cache.k, &cache.v, w.score_scale, pos);
        x = add(&x, &linear(&a, &lw.attn.o));
        let h = rms_norm(&x, &lw.norms.mlp, w.eps);
        let m = gelu_mul(&linear(&h, &lw.mlp.gate), &linear(&h, &lw.mlp.up));
        x = add(&x, &linear(&m, &lw.mlp.down));
    }
    linear(&rms_norm(&x, &w.ends.norm, w.eps), &w.ends.lm_head)
}

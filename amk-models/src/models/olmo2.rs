//! OLMo 2: norms after attention and the MLP instead of before them, and over all queries and all
//! keys.

use super::kv::KvCache;
use super::parts::{Attention, Ends, Mlp, PostNorms, QkNorms, Rotary};
use crate::import::{Absent, Gguf, Import};
use amk::prelude::*;
use amk_kernels::{add, attention, embed, kv_append, linear, rms_norm, rope, silu_mul};

/// The checkpoints of this family.
pub const IMPORTS: &[Import] = &[Import {
    family: "olmo2",
    model_type: "olmo2",
    class: "Olmo2ForCausalLM",
    gguf: Some(Gguf { names: Gguf::POST_NORMS, ..Gguf::of("olmo2") }),
    defaults: &[Absent::KV_HEADS],
    eps: ("rms_norm_eps", 1e-5),
    ..Import::LLAMA
}];

/// A decoder layer.
#[derive(WeightLayout)]
pub struct Layer {
    /// Projections of attention.
    #[layout]
    pub attn: Attention,
    /// Norms of queries and keys.
    #[layout]
    pub qk: QkNorms,
    /// The MLP.
    #[layout]
    pub mlp: Mlp,
    /// Norms of the outputs of attention and the MLP.
    #[layout]
    pub norms: PostNorms,
}

/// The weights and the constants of the configuration.
#[derive(WeightLayout)]
pub struct Olmo2 {
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
        olmo2_1b(
            VOCAB = 100352, HIDDEN = 2048, LAYERS = 16,
            HEADS = 16, KV_HEADS = 16, HEAD_DIM = 128, ROTARY = 128, FFN = 8192, CONTEXT = 4096
        ),
        olmo2_7b(
            VOCAB = 100352, HIDDEN = 4096, LAYERS = 32,
            HEADS = 32, KV_HEADS = 32, HEAD_DIM = 128, ROTARY = 128, FFN = 11008, CONTEXT = 4096
        ),
    )
)]
// ANCHOR: decode
pub fn decode(token: Token, pos: Pos, w: &Olmo2, kv: &mut KvCache) -> Tensor {
    let r = &w.rotary;
    let mut x = embed(&w.ends.embed, token);
    for (lw, cache) in w.layers.iter().zip(&mut kv.layers) {
        let q = rms_norm(&linear(&x, &lw.attn.q), &lw.qk.q, w.eps);
        let k = rms_norm(&linear(&x, &lw.attn.k), &lw.qk.k, w.eps);
        let v = linear(&x, &lw.attn.v);
        kv_append(&mut cache.k, &rope(&k, &r.freqs, r.head_dim, r.scale, pos), pos);
        kv_append(&mut cache.v, &v, pos);
        let q = rope(&q, &r.freqs, r.head_dim, r.scale, pos);
        let a = attention(&q, &cache.k, &cache.v, w.score_scale, pos);
        x = add(&x, &rms_norm(&linear(&a, &lw.attn.o), &lw.norms.attn, w.eps));
        let m = silu_mul(&linear(&x, &lw.mlp.gate), &linear(&x, &lw.mlp.up));
        x = add(&x, &rms_norm(&linear(&m, &lw.mlp.down), &lw.norms.mlp, w.eps));
    }
    linear(&rms_norm(&x, &w.ends.norm, w.eps), &w.ends.lm_head)
}
// ANCHOR_END: decode

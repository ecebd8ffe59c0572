//! Arcee (AFM-4.5B): a Llama whose MLP has no gate, and squared ReLU.

use super::kv::KvCache;
use super::parts::{Attention, Ends, Norms, PlainMlp, Rotary};
use crate::import::{Absent, Activation, Gguf, Import, Pairs};
use amk::prelude::*;
use amk_kernels::{add, attention, embed, kv_append, linear, relu_squared, rms_norm, rope};

/// The checkpoints of this family.
pub const IMPORTS: &[Import] = &[Import {
    family: "arcee",
    model_type: "arcee",
    class: "ArceeForCausalLM",
    gguf: Some(Gguf { pairs: Pairs::Neighbours, factors: &[Gguf::FACTORS], ..Gguf::of("arcee") }),
    defaults: &[Absent::KV_HEADS],
    eps: ("rms_norm_eps", 1e-5),
    activation: Activation::ReluSquared,
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
    /// The MLP.
    #[layout]
    pub mlp: PlainMlp,
}

/// The weights and the constants of the configuration.
#[derive(WeightLayout)]
pub struct Arcee {
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
        afm_4_5b(
            VOCAB = 128004, HIDDEN = 2560, LAYERS = 36,
            HEADS = 20, KV_HEADS = 4, HEAD_DIM = 128, ROTARY = 128, FFN = 18432, CONTEXT = 65536
        ),
    )
)]
pub fn decode(token: Token, pos: Pos, w: &Arcee, kv: &mut KvCache) -> Tensor {
    let r = &w.rotary;
    let mut x = embed(&w.ends.embed, token);
    for (lw, cache) in w.layers.iter().zip(&mut kv.layers) {
        let h = rms_norm(&x, &lw.norms.attn, w.eps);
        let (q, k, v) = (linear(&h, &lw.attn.q), linear(&h, &lw.attn.k), linear(&h, &lw.attn.v));
        kv_append(&mut cache.k, &rope(&k, &r.freqs, r.head_dim, r.scale, pos), pos);
        kv_append(&mut cache.v, &v, pos);
        let q = rope(&q, &r.freqs, r.head_dim, r.scale, pos);
        let a = attention(&q, &cache.k, &cache.v, w.score_scale, pos);
        x = add(&x, &linear(&a, &lw.attn.o));
        let h = rms_norm(&x, &lw.norms.mlp, w.eps);
        let m = relu_squared(&linear(&h, &lw.mlp.up));
        x = add(&x, &linear(&m, &lw.mlp.down));
    }
    linear(&rms_norm(&x, &w.ends.norm, w.eps), &w.ends.lm_head)
}

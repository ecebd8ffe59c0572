//! Nemotron and Minitron: LayerNorms with biases, half of each head rotated, an MLP without a gate.

use super::kv::KvCache;
use super::parts::{Attention, Ends, LayerNorms, PlainMlp, Rotary};
use crate::import::{Activation, Gguf, Import, Pairs, Rotation};
use amk::prelude::*;
use amk_kernels::{add, attention, embed, kv_append, layer_norm, linear, relu_squared, rope};

/// The checkpoints of this family.
pub const IMPORTS: &[Import] = &[Import {
    family: "nemotron",
    model_type: "nemotron",
    class: "NemotronForCausalLM",
    gguf: Some(Gguf {
        eps: "attention.layer_norm_epsilon",
        unread: &["attention.layer_norm_rms_epsilon"],
        ..Gguf::of("nemotron")
    }),
    eps: ("norm_eps", 1e-5),
    activation: Activation::ReluSquared,
    rotation: Rotation { part: Some(0.5), pairs: Pairs::Halves },
    norms_less_one: true,
    ..Import::LLAMA
}];

/// A decoder layer.
#[derive(WeightLayout)]
pub struct Layer {
    /// Norms.
    #[layout]
    pub norms: LayerNorms,
    /// Projections of attention.
    #[layout]
    pub attn: Attention,
    /// The MLP.
    #[layout]
    pub mlp: PlainMlp,
}

/// The weights and the constants of the configuration.
#[derive(WeightLayout)]
pub struct Nemotron {
    /// Embeddings, last norm and head.
    #[layout]
    pub ends: Ends,
    /// The layers.
    #[list(LAYERS)]
    pub layers: Vec<Layer>,
    /// Rotary embedding.
    #[layout]
    pub rotary: Rotary,
    /// Bias of the last norm.
    #[weight("model.norm.bias", [HIDDEN])]
    pub norm_bias: Weight,
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
        minitron_4b(
            VOCAB = 256000, HIDDEN = 3072, LAYERS = 32,
            HEADS = 24, KV_HEADS = 8, HEAD_DIM = 128, ROTARY = 64, FFN = 9216, CONTEXT = 4096
        ),
    )
)]
pub fn decode(token: Token, pos: Pos, w: &Nemotron, kv: &mut KvCache) -> Tensor {
    let r = &w.rotary;
    let mut x = embed(&w.ends.embed, token);
    for (lw, cache) in w.layers.iter().zip(&mut kv.layers) {
        let h = layer_norm(&x, &lw.norms.attn, &lw.norms.attn_bias, w.eps);
        let (q, k, v) = (linear(&h, &lw.attn.q), linear(&h, &lw.attn.k), linear(&h, &lw.attn.v));
        kv_append(&mut cache.k, &rope(&k, &r.freqs, r.head_dim, r.scale, pos), pos);
        kv_append(&mut cache.v, &v, pos);
        let q = rope(&q, &r.freqs, r.head_dim, r.scale, pos);
        let a = attention(&q, &cache.k, &cache.v, w.score_scale, pos);
        x = add(&x, &linear(&a, &lw.attn.o));
        let h = layer_norm(&x, &lw.norms.mlp, &lw.norms.mlp_bias, w.eps);
        let m = relu_squared(&linear(&h, &lw.mlp.up));
        x = add(&x, &linear(&m, &lw.mlp.down));
    }
    linear(&layer_norm(&x, &w.ends.norm, &w.norm_bias, w.eps), &w.ends.lm_head)
}

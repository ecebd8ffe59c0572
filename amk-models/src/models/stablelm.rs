//! StableLM 2: LayerNorms with biases, a quarter of each head rotated, and biases on queries, keys
//! and values if the checkpoint has them.

use super::kv::KvCache;
use super::parts::{Attention, Ends, LayerNorms, Mlp, QkvBias, Rotary};
use crate::import::{Flag, Gguf, Import, Pairs, QKV_BIASES, Rotation};
use amk::prelude::*;
use amk_kernels::{add, add_bias, attention, embed, kv_append, layer_norm, linear, rope, silu_mul};

/// The checkpoints of this family.
pub const IMPORTS: &[Import] = &[Import {
    family: "stablelm",
    model_type: "stablelm",
    class: "StableLmForCausalLM",
    gguf: Some(Gguf {
        eps: "attention.layer_norm_epsilon",
        // Converters write true for a config without the field; llama.cpp asks for the norm.
        unread_with: &[("use_parallel_residual", "post_attention_layernorm.weight")],
        ..Gguf::of("stablelm")
    }),
    eps: ("layer_norm_eps", 1e-5),
    rotation: Rotation { part: Some(0.25), pairs: Pairs::Halves },
    flags: &[Flag { path: "qkv_bias", field: "use_qkv_bias", default: false, key: None, tensors: QKV_BIASES }],
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
    /// Biases of queries, keys and values.
    #[layout]
    pub bias: QkvBias,
    /// The MLP.
    #[layout]
    pub mlp: Mlp,
}

/// The weights and the constants of the configuration.
#[derive(WeightLayout)]
pub struct StableLm {
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
    /// Whether queries, keys and values have biases.
    #[flag]
    pub qkv_bias: bool,
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
        stablelm_2_1_6b(
            VOCAB = 100352, HIDDEN = 2048, LAYERS = 24,
            HEADS = 32, KV_HEADS = 32, HEAD_DIM = 64, ROTARY = 16, FFN = 5632, CONTEXT = 4096, w.qkv_bias = true
        ),
        stablelm_3b_4e1t(
            VOCAB = 50304, HIDDEN = 2560, LAYERS = 32,
            HEADS = 32, KV_HEADS = 32, HEAD_DIM = 80, ROTARY = 20, FFN = 6912, CONTEXT = 4096, w.qkv_bias = false
        ),
    )
)]
pub fn decode(token: Token, pos: Pos, w: &StableLm, kv: &mut KvCache) -> Tensor {
    let r = &w.rotary;
    let mut x = embed(&w.ends.embed, token);
    for (lw, cache) in w.layers.iter().zip(&mut kv.layers) {
        let h = layer_norm(&x, &lw.norms.attn, &lw.norms.attn_bias, w.eps);
        let (mut q, mut k, mut v) = (linear(&h, &lw.attn.q), linear(&h, &lw.attn.k), linear(&h, &lw.attn.v));
        if w.qkv_bias {
            q = add_bias(&q, &lw.bias.q);
            k = add_bias(&k, &lw.bias.k);
            v = add_bias(&v, &lw.bias.v);
        }
        kv_append(&mut cache.k, &rope(&k, &r.freqs, r.head_dim, r.scale, pos), pos);
        kv_append(&mut cache.v, &v, pos);
        let q = rope(&q, &r.freqs, r.head_dim, r.scale, pos);
        let a = attention(&q, &cache.k, &cache.v, w.score_scale, pos);
        x = add(&x, &linear(&a, &lw.attn.o));
        let h = layer_norm(&x, &lw.norms.mlp, &lw.norms.mlp_bias, w.eps);
        let m = silu_mul(&linear(&h, &lw.mlp.gate), &linear(&h, &lw.mlp.up));
        x = add(&x, &linear(&m, &lw.mlp.down));
    }
    linear(&layer_norm(&x, &w.ends.norm, &w.norm_bias, w.eps), &w.ends.lm_head)
}

//! Phi-1, Phi-1.5 and Phi-2: attention and an MLP without a gate in parallel after one LayerNorm, a
//! part of each head rotated, biases on all projections and on the head.

use super::kv::KvCache;
use super::parts::{Attention, Ends, PlainMlp, QkvBias, Rotary};
use crate::import::{Absent, Activation, FUSED_QKV, Gguf, Import, Pairs, Rotation};
use amk::prelude::*;
use amk_kernels::{add, add_bias, attention, embed, gelu, kv_append, layer_norm, linear, rope};

/// The checkpoints of this family.
pub const IMPORTS: &[Import] = &[Import {
    family: "phi",
    model_type: "phi",
    class: "PhiForCausalLM",
    gguf: Some(Gguf {
        eps: "attention.layer_norm_epsilon",
        names: &[("attn_qkv", "self_attn.qkv_proj")],
        ..Gguf::of("phi2")
    }),
    defaults: &[Absent::KV_HEADS],
    eps: ("layer_norm_eps", 1e-5),
    activation: Activation::GeluTanh,
    rotation: Rotation { part: Some(0.5), pairs: Pairs::Halves },
    names: &[
        ("model.final_layernorm", "model.norm"),
        ("self_attn.dense", "self_attn.o_proj"),
        ("mlp.fc1", "mlp.up_proj"),
        ("mlp.fc2", "mlp.down_proj"),
    ],
    // Older GGUF files have one projection, later ones three.
    fused: &[FUSED_QKV],
    ..Import::LLAMA
}];

/// The biases of a layer, except for those of queries, keys and values.
#[derive(WeightLayout)]
pub struct Biases {
    /// Of the norm.
    #[weight("model.layers.{l}.input_layernorm.bias", [HIDDEN])]
    pub norm: Weight,
    /// Of the output projection of attention.
    #[weight("model.layers.{l}.self_attn.o_proj.bias", [HIDDEN])]
    pub o: Weight,
    /// Of the projection to the inner width of the MLP.
    #[weight("model.layers.{l}.mlp.up_proj.bias", [FFN])]
    pub up: Weight,
    /// Of the projection back.
    #[weight("model.layers.{l}.mlp.down_proj.bias", [HIDDEN])]
    pub down: Weight,
}

/// A decoder layer.
#[derive(WeightLayout)]
pub struct Layer {
    /// The norm before attention and the MLP.
    #[weight("model.layers.{l}.input_layernorm.weight", [HIDDEN])]
    pub norm: Weight,
    /// Projections of attention.
    #[layout]
    pub attn: Attention,
    /// Biases of queries, keys and values.
    #[layout]
    pub qkv_bias: QkvBias,
    /// The MLP.
    #[layout]
    pub mlp: PlainMlp,
    /// The other biases.
    #[layout]
    pub bias: Biases,
}

/// The weights and the constants of the configuration.
#[derive(WeightLayout)]
pub struct Phi {
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
    /// Bias of the head.
    #[weight("lm_head.bias", [VOCAB])]
    pub head_bias: Weight,
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
        phi_1_5(
            VOCAB = 51200, HIDDEN = 2048, LAYERS = 24,
            HEADS = 32, KV_HEADS = 32, HEAD_DIM = 64, ROTARY = 32, FFN = 8192, CONTEXT = 2048
        ),
        phi_2(
            VOCAB = 51200, HIDDEN = 2560, LAYERS = 32,
            HEADS = 32, KV_HEADS = 32, HEAD_DIM = 80, ROTARY = 32, FFN = 10240, CONTEXT = 2048
        ),
    )
)]
pub fn decode(token: Token, pos: Pos, w: &Phi, kv: &mut KvCache) -> Tensor {
    let r = &w.rotary;
    let mut x = embed(&w.ends.embed, token);
    for (lw, cache) in w.layers.iter().zip(&mut kv.layers) {
        let h = layer_norm(&x, &lw.norm, &lw.bias.norm, w.eps);
        let q = add_bias(&linear(&h, &lw.attn.q), &lw.qkv_bias.q);
        let k = add_bias(&linear(&h, &lw.attn.k), &lw.qkv_bias.k);
        let v = add_bias(&linear(&h, &lw.attn.v), &lw.qkv_bias.v);
        kv_append(&mut cache.k, &rope(&k, &r.freqs, r.head_dim, r.scale, pos), pos);
        kv_append(&mut cache.v, &v, pos);
        let q = rope(&q, &r.freqs, r.head_dim, r.scale, pos);
        let a = attention(&q, &cache.k, &cache.v, w.score_scale, pos);
        let a = add_bias(&linear(&a, &lw.attn.o), &lw.bias.o);
        let m = gelu(&add_bias(&linear(&h, &lw.mlp.up), &lw.bias.up));
        x = add(&add(&x, &a), &add_bias(&linear(&m, &lw.mlp.down), &lw.bias.down));
    }
    let x = layer_norm(&x, &w.ends.norm, &w.norm_bias, w.eps);
    add_bias(&linear(&x, &w.ends.lm_head), &w.head_bias)
}

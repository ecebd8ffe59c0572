//! GPT-NeoX and Pythia: LayerNorms, biases on all projections of a layer, an MLP without a gate,
//! in most checkpoints in parallel with attention, and a part of each head rotated.

use super::kv::KvCache;
use super::parts::{Attention, Ends, LayerNorms, PlainMlp, QkvBias, Rotary};
use crate::import::{Absent, Activation, FUSED_QKV, Fixed, Flag, Fused, Gguf, Import, Known, Pairs, Rotation};
use amk::prelude::*;
use amk_kernels::{add, add_bias, attention, embed, gelu_erf, kv_append, layer_norm, linear, rope};

/// The checkpoints of this family.
pub const IMPORTS: &[Import] = &[Import {
    family: "gpt_neox",
    model_type: "gpt_neox",
    class: "GPTNeoXForCausalLM",
    gguf: Some(Gguf {
        eps: "attention.layer_norm_epsilon",
        names: &[("attn_qkv", "self_attn.qkv_proj")],
        stated: &["use_parallel_residual"],
        ..Gguf::of("gptneox")
    }),
    fields: &[("rotary_emb_base", "rope_theta"), ("rotary_pct", "partial_rotary_factor")],
    unread: &["partial_rotary_factor"],
    defaults: &[Absent::KV_HEADS],
    eps: ("layer_norm_eps", 1e-5),
    activation: Activation::Gelu,
    rotation: Rotation { part: Some(0.25), pairs: Pairs::Halves },
    flags: &[Flag {
        path: "parallel",
        field: "use_parallel_residual",
        default: true,
        key: Some("use_parallel_residual"),
        tensors: &[],
    }],
    fixed: &[Fixed {
        field: "attention_bias",
        value: Known::Truth(true),
        stated: false,
        reason: "only checkpoints with biases on all projections are modelled",
    }],
    names: &[
        ("gpt_neox.embed_in", "model.embed_tokens"),
        ("gpt_neox.final_layer_norm", "model.norm"),
        ("gpt_neox", "model"),
        ("embed_out", "lm_head"),
        ("attention.query_key_value", "self_attn.qkv_proj"),
        ("attention.dense", "self_attn.o_proj"),
        ("mlp.dense_h_to_4h", "mlp.up_proj"),
        ("mlp.dense_4h_to_h", "mlp.down_proj"),
    ],
    fused: &[Fused { by_head: true, ..FUSED_QKV }],
    // The causal mask, which older exporters wrote.
    spare: &["attention.bias", "attention.masked_bias"],
    ..Import::LLAMA
}];

/// The biases behind attention and of the MLP.
#[derive(WeightLayout)]
pub struct Biases {
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
    /// Norms.
    #[layout]
    pub norms: LayerNorms,
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
pub struct GptNeoX {
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
    /// Whether the MLP has the input of attention instead of its result.
    #[flag]
    pub parallel: bool,
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
        pythia_1_4b(
            VOCAB = 50304, HIDDEN = 2048, LAYERS = 24, HEADS = 16, KV_HEADS = 16,
            HEAD_DIM = 128, ROTARY = 32, FFN = 8192, CONTEXT = 2048, w.parallel = true
        ),
        pythia_6_9b(
            VOCAB = 50432, HIDDEN = 4096, LAYERS = 32, HEADS = 32, KV_HEADS = 32,
            HEAD_DIM = 128, ROTARY = 32, FFN = 16384, CONTEXT = 2048, w.parallel = true
        ),
    )
)]
pub fn decode(token: Token, pos: Pos, w: &GptNeoX, kv: &mut KvCache) -> Tensor {
    let r = &w.rotary;
    let mut x = embed(&w.ends.embed, token);
    for (lw, cache) in w.layers.iter().zip(&mut kv.layers) {
        let h = layer_norm(&x, &lw.norms.attn, &lw.norms.attn_bias, w.eps);
        let q = add_bias(&linear(&h, &lw.attn.q), &lw.qkv_bias.q);
        let k = add_bias(&linear(&h, &lw.attn.k), &lw.qkv_bias.k);
        let v = add_bias(&linear(&h, &lw.attn.v), &lw.qkv_bias.v);
        kv_append(&mut cache.k, &rope(&k, &r.freqs, r.head_dim, r.scale, pos), pos);
        kv_append(&mut cache.v, &v, pos);
        let q = rope(&q, &r.freqs, r.head_dim, r.scale, pos);
        let a = attention(&q, &cache.k, &cache.v, w.score_scale, pos);
        let y = add(&x, &add_bias(&linear(&a, &lw.attn.o), &lw.bias.o));
        let h = if w.parallel {
            layer_norm(&x, &lw.norms.mlp, &lw.norms.mlp_bias, w.eps)
        } else {
            layer_norm(&y, &lw.norms.mlp, &lw.norms.mlp_bias, w.eps)
        };
        let m = gelu_erf(&add_bias(&linear(&h, &lw.mlp.up), &lw.bias.up));
        x = add(&y, &add_bias(&linear(&m, &lw.mlp.down), &lw.bias.down));
    }
    linear(&layer_norm(&x, &w.ends.norm, &w.norm_bias, w.eps), &w.ends.lm_head)
}

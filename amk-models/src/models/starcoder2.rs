//! StarCoder2: LayerNorms, biases on all projections, an MLP without a gate, and in most
//! checkpoints a window.

use super::kv::KvCache;
use super::parts::{Attention, Ends, LayerNorms, QkvBias, Rotary};
use crate::import::{Activation, Fixed, Gguf, Import, Known, Window};
use amk::prelude::*;
use amk_kernels::{add, add_bias, attention, embed, gelu, kv_append, layer_norm, linear, rope, window_attention};

/// The checkpoints of this family.
pub const IMPORTS: &[Import] = &[Import {
    family: "starcoder2",
    model_type: "starcoder2",
    class: "Starcoder2ForCausalLM",
    gguf: Some(Gguf {
        eps: "attention.layer_norm_epsilon",
        names: &[("ffn_up", "mlp.c_fc"), ("ffn_down", "mlp.c_proj")],
        ..Gguf::of("starcoder2")
    }),
    // As in StarCoder.
    unread: &[
        "activation_function",
        "attention_softmax_in_fp32",
        "layer_norm_epsilon",
        "scale_attention_softmax_in_fp32",
        "scale_attn_weights",
    ],
    eps: ("norm_epsilon", 1e-5),
    activation: Activation::GeluTanh,
    window: Window::Stated(None),
    windowed: Some("starcoder2"),
    tied: true,
    fixed: &[
        Fixed {
            field: "use_bias",
            value: Known::Truth(true),
            stated: false,
            reason: "only checkpoints with biases on all projections are modelled",
        },
        Fixed {
            field: "mlp_type",
            value: Known::Text("default"),
            stated: false,
            reason: "only a feed-forward network of two projections is modelled",
        },
        Fixed {
            field: "norm_type",
            value: Known::Text("layer_norm"),
            stated: false,
            reason: "the norms are LayerNorms",
        },
    ],
    ..Import::LLAMA
}];

/// An MLP without a gate.
#[derive(WeightLayout)]
pub struct PlainMlp {
    /// Projection to the inner width.
    #[weight("model.layers.{l}.mlp.c_fc.weight", [FFN, HIDDEN])]
    pub up: Weight,
    /// Its bias.
    #[weight("model.layers.{l}.mlp.c_fc.bias", [FFN])]
    pub up_bias: Weight,
    /// Projection back.
    #[weight("model.layers.{l}.mlp.c_proj.weight", [HIDDEN, FFN])]
    pub down: Weight,
    /// Its bias.
    #[weight("model.layers.{l}.mlp.c_proj.bias", [HIDDEN])]
    pub down_bias: Weight,
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
    pub bias: QkvBias,
    /// The MLP.
    #[layout]
    pub mlp: PlainMlp,
    /// Bias of the output projection.
    #[weight("model.layers.{l}.self_attn.o_proj.bias", [HIDDEN])]
    pub o_bias: Weight,
}

/// The weights and the constants of the configuration.
#[derive(WeightLayout)]
pub struct Starcoder2 {
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
    /// Whether attention is restricted to the last positions.
    #[flag]
    pub windowed: bool,
    /// Positions of the window.
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
        starcoder2_3b(
            VOCAB = 49152, HIDDEN = 3072, LAYERS = 30,
            HEADS = 24, KV_HEADS = 2, HEAD_DIM = 128, ROTARY = 128, FFN = 12288,
            WINDOW = 4096, CONTEXT = 16384, w.windowed = true
        ),
        starcoder2_7b(
            VOCAB = 49152, HIDDEN = 4608, LAYERS = 32,
            HEADS = 36, KV_HEADS = 4, HEAD_DIM = 128, ROTARY = 128, FFN = 18432,
            WINDOW = 4096, CONTEXT = 16384, w.windowed = true
        ),
    )
)]
pub fn decode(token: Token, pos: Pos, w: &Starcoder2, kv: &mut KvCache) -> Tensor {
    let r = &w.rotary;
    let mut x = embed(&w.ends.embed, token);
    for (lw, cache) in w.layers.iter().zip(&mut kv.layers) {
        let h = layer_norm(&x, &lw.norms.attn, &lw.norms.attn_bias, w.eps);
        let q = add_bias(&linear(&h, &lw.attn.q), &lw.bias.q);
        let k = add_bias(&linear(&h, &lw.attn.k), &lw.bias.k);
        let v = add_bias(&linear(&h, &lw.attn.v), &lw.bias.v);
        kv_append(&mut cache.k, &rope(&k, &r.freqs, r.head_dim, r.scale, pos), pos);
        kv_append(&mut cache.v, &v, pos);
        let q = rope(&q, &r.freqs, r.head_dim, r.scale, pos);
        let a = if w.windowed {
            window_attention(&q, &cache.k, &cache.v, w.score_scale, w.window, pos)
        } else {
            attention(&q, &cache.k, &cache.v, w.score_scale, pos)
        };
        x = add(&x, &add_bias(&linear(&a, &lw.attn.o), &lw.o_bias));
        let h = layer_norm(&x, &lw.norms.mlp, &lw.norms.mlp_bias, w.eps);
        let m = gelu(&add_bias(&linear(&h, &lw.mlp.up), &lw.mlp.up_bias));
        x = add(&x, &add_bias(&linear(&m, &lw.mlp.down), &lw.mlp.down_bias));
    }
    linear(&layer_norm(&x, &w.ends.norm, &w.norm_bias, w.eps), &w.ends.lm_head)
}

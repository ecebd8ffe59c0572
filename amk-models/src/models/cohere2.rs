//! Command-R7B: attention and the MLP in parallel after one LayerNorm; three of four layers have a
//! sliding window, and only these use positions.

use super::kv::KvCache;
use super::parts::{Attention, Ends, Mlp, Rotary};
use crate::import::{Absent, Gguf, Import, LayerFlag, Number, Pairs, Rotation, Window};
use amk::prelude::*;
use amk_kernels::{add, attention, centred_norm, embed, kv_append, linear, rope, scale, silu_mul, window_attention};

/// The checkpoints of this family.
pub const IMPORTS: &[Import] = &[Import {
    family: "cohere2",
    model_type: "cohere2",
    class: "Cohere2ForCausalLM",
    gguf: Some(Gguf {
        eps: "attention.layer_norm_epsilon",
        pairs: Pairs::Neighbours,
        stated: &["attention.sliding_window", "logit_scale"],
        ..Gguf::of("cohere2")
    }),
    unread: &[
        "_sliding_window_pattern",
        "layer_switch",
        "order_of_interleaved_layers",
        "position_embedding_type",
        "rotary_pct",
        "use_embedding_sharing",
        "use_gated_activation",
        "use_parallel_block",
        "use_parallel_embedding",
    ],
    defaults: &[Absent::KV_HEADS],
    eps: ("layer_norm_eps", 1e-5),
    rotation: Rotation { part: None, pairs: Pairs::Neighbours },
    window: Window::OfLayers,
    layers: Some(LayerFlag::sliding(4, Some("sliding_window_pattern"))),
    tied: true,
    numbers: &[Number::of("logit_scale", "logit_scale", "logit_scale", 0.0625)],
    ..Import::LLAMA
}];

/// A decoder layer.
#[derive(WeightLayout)]
pub struct Layer {
    /// The norm before attention and the MLP.
    #[weight("model.layers.{l}.input_layernorm.weight", [HIDDEN])]
    pub norm: Weight,
    /// Projections of attention.
    #[layout]
    pub attn: Attention,
    /// The MLP.
    #[layout]
    pub mlp: Mlp,
    /// Whether it attends only to the last positions.
    #[flag]
    pub sliding: bool,
}

/// The weights and the constants of the configuration.
#[derive(WeightLayout)]
pub struct Cohere2 {
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
    /// Factor on the logits.
    #[param]
    pub logit_scale: f32,
    /// Factor on the attention scores.
    #[param]
    pub score_scale: f32,
    /// The norms' epsilon.
    #[param]
    pub eps: f32,
}

/// One step: the logits `[VOCAB]` of the token after `token` at position `pos`. Each instance has
/// layers of both kinds, so that a build verifies both.
#[megakernel(
    dims(VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, ROTARY, FFN, WINDOW, CONTEXT),
    where(HEADS % KV_HEADS, ROTARY % 2),
    instances(
        command_r7b(
            VOCAB = 256000, HIDDEN = 4096, LAYERS = 32, HEADS = 32, KV_HEADS = 8,
            HEAD_DIM = 128, ROTARY = 128, FFN = 14336, WINDOW = 4096, CONTEXT = 8192,
            w.layers[0].sliding = true
        ),
    )
)]
pub fn decode(token: Token, pos: Pos, w: &Cohere2, kv: &mut KvCache) -> Tensor {
    let r = &w.rotary;
    let mut x = embed(&w.ends.embed, token);
    for (lw, cache) in w.layers.iter().zip(&mut kv.layers) {
        let h = centred_norm(&x, &lw.norm, w.eps);
        let (q, k, v) = (linear(&h, &lw.attn.q), linear(&h, &lw.attn.k), linear(&h, &lw.attn.v));
        kv_append(&mut cache.v, &v, pos);
        let a = if lw.sliding {
            kv_append(&mut cache.k, &rope(&k, &r.freqs, r.head_dim, r.scale, pos), pos);
            let q = rope(&q, &r.freqs, r.head_dim, r.scale, pos);
            window_attention(&q, &cache.k, &cache.v, w.score_scale, w.window, pos)
        } else {
            kv_append(&mut cache.k, &k, pos);
            attention(&q, &cache.k, &cache.v, w.score_scale, pos)
        };
        let m = silu_mul(&linear(&h, &lw.mlp.gate), &linear(&h, &lw.mlp.up));
        x = add(&add(&x, &linear(&a, &lw.attn.o)), &linear(&m, &lw.mlp.down));
    }
    scale(&linear(&centred_norm(&x, &w.ends.norm, w.eps), &w.ends.lm_head), w.logit_scale)
}

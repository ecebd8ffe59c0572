//! Gemma 2: norms before and after attention and the MLP, a sliding window in every other layer,
//! soft caps on scores and logits, a scaled embedding.

use super::kv::KvCache;
use super::parts::{Attention, Ends, Mlp, PreAndPostNorms, Rotary};
use crate::import::{Activation, Form, Gguf, Import, LayerFlag, Number, Window};
use amk::prelude::*;
use amk_kernels::{add, capped_attention, embed, gelu_mul, kv_append, linear, rms_norm, rope, scale, soft_cap};

/// The checkpoints of this family.
pub const IMPORTS: &[Import] = &[Import {
    family: "gemma2",
    model_type: "gemma2",
    class: "Gemma2ForCausalLM",
    gguf: Some(Gguf {
        names: Gguf::PRE_AND_POST_NORMS,
        scores_by_width: Some(46),
        stated: &["attention.sliding_window"],
        ..Gguf::of("gemma2")
    }),
    head_dim: Some(256),
    eps: ("rms_norm_eps", 1e-6),
    activation_field: "hidden_activation",
    activation: Activation::GeluTanh,
    window: Window::OfLayers,
    norms_less_one: true,
    tied: true,
    layers: Some(LayerFlag::sliding(2, None)),
    unread: &["_sliding_window_pattern", "sliding_window_pattern", "sliding_window_size"],
    numbers: &[
        Number {
            path: "score_scale",
            field: "query_pre_attn_scalar",
            key: None,
            form: Form::ReciprocalRoot,
            default: 256.0,
        },
        Number::of("score_cap", "attn_logit_softcapping", "attn_logit_softcapping", 50.0),
        Number::of("logit_cap", "final_logit_softcapping", "final_logit_softcapping", 30.0),
    ],
    ..Import::LLAMA
}];

/// A decoder layer.
#[derive(WeightLayout)]
pub struct Layer {
    /// Norms.
    #[layout]
    pub norms: PreAndPostNorms,
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
pub struct Gemma2 {
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
    /// Factor on the embedding: the square root of its length.
    #[param]
    pub embedding_scale: f32,
    /// Bound of the attention scores.
    #[param]
    pub score_cap: f32,
    /// Bound of the logits.
    #[param]
    pub logit_cap: f32,
    /// Positions that a layer without a window attends to.
    #[dim(CONTEXT)]
    pub context: usize,
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
        gemma_2_2b(
            VOCAB = 256000, HIDDEN = 2304, LAYERS = 26, HEADS = 8, KV_HEADS = 4,
            HEAD_DIM = 256, ROTARY = 256, FFN = 9216, WINDOW = 4096, CONTEXT = 8192,
            w.layers[0].sliding = true
        ),
        gemma_2_9b(
            VOCAB = 256000, HIDDEN = 3584, LAYERS = 42, HEADS = 16, KV_HEADS = 8,
            HEAD_DIM = 256, ROTARY = 256, FFN = 14336, WINDOW = 4096, CONTEXT = 8192,
            w.layers[0].sliding = true
        ),
        gemma_2_27b(
            VOCAB = 256000, HIDDEN = 4608, LAYERS = 46, HEADS = 32, KV_HEADS = 16,
            HEAD_DIM = 128, ROTARY = 128, FFN = 36864, WINDOW = 4096, CONTEXT = 8192,
            w.layers[0].sliding = true
        ),
    )
)]
pub fn decode(token: Token, pos: Pos, w: &Gemma2, kv: &mut KvCache) -> Tensor {
    let r = &w.rotary;
    let mut x = scale(&embed(&w.ends.embed, token), w.embedding_scale);
    for (lw, cache) in w.layers.iter().zip(&mut kv.layers) {
        let h = rms_norm(&x, &lw.norms.attn, w.eps);
        let (q, k, v) = (linear(&h, &lw.attn.q), linear(&h, &lw.attn.k), linear(&h, &lw.attn.v));
        kv_append(&mut cache.k, &rope(&k, &r.freqs, r.head_dim, r.scale, pos), pos);
        kv_append(&mut cache.v, &v, pos);
        let q = rope(&q, &r.freqs, r.head_dim, r.scale, pos);
        let a = if lw.sliding {
            capped_attention(&q, &cache.k, &cache.v, w.score_scale, w.score_cap, w.window, pos)
        } else {
            capped_attention(&q, &cache.k, &cache.v, w.score_scale, w.score_cap, w.context, pos)
        };
        x = add(&x, &rms_norm(&linear(&a, &lw.attn.o), &lw.norms.after_attn, w.eps));
        let h = rms_norm(&x, &lw.norms.mlp, w.eps);
        let m = gelu_mul(&linear(&h, &lw.mlp.gate), &linear(&h, &lw.mlp.up));
        x = add(&x, &rms_norm(&linear(&m, &lw.mlp.down), &lw.norms.after_mlp, w.eps));
    }
    soft_cap(&linear(&rms_norm(&x, &w.ends.norm, w.eps), &w.ends.lm_head), w.logit_cap)
}

//! Gemma 3, text: norms before and after attention and the MLP and per head, five of six layers
//! with a sliding window and a rotary embedding of their own, a scaled embedding.

use super::kv::KvCache;
use super::parts::{Attention, Ends, HeadNorms, Mlp, PreAndPostNorms, Rotary};
use crate::import::{Absent, Activation, Form, Gguf, Import, Inside, LayerFlag, Local, Number, Window};
use amk::prelude::*;
use amk_kernels::{
    add, attention, embed, gelu_mul, head_norm, kv_append, linear, rms_norm, rope, scale, window_attention,
};

/// The checkpoints of this family: text models, and the text model of those with images.
pub const IMPORTS: &[Import] = &[TEXT, WITH_IMAGES];

const TEXT: Import = Import {
    family: "gemma3",
    model_type: "gemma3_text",
    class: "Gemma3ForCausalLM",
    gguf: Some(Gguf { names: Gguf::PRE_AND_POST_NORMS, scores_by_width: Some(62), ..Gguf::of("gemma3") }),
    head_dim: Some(256),
    eps: ("rms_norm_eps", 1e-6),
    activation_field: "hidden_activation",
    activation: Activation::GeluTanh,
    window: Window::OfLayers,
    norms_less_one: true,
    tied: true,
    unread: &["_sliding_window_pattern"],
    theta: 1_000_000.0,
    local: Some(Local { field: Some("rope_local_base_freq"), theta: 10_000.0, gguf_theta: Some(10_000.0) }),
    layers: Some(LayerFlag::sliding(6, Some("sliding_window_pattern"))),
    numbers: &[Number {
        path: "score_scale",
        field: "query_pre_attn_scalar",
        key: None,
        form: Form::ReciprocalRoot,
        default: 256.0,
    }],
    ..Import::LLAMA
};

const WITH_IMAGES: Import = Import {
    model_type: "gemma3",
    class: "Gemma3ForConditionalGeneration",
    inside: Some(Inside {
        field: "text_config",
        model_type: "gemma3_text",
        names: &[
            ("language_model.model", "model"),
            ("language_model.lm_head", "lm_head"),
            ("model.language_model", "model"),
        ],
        others: &["vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector."],
    }),
    gguf: None,
    unread: &[
        "_sliding_window_pattern",
        "boi_token_id",
        "boi_token_index",
        "eoi_token_id",
        "eoi_token_index",
        "image_token_id",
        "image_token_index",
        "mm_tokens_per_image",
        "vision_config",
    ],
    defaults: &[
        ("vocab_size", Absent::Number(262_208)),
        ("num_attention_heads", Absent::Number(8)),
        ("num_key_value_heads", Absent::Number(4)),
        ("max_position_embeddings", Absent::Number(131_072)),
        ("sliding_window", Absent::Number(4096)),
    ],
    ..TEXT
};

/// A decoder layer.
#[derive(WeightLayout)]
pub struct Layer {
    /// Norms.
    #[layout]
    pub norms: PreAndPostNorms,
    /// Projections of attention.
    #[layout]
    pub attn: Attention,
    /// Norms of queries and keys, per head.
    #[layout]
    pub heads: HeadNorms,
    /// The MLP.
    #[layout]
    pub mlp: Mlp,
    /// Whether it attends only to the last positions.
    #[flag]
    pub sliding: bool,
}

/// The weights and the constants of the configuration.
#[derive(WeightLayout)]
pub struct Gemma3 {
    /// Embeddings, last norm and head.
    #[layout]
    pub ends: Ends,
    /// The layers.
    #[list(LAYERS)]
    pub layers: Vec<Layer>,
    /// Rotary embedding.
    #[layout]
    pub rotary: Rotary,
    /// Rotary embedding of layers with a window.
    #[layout]
    pub local: Rotary,
    /// Positions that a sliding-window layer attends to.
    #[dim(WINDOW)]
    pub window: usize,
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

/// One step: the logits `[VOCAB]` of the token after `token` at position `pos`. Each instance has
/// layers of both kinds, so that a build verifies both.
#[megakernel(
    dims(VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, ROTARY, FFN, WINDOW, CONTEXT),
    where(HEADS % KV_HEADS, ROTARY % 2),
    instances(
        gemma_3_1b(
            VOCAB = 262144, HIDDEN = 1152, LAYERS = 26, HEADS = 4, KV_HEADS = 1,
            HEAD_DIM = 256, ROTARY = 256, FFN = 6912, WINDOW = 512, CONTEXT = 32768,
            w.layers[0].sliding = true
        ),
        gemma_3_4b(
            VOCAB = 262208, HIDDEN = 2560, LAYERS = 34, HEADS = 8, KV_HEADS = 4,
            HEAD_DIM = 256, ROTARY = 256, FFN = 10240, WINDOW = 1024, CONTEXT = 131072,
            w.layers[0].sliding = true
        ),
    )
)]
pub fn decode(token: Token, pos: Pos, w: &Gemma3, kv: &mut KvCache) -> Tensor {
    let (r, l) = (&w.rotary, &w.local);
    let mut x = scale(&embed(&w.ends.embed, token), w.embedding_scale);
    for (lw, cache) in w.layers.iter().zip(&mut kv.layers) {
        let h = rms_norm(&x, &lw.norms.attn, w.eps);
        let q = head_norm(&linear(&h, &lw.attn.q), &lw.heads.q, w.eps);
        let k = head_norm(&linear(&h, &lw.attn.k), &lw.heads.k, w.eps);
        let v = linear(&h, &lw.attn.v);
        // ANCHOR: kinds
        let q = if lw.sliding {
            kv_append(&mut cache.k, &rope(&k, &l.freqs, l.head_dim, l.scale, pos), pos);
            rope(&q, &l.freqs, l.head_dim, l.scale, pos)
        } else {
            kv_append(&mut cache.k, &rope(&k, &r.freqs, r.head_dim, r.scale, pos), pos);
            rope(&q, &r.freqs, r.head_dim, r.scale, pos)
        };
        kv_append(&mut cache.v, &v, pos);
        let a = if lw.sliding {
            window_attention(&q, &cache.k, &cache.v, w.score_scale, w.window, pos)
        } else {
            attention(&q, &cache.k, &cache.v, w.score_scale, pos)
        };
        // ANCHOR_END: kinds
        x = add(&x, &rms_norm(&linear(&a, &lw.attn.o), &lw.norms.after_attn, w.eps));
        let h = rms_norm(&x, &lw.norms.mlp, w.eps);
        let m = gelu_mul(&linear(&h, &lw.mlp.gate), &linear(&h, &lw.mlp.up));
        x = add(&x, &rms_norm(&linear(&m, &lw.mlp.down), &lw.norms.after_mlp, w.eps));
    }
    linear(&rms_norm(&x, &w.ends.norm, w.eps), &w.ends.lm_head)
}

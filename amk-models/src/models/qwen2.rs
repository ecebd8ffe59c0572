//! Qwen2, Qwen2.5, GLM-4-9B and Seed-OSS: biases on the query, key and value projections.

use super::kv::KvCache;
use super::parts::{Attention, Ends, Mlp, Norms, QkvBias, Rotary};
use crate::import::{FUSED_GATE_UP, Fixed, Gguf, Import, Known, Pairs, Rotation, Window};
use amk::prelude::*;
use amk_kernels::{add, add_bias, attention, embed, kv_append, linear, rms_norm, rope, silu_mul};

/// The checkpoints of this family.
pub const IMPORTS: &[Import] = &[
    Import {
        family: "qwen2",
        model_type: "qwen2",
        class: "Qwen2ForCausalLM",
        gguf: Some(Gguf::of("qwen2")),
        window: Window::Switched,
        ..Import::LLAMA
    },
    Import {
        family: "qwen2",
        model_type: "glm",
        class: "GlmForCausalLM",
        gguf: None,
        head_dim: Some(128),
        eps: ("rms_norm_eps", 1.5625e-7),
        rotation: Rotation { part: Some(0.5), pairs: Pairs::Neighbours },
        fixed: &[Fixed::BIASES],
        fused: &[FUSED_GATE_UP],
        ..Import::LLAMA
    },
    Import {
        family: "qwen2",
        model_type: "seed_oss",
        class: "SeedOssForCausalLM",
        gguf: Some(Gguf { names: &[("post_attention_norm", "post_attention_layernorm")], ..Gguf::of("seed_oss") }),
        head_dim: Some(128),
        fixed: &[
            Fixed::BIASES,
            Fixed {
                field: "attention_out_bias",
                value: Known::Truth(false),
                stated: false,
                reason: "a bias on the output projection of attention is not modelled",
            },
        ],
        ..Import::LLAMA
    },
];

/// A decoder layer.
#[derive(WeightLayout)]
pub struct Layer {
    /// Norms.
    #[layout]
    pub norms: Norms,
    /// Projections of attention.
    #[layout]
    pub attn: Attention,
    /// Biases of the projections.
    #[layout]
    pub bias: QkvBias,
    /// The MLP.
    #[layout]
    pub mlp: Mlp,
}

/// The weights and the constants of the configuration.
#[derive(WeightLayout)]
pub struct Qwen2 {
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
        qwen2_5_0_5b(
            VOCAB = 151936, HIDDEN = 896, LAYERS = 24,
            HEADS = 14, KV_HEADS = 2, HEAD_DIM = 64, ROTARY = 64, FFN = 4864, CONTEXT = 32768
        ),
        qwen2_5_7b(
            VOCAB = 152064, HIDDEN = 3584, LAYERS = 28,
            HEADS = 28, KV_HEADS = 4, HEAD_DIM = 128, ROTARY = 128, FFN = 18944, CONTEXT = 32768
        ),
    )
)]
pub fn decode(token: Token, pos: Pos, w: &Qwen2, kv: &mut KvCache) -> Tensor {
    let r = &w.rotary;
    let mut x = embed(&w.ends.embed, token);
    for (lw, cache) in w.layers.iter().zip(&mut kv.layers) {
        let h = rms_norm(&x, &lw.norms.attn, w.eps);
        let q = add_bias(&linear(&h, &lw.attn.q), &lw.bias.q);
        let k = add_bias(&linear(&h, &lw.attn.k), &lw.bias.k);
        let v = add_bias(&linear(&h, &lw.attn.v), &lw.bias.v);
        kv_append(&mut cache.k, &rope(&k, &r.freqs, r.head_dim, r.scale, pos), pos);
        kv_append(&mut cache.v, &v, pos);
        let q = rope(&q, &r.freqs, r.head_dim, r.scale, pos);
        let a = attention(&q, &cache.k, &cache.v, w.score_scale, pos);
        x = add(&x, &linear(&a, &lw.attn.o));
        let h = rms_norm(&x, &lw.norms.mlp, w.eps);
        let m = silu_mul(&linear(&h, &lw.mlp.gate), &linear(&h, &lw.mlp.up));
        x = add(&x, &linear(&m, &lw.mlp.down));
    }
    linear(&rms_norm(&x, &w.ends.norm, w.eps), &w.ends.lm_head)
}

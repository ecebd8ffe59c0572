//! Llama 2 and 3, SmolLM2, TinyLlama, Falcon 3, Phi-3 and Phi-4-mini, ERNIE 4.5, Helium, and
//! Mistral without a sliding window.

use super::kv::KvCache;
use super::parts::{Ends, Layer, Rotary};
use crate::import::{Absent, FUSED_GATE_UP, FUSED_QKV, Fixed, Gguf, Import, Known, Pairs, Rotation, Window};
use amk::prelude::*;
use amk_kernels::{add, attention, embed, kv_append, linear, rms_norm, rope, silu_mul};

/// The checkpoints of this family.
pub const IMPORTS: &[Import] = &[
    Import { defaults: &[Absent::KV_HEADS], ..Import::LLAMA },
    Import {
        model_type: "mistral",
        class: "MistralForCausalLM",
        gguf: None,
        window: Window::Stated(Some(4096)),
        windowed: Some("mistral"),
        fixed: &[Fixed {
            field: "layer_types",
            value: Known::AllOf(&["sliding_attention"]),
            stated: false,
            reason: "transformers takes a Mistral with kinds of layers as a Ministral, of which only layers with \
                     the window are modelled",
        }],
        ..Import::LLAMA
    },
    Import {
        model_type: "phi3",
        class: "Phi3ForCausalLM",
        gguf: Some(Gguf {
            names: &[("attn_qkv", "self_attn.qkv_proj"), ("ffn_up", "mlp.gate_up_proj")],
            spaced: Some(&["<unk>", "<s>", "<|endoftext|>"]),
            factors: &[Gguf::FACTORS_SHORT, Gguf::FACTORS_LONG],
            ..Gguf::of("phi3")
        }),
        unread: &["full_attn_mod", "interpolate_factor"],
        defaults: &[Absent::KV_HEADS, ("original_max_position_embeddings", Absent::Number(4096))],
        eps: ("rms_norm_eps", 1e-5),
        rotation: Rotation { part: Some(1.0), pairs: Pairs::Halves },
        window: Window::Stated(None),
        windowed: Some("mistral"),
        fused: &[FUSED_QKV, FUSED_GATE_UP],
        ..Import::LLAMA
    },
    Import {
        model_type: "ernie4_5",
        class: "Ernie4_5ForCausalLM",
        gguf: Some(Gguf { pairs: Pairs::Neighbours, ..Gguf::of("ernie4_5") }),
        head_dim: Some(128),
        eps: ("rms_norm_eps", 1e-5),
        rotation: Rotation { part: None, pairs: Pairs::Neighbours },
        theta: 500_000.0,
        tied: true,
        fixed: &[Fixed::NO_BIASES],
        ..Import::LLAMA
    },
    Import {
        model_type: "helium",
        class: "HeliumForCausalLM",
        gguf: None,
        head_dim: Some(128),
        eps: ("rms_norm_eps", 1e-8),
        rotation: Rotation { part: None, pairs: Pairs::Neighbours },
        theta: 100_000.0,
        ..Import::LLAMA
    },
];

/// The weights and the constants of the configuration.
#[derive(WeightLayout)]
pub struct Llama {
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
        smollm2_135m(
            VOCAB = 49152, HIDDEN = 576, LAYERS = 30,
            HEADS = 9, KV_HEADS = 3, HEAD_DIM = 64, ROTARY = 64, FFN = 1536, CONTEXT = 8192
        ),
        tinyllama_1_1b(
            VOCAB = 32000, HIDDEN = 2048, LAYERS = 22,
            HEADS = 32, KV_HEADS = 4, HEAD_DIM = 64, ROTARY = 64, FFN = 5632, CONTEXT = 2048
        ),
        llama_3_2_1b(
            VOCAB = 128256, HIDDEN = 2048, LAYERS = 16,
            HEADS = 32, KV_HEADS = 8, HEAD_DIM = 64, ROTARY = 64, FFN = 8192, CONTEXT = 131072
        ),
        llama_3_1_8b(
            VOCAB = 128256, HIDDEN = 4096, LAYERS = 32,
            HEADS = 32, KV_HEADS = 8, HEAD_DIM = 128, ROTARY = 128, FFN = 14336, CONTEXT = 131072
        ),
        phi_4_mini(
            VOCAB = 200064, HIDDEN = 3072, LAYERS = 32,
            HEADS = 24, KV_HEADS = 8, HEAD_DIM = 128, ROTARY = 96, FFN = 8192, CONTEXT = 131072
        ),
    )
)]
pub fn decode(token: Token, pos: Pos, w: &Llama, kv: &mut KvCache) -> Tensor {
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
        let m = silu_mul(&linear(&h, &lw.mlp.gate), &linear(&h, &lw.mlp.up));
        x = add(&x, &linear(&m, &lw.mlp.down));
    }
    linear(&rms_norm(&x, &w.ends.norm, w.eps), &w.ends.lm_head)
}

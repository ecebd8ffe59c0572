//! Granite 3 and 4, dense: a Llama with multipliers for the embedding, for the outputs of attention
//! and the MLP, and for the logits.

use super::kv::KvCache;
use super::parts::{Ends, Layer, Rotary};
use crate::import::{Absent, FUSED_GATE_UP, Fixed, Form, Gguf, Import, Known, Number, Pairs};
use amk::prelude::*;
use amk_kernels::{add, attention, embed, kv_append, linear, rms_norm, rope, scale, silu_mul};

/// The checkpoints of this family. Logits are divided by `logits_scaling`.
pub const IMPORTS: &[Import] = &[GRANITE_3, GRANITE_4];

// ANCHOR: import
const GRANITE_3: Import = Import {
    family: "granite",
    model_type: "granite",
    class: "GraniteForCausalLM",
    gguf: Some(Gguf {
        pairs: Pairs::Neighbours,
        stated: &["attention.scale"],
        unread: &[
            "expert_shared_feed_forward_length",
            "ssm.conv_kernel",
            "ssm.group_count",
            "ssm.inner_size",
            "ssm.state_size",
            "ssm.time_step_rank",
        ],
        factors: &[Gguf::FACTORS, Gguf::FACTORS_SHORT, Gguf::FACTORS_LONG],
        // llama.cpp's switch for the rotation in this architecture.
        on: &[("rope.scaling.finetuned", "models without positions are not modelled")],
        ..Gguf::of("granite")
    }),
    defaults: &[Absent::KV_HEADS],
    numbers: &[
        Number::of("embedding_scale", "embedding_multiplier", "embedding_scale", 1.0),
        Number::of("residual_scale", "residual_multiplier", "residual_scale", 1.0),
        Number::of("score_scale", "attention_multiplier", "attention.scale", 1.0),
        Number { form: Form::Reciprocal, ..Number::of("logit_scale", "logits_scaling", "logit_scale", 1.0) },
    ],
    ..Import::LLAMA
};
// ANCHOR_END: import

const GRANITE_4: Import = Import {
    model_type: "granitemoehybrid",
    class: "GraniteMoeHybridForCausalLM",
    gguf: None,
    fields: &[("shared_intermediate_size", "intermediate_size")],
    unread: &[
        "init_method",
        "mamba_chunk_size",
        "mamba_conv_bias",
        "mamba_d_conv",
        "mamba_d_head",
        "mamba_d_state",
        "mamba_expand",
        "mamba_n_groups",
        "mamba_n_heads",
        "mamba_proj_bias",
        "output_router_logits",
        "time_step_limit",
    ],
    fixed: &[
        Fixed {
            field: "layer_types",
            value: Known::AllOf(&["attention", "full_attention"]),
            stated: true,
            reason: "layers of state spaces (Mamba) are not modelled, and all are where the field is absent",
        },
        Fixed {
            field: "position_embedding_type",
            value: Known::Text("rope"),
            stated: true,
            reason: "models without positions are not modelled",
        },
        Fixed {
            field: "normalization_function",
            value: Known::Text("rmsnorm"),
            stated: false,
            reason: "the norms are RMS norms",
        },
    ],
    names: &[("shared_mlp.input_linear", "mlp.gate_up_proj"), ("shared_mlp.output_linear", "mlp.down_proj")],
    fused: &[FUSED_GATE_UP],
    ..GRANITE_3
};

/// The weights and the constants of the configuration.
#[derive(WeightLayout)]
pub struct Granite {
    /// Embeddings, last norm and head.
    #[layout]
    pub ends: Ends,
    /// The layers.
    #[list(LAYERS)]
    pub layers: Vec<Layer>,
    /// Rotary embedding.
    #[layout]
    pub rotary: Rotary,
    /// Factor on the embedding.
    #[param]
    pub embedding_scale: f32,
    /// Factor on the outputs of attention and the MLP before they are added.
    #[param]
    pub residual_scale: f32,
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

/// One step: the logits `[VOCAB]` of the token after `token` at position `pos`.
#[megakernel(
    dims(VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, ROTARY, FFN, CONTEXT),
    where(HEADS % KV_HEADS, ROTARY % 2),
    instances(
        granite_3_2b(
            VOCAB = 49155, HIDDEN = 2048, LAYERS = 40,
            HEADS = 32, KV_HEADS = 8, HEAD_DIM = 64, ROTARY = 64, FFN = 8192, CONTEXT = 131072
        ),
        granite_3_8b(
            VOCAB = 49155, HIDDEN = 4096, LAYERS = 40,
            HEADS = 32, KV_HEADS = 8, HEAD_DIM = 128, ROTARY = 128, FFN = 12800, CONTEXT = 131072
        ),
    )
)]
pub fn decode(token: Token, pos: Pos, w: &Granite, kv: &mut KvCache) -> Tensor {
    let r = &w.rotary;
    let mut x = scale(&embed(&w.ends.embed, token), w.embedding_scale);
    for (lw, cache) in w.layers.iter().zip(&mut kv.layers) {
        let h = rms_norm(&x, &lw.norms.attn, w.eps);
        let (q, k, v) = (linear(&h, &lw.attn.q), linear(&h, &lw.attn.k), linear(&h, &lw.attn.v));
        kv_append(&mut cache.k, &rope(&k, &r.freqs, r.head_dim, r.scale, pos), pos);
        kv_append(&mut cache.v, &v, pos);
        let q = rope(&q, &r.freqs, r.head_dim, r.scale, pos);
        let a = attention(&q, &cache.k, &cache.v, w.score_scale, pos);
        x = add(&x, &scale(&linear(&a, &lw.attn.o), w.residual_scale));
        let h = rms_norm(&x, &lw.norms.mlp, w.eps);
        let m = silu_mul(&linear(&h, &lw.mlp.gate), &linear(&h, &lw.mlp.up));
        x = add(&x, &scale(&linear(&m, &lw.mlp.down), w.residual_scale));
    }
    scale(&linear(&rms_norm(&x, &w.ends.norm, w.eps), &w.ends.lm_head), w.logit_scale)
}

//! GLM-4-0414: biases on queries, keys and values, half of each head rotated, and norms before and
//! after attention and the MLP.

use super::kv::KvCache;
use super::parts::{Attention, Ends, Mlp, Norms, QkvBias, Rotary};
use crate::import::{FUSED_GATE_UP, Fixed, Gguf, Import, Pairs, Rotation};
use amk::prelude::*;
use amk_kernels::{add, add_bias, attention, embed, kv_append, linear, rms_norm, rope, silu_mul};

/// The checkpoints of this family.
pub const IMPORTS: &[Import] = &[Import {
    family: "glm4",
    model_type: "glm4",
    class: "Glm4ForCausalLM",
    gguf: Some(Gguf {
        pairs: Pairs::Neighbours,
        names: &[
            ("post_attention_norm", "post_self_attn_layernorm"),
            ("post_ffw_norm", "post_mlp_layernorm"),
            ("ffn_up", "mlp.gate_up_proj"),
        ],
        ..Gguf::of("glm4")
    }),
    head_dim: Some(128),
    eps: ("rms_norm_eps", 1.5625e-7),
    rotation: Rotation { part: Some(0.5), pairs: Pairs::Neighbours },
    fixed: &[Fixed::BIASES],
    fused: &[FUSED_GATE_UP],
    ..Import::LLAMA
}];

/// Norms of the outputs of attention and the MLP.
#[derive(WeightLayout)]
pub struct AddedNorms {
    /// Behind attention.
    #[weight("model.layers.{l}.post_self_attn_layernorm.weight", [HIDDEN])]
    pub attn: Weight,
    /// Behind the MLP.
    #[weight("model.layers.{l}.post_mlp_layernorm.weight", [HIDDEN])]
    pub mlp: Weight,
}

/// A decoder layer.
#[derive(WeightLayout)]
pub struct Layer {
    /// Norms before attention and the MLP.
    #[layout]
    pub norms: Norms,
    /// Norms after them.
    #[layout]
    pub added: AddedNorms,
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
pub struct Glm4 {
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
        glm4_9b(
            VOCAB = 151552, HIDDEN = 4096, LAYERS = 40,
            HEADS = 32, KV_HEADS = 2, HEAD_DIM = 128, ROTARY = 64, FFN = 13696, CONTEXT = 32768
        ),
        glm4_32b(
            VOCAB = 151552, HIDDEN = 6144, LAYERS = 61,
            HEADS = 48, KV_HEADS = 2, HEAD_DIM = 128, ROTARY = 64, FFN = 23040, CONTEXT = 32768
        ),
    )
)]
pub fn decode(token: Token, pos: Pos, w: &Glm4, kv: &mut KvCache) -> Tensor {
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
        x = add(&x, &rms_norm(&linear(&a, &lw.attn.o), &lw.added.attn, w.eps));
        let h = rms_norm(&x, &lw.norms.mlp, w.eps);
        let m = silu_mul(&linear(&h, &lw.mlp.gate), &linear(&h, &lw.mlp.up));
        x = add(&x, &rms_norm(&linear(&m, &lw.mlp.down), &lw.added.mlp, w.eps));
    }
    linear(&rms_norm(&x, &w.ends.norm, w.eps), &w.ends.lm_head)
}

//! Command-R and Aya 23: attention and the MLP in parallel after one LayerNorm.

use super::kv::KvCache;
use super::parts::{Attention, Ends, Mlp, Rotary};
use crate::import::{Absent, Gguf, Import, Number, Pairs, Rotation};
use amk::prelude::*;
use amk_kernels::{add, attention, centred_norm, embed, kv_append, linear, rope, scale, silu_mul};

/// The checkpoints of this family.
pub const IMPORTS: &[Import] = &[Import {
    family: "cohere",
    model_type: "cohere",
    class: "CohereForCausalLM",
    gguf: Some(Gguf {
        eps: "attention.layer_norm_epsilon",
        pairs: Pairs::Neighbours,
        stated: &["logit_scale"],
        ..Gguf::of("command-r")
    }),
    defaults: &[Absent::KV_HEADS],
    eps: ("layer_norm_eps", 1e-5),
    rotation: Rotation { part: None, pairs: Pairs::Neighbours },
    theta: 500_000.0,
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
}

/// The weights and the constants of the configuration.
#[derive(WeightLayout)]
pub struct Cohere {
    /// Embeddings, last norm and head.
    #[layout]
    pub ends: Ends,
    /// The layers.
    #[list(LAYERS)]
    pub layers: Vec<Layer>,
    /// Rotary embedding.
    #[layout]
    pub rotary: Rotary,
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
        aya_23_8b(
            VOCAB = 256000, HIDDEN = 4096, LAYERS = 32,
            HEADS = 32, KV_HEADS = 8, HEAD_DIM = 128, ROTARY = 128, FFN = 14336, CONTEXT = 8192
        ),
        command_r_35b(
            VOCAB = 256000, HIDDEN = 8192, LAYERS = 40,
            HEADS = 64, KV_HEADS = 64, HEAD_DIM = 128, ROTARY = 128, FFN = 22528, CONTEXT = 8192
        ),
    )
)]
pub fn decode(token: Token, pos: Pos, w: &Cohere, kv: &mut KvCache) -> Tensor {
    let r = &w.rotary;
    let mut x = embed(&w.ends.embed, token);
    for (lw, cache) in w.layers.iter().zip(&mut kv.layers) {
        let h = centred_norm(&x, &lw.norm, w.eps);
        let (q, k, v) = (linear(&h, &lw.attn.q), linear(&h, &lw.attn.k), linear(&h, &lw.attn.v));
        kv_append(&mut cache.k, &rope(&k, &r.freqs, r.head_dim, r.scale, pos), pos);
        kv_append(&mut cache.v, &v, pos);
        let q = rope(&q, &r.freqs, r.head_dim, r.scale, pos);
        let a = attention(&q, &cache.k, &cache.v, w.score_scale, pos);
        let m = silu_mul(&linear(&h, &lw.mlp.gate), &linear(&h, &lw.mlp.up));
        x = add(&add(&x, &linear(&a, &lw.attn.o)), &linear(&m, &lw.mlp.down));
    }
    scale(&linear(&centred_norm(&x, &w.ends.norm, w.eps), &w.ends.lm_head), w.logit_scale)
}

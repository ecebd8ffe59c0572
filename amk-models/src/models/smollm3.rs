//! SmolLM3: a Llama in which every fourth layer has no rotary embedding.

use super::kv::KvCache;
use super::parts::{Attention, Ends, Mlp, Norms, Rotary};
use crate::import::{Gguf, Import, LayerFlag, Pairs, Unlisted, Window};
use amk::prelude::*;
use amk_kernels::{add, attention, embed, kv_append, linear, rms_norm, rope, silu_mul};

/// The checkpoints of this family.
pub const IMPORTS: &[Import] = &[Import {
    family: "smollm3",
    model_type: "smollm3",
    class: "SmolLM3ForCausalLM",
    gguf: Some(Gguf { pairs: Pairs::Neighbours, ..Gguf::of("smollm3") }),
    theta: 2_000_000.0,
    window: Window::Switched,
    layers: Some(LayerFlag {
        name: "rotated",
        field: "no_rope_layers",
        kinds: ["1", "0"],
        key: None,
        unlisted: Unlisted::AllButOneIn { field: Some("no_rope_layer_interval"), period: 4 },
        tensors: [&[], &[]],
    }),
    tied: true,
    ..Import::LLAMA
}];

/// A decoder layer.
#[derive(WeightLayout)]
pub struct Layer {
    /// Norms.
    #[layout]
    pub norms: Norms,
    /// Projections of attention.
    #[layout]
    pub attn: Attention,
    /// The MLP.
    #[layout]
    pub mlp: Mlp,
    /// Whether queries and keys are rotated by their positions.
    #[flag]
    pub rotated: bool,
}

/// The weights and the constants of the configuration.
#[derive(WeightLayout)]
pub struct SmolLm3 {
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

/// One step: the logits `[VOCAB]` of the token after `token` at position `pos`. Each instance has
/// layers of both kinds, so that a build verifies both.
#[megakernel(
    dims(VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, ROTARY, FFN, CONTEXT),
    where(HEADS % KV_HEADS, ROTARY % 2),
    instances(
        smollm3_3b(
            VOCAB = 128256, HIDDEN = 2048, LAYERS = 36,
            HEADS = 16, KV_HEADS = 4, HEAD_DIM = 128, ROTARY = 128, FFN = 11008, CONTEXT = 65536,
            w.layers[0].rotated = true
        ),
    )
)]
pub fn decode(token: Token, pos: Pos, w: &SmolLm3, kv: &mut KvCache) -> Tensor {
    let r = &w.rotary;
    let mut x = embed(&w.ends.embed, token);
    for (lw, cache) in w.layers.iter().zip(&mut kv.layers) {
        let h = rms_norm(&x, &lw.norms.attn, w.eps);
        let (mut q, mut k, v) = (linear(&h, &lw.attn.q), linear(&h, &lw.attn.k), linear(&h, &lw.attn.v));
        if lw.rotated {
            q = rope(&q, &r.freqs, r.head_dim, r.scale, pos);
            k = rope(&k, &r.freqs, r.head_dim, r.scale, pos);
        }
        kv_append(&mut cache.k, &k, pos);
        kv_append(&mut cache.v, &v, pos);
        let a = attention(&q, &cache.k, &cache.v, w.score_scale, pos);
        x = add(&x, &linear(&a, &lw.attn.o));
        let h = rms_norm(&x, &lw.norms.mlp, w.eps);
        let m = silu_mul(&linear(&h, &lw.mlp.gate), &linear(&h, &lw.mlp.up));
        x = add(&x, &linear(&m, &lw.mlp.down));
    }
    linear(&rms_norm(&x, &w.ends.norm, w.eps), &w.ends.lm_head)
}

//! OLMo 3: an OLMo 2 in which three of four layers have a sliding window, and a rotary embedding
//! without scaling.

use super::kv::KvCache;
use super::parts::{Attention, Ends, Mlp, PostNorms, QkNorms, Rotary};
use crate::import::{Absent, Gguf, Import, LayerFlag, Local, Window};
use amk::prelude::*;
use amk_kernels::{add, attention, embed, kv_append, linear, rms_norm, rope, silu_mul, window_attention};

/// The checkpoints of this family.
pub const IMPORTS: &[Import] = &[Import {
    family: "olmo3",
    model_type: "olmo3",
    class: "Olmo3ForCausalLM",
    // Files of OLMo 2 have no window.
    gguf: Some(Gguf { names: Gguf::POST_NORMS, stated: &["attention.sliding_window"], ..Gguf::of("olmo2") }),
    defaults: &[Absent::KV_HEADS],
    eps: ("rms_norm_eps", 1e-5),
    theta: 500_000.0,
    // Regardless of `rope_theta`, which transformers uses only for the other layers.
    local: Some(Local { field: None, theta: 500_000.0, gguf_theta: None }),
    window: Window::OfLayers,
    layers: Some(LayerFlag::sliding(4, None)),
    unread: &["_sliding_window_pattern", "sliding_window_pattern"],
    ..Import::LLAMA
}];

/// A decoder layer.
#[derive(WeightLayout)]
pub struct Layer {
    /// Projections of attention.
    #[layout]
    pub attn: Attention,
    /// Norms of queries and keys.
    #[layout]
    pub qk: QkNorms,
    /// The MLP.
    #[layout]
    pub mlp: Mlp,
    /// Norms of the outputs of attention and the MLP.
    #[layout]
    pub norms: PostNorms,
    /// Whether it attends only to the last positions.
    #[flag]
    pub sliding: bool,
}

/// The weights and the constants of the configuration.
#[derive(WeightLayout)]
pub struct Olmo3 {
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
        olmo3_7b(
            VOCAB = 100278, HIDDEN = 4096, LAYERS = 32, HEADS = 32, KV_HEADS = 32,
            HEAD_DIM = 128, ROTARY = 128, FFN = 11008, WINDOW = 4096, CONTEXT = 65536,
            w.layers[0].sliding = true
        ),
    )
)]
pub fn decode(token: Token, pos: Pos, w: &Olmo3, kv: &mut KvCache) -> Tensor {
    let (r, l) = (&w.rotary, &w.local);
    let mut x = embed(&w.ends.embed, token);
    for (lw, cache) in w.layers.iter().zip(&mut kv.layers) {
        let q = rms_norm(&linear(&x, &lw.attn.q), &lw.qk.q, w.eps);
        let k = rms_norm(&linear(&x, &lw.attn.k), &lw.qk.k, w.eps);
        let v = linear(&x, &lw.attn.v);
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
        x = add(&x, &rms_norm(&linear(&a, &lw.attn.o), &lw.norms.attn, w.eps));
        let m = silu_mul(&linear(&x, &lw.mlp.gate), &linear(&x, &lw.mlp.up));
        x = add(&x, &rms_norm(&linear(&m, &lw.mlp.down), &lw.norms.mlp, w.eps));
    }
    linear(&rms_norm(&x, &w.ends.norm, w.eps), &w.ends.lm_head)
}

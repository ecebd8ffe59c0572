//! EXAONE 4.0: norms after attention and the MLP and of each head; three of four layers of the
//! larger model have a sliding window, and only these use positions.

use super::kv::KvCache;
use super::parts::{Attention, Ends, HeadNorms, Mlp, PostNorms, Rotary};
use crate::import::{Gguf, Import, LayerFlag, Window};
use amk::prelude::*;
use amk_kernels::{add, attention, embed, head_norm, kv_append, linear, rms_norm, rope, silu_mul, window_attention};

/// The checkpoints of this family.
pub const IMPORTS: &[Import] = &[Import {
    family: "exaone4",
    model_type: "exaone4",
    class: "Exaone4ForCausalLM",
    gguf: Some(Gguf {
        names: Gguf::POST_NORMS,
        unlisted_window: Some((64, 4096)),
        factors: &[Gguf::FACTORS],
        ..Gguf::of("exaone4")
    }),
    eps: ("rms_norm_eps", 1e-5),
    window: Window::OfRotatedLayers,
    layers: Some(LayerFlag::sliding(4, Some("sliding_window_pattern"))),
    ..Import::LLAMA
}];

/// A decoder layer.
#[derive(WeightLayout)]
pub struct Layer {
    /// Projections of attention.
    #[layout]
    pub attn: Attention,
    /// Norms of queries and keys, per head.
    #[layout]
    pub heads: HeadNorms,
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
pub struct Exaone4 {
    /// Embeddings, last norm and head.
    #[layout]
    pub ends: Ends,
    /// The layers.
    #[list(LAYERS)]
    pub layers: Vec<Layer>,
    /// Rotary embedding.
    #[layout]
    pub rotary: Rotary,
    /// Whether there is a window, and layers without it have no rotary embedding.
    #[flag]
    pub windowed: bool,
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

/// One step: the logits `[VOCAB]` of the token after `token` at position `pos`. The instance with a
/// window has layers of both kinds, so that a build verifies both.
#[megakernel(
    dims(VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, ROTARY, FFN, WINDOW, CONTEXT),
    where(HEADS % KV_HEADS, ROTARY % 2),
    instances(
        exaone4_1_2b(
            VOCAB = 102400, HIDDEN = 2048, LAYERS = 30, HEADS = 32, KV_HEADS = 8,
            HEAD_DIM = 64, ROTARY = 64, FFN = 4096, WINDOW = 65536, CONTEXT = 65536
        ),
        exaone4_32b(
            VOCAB = 102400, HIDDEN = 5120, LAYERS = 64, HEADS = 40, KV_HEADS = 8,
            HEAD_DIM = 128, ROTARY = 128, FFN = 27392, WINDOW = 4096, CONTEXT = 131072,
            w.windowed = true, w.layers[0].sliding = true
        ),
    )
)]
pub fn decode(token: Token, pos: Pos, w: &Exaone4, kv: &mut KvCache) -> Tensor {
    let r = &w.rotary;
    let mut x = embed(&w.ends.embed, token);
    for (lw, cache) in w.layers.iter().zip(&mut kv.layers) {
        let mut q = head_norm(&linear(&x, &lw.attn.q), &lw.heads.q, w.eps);
        let mut k = head_norm(&linear(&x, &lw.attn.k), &lw.heads.k, w.eps);
        kv_append(&mut cache.v, &linear(&x, &lw.attn.v), pos);
        let a = if lw.sliding {
            q = rope(&q, &r.freqs, r.head_dim, r.scale, pos);
            k = rope(&k, &r.freqs, r.head_dim, r.scale, pos);
            kv_append(&mut cache.k, &k, pos);
            window_attention(&q, &cache.k, &cache.v, w.score_scale, w.window, pos)
        } else {
            if !w.windowed {
                q = rope(&q, &r.freqs, r.head_dim, r.scale, pos);
                k = rope(&k, &r.freqs, r.head_dim, r.scale, pos);
            }
            kv_append(&mut cache.k, &k, pos);
            attention(&q, &cache.k, &cache.v, w.score_scale, pos)
        };
        x = add(&x, &rms_norm(&linear(&a, &lw.attn.o), &lw.norms.attn, w.eps));
        let m = silu_mul(&linear(&x, &lw.mlp.gate), &linear(&x, &lw.mlp.up));
        x = add(&x, &rms_norm(&linear(&m, &lw.mlp.down), &lw.norms.mlp, w.eps));
    }
    linear(&rms_norm(&x, &w.ends.norm, w.eps), &w.ends.lm_head)
}

//! The decoder.

use crate::{capped_linear, squared_relu};
use amk::prelude::*;
use amk_kernels::{add, attention, embed, kv_append, linear, rms_norm, rope};

/// A layer.
#[derive(WeightLayout)]
pub struct Layer {
    /// Norm before attention.
    #[weight("layers.{l}.attn_norm", [HIDDEN])]
    pub attn_norm: Weight,
    /// Query projection.
    #[weight("layers.{l}.q", [HEADS * HEAD_DIM, HIDDEN])]
    pub q: Weight,
    /// Key projection.
    #[weight("layers.{l}.k", [KV_HEADS * HEAD_DIM, HIDDEN])]
    pub k: Weight,
    /// Value projection.
    #[weight("layers.{l}.v", [KV_HEADS * HEAD_DIM, HIDDEN])]
    pub v: Weight,
    /// Output projection.
    #[weight("layers.{l}.o", [HIDDEN, HEADS * HEAD_DIM])]
    pub o: Weight,
    /// Norm before the MLP.
    #[weight("layers.{l}.mlp_norm", [HIDDEN])]
    pub mlp_norm: Weight,
    /// Up projection.
    #[weight("layers.{l}.up", [FFN, HIDDEN])]
    pub up: Weight,
    /// Down projection.
    #[weight("layers.{l}.down", [HIDDEN, FFN])]
    pub down: Weight,
}

/// The weights and constants.
#[derive(WeightLayout)]
pub struct Decoder {
    /// Token embeddings.
    #[weight("embed", [VOCAB, HIDDEN])]
    pub embed: Weight,
    /// The layers.
    #[list(LAYERS)]
    pub layers: Vec<Layer>,
    /// The last norm.
    #[weight("norm", [HIDDEN])]
    pub norm: Weight,
    /// Rotary frequencies, radians a position.
    #[table([HEAD_DIM / 2])]
    pub freqs: Weight,
    /// Epsilon of the norms.
    #[param]
    pub eps: f32,
    /// Factor on the attention scores.
    #[param]
    pub score_scale: f32,
    /// Cap of the MLP's inner values and of the logits.
    #[param]
    pub cap: f32,
    /// Elements of a head.
    #[dim(HEAD_DIM)]
    pub head_dim: usize,
}

/// A layer's cache.
#[derive(WeightLayout)]
pub struct Cache {
    /// Keys.
    #[state([KV_HEADS, CONTEXT, HEAD_DIM])]
    pub k: State,
    /// Values.
    #[state([KV_HEADS, CONTEXT, HEAD_DIM])]
    pub v: State,
}

/// The cache of all layers.
#[derive(WeightLayout)]
pub struct Caches {
    /// One a layer.
    #[list(LAYERS)]
    pub layers: Vec<Cache>,
}

/// The logits `[VOCAB]` of the token after `token` at position `pos`.
#[megakernel(
    dims(VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FFN, CONTEXT),
    where(HEADS % KV_HEADS, HEAD_DIM % 2),
    instances(
        tiny(VOCAB = 64, HIDDEN = 48, LAYERS = 2, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 10, FFN = 80, CONTEXT = 96),
        small(
            VOCAB = 2048, HIDDEN = 1280, LAYERS = 2, HEADS = 20, KV_HEADS = 4, HEAD_DIM = 64, FFN = 2560,
            CONTEXT = 256
        ),
    )
)]
pub fn decode(token: Token, pos: Pos, w: &Decoder, kv: &mut Caches) -> Tensor {
    let mut x = embed(&w.embed, token);
    for (lw, cache) in w.layers.iter().zip(&mut kv.layers) {
        let h = rms_norm(&x, &lw.attn_norm, w.eps);
        let (q, k, v) = (linear(&h, &lw.q), linear(&h, &lw.k), linear(&h, &lw.v));
        kv_append(&mut cache.k, &rope(&k, &w.freqs, w.head_dim, 1.0, pos), pos);
        kv_append(&mut cache.v, &v, pos);
        let q = rope(&q, &w.freqs, w.head_dim, 1.0, pos);
        x = add(&x, &linear(&attention(&q, &cache.k, &cache.v, w.score_scale, pos), &lw.o));
        let h = rms_norm(&x, &lw.mlp_norm, w.eps);
        let m = squared_relu(&capped_linear(&h, &lw.up, w.cap));
        x = add(&x, &linear(&m, &lw.down));
    }
    capped_linear(&rms_norm(&x, &w.norm, w.eps), &w.embed, w.cap)
}

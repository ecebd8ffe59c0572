//! The key/value cache of a decoder.

use amk::prelude::*;

/// One layer's cache, f32, in the head-major order that attention reads.
#[derive(WeightLayout)]
pub struct KvLayer {
    /// Keys after rotary embedding.
    #[state([KV_HEADS, CONTEXT, HEAD_DIM])]
    pub k: State,
    /// Values.
    #[state([KV_HEADS, CONTEXT, HEAD_DIM])]
    pub v: State,
}

/// The cache of all layers.
#[derive(WeightLayout)]
pub struct KvCache {
    /// One cache a layer.
    #[list(LAYERS)]
    pub layers: Vec<KvLayer>,
}

//! Parts that decoder layouts share: the same tensors under the same names in every Llama-like
//! checkpoint.

use amk::prelude::*;

/// The four projections of attention, without biases.
#[derive(WeightLayout)]
pub struct Attention {
    /// Query projection.
    #[weight("model.layers.{l}.self_attn.q_proj.weight", [HEADS * HEAD_DIM, HIDDEN])]
    pub q: Weight,
    /// Key projection.
    #[weight("model.layers.{l}.self_attn.k_proj.weight", [KV_HEADS * HEAD_DIM, HIDDEN])]
    pub k: Weight,
    /// Value projection.
    #[weight("model.layers.{l}.self_attn.v_proj.weight", [KV_HEADS * HEAD_DIM, HIDDEN])]
    pub v: Weight,
    /// Output projection.
    #[weight("model.layers.{l}.self_attn.o_proj.weight", [HIDDEN, HEADS * HEAD_DIM])]
    pub o: Weight,
}

/// A gated MLP.
#[derive(WeightLayout)]
pub struct Mlp {
    /// Gate projection.
    #[weight("model.layers.{l}.mlp.gate_proj.weight", [FFN, HIDDEN])]
    pub gate: Weight,
    /// Up projection.
    #[weight("model.layers.{l}.mlp.up_proj.weight", [FFN, HIDDEN])]
    pub up: Weight,
    /// Down projection.
    #[weight("model.layers.{l}.mlp.down_proj.weight", [HIDDEN, FFN])]
    pub down: Weight,
}

/// The norms before attention and before the MLP.
#[derive(WeightLayout)]
pub struct Norms {
    /// Before attention.
    #[weight("model.layers.{l}.input_layernorm.weight", [HIDDEN])]
    pub attn: Weight,
    /// Before the MLP.
    #[weight("model.layers.{l}.post_attention_layernorm.weight", [HIDDEN])]
    pub mlp: Weight,
}

/// Rotary embedding.
#[derive(WeightLayout)]
pub struct Rotary {
    /// Frequencies, radians a position.
    #[table([ROTARY / 2])]
    pub freqs: Weight,
    /// Factor on the rotated values (yarn's attention factor, else 1).
    #[param]
    pub scale: f32,
    /// Elements of a head.
    #[dim(HEAD_DIM)]
    pub head_dim: usize,
}

/// The weights before and after the layers, and the constants of the configuration.
#[derive(WeightLayout)]
pub struct Ends {
    /// Token embeddings.
    #[weight("model.embed_tokens.weight", [VOCAB, HIDDEN])]
    pub embed: Weight,
    /// The last norm.
    #[weight("model.norm.weight", [HIDDEN])]
    pub norm: Weight,
    /// The output head; tied models use the embeddings.
    #[weight("lm_head.weight", or = "model.embed_tokens.weight", [VOCAB, HIDDEN])]
    pub lm_head: Weight,
}

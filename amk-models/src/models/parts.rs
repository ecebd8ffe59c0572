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

/// An MLP without a gate.
#[derive(WeightLayout)]
pub struct PlainMlp {
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

/// A decoder layer of a Llama.
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
}

/// Biases of the query, key and value projections.
#[derive(WeightLayout)]
pub struct QkvBias {
    /// Query bias.
    #[weight("model.layers.{l}.self_attn.q_proj.bias", [HEADS * HEAD_DIM])]
    pub q: Weight,
    /// Key bias.
    #[weight("model.layers.{l}.self_attn.k_proj.bias", [KV_HEADS * HEAD_DIM])]
    pub k: Weight,
    /// Value bias.
    #[weight("model.layers.{l}.self_attn.v_proj.bias", [KV_HEADS * HEAD_DIM])]
    pub v: Weight,
}

/// Norms of all queries and of all keys of a position.
#[derive(WeightLayout)]
pub struct QkNorms {
    /// Query norm.
    #[weight("model.layers.{l}.self_attn.q_norm.weight", [HEADS * HEAD_DIM])]
    pub q: Weight,
    /// Key norm.
    #[weight("model.layers.{l}.self_attn.k_norm.weight", [KV_HEADS * HEAD_DIM])]
    pub k: Weight,
}

/// The norms of the outputs of attention and the MLP, before they join the residual.
#[derive(WeightLayout)]
pub struct PostNorms {
    /// Behind attention.
    #[weight("model.layers.{l}.post_attention_layernorm.weight", [HIDDEN])]
    pub attn: Weight,
    /// Behind the MLP.
    #[weight("model.layers.{l}.post_feedforward_layernorm.weight", [HIDDEN])]
    pub mlp: Weight,
}

/// Norms before and after attention and the MLP.
#[derive(WeightLayout)]
pub struct PreAndPostNorms {
    /// Before attention.
    #[weight("model.layers.{l}.input_layernorm.weight", [HIDDEN])]
    pub attn: Weight,
    /// Behind attention.
    #[weight("model.layers.{l}.post_attention_layernorm.weight", [HIDDEN])]
    pub after_attn: Weight,
    /// Before the MLP.
    #[weight("model.layers.{l}.pre_feedforward_layernorm.weight", [HIDDEN])]
    pub mlp: Weight,
    /// Behind the MLP.
    #[weight("model.layers.{l}.post_feedforward_layernorm.weight", [HIDDEN])]
    pub after_mlp: Weight,
}

/// Norms of queries and keys, per head.
#[derive(WeightLayout)]
pub struct HeadNorms {
    /// Query norm.
    #[weight("model.layers.{l}.self_attn.q_norm.weight", [HEAD_DIM])]
    pub q: Weight,
    /// Key norm.
    #[weight("model.layers.{l}.self_attn.k_norm.weight", [HEAD_DIM])]
    pub k: Weight,
}

/// LayerNorms with biases before attention and before the MLP.
#[derive(WeightLayout)]
pub struct LayerNorms {
    /// Before attention.
    #[weight("model.layers.{l}.input_layernorm.weight", [HIDDEN])]
    pub attn: Weight,
    /// Its bias.
    #[weight("model.layers.{l}.input_layernorm.bias", [HIDDEN])]
    pub attn_bias: Weight,
    /// Before the MLP.
    #[weight("model.layers.{l}.post_attention_layernorm.weight", [HIDDEN])]
    pub mlp: Weight,
    /// Its bias.
    #[weight("model.layers.{l}.post_attention_layernorm.bias", [HIDDEN])]
    pub mlp_bias: Weight,
}

/// Rotary embedding.
#[derive(WeightLayout)]
pub struct Rotary {
    /// Frequencies, in radians per position.
    #[table([ROTARY / 2])]
    pub freqs: Weight,
    /// Factor on the rotated values (yarn's attention factor, otherwise 1).
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

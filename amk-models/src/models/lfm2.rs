//! LFM2: short convolutions in most layers, attention with head norms in the others.

use super::kv::KvLayer;
use super::parts::{Attention, Ends, HeadNorms, Mlp, Norms, Rotary};
use crate::import::{Fused, Gguf, Import, LayerFlag, Rounding, Rows, Size, Unlisted};
use amk::prelude::*;
use amk_kernels::{
    add, append, attention, embed, head_norm, kv_append, linear, mul, rms_norm, rope, short_conv, silu_mul,
};

/// The checkpoints of this family.
pub const IMPORTS: &[Import] = &[Import {
    family: "lfm2",
    model_type: "lfm2",
    class: "Lfm2ForCausalLM",
    gguf: Some(Gguf {
        names: &[
            ("shortconv.conv", "conv.conv"),
            ("shortconv.in_proj", "conv.in_proj"),
            ("shortconv.out_proj", "conv.out_proj"),
            ("token_embd_norm", "model.norm"),
        ],
        ..Gguf::of("lfm2")
    }),
    fields: &[("block_ff_dim", "intermediate_size"), ("tie_embedding", "tie_word_embeddings")],
    unread: &[
        "block_dim",
        "block_mlp_init_scale",
        "block_norm_eps",
        "block_out_init_scale",
        "block_use_swiglu",
        "block_use_xavier_init",
        "conv_dim",
        "conv_dim_out",
        "conv_use_xavier_init",
        "num_heads",
        "theta",
        "use_pos_enc",
    ],
    eps: ("norm_eps", 1e-5),
    rounding: Some(Rounding {
        switch: "block_auto_adjust_ff_dim",
        factor: "block_ffn_dim_multiplier",
        multiple: ("block_multiple_of", 256),
    }),
    theta: 1_000_000.0,
    layers: Some(LayerFlag {
        name: "attends",
        field: "layer_types",
        kinds: ["full_attention", "conv"],
        key: None,
        unlisted: Unlisted::Numbered { field: "full_attn_idxs" },
        tensors: [&["self_attn."], &["conv."]],
    }),
    tied: true,
    sizes: &[Size { dim: "TAPS", field: "conv_L_cache", key: "shortconv.l_cache", default: 3 }],
    names: &[
        ("model.embedding_norm", "model.norm"),
        ("operator_norm", "input_layernorm"),
        ("ffn_norm", "post_attention_layernorm"),
        ("self_attn.out_proj", "self_attn.o_proj"),
        ("self_attn.q_layernorm", "self_attn.q_norm"),
        ("self_attn.k_layernorm", "self_attn.k_norm"),
        ("feed_forward.w1", "mlp.gate_proj"),
        ("feed_forward.w2", "mlp.down_proj"),
        ("feed_forward.w3", "mlp.up_proj"),
    ],
    fused: &[Fused {
        name: "conv.in_proj",
        parts: &[("conv.before", Rows::Hidden), ("conv.after", Rows::Hidden), ("conv.value", Rows::Hidden)],
        by_head: false,
    }],
    ..Import::LLAMA
}];

/// A gated short convolution.
#[derive(WeightLayout)]
pub struct Convolution {
    /// Gate of its inputs.
    #[weight("model.layers.{l}.conv.before.weight", [HIDDEN, HIDDEN])]
    pub before: Weight,
    /// Gate of its results.
    #[weight("model.layers.{l}.conv.after.weight", [HIDDEN, HIDDEN])]
    pub after: Weight,
    /// Value projection.
    #[weight("model.layers.{l}.conv.value.weight", [HIDDEN, HIDDEN])]
    pub value: Weight,
    /// The factors of the last positions, channel by channel.
    #[weight("model.layers.{l}.conv.conv.weight", [HIDDEN, TAPS])]
    pub taps: Weight,
    /// Output projection.
    #[weight("model.layers.{l}.conv.out_proj.weight", [HIDDEN, HIDDEN])]
    pub out: Weight,
}

/// A decoder layer.
#[derive(WeightLayout)]
pub struct Layer {
    /// Norms.
    #[layout]
    pub norms: Norms,
    /// Projections of attention.
    #[layout]
    pub attn: Attention,
    /// Norms of queries and keys, per head.
    #[layout]
    pub heads: HeadNorms,
    /// The convolution.
    #[layout]
    pub conv: Convolution,
    /// The MLP.
    #[layout]
    pub mlp: Mlp,
    /// Whether it has attention instead of a convolution.
    #[flag]
    pub attends: bool,
}

/// The weights and the constants of the configuration.
#[derive(WeightLayout)]
pub struct Lfm2 {
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

// ANCHOR: state
/// The state of a layer, which it keeps of earlier positions.
#[derive(WeightLayout)]
pub struct Kept {
    /// The cache of its attention.
    #[layout]
    pub kv: KvLayer,
    /// The inputs of its convolution.
    #[state([CONTEXT, HIDDEN])]
    pub inputs: State,
}
// ANCHOR_END: state

/// The states of all layers.
#[derive(WeightLayout)]
pub struct States {
    /// Layer by layer.
    #[list(LAYERS)]
    pub layers: Vec<Kept>,
}

/// One step: the logits `[VOCAB]` of the token after `token` at position `pos`. Each instance has
/// layers of both kinds, so that a build verifies both.
#[megakernel(
    dims(VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, ROTARY, FFN, TAPS, CONTEXT),
    where(HEADS % KV_HEADS, ROTARY % 2),
    instances(
        lfm2_1_2b(
            VOCAB = 65536, HIDDEN = 2048, LAYERS = 16, HEADS = 32, KV_HEADS = 8,
            HEAD_DIM = 64, ROTARY = 64, FFN = 8192, TAPS = 3, CONTEXT = 128000,
            w.layers[2].attends = true, w.layers[5].attends = true, w.layers[8].attends = true,
            w.layers[10].attends = true, w.layers[12].attends = true, w.layers[14].attends = true
        ),
    )
)]
pub fn decode(token: Token, pos: Pos, w: &Lfm2, kept: &mut States) -> Tensor {
    let r = &w.rotary;
    let mut x = embed(&w.ends.embed, token);
    for (lw, kept) in w.layers.iter().zip(&mut kept.layers) {
        let h = rms_norm(&x, &lw.norms.attn, w.eps);
        let y = if lw.attends {
            let q = head_norm(&linear(&h, &lw.attn.q), &lw.heads.q, w.eps);
            let k = head_norm(&linear(&h, &lw.attn.k), &lw.heads.k, w.eps);
            let v = linear(&h, &lw.attn.v);
            kv_append(&mut kept.kv.k, &rope(&k, &r.freqs, r.head_dim, r.scale, pos), pos);
            kv_append(&mut kept.kv.v, &v, pos);
            let q = rope(&q, &r.freqs, r.head_dim, r.scale, pos);
            linear(&attention(&q, &kept.kv.k, &kept.kv.v, w.score_scale, pos), &lw.attn.o)
        } else {
            // ANCHOR: convolution
            let c = &lw.conv;
            // Before the state is written, so that no projection of `h` waits for that.
            let gate = linear(&h, &c.after);
            append(&mut kept.inputs, &mul(&linear(&h, &c.before), &linear(&h, &c.value)), pos);
            linear(&mul(&gate, &short_conv(&kept.inputs, &c.taps, pos)), &c.out)
            // ANCHOR_END: convolution
        };
        x = add(&x, &y);
        let h = rms_norm(&x, &lw.norms.mlp, w.eps);
        let m = silu_mul(&linear(&h, &lw.mlp.gate), &linear(&h, &lw.mlp.up));
        x = add(&x, &linear(&m, &lw.mlp.down));
    }
    linear(&rms_norm(&x, &w.ends.norm, w.eps), &w.ends.lm_head)
}

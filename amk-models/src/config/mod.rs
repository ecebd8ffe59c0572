//! The config of a checkpoint, read strictly.
//!
//! A [`ModelConfig`] holds every hyperparameter that the models of this crate compute with. Both
//! readers (of `config.json` and of GGUF metadata) account for every field of their source: it is
//! modelled, it is on a documented list of fields without effect on the mathematics, or it must
//! hold the value that switches it off. Anything else is a [`Refusal`] with the field, its value
//! and the reason, because a field that is silently ignored is a model that silently computes
//! something else.

mod fields;
mod gguf;
mod hugging_face;
mod hugging_face_rope;
mod known_fields;
mod refusal;
mod rope;

pub(crate) use fields::token_ids;
pub(crate) use gguf::GgufTensors;
pub use refusal::{AllowedFields, ConfigError, Refusal};
pub use rope::{Rope, RopeFrequencies, RopeScaling};

/// Largest accepted value of any dimension: far above real models, low enough that products of
/// three fit 64 bits.
const MAX_DIMENSION: u64 = 1 << 20;
/// Largest accepted vocabulary and context length.
const MAX_LENGTH: u64 = 1 << 28;

/// A family of decoders that one annotated model computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// Llama 2 and 3, SmolLM2, TinyLlama, and Mistral without a sliding window.
    Llama,
    /// Qwen2 and Qwen2.5: Llama with biases on the q, k and v projections.
    Qwen2,
    /// Qwen3: Llama with an RMS norm over each q and k head.
    Qwen3,
}

/// The function between the two halves of the feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// GELU by the error function (`gelu`).
    Gelu,
    /// GELU by the tanh approximation (`gelu_pytorch_tanh`, `gelu_new`).
    GeluTanh,
}

/// The hyperparameters of a decoder. Sizes count elements.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Which decoder.
    pub architecture: Architecture,
    /// Rows of the embedding table.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Decoder layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Elements of a head; even. `heads * head_dim` need not equal `hidden_size`.
    pub head_dim: usize,
    /// Width of the feed-forward network.
    pub ffn_size: usize,
    /// Positions the model was made for.
    pub context_len: usize,
    /// Epsilon of every RMS norm.
    pub rms_norm_eps: f32,
    /// Activation of the feed-forward network.
    pub activation: Activation,
    /// Whether the output projection is the embedding table.
    pub tied_embeddings: bool,
    /// Whether q, k and v projections have a bias.
    pub qkv_bias: bool,
    /// Whether q and k heads are normalised before the rotation.
    pub qk_norm: bool,
    /// The rotary position embedding.
    pub rope: Rope,
    /// The token that starts a text, if any.
    pub bos: Option<u32>,
    /// The tokens that end a text.
    pub eos: Vec<u32>,
    /// The dtype the checkpoint's author names (`bfloat16`, ..); for information, the tensors know
    /// their own.
    pub torch_dtype: Option<String>,
}

impl ModelConfig {
    /// Contradictions between the hyperparameters.
    fn contradictions(&self) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        let mut require = |holds: bool, field: &str, value: String, reason: &str| {
            if !holds {
                refusals.push(Refusal::new(field, value, reason.to_owned()));
            }
        };
        require(
            self.heads.is_multiple_of(self.kv_heads.max(1)),
            "num_key_value_heads",
            self.kv_heads.to_string(),
            "does not divide the number of attention heads",
        );
        require(
            self.head_dim.is_multiple_of(2),
            "head_dim",
            self.head_dim.to_string(),
            "a head must have an even number of elements to be rotated",
        );
        require(
            self.rope.rotary_dims == self.head_dim
                || (self.rope.rotary_dims.is_multiple_of(2) && (1..=self.head_dim).contains(&self.rope.rotary_dims)),
            "rope.dimension_count",
            format!("{} of {} elements", self.rope.rotary_dims, self.head_dim),
            "the rotated part of a head must be an even number of elements inside it",
        );
        require(
            self.rms_norm_eps.is_finite() && self.rms_norm_eps > 0.0,
            "rms_norm_eps",
            self.rms_norm_eps.to_string(),
            "must be a positive number",
        );
        require(
            self.rope.theta.is_finite() && self.rope.theta > 1.0,
            "rope_theta",
            self.rope.theta.to_string(),
            "must be a number above 1",
        );
        refusals
    }
}

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
mod gguf_writer;
mod hugging_face;
mod hugging_face_rope;
mod known_fields;
mod python_literals;
mod quantization;
mod refusal;
mod rope;
mod writer;

use crate::import::{Flag, Import, LayerFlag};
use crate::models::imports;
use std::collections::BTreeMap;

pub(crate) use fields::token_ids;
pub(crate) use gguf::{GgufTensors, RopeFactors};
pub use gguf_writer::GgufSettings;
pub use known_fields::neutral_fields;
pub use quantization::{CompressedTensors, Fp8, Gptq, Quantization, Rule, Scheme, Strategy, Target, WeightScheme};
pub use refusal::{AllowedFields, ConfigError, Refusal};
pub use rope::{Rope, RopeFrequencies, RopeScaling};
pub use writer::Unsaid;

/// Largest accepted value of any dimension: far above real models, low enough that products of
/// three fit 64 bits.
const MAX_DIMENSION: u64 = 1 << 20;
/// Largest accepted vocabulary and context length.
const MAX_LENGTH: u64 = 1 << 28;

/// The hyperparameters of a decoder. Sizes count elements.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Which kind of checkpoint it is.
    pub import: &'static Import,
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
    /// Epsilon of every norm.
    pub norm_eps: f32,
    /// Whether the output projection is the embedding table.
    pub tied_embeddings: bool,
    /// Dims that only this page has, by name.
    pub sizes: BTreeMap<&'static str, usize>,
    /// Numbers of the page, by path.
    pub numbers: BTreeMap<&'static str, f32>,
    /// Flags of the page, by path.
    pub flags: BTreeMap<&'static str, bool>,
    /// The flags of each layer, by name.
    pub layer_flags: BTreeMap<&'static str, Vec<bool>>,
    /// Positions that a sliding-window layer attends to, if there are such layers and the window is
    /// shorter than the context or determines which layers are rotated.
    pub window: Option<usize>,
    /// Whether norms are stored minus 1.
    pub norms_less_one: bool,
    /// The rotary position embedding.
    pub rope: Rope,
    /// The rotary embedding of sliding-window layers, if it differs.
    pub local_rope: Option<Rope>,
    /// The token that starts a text, if any.
    pub bos: Option<u32>,
    /// The tokens that end a text.
    pub eos: Vec<u32>,
    /// The dtype named by the checkpoint's author (`bfloat16`, ..); for information only, since
    /// each tensor has its own.
    pub torch_dtype: Option<String>,
    /// How the weights of a folder are quantised, if they are.
    pub quantization: Option<Quantization>,
}

impl ModelConfig {
    /// The family that computes it.
    pub fn family(&self) -> &'static str {
        self.import.windowed.filter(|_| self.window.is_some()).unwrap_or(self.import.family)
    }

    /// Returns the same model on its own, if it is the text model inside a larger one.
    pub fn alone(&self) -> Option<Self> {
        let inside = self.import.inside?;
        let import = imports().find(|import| import.model_type == inside.model_type)?;
        Some(Self { import, quantization: None, ..self.clone() })
    }

    /// The rotary embedding of sliding-window layers.
    pub fn local(&self) -> &Rope {
        self.local_rope.as_ref().unwrap_or(&self.rope)
    }

    /// The flag at a path in a page: the page's own, `windowed` if a window is in use, or
    /// `layers[3].name` for a layer.
    pub(crate) fn flag(&self, path: &str) -> Option<bool> {
        let of_layer = || {
            let (layer, name) = path.strip_prefix("layers[")?.split_once("].")?;
            self.layer_flags.get(name)?.get(layer.parse::<usize>().ok()?).copied()
        };
        match path {
            "windowed" => Some(self.window.is_some()),
            _ => self.flags.get(path).copied().or_else(of_layer),
        }
    }

    /// Whether the author computes with quantised activations, which is not done here.
    pub fn quantises_activations(&self) -> bool {
        self.quantization.as_ref().is_some_and(Quantization::quantises_activations)
    }

    /// Whether a tensor exists only in checkpoints or layers with a flag that is not set here, or
    /// only in layers without a flag that is set.
    pub(crate) fn lacks(&self, tensor: &str) -> bool {
        let lacks = |flag: &Flag| {
            self.flags.get(flag.path) == Some(&false) && flag.tensors.iter().any(|name| tensor.ends_with(name))
        };
        self.import.flags.iter().any(lacks) || self.import.layers.is_some_and(|flag| self.layer_lacks(flag, tensor))
    }

    fn layer_lacks(&self, flag: LayerFlag, tensor: &str) -> bool {
        let Some((layer, name)) = tensor.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.')) else {
            return false;
        };
        let has = layer.parse().ok().and_then(|layer: usize| self.layer_flags.get(flag.name)?.get(layer));
        let [with, without] = flag.tensors;
        let absent = match has {
            Some(true) => without,
            Some(false) => with,
            None => &[],
        };
        absent.iter().any(|start| name.starts_with(start))
    }

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
            "partial_rotary_factor",
            format!("{} of {} elements", self.rope.rotary_dims, self.head_dim),
            "the rotated part of a head must be an even number of elements inside it",
        );
        require(
            self.norm_eps.is_finite() && self.norm_eps > 0.0,
            self.import.eps.0,
            self.norm_eps.to_string(),
            "must be a positive number",
        );
        require(
            self.rope.theta.is_finite() && self.rope.theta > 1.0,
            "rope_theta",
            self.rope.theta.to_string(),
            "must be a number above 1",
        );
        for number in self.import.numbers {
            let value = self.numbers.get(number.path).copied().unwrap_or(1.0);
            require(
                value.is_finite() && value != 0.0,
                number.field,
                value.to_string(),
                "must be a finite number other than 0",
            );
        }
        refusals
    }
}

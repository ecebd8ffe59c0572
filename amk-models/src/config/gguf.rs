//! Reads the hyperparameters of a GGUF file (ggml, `docs/gguf.md`, "LLM").
//!
//! Keys under the architecture's own prefix (`llama.`) describe the mathematics, and each must be
//! known. Keys under other prefixes describe the file (`general.`), the tokenizer, or tools; of
//! them `general.type` and `split.count` are checked.

use std::path::Path;

use crate::tokenizer::CONTROL_TOKEN;
use crate::weights::FormatError;
use crate::weights::gguf::{Metadata, Value};

use super::rope::yarn_attention_factor;
use super::{
    Activation, AllowedFields, Architecture, ConfigError, MAX_DIMENSION, MAX_LENGTH, ModelConfig, Refusal, Rope,
    RopeScaling,
};

const ARCHITECTURES: [(&str, Architecture); 3] =
    [("llama", Architecture::Llama), ("qwen2", Architecture::Qwen2), ("qwen3", Architecture::Qwen3)];

/// Keys under the architecture's prefix that [`read`] computes with.
const MODELLED: [&str; 15] = [
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_rms_epsilon",
    "attention.value_length",
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "vocab_size",
];

/// Keys under the architecture's prefix without effect on the mathematics.
const HARMLESS: [&str; 2] = ["rope.scaling.finetuned", "tensor_data_layout"];

/// Keys under the architecture's prefix that must be 0 or false, and the feature that is not
/// modelled.
const MUST_BE_OFF: [(&str, &str); 5] = [
    ("attention.sliding_window", "attention over a sliding window is not modelled"),
    ("expert_count", "mixtures of experts are not modelled"),
    ("expert_shared_count", "mixtures of experts are not modelled"),
    ("expert_used_count", "mixtures of experts are not modelled"),
    ("use_parallel_residual", "attention in parallel with the feed-forward network is not modelled"),
];

/// Keys of the tokens that end a text, a turn or a message.
const END_TOKENS: [&str; 3] =
    ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"];

/// Control tokens that end a text, a turn or a message even if no key lists them (`special_eog_ids`
/// of llama.cpp's `llama-vocab.cpp`).
const END_TEXTS: [&str; 21] = [
    "</s>",
    "<EOT>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|call|>",
    "<|calls|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|end|>",
    "<|eom_id|>",
    "<|eot_id|>",
    "<|flush|>",
    "<|im_end|>",
    "<|return|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[EOS]",
    "[EOT]",
    "_<EOT>",
];

/// Facts about the model that follow from the file's tensors rather than its metadata.
pub(crate) struct GgufTensors {
    /// Rows of the embedding table, if there is one.
    pub(crate) vocab_size: Option<usize>,
    /// Whether there is no output projection, so that the embedding table serves as one.
    pub(crate) tied_embeddings: bool,
    /// The factors of the rotary frequencies (`rope_freqs.weight`), if there are any.
    pub(crate) rope_factors: Option<Vec<f32>>,
}

impl ModelConfig {
    /// Reads the metadata of the GGUF file at `path`.
    ///
    /// # Errors
    /// [`ConfigError`] with every key that cannot be accepted.
    pub(crate) fn from_gguf(
        path: &Path,
        metadata: &Metadata,
        tensors: GgufTensors,
        allowed: &AllowedFields,
    ) -> Result<Self, ConfigError> {
        let refused = |refusals| ConfigError { path: path.to_owned(), refusals };
        let (prefix, architecture) = architecture(metadata).map_err(|refusal| refused(vec![refusal]))?;
        let mut keys = Keys { metadata, prefix, refusals: Vec::new() };
        let config = read(&mut keys, architecture, tensors);
        keys.account_for_the_rest();
        allowed.judge(path, config, keys.refusals)
    }
}

fn architecture(metadata: &Metadata) -> Result<(&'static str, Architecture), Refusal> {
    const KEY: &str = "general.architecture";
    let found = metadata.get(KEY).ok_or_else(|| Refusal::new(KEY, "", "is missing"))?;
    ARCHITECTURES.into_iter().find(|(name, _)| metadata.is_text(KEY, name)).ok_or_else(|| {
        let supported = ARCHITECTURES.map(|(name, _)| name).join(", ");
        Refusal::new(KEY, found.to_string(), format!("this architecture is not supported; supported are {supported}"))
    })
}

fn read(keys: &mut Keys<'_>, architecture: Architecture, tensors: GgufTensors) -> ModelConfig {
    let hidden_size = keys.required_size("embedding_length");
    let heads = keys.required_size("attention.head_count");
    let head_dim = keys.size("attention.key_length", MAX_DIMENSION).unwrap_or(hidden_size / heads);
    if let Some(value_dim) = keys.size("attention.value_length", MAX_DIMENSION)
        && value_dim != head_dim
    {
        keys.refuse("attention.value_length", "values of another size than keys are not modelled");
    }
    let context_len = keys.size("context_length", MAX_LENGTH).unwrap_or_else(|| keys.missing("context_length"));
    let vocab_size = keys.size("vocab_size", MAX_LENGTH).or(tensors.vocab_size);
    let eps = keys.float("attention.layer_norm_rms_epsilon");
    ModelConfig {
        architecture,
        vocab_size: vocab_size.unwrap_or_else(|| keys.missing("vocab_size")),
        hidden_size,
        layers: keys.required_size("block_count"),
        heads,
        kv_heads: keys.size("attention.head_count_kv", MAX_DIMENSION).unwrap_or(heads),
        head_dim,
        ffn_size: keys.required_size("feed_forward_length"),
        context_len,
        rms_norm_eps: eps.unwrap_or_else(|| keys.missing("attention.layer_norm_rms_epsilon") as f64) as f32,
        activation: Activation::Silu,
        tied_embeddings: tensors.tied_embeddings,
        qkv_bias: architecture == Architecture::Qwen2,
        qk_norm: architecture == Architecture::Qwen3,
        rope: rope(keys, head_dim, context_len, tensors.rope_factors),
        bos: keys.token("tokenizer.ggml.bos_token_id"),
        eos: end_tokens(keys),
        torch_dtype: None,
    }
}

/// The tokens that end a text: first those that a key names.
fn end_tokens(keys: &mut Keys<'_>) -> Vec<u32> {
    let mut ends: Vec<u32> = END_TOKENS.into_iter().filter_map(|key| keys.token(key)).collect();
    let (tokens, types, metadata) = ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type", keys.metadata);
    let tokens = keys.read(tokens, |_| metadata.texts(tokens)).unwrap_or_default();
    let types = keys.read(types, |_| metadata.integers(types)).unwrap_or_default();
    for ((token, kind), id) in tokens.iter().zip(types).zip(0..) {
        if kind == CONTROL_TOKEN && END_TEXTS.contains(&token.as_str()) && !ends.contains(&id) {
            ends.push(id);
        }
    }
    ends
}

fn rope(keys: &mut Keys<'_>, head_dim: usize, context_len: usize, factors: Option<Vec<f32>>) -> Rope {
    let theta = keys.float("rope.freq_base").unwrap_or(10_000.0);
    let rotary_dims = keys.size("rope.dimension_count", MAX_DIMENSION).unwrap_or(head_dim);
    // As in llama.cpp, a factor of 0 counts as none.
    let factor = keys.float("rope.scaling.factor").filter(|&factor| factor != 0.0).unwrap_or(1.0);
    let original = keys.size("rope.scaling.original_context_length", MAX_LENGTH).unwrap_or(context_len);
    if factor < 0.0 || !factor.is_finite() {
        keys.refuse("rope.scaling.factor", "must be a number from 0");
    }
    // A factor without a type is linear, and a linear factor of 1 is not scaling.
    let name = match keys.text("rope.scaling.type") {
        Some(name) if name != "linear" => name,
        _ if factor == 1.0 => "none".to_owned(),
        _ => "linear".to_owned(),
    };
    let scaling = match (name.as_str(), factors) {
        ("none", None) => RopeScaling::Default,
        ("none", Some(factors)) => {
            let usable = factors.len() == rotary_dims / 2 && factors.iter().all(|&f| f.is_finite() && f > 0.0);
            if !usable {
                keys.refuse("rope_freqs.weight", "the factors must be positive, one for each rotated pair");
            }
            RopeScaling::Factors(factors)
        }
        ("linear", None) => RopeScaling::Linear { factor },
        ("yarn", None) => RopeScaling::Yarn {
            factor,
            beta_fast: 32.0,
            beta_slow: 1.0,
            original_context: original as f64,
            attention_factor: yarn_attention_factor(factor, 1.0),
            truncate: true,
        },
        _ => {
            keys.refuse("rope.scaling.type", "this scaling is not modelled; none, linear and yarn are");
            RopeScaling::Default
        }
    };
    Rope { theta, rotary_dims, scaling }
}

/// The metadata under the architecture's prefix, and the refusals so far.
struct Keys<'a> {
    metadata: &'a Metadata,
    prefix: &'static str,
    refusals: Vec<Refusal>,
}

impl Keys<'_> {
    fn full(&self, key: &str) -> String {
        format!("{}.{key}", self.prefix)
    }

    fn refuse(&mut self, key: &str, reason: &str) {
        let key = self.full(key);
        let value = self.metadata.get(&key).map_or_else(String::new, Value::to_string);
        self.refusals.push(Refusal::new(key, value, reason));
    }

    /// Records that `key` is missing and returns a stand-in.
    fn missing(&mut self, key: &str) -> usize {
        self.refuse(key, "is missing");
        1
    }

    /// The value that `read` finds at the full key; a wrong type is recorded.
    fn read<T>(&mut self, key: &str, read: impl FnOnce(&Metadata) -> Result<Option<T>, FormatError>) -> Option<T> {
        read(self.metadata).unwrap_or_else(|error| {
            self.refusals.push(Refusal::new(key, "", error.cause.to_string()));
            None
        })
    }

    /// A size from 1 to `limit`. A list with one value for every layer counts where all values are
    /// equal.
    fn size(&mut self, key: &str, limit: u64) -> Option<usize> {
        let full = self.full(key);
        let value = match self.metadata.get(&full) {
            Some(Value::Array(_)) => {
                let per_layer = self.read(&full, |metadata| metadata.integers(&full))?;
                let first = per_layer.first().copied().and_then(|first| u64::try_from(first).ok());
                first.filter(|_| per_layer.iter().all(|value| Some(value) == per_layer.first()))
            }
            _ => Some(self.read(&full, |metadata| metadata.unsigned(&full))?),
        };
        match value {
            Some(size) if (1..=limit).contains(&size) => Some(size as usize),
            Some(_) => {
                self.refuse(key, &format!("must be from 1 to {limit}"));
                Some(1)
            }
            None => {
                self.refuse(key, "sizes that differ by layer are not modelled");
                Some(1)
            }
        }
    }

    fn required_size(&mut self, key: &str) -> usize {
        match self.metadata.get(&self.full(key)) {
            Some(_) => self.size(key, MAX_DIMENSION).unwrap_or(1),
            None => self.missing(key),
        }
    }

    fn float(&mut self, key: &str) -> Option<f64> {
        let full = self.full(key);
        self.read(&full, |metadata| metadata.float(&full))
    }

    fn text(&mut self, key: &str) -> Option<String> {
        let full = self.full(key);
        self.read(&full, |metadata| metadata.text(&full).map(|text| text.map(str::to_owned)))
    }

    fn token(&mut self, key: &str) -> Option<u32> {
        let id = self.read(key, |metadata| metadata.unsigned(key))?;
        u32::try_from(id).ok()
    }

    fn account_for_the_rest(&mut self) {
        for (key, value) in self.metadata.iter() {
            let own = key.strip_prefix(self.prefix).and_then(|rest| rest.strip_prefix('.'));
            let refuse = |reason| Some(Refusal::new(key, value.to_string(), reason));
            let refusal = match (own, key) {
                (Some(own), _) => unacceptable(key, own, value),
                (None, "general.type") if !self.metadata.is_text(key, "model") => refuse("this file holds no model"),
                (None, "split.count") if !matches!(value, Value::Unsigned(0 | 1)) => {
                    refuse("this file is one part of a model; join the parts into one file first")
                }
                (None, _) => None,
            };
            self.refusals.extend(refusal);
        }
    }
}

/// Why `key`, which is `own` under the architecture's prefix, cannot be accepted with this value.
fn unacceptable(key: &str, own: &str, value: &Value) -> Option<Refusal> {
    if MODELLED.contains(&own) || HARMLESS.contains(&own) {
        return None;
    }
    match MUST_BE_OFF.iter().find(|(known, _)| *known == own) {
        Some(_) if matches!(value, Value::Unsigned(0) | Value::Bool(false)) => None,
        Some((_, reason)) => Some(Refusal::new(key, value.to_string(), *reason)),
        None => Some(Refusal::unknown(key, value.to_string(), "this key is unknown")),
    }
}

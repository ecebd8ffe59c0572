//! Reads the `config.json` of a Hugging Face folder.

use std::path::Path;

use serde_json::Value;

use super::fields::Fields;
use super::hugging_face_rope::rope;
use super::known_fields::{HARMLESS, MUST_BE_NEUTRAL, is_bookkeeping};
use super::{Activation, AllowedFields, Architecture, ConfigError, MAX_DIMENSION, MAX_LENGTH, ModelConfig, Refusal};

/// A `model_type` of transformers and how its models differ.
struct ModelType {
    name: &'static str,
    /// The class that `architectures` must name.
    class: &'static str,
    architecture: Architecture,
    /// `head_dim` where the config has none; otherwise `hidden_size / num_attention_heads`.
    default_head_dim: Option<usize>,
    window: Window,
}

/// The meaning of `sliding_window` for a `model_type` of transformers.
#[derive(Clone, Copy)]
enum Window {
    /// No such field.
    None,
    /// In use unless null; 4096 where the config has none.
    Always,
    /// Only in use together with `use_sliding_window`, which is refused.
    Switched,
}

/// The window of a Mistral config that does not mention one (`MistralConfig`).
const DEFAULT_WINDOW: usize = 4096;

const MODEL_TYPES: [ModelType; 4] = [
    ModelType {
        name: "llama",
        class: "LlamaForCausalLM",
        architecture: Architecture::Llama,
        default_head_dim: None,
        window: Window::None,
    },
    ModelType {
        name: "mistral",
        class: "MistralForCausalLM",
        architecture: Architecture::Llama,
        default_head_dim: None,
        window: Window::Always,
    },
    ModelType {
        name: "qwen2",
        class: "Qwen2ForCausalLM",
        architecture: Architecture::Qwen2,
        default_head_dim: None,
        window: Window::Switched,
    },
    ModelType {
        name: "qwen3",
        class: "Qwen3ForCausalLM",
        architecture: Architecture::Qwen3,
        default_head_dim: Some(128),
        window: Window::Switched,
    },
];

impl ModelConfig {
    /// Reads the text of a `config.json`; `path` is named in errors.
    ///
    /// # Errors
    /// [`ConfigError`] with every field that cannot be accepted.
    pub fn from_json(path: &Path, text: &[u8]) -> Result<Self, ConfigError> {
        Self::from_json_allowing(path, text, &AllowedFields::default())
    }

    /// As [`Self::from_json`], with fields that nothing here knows.
    ///
    /// # Errors
    /// As [`Self::from_json`].
    pub fn from_json_allowing(path: &Path, text: &[u8], allowed: &AllowedFields) -> Result<Self, ConfigError> {
        let refused = |refusals| ConfigError { path: path.to_owned(), refusals };
        let object = match serde_json::from_slice(text) {
            Ok(Value::Object(object)) => object,
            Ok(_) => return Err(refused(vec![Refusal::new("config", "", "is not a JSON object")])),
            Err(error) => return Err(refused(vec![Refusal::new("config", "", format!("invalid JSON: {error}"))])),
        };
        let mut fields = Fields::new(object, "");
        // Nearly every other field of another model would be refused; the type alone is enough.
        let model_type = model_type(&mut fields).map_err(|refusal| refused(vec![refusal]))?;
        let config = read(&mut fields, model_type);
        account_for_the_rest(&mut fields);
        allowed.judge(path, config, fields.into_refusals())
    }
}

fn model_type(fields: &mut Fields) -> Result<&'static ModelType, Refusal> {
    let supported = || MODEL_TYPES.iter().map(|known| known.name).collect::<Vec<_>>().join(", ");
    let found = fields.take("model_type").unwrap_or_default();
    match MODEL_TYPES.iter().find(|known| found.as_str() == Some(known.name)) {
        Some(known) => Ok(known),
        None if found.is_null() => Err(Refusal::new("model_type", "", "is missing")),
        None => {
            let reason = format!("this architecture is not supported; supported are {}", supported());
            Err(Refusal::new("model_type", found.to_string(), reason))
        }
    }
}

fn read(fields: &mut Fields, model_type: &ModelType) -> ModelConfig {
    check_class(fields, model_type);
    let hidden_size = fields.required_size("hidden_size", MAX_DIMENSION);
    let heads = fields.required_size("num_attention_heads", MAX_DIMENSION);
    let head_dim = head_dim(fields, model_type, hidden_size, heads);
    let context_len = fields.required_size("max_position_embeddings", MAX_LENGTH);
    check_window(fields, model_type.window, context_len);
    ModelConfig {
        architecture: model_type.architecture,
        vocab_size: fields.required_size("vocab_size", MAX_LENGTH),
        hidden_size,
        layers: fields.required_size("num_hidden_layers", MAX_DIMENSION),
        heads,
        kv_heads: kv_heads(fields, model_type, heads),
        head_dim,
        ffn_size: fields.required_size("intermediate_size", MAX_DIMENSION),
        context_len,
        rms_norm_eps: fields.number("rms_norm_eps").unwrap_or(1e-6) as f32,
        activation: activation(fields),
        tied_embeddings: fields.truth("tie_word_embeddings").unwrap_or(false),
        qkv_bias: model_type.architecture == Architecture::Qwen2,
        qk_norm: model_type.architecture == Architecture::Qwen3,
        rope: rope(fields, head_dim, context_len),
        bos: fields.token_ids("bos_token_id").first().copied(),
        eos: fields.token_ids("eos_token_id"),
        torch_dtype: fields.text("torch_dtype").or(fields.text("dtype")),
    }
}

/// `architectures` names the class with a causal language-model head: another one has other tensors
/// or another output.
fn check_class(fields: &mut Fields, model_type: &ModelType) {
    let Some(classes) = fields.take("architectures") else { return };
    let expected = Value::from(vec![model_type.class]);
    if classes != expected {
        fields.refuse("architectures", &classes, format!("only {expected} is modelled for this `model_type`"));
    }
}

/// transformers takes null as one key and value head per query head; it has other defaults for an
/// absent field, which no published config relies on, so absence is refused where they differ.
fn kv_heads(fields: &mut Fields, model_type: &ModelType, heads: usize) -> usize {
    const FIELD: &str = "num_key_value_heads";
    if model_type.name != "llama" && fields.peek(FIELD).is_none() {
        fields.refuse(FIELD, &Value::Null, "is missing");
    }
    fields.size(FIELD, MAX_DIMENSION).unwrap_or(heads)
}

fn head_dim(fields: &mut Fields, model_type: &ModelType, hidden_size: usize, heads: usize) -> usize {
    if let Some(head_dim) = fields.size("head_dim", MAX_DIMENSION).or(model_type.default_head_dim) {
        return head_dim;
    }
    // Where a size was refused, errors derived from its stand-in would only be noise.
    if fields.is_accepted() && !hidden_size.is_multiple_of(heads) {
        let reason = format!("is not a multiple of the {heads} attention heads, and there is no `head_dim`");
        fields.refuse("hidden_size", &hidden_size.into(), reason);
    }
    hidden_size / heads
}

/// A window at least as long as the context never cuts anything off, so it is accepted.
fn check_window(fields: &mut Fields, window: Window, context_len: usize) {
    const FIELD: &str = "sliding_window";
    let mentioned = fields.peek(FIELD).is_some();
    let size = fields.size(FIELD, MAX_LENGTH);
    let in_use = match (window, size) {
        (Window::Switched, _) => return,
        (Window::Always, None) if !mentioned => DEFAULT_WINDOW,
        (_, None) => return,
        (_, Some(size)) => size,
    };
    if in_use < context_len {
        let reason = match mentioned {
            true => "attention over a sliding window is not modelled",
            false => "a config without this field has this window, and attention over a sliding window is not modelled",
        };
        fields.refuse(FIELD, &in_use.into(), reason);
    }
}

fn activation(fields: &mut Fields) -> Activation {
    let name = fields.text("hidden_act").unwrap_or_else(|| "silu".to_owned());
    match name.as_str() {
        "silu" | "swish" => Activation::Silu,
        "gelu" => Activation::Gelu,
        "gelu_pytorch_tanh" | "gelu_new" => Activation::GeluTanh,
        _ => {
            fields.refuse("hidden_act", &name.into(), "this activation is not modelled; silu and gelu are");
            Activation::Silu
        }
    }
}

fn account_for_the_rest(fields: &mut Fields) {
    for (field, value) in fields.take_rest() {
        if HARMLESS.contains(&field.as_str()) || is_bookkeeping(&field, &value) {
            continue;
        }
        match MUST_BE_NEUTRAL.iter().find(|(known, ..)| *known == field) {
            Some((_, neutral, _)) if neutral.holds(&value) => {}
            Some((_, _, reason)) => fields.refuse(&field, &value, *reason),
            None => fields.refuse_unknown(&field, &value, "this field is unknown"),
        }
    }
}

//! Writes a `config.json` for a model that was not read from one.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{ModelConfig, Rope, RopeScaling};
use crate::import::{Form, Known, Window};

const FORM: &str = "a config.json";

/// A model that a file format cannot describe.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{form} cannot say {what}")]
pub struct Unsaid {
    /// The form of files.
    pub form: &'static str,
    /// The part of the configuration.
    pub what: String,
}

impl ModelConfig {
    /// Returns the fields of a `config.json` for this model, with the name of its dtype. They have
    /// been read back and describe the same model.
    ///
    /// # Errors
    /// [`Unsaid`], for instance for frequencies with factors, which GGUF files have.
    pub fn to_json(&self, dtype: &str) -> Result<Map<String, Value>, Unsaid> {
        let mut fields = self.shape();
        let mut put = |field: &str, value: Value| _ = fields.insert(field.to_owned(), value);
        put("dtype", dtype.into());
        put(self.import.eps.0, shortest(self.norm_eps));
        put(self.import.activation_field, self.import.activation.name().into());
        put("tie_word_embeddings", self.tied_embeddings.into());
        put("bos_token_id", self.bos.into());
        match self.eos[..] {
            [eos] => put("eos_token_id", eos.into()),
            _ => put("eos_token_id", self.eos.clone().into()),
        }
        for fixed in self.import.fixed {
            match fixed.value {
                Known::Truth(value) => put(fixed.field, value.into()),
                Known::Text(value) => put(fixed.field, value.into()),
                // A list as long as the model, which means the same as its absence.
                Known::AllOf(_) => {}
            }
        }
        for size in self.import.sizes {
            put(size.field, self.sizes.get(size.dim).copied().into());
        }
        for number in self.import.numbers {
            let value = self.numbers.get(number.path).map(|&value| f64::from(value));
            let plain = |value: f64| match number.form {
                Form::Plain => shortest(value as f32),
                Form::Reciprocal => shortest((1.0 / value) as f32),
                // Values with a root here are sizes, and transformers accepts no float for a size.
                Form::ReciprocalRoot => size(value).unwrap_or_else(|| shortest((1.0 / (value * value)) as f32)),
            };
            put(number.field, value.map_or(Value::Null, plain));
        }
        for flag in self.import.flags {
            put(flag.field, self.flags.get(flag.path).copied().into());
        }
        if let Some(flag) = self.import.layers {
            let kinds = self.layer_flags.get(flag.name).into_iter().flatten();
            let [set, unset] = flag.kinds;
            let entry = |&is: &bool| entry(if is { set } else { unset });
            put(flag.field, kinds.map(entry).collect::<Vec<_>>().into());
        }
        match self.import.window {
            Window::None | Window::Switched => {}
            // transformers requires a number if layers have a window, however long it is.
            Window::OfLayers => put("sliding_window", self.window.unwrap_or(self.context_len).into()),
            Window::Stated(_) | Window::OfRotatedLayers => put("sliding_window", self.window.into()),
        }
        self.put_rope(&mut put)?;
        self.same(fields)
    }

    fn shape(&self) -> Map<String, Value> {
        let Value::Object(fields) = json!({
            "architectures": [self.import.class],
            "model_type": self.import.model_type,
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.ffn_size,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "max_position_embeddings": self.context_len,
        }) else {
            return Map::new();
        };
        fields
    }

    fn put_rope(&self, put: &mut dyn FnMut(&str, Value)) -> Result<(), Unsaid> {
        put("rope_theta", self.rope.theta.into());
        if self.import.rotation.part.is_some() {
            put("partial_rotary_factor", (self.rope.rotary_dims as f64 / self.head_dim as f64).into());
        }
        if let Some((field, local)) = self.import.local.and_then(|local| local.field).zip(self.local_rope.as_ref()) {
            put(field, local.theta.into());
        }
        let scaling = scaling(&self.rope)?;
        if !scaling.is_null() {
            put("rope_scaling", scaling);
        }
        Ok(())
    }

    /// Returns the fields, if they describe this model.
    fn same(&self, fields: Map<String, Value>) -> Result<Map<String, Value>, Unsaid> {
        let text = Value::Object(fields.clone()).to_string();
        let read = Self::from_json(Path::new("config.json"), text.as_bytes());
        let read = read.map_err(|error| Unsaid { form: FORM, what: format!("this model: {error}") })?;
        // Properties that the two file formats express differently.
        let neutral = |config: &Self| Self { torch_dtype: None, norms_less_one: false, ..config.clone() };
        match neutral(&read) == neutral(self) {
            true => Ok(fields),
            false => Err(Unsaid { form: FORM, what: "all of its settings".to_owned() }),
        }
    }
}

/// Returns the size whose reciprocal root in f32 this is, if there is one.
fn size(root: f64) -> Option<Value> {
    let size = (1.0 / (root * root)).round();
    let is_exact = (1.0..=f64::from(u32::MAX)).contains(&size) && f64::from(Form::ReciprocalRoot.of(size)) == root;
    is_exact.then(|| (size as u32).into())
}

/// The entry in a list of layer kinds: a number if it is the text of one, because transformers
/// treats the text `0` as true.
fn entry(kind: &str) -> Value {
    kind.parse::<u64>().map_or_else(|_| kind.into(), Value::from)
}

/// The shortest number that is this one in f32.
fn shortest(value: f32) -> Value {
    value.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

fn scaling(rope: &Rope) -> Result<Value, Unsaid> {
    Ok(match &rope.scaling {
        RopeScaling::Default => Value::Null,
        RopeScaling::Linear { factor } => json!({"rope_type": "linear", "factor": factor}),
        RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => json!({
            "rope_type": "llama3", "factor": factor, "low_freq_factor": low_freq_factor,
            "high_freq_factor": high_freq_factor, "original_max_position_embeddings": *original_context as u64,
        }),
        RopeScaling::Yarn { factor, beta_fast, beta_slow, original_context, attention_factor, truncate } => json!({
            "rope_type": "yarn", "factor": factor, "beta_fast": beta_fast, "beta_slow": beta_slow,
            "original_max_position_embeddings": *original_context as u64,
            "attention_factor": attention_factor, "truncate": truncate,
        }),
        RopeScaling::LongRope { .. } | RopeScaling::Factors(_) => {
            return Err(Unsaid { form: FORM, what: "a factor for each frequency as this file has it".to_owned() });
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AllowedFields;

    fn read(fields: &Value) -> ModelConfig {
        let text = fields.to_string();
        ModelConfig::from_json_allowing(Path::new("config.json"), text.as_bytes(), &AllowedFields::default())
            .unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn what_is_written_is_the_same_model() {
        let sizes = json!({
            "vocab_size": 32, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 6,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64,
        });
        let with = |own: Value| {
            let mut fields = sizes.clone();
            fields.as_object_mut().expect("an object").extend(own.as_object().expect("an object").clone());
            read(&fields)
        };
        let configs = [
            with(json!({"model_type": "llama", "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2})),
            with(json!({"model_type": "llama", "rope_scaling": {
                "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16 }})),
            with(json!({"model_type": "qwen3", "tie_word_embeddings": true, "eos_token_id": [2, 3]})),
            with(json!({"model_type": "gemma3_text", "sliding_window": 16, "query_pre_attn_scalar": 8})),
            with(json!({"model_type": "lfm2", "conv_L_cache": 4, "full_attn_idxs": [1]})),
            with(json!({"model_type": "exaone4", "sliding_window": null})),
            with(json!({"model_type": "exaone4", "sliding_window": 64})),
            with(json!({"model_type": "smollm3", "no_rope_layers": [1, 0, 1, 1, 0, 1]})),
            with(json!({"model_type": "granite", "attention_multiplier": 0.0078125, "embedding_multiplier": 12.0,
                "residual_multiplier": 0.22, "logits_scaling": 8.0})),
        ];
        for config in configs {
            let fields = config.to_json("float32").unwrap_or_else(|error| panic!("{}: {error}", config.family()));
            assert_eq!(fields["dtype"], "float32");
            let again = read(&Value::Object(fields));
            assert_eq!(ModelConfig { torch_dtype: None, ..again }, config);
        }
        let field = |own: Value, field: &str| with(own).to_json("float32").expect("a config.json")[field].clone();
        let rotated = json!([1, 0, 1, 1, 0, 1]);
        assert_eq!(field(json!({"model_type": "smollm3", "no_rope_layers": rotated}), "no_rope_layers"), rotated);
        // A window of the whole context is one all the same, and a size no float.
        for size in [6, 8, 144, 168, 256] {
            let gemma = json!({"model_type": "gemma2", "sliding_window": 64, "query_pre_attn_scalar": size});
            assert_eq!(field(gemma.clone(), "sliding_window"), 64);
            assert_eq!(field(gemma, "query_pre_attn_scalar"), size);
        }
        let scaling = RopeScaling::Factors(vec![1.0; 4]);
        let config = with(json!({"model_type": "llama"}));
        let config = ModelConfig { rope: Rope { scaling, ..config.rope.clone() }, ..config };
        let error = config.to_json("float32").expect_err("factors have no field").to_string();
        assert_eq!(error, "a config.json cannot say a factor for each frequency as this file has it");
    }
}

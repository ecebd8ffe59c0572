//! Writes the settings of a model as the metadata of a GGUF file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::gguf::{GgufTensors, LOCAL_THETA, RopeFactors};
use super::{AllowedFields, ModelConfig, RopeScaling, Unsaid};
use crate::import::Form;
use crate::weights::gguf::{Metadata, Value};

impl ModelConfig {
    /// The metadata of a GGUF file for this model with tensors of these names, without its
    /// tokenizer. They were read back and are the same model.
    ///
    /// # Errors
    /// [`Unsaid`], for instance for an architecture that llama.cpp does not have.
    pub fn to_gguf(&self, names: BTreeSet<String>) -> Result<BTreeMap<String, Value>, Unsaid> {
        let unsaid = |what: &str| Unsaid { form: "a GGUF file", what: what.to_owned() };
        let gguf = self.import.gguf.as_ref().ok_or_else(|| unsaid("this architecture"))?;
        let mut entries = BTreeMap::new();
        let mut put = |key: &str, value: Value| _ = entries.insert(format!("{}.{key}", gguf.architecture), value);
        for (key, size) in [
            ("block_count", self.layers),
            ("context_length", self.context_len),
            ("embedding_length", self.hidden_size),
            ("feed_forward_length", self.ffn_size),
            ("attention.head_count", self.heads),
            ("attention.head_count_kv", self.kv_heads),
            ("attention.key_length", self.head_dim),
            ("attention.value_length", self.head_dim),
            ("rope.dimension_count", self.rope.rotary_dims),
            ("vocab_size", self.vocab_size),
        ] {
            put(key, Value::Unsigned(size as u64));
        }
        if let Some(window) = self.window {
            put("attention.sliding_window", Value::Unsigned(window as u64));
        }
        put(gguf.eps, Value::Float(self.norm_eps.into()));
        put("rope.freq_base", Value::Float(self.rope.theta));
        if let Some(local) = &self.local_rope {
            put(LOCAL_THETA, Value::Float(local.theta));
        }
        for number in self.import.numbers {
            let value = self.numbers.get(number.path).map(|&value| f64::from(value));
            if let (Some(key), Some(value)) = (number.key, value) {
                put(
                    key,
                    Value::Float(match number.form {
                        Form::Plain => value,
                        Form::Reciprocal => 1.0 / value,
                        Form::ReciprocalRoot => 1.0 / (value * value),
                    }),
                );
            }
        }
        if let RopeScaling::Linear { factor } = self.rope.scaling {
            put("rope.scaling.type", Value::String("linear".to_owned()));
            put("rope.scaling.factor", Value::Float(factor));
        }
        entries.insert("general.architecture".to_owned(), Value::String(gguf.architecture.to_owned()));
        entries.insert("general.type".to_owned(), Value::String("model".to_owned()));
        if let Some(bos) = self.bos {
            entries.insert("tokenizer.ggml.bos_token_id".to_owned(), Value::Unsigned(bos.into()));
        }
        if let Some(&eos) = self.eos.first() {
            entries.insert("tokenizer.ggml.eos_token_id".to_owned(), Value::Unsigned(eos.into()));
        }
        match self.is_said_by(&entries, names) {
            true => Ok(entries),
            false => Err(unsaid("all of its settings")),
        }
    }

    /// Whether metadata are those of this model.
    fn is_said_by(&self, entries: &BTreeMap<String, Value>, names: BTreeSet<String>) -> bool {
        let path = Path::new("model.gguf");
        let metadata = Metadata::new(path, entries.clone());
        let tensors = GgufTensors {
            vocab_size: Some(self.vocab_size),
            tied_embeddings: !names.contains("lm_head.weight"),
            rope_factors: RopeFactors::None,
            names,
        };
        let read = Self::from_gguf(path, &metadata, tensors, &AllowedFields::default());
        // Tokens that end a text are those of the tokenizer.
        let neutral = |config: &Self| Self {
            torch_dtype: None,
            eos: Vec::new(),
            norms_less_one: false,
            import: self.import,
            ..config.clone()
        };
        read.is_ok_and(|read| read.family() == self.family() && neutral(&read) == neutral(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Rope;
    use serde_json::json;

    #[test]
    fn settings_are_written_or_refused() {
        let config = |kind: &str| {
            let fields = json!({
                "model_type": kind, "vocab_size": 32, "hidden_size": 16, "intermediate_size": 24,
                "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
                "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": true,
            });
            ModelConfig::from_json(Path::new("config.json"), fields.to_string().as_bytes())
                .unwrap_or_else(|error| panic!("{error}"))
        };
        let write = |config: &ModelConfig| config.to_gguf(BTreeSet::new()).map_err(|error| error.to_string());
        for kind in ["qwen3", "llama"] {
            let entries = write(&config(kind)).unwrap_or_else(|error| panic!("{kind}: {error}"));
            assert!(matches!(entries["general.architecture"], Value::String(_)));
        }
        assert_eq!(write(&config("mistral")), Err("a GGUF file cannot say this architecture".to_owned()));
        let scaling = RopeScaling::Factors(vec![2.0; 4]);
        let scaled = ModelConfig { rope: Rope { scaling, ..config("qwen3").rope }, ..config("qwen3") };
        assert_eq!(write(&scaled), Err("a GGUF file cannot say all of its settings".to_owned()));
    }
}

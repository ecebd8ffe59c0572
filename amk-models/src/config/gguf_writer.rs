//! Writes the settings of a model as the metadata of a GGUF file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::gguf::{GgufTensors, KV_HEADS, LOCAL_THETA, RopeFactors, WINDOW, has_others};
use super::rope::yarn_attention_factor;
use super::{AllowedFields, ModelConfig, Rope, RopeScaling, Unsaid};
use crate::import::{Form, Gguf, Window};
use crate::weights::gguf::{Array, Metadata, Value};

/// The settings in a GGUF file, in addition to the weights and the tokenizer of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct GgufSettings {
    /// The metadata.
    pub metadata: BTreeMap<String, Value>,
    /// Tensors of factors of the rotary frequencies, `[rotary_dims/2]` in f32 each, by name.
    pub factors: Vec<(&'static str, Vec<f32>)>,
}

impl ModelConfig {
    /// Returns the settings of a GGUF file for this model, with tensors of these names. They have
    /// been read back and describe the same model.
    ///
    /// # Errors
    /// [`Unsaid`], for instance for an architecture that llama.cpp does not have.
    pub fn to_gguf(&self, names: BTreeSet<String>) -> Result<GgufSettings, Unsaid> {
        let unsaid = |what: &str| Unsaid { form: "a GGUF file", what: what.to_owned() };
        let gguf = self.import.gguf.as_ref().ok_or_else(|| unsaid("this architecture"))?;
        let mut metadata = BTreeMap::new();
        let mut put = |key: &str, value: Value| {
            let value = match value {
                // llama.cpp reads no others.
                Value::Float(value) => Value::Float(f64::from(value as f32)),
                value => value,
            };
            metadata.insert(format!("{}.{key}", gguf.architecture), value);
        };
        self.put_sizes(&mut put);
        self.put_numbers(gguf, &mut put);
        let factors = self.put_scaling(&mut put);
        if let Some(what) = self.unread(gguf, &factors) {
            return Err(unsaid(&what));
        }
        metadata.insert("general.architecture".to_owned(), Value::String(gguf.architecture.to_owned()));
        metadata.insert("general.type".to_owned(), Value::String("model".to_owned()));
        if let Some(bos) = self.bos {
            metadata.insert("tokenizer.ggml.bos_token_id".to_owned(), Value::Unsigned(bos.into()));
        }
        if let Some(&eos) = self.eos.first() {
            metadata.insert("tokenizer.ggml.eos_token_id".to_owned(), Value::Unsigned(eos.into()));
        }
        match self.unsaid_by(&metadata, names, factors.clone()) {
            None => Ok(GgufSettings { metadata, factors: factors.tensors() }),
            Some(what) => Err(unsaid(&what)),
        }
    }

    fn put_sizes(&self, put: &mut dyn FnMut(&str, Value)) {
        for (key, size) in [
            ("block_count", self.layers),
            ("context_length", self.context_len),
            ("embedding_length", self.hidden_size),
            ("feed_forward_length", self.ffn_size),
            ("attention.head_count", self.heads),
            ("attention.key_length", self.head_dim),
            ("attention.value_length", self.head_dim),
            ("rope.dimension_count", self.rope.rotary_dims),
            ("vocab_size", self.vocab_size),
        ] {
            put(key, Value::Unsigned(size as u64));
        }
        let own = self.import.sizes.iter().filter_map(|size| Some((size.key, *self.sizes.get(size.dim)?)));
        own.for_each(|(key, size)| put(key, Value::Unsigned(size as u64)));
        for flag in self.import.flags {
            if let (Some(key), Some(&set)) = (flag.key, self.flags.get(flag.path)) {
                put(key, Value::Bool(set));
            }
        }
        // A window of the whole context cuts nothing off, but without one no layer is of its kind.
        let whole = (self.import.window == Window::OfLayers).then_some(self.context_len);
        if let Some(window) = self.window.or(whole) {
            put(WINDOW, Value::Unsigned(window as u64));
        }
        if let Some((key, flag)) = self.import.layers.and_then(|flag| Some((flag.key?, flag.name))) {
            let flags = self.layer_flags.get(flag).cloned().unwrap_or_default();
            put(key, Value::Array(Array::Bool(flags)));
        }
        let attends = self.layer_flags.values().next().filter(|_| has_others(self.import));
        put(
            KV_HEADS,
            match attends {
                Some(attends) => {
                    let of_layer = |&attends: &bool| if attends { self.kv_heads as i64 } else { 0 };
                    Value::Array(Array::Signed(attends.iter().map(of_layer).collect()))
                }
                None => Value::Unsigned(self.kv_heads as u64),
            },
        );
    }

    fn put_numbers(&self, gguf: &Gguf, put: &mut dyn FnMut(&str, Value)) {
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
    }

    /// Writes the scaling of the rotary frequencies: its metadata, and its factors.
    fn put_scaling(&self, put: &mut dyn FnMut(&str, Value)) -> RopeFactors {
        const ORIGINAL: &str = "rope.scaling.original_context_length";
        let mut named = |name: &str| put("rope.scaling.type", Value::String(name.to_owned()));
        match &self.rope.scaling {
            RopeScaling::Default => RopeFactors::None,
            &RopeScaling::Linear { factor } => {
                named("linear");
                put("rope.scaling.factor", Value::Float(factor));
                RopeFactors::None
            }
            RopeScaling::Llama3 { .. } => RopeFactors::One(self.rope.factors(self.context_len)),
            RopeScaling::Factors(factors) => RopeFactors::One(factors.clone()),
            &RopeScaling::Yarn { factor, beta_fast, beta_slow, original_context, .. } => {
                named("yarn");
                put("rope.scaling.factor", Value::Float(factor));
                put(ORIGINAL, Value::Unsigned(original_context as u64));
                put("rope.scaling.yarn_beta_fast", Value::Float(beta_fast));
                put("rope.scaling.yarn_beta_slow", Value::Float(beta_slow));
                RopeFactors::None
            }
            RopeScaling::LongRope { short, long, original_context, attention_factor } => {
                named("longrope");
                put(ORIGINAL, Value::Unsigned(*original_context as u64));
                put("rope.scaling.attn_factor", Value::Float(*attention_factor));
                RopeFactors::ShortAndLong(short.clone(), long.clone())
            }
        }
    }

    /// The part of the rotary embedding that a file could say, but that llama.cpp does not read.
    fn unread(&self, gguf: &Gguf, factors: &RopeFactors) -> Option<String> {
        let instead = if self.import.names.is_empty() { "; write a folder" } else { "" };
        let unread = |name: &str| !gguf.factors.contains(&name);
        match self.rope.scaling {
            RopeScaling::Yarn { factor, attention_factor, .. }
                if !nearly(attention_factor, yarn_attention_factor(factor, 1.0)) =>
            {
                let what = format!("the attention factor {attention_factor} of its `rope_scaling`");
                Some(format!("{what}, because llama.cpp computes its own{instead}"))
            }
            _ if factors.clone().tensors().iter().any(|(name, _)| unread(name)) => {
                let what = "the factors of its `rope_scaling`, because llama.cpp reads none in files of";
                Some(format!("{what} `{}`{instead}", gguf.architecture))
            }
            _ => None,
        }
    }

    /// Returns the part of this model that these metadata and factors do not describe; `None` if
    /// they describe it completely.
    fn unsaid_by(
        &self,
        metadata: &BTreeMap<String, Value>,
        names: BTreeSet<String>,
        rope_factors: RopeFactors,
    ) -> Option<String> {
        let path = Path::new("model.gguf");
        let metadata = Metadata::new(path, metadata.clone());
        let tensors = GgufTensors {
            vocab_size: Some(self.vocab_size),
            tied_embeddings: !names.contains("lm_head.weight"),
            rope_factors,
            names,
        };
        let read = match Self::from_gguf(path, &metadata, tensors, &AllowedFields::default()) {
            Ok(read) => read,
            Err(error) => return error.refusals.first().map(|refusal| format!("this model: {refusal}")),
        };
        // Factors are all that a file has of this scaling.
        let scaling = match &self.rope.scaling {
            RopeScaling::Llama3 { .. } => RopeScaling::Factors(self.rope.factors(self.context_len)),
            scaling => scaling.clone(),
        };
        let said = Self { rope: Rope { scaling, ..self.rope.clone() }, ..self.clone() };
        said.rounded_to(&read).difference(&read).map(str::to_owned)
    }

    /// This config with the numbers of `read` in place of those that rounding to f32 turns into
    /// them.
    fn rounded_to(mut self, read: &Self) -> Self {
        round_rope(&mut self.rope, &read.rope);
        if let (Some(own), Some(read)) = (&mut self.local_rope, &read.local_rope) {
            round_rope(own, read);
        }
        for (path, value) in &mut self.numbers {
            match read.numbers.get(path) {
                Some(&read) if nearly((*value).into(), read.into()) => *value = read,
                _ => {}
            }
        }
        self
    }

    /// The first setting in which a config differs. Tokens that end a text are the tokenizer's.
    fn difference(&self, other: &Self) -> Option<&'static str> {
        let neutral = |config: &Self| Self {
            torch_dtype: None,
            quantization: None,
            eos: Vec::new(),
            norms_less_one: false,
            import: self.import,
            ..config.clone()
        };
        let settings = [
            (self.family() == other.family(), "its family"),
            (self.rope == other.rope, "its rotary embedding"),
            (self.local_rope == other.local_rope, "the rotary embedding of its layers with a window"),
            (self.window == other.window, "its window"),
            (self.layer_flags == other.layer_flags, "which of its layers are of which kind"),
            (self.numbers == other.numbers, "its multipliers and caps"),
            (self.flags == other.flags, "which of its tensors are optional"),
            (self.sizes == other.sizes, "its sizes"),
            (self.tied_embeddings == other.tied_embeddings, "whether its embeddings are tied"),
            (neutral(self) == neutral(other), "all of its settings"),
        ];
        settings.into_iter().find(|(same, _)| !same).map(|(_, setting)| setting)
    }
}

/// Whether two numbers are the same up to a rounding to f32, and one of a reciprocal.
fn nearly(first: f64, second: f64) -> bool {
    (first - second).abs() <= 2.0 * f64::from(f32::EPSILON) * first.abs()
}

/// Takes the numbers of `read` for those of a rotary embedding that rounding turns into them.
fn round_rope(own: &mut Rope, read: &Rope) {
    let mut read = read.clone();
    for (own, read) in rope_numbers(own).into_iter().zip(rope_numbers(&mut read)) {
        if nearly(*own, *read) {
            *own = *read;
        }
    }
}

/// The numbers of a rotary embedding that a file says in f32.
fn rope_numbers(rope: &mut Rope) -> Vec<&mut f64> {
    let mut numbers = vec![&mut rope.theta];
    match &mut rope.scaling {
        RopeScaling::Linear { factor } => numbers.push(factor),
        RopeScaling::Yarn { factor, beta_fast, beta_slow, original_context, attention_factor, truncate: _ } => {
            numbers.extend([factor, beta_fast, beta_slow, original_context, attention_factor]);
        }
        RopeScaling::LongRope { original_context, attention_factor, short: _, long: _ } => {
            numbers.extend([original_context, attention_factor]);
        }
        RopeScaling::Default | RopeScaling::Llama3 { .. } | RopeScaling::Factors(_) => {}
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Fp8, Quantization, Rope};
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
        let write = |config: &ModelConfig| {
            config.to_gguf(BTreeSet::new()).map_err(|error| error.to_string()).map(|settings| settings.factors)
        };
        for kind in ["qwen3", "llama"] {
            assert_eq!(write(&config(kind)), Ok(Vec::new()), "{kind}");
        }
        let fp8 = Some(Quantization::Fp8(Fp8 { block: None, activations: false }));
        assert_eq!(write(&ModelConfig { quantization: fp8, ..config("llama") }), Ok(Vec::new()));
        assert_eq!(write(&config("mistral")), Err("a GGUF file cannot say this architecture".to_owned()));
        let with = |kind: &str, scaling| ModelConfig { rope: Rope { scaling, ..config(kind).rope }, ..config(kind) };
        let factors = vec![1.0, 2.0, 4.0, 8.0];
        let scaling = RopeScaling::Factors(factors.clone());
        assert_eq!(write(&with("llama", scaling.clone())), Ok(vec![("rope_freqs.weight", factors)]));
        let unread = "the factors of its `rope_scaling`, because llama.cpp reads none in files of `qwen3`";
        assert_eq!(write(&with("qwen3", scaling)), Err(format!("a GGUF file cannot say {unread}; write a folder")));
        let yarn = |attention_factor: f64, truncate| RopeScaling::Yarn {
            factor: 4.1,
            beta_fast: 16.0,
            beta_slow: 2.0,
            original_context: 16.0,
            attention_factor,
            truncate,
        };
        let usual = yarn_attention_factor(4.1, 1.0);
        assert_eq!(write(&with("qwen3", yarn(usual, true))), Ok(Vec::new()));
        let truncated = write(&with("qwen3", yarn(usual, false)));
        assert_eq!(truncated, Err("a GGUF file cannot say its rotary embedding".to_owned()));
        let unread = "the attention factor 1.25 of its `rope_scaling`, because llama.cpp computes its own";
        let error = write(&with("qwen3", yarn(1.25, true)));
        assert_eq!(error, Err(format!("a GGUF file cannot say {unread}; write a folder")));
    }

    #[test]
    fn all_floats_are_in_f32_and_still_describe_the_model() {
        let fields = json!({
            "model_type": "granite", "vocab_size": 32, "hidden_size": 16, "intermediate_size": 24,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": 10_000.1,
            "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": true,
            "embedding_multiplier": 12.3, "residual_multiplier": 0.22, "attention_multiplier": 0.0078,
            "logits_scaling": 8.3, "rope_scaling": {"rope_type": "linear", "factor": 1.3},
        });
        let config = ModelConfig::from_json(Path::new("config.json"), fields.to_string().as_bytes())
            .unwrap_or_else(|error| panic!("{error}"));
        let metadata = config.to_gguf(BTreeSet::new()).unwrap_or_else(|error| panic!("{error}")).metadata;
        for (key, value) in &metadata {
            if let Value::Float(value) = value {
                assert_eq!(f64::from(*value as f32), *value, "{key}");
            }
        }
        assert_eq!(metadata["granite.rope.scaling.factor"], Value::Float(f64::from(1.3_f32)));
        assert_eq!(metadata["granite.logit_scale"], Value::Float(f64::from(8.3_f32)));
    }

    #[test]
    fn layers_without_attention_have_no_key_heads() {
        let fields = json!({
            "model_type": "lfm2", "vocab_size": 32, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3,
            "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "norm_eps": 1e-5,
            "block_auto_adjust_ff_dim": false, "conv_L_cache": 4, "full_attn_idxs": [1],
        });
        let config = ModelConfig::from_json(Path::new("config.json"), fields.to_string().as_bytes())
            .unwrap_or_else(|error| panic!("{error}"));
        let names = BTreeSet::from(["model.layers.1.self_attn.q_proj.weight".to_owned()]);
        let metadata = config.to_gguf(names).unwrap_or_else(|error| panic!("{error}")).metadata;
        assert_eq!(metadata["lfm2.attention.head_count_kv"], Value::Array(Array::Signed(vec![0, 2, 0])));
        assert_eq!(metadata["lfm2.shortconv.l_cache"], Value::Unsigned(4));
        let error = config.to_gguf(BTreeSet::new()).expect_err("no layer attends").to_string();
        assert_eq!(error, "a GGUF file cannot say which of its layers are of which kind");
    }

    #[test]
    fn layers_with_a_window_are_listed() {
        let metadata = |model_type: &str, window: usize| {
            let fields = json!({
                "model_type": model_type, "vocab_size": 32, "hidden_size": 16, "intermediate_size": 24,
                "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "sliding_window": window,
                "layer_types": ["full_attention", "sliding_attention"], "tie_word_embeddings": true,
            });
            let config = ModelConfig::from_json(Path::new("config.json"), fields.to_string().as_bytes())
                .unwrap_or_else(|error| panic!("{error}"));
            config.to_gguf(BTreeSet::new()).unwrap_or_else(|error| panic!("{error}")).metadata
        };
        let (olmo, exaone) = (metadata("olmo3", 8), metadata("exaone4", 64));
        assert_eq!(olmo["general.architecture"], Value::String("olmo2".to_owned()));
        let flags = Value::Array(Array::Bool(vec![false, true]));
        assert_eq!(olmo["olmo2.attention.sliding_window_pattern"], flags);
        assert_eq!(exaone["exaone4.attention.sliding_window_pattern"], flags);
        assert_eq!(exaone["exaone4.attention.sliding_window"], Value::Unsigned(64), "it says what is rotated");
    }

    #[test]
    fn factors_of_llama3_have_its_frequencies() {
        let scaling =
            RopeScaling::Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_context: 64.0 };
        let rope = Rope { theta: 1e4, rotary_dims: 16, scaling };
        let written = Rope { scaling: RopeScaling::Factors(rope.factors(128)), ..rope.clone() };
        let (expected, found) = (rope.frequencies(128).inv_freq, written.frequencies(128).inv_freq);
        assert_ne!(expected, Rope { scaling: RopeScaling::Default, ..rope }.frequencies(128).inv_freq);
        for (expected, found) in expected.iter().zip(found) {
            assert!((found / expected - 1.0).abs() < 2e-7, "{found}, not {expected}");
        }
    }
}

//! Fields of a Hugging Face `config.json` that no model here uses: those that must be switched off,
//! and those without effect on the mathematics.

use serde_json::Value;

/// The values at which a field changes nothing. Null and absence are always among them.
#[derive(Clone, Copy)]
pub(super) enum Neutral {
    /// Only null.
    Null,
    /// `false`.
    False,
    /// `true`.
    True,
    /// 0.
    Zero,
    /// 1.
    One,
    /// An empty list or object.
    Empty,
    /// This text.
    Text(&'static str),
    /// A list of only this text.
    AllText(&'static str),
    /// A list of only ones.
    AllOnes,
}

impl Neutral {
    /// Whether `value` is one of them.
    pub(super) fn holds(self, value: &Value) -> bool {
        match (self, value) {
            (_, Value::Null) => true,
            (Self::Null, _) => false,
            (Self::False, value) => value == &Value::Bool(false),
            (Self::True, value) => value == &Value::Bool(true),
            (Self::Zero, value) => value.as_f64() == Some(0.0),
            (Self::One, value) => value.as_f64() == Some(1.0),
            (Self::Empty, Value::Array(list)) => list.is_empty(),
            (Self::Empty, Value::Object(map)) => map.is_empty(),
            (Self::Text(text), value) => value.as_str() == Some(text),
            (Self::AllText(text), Value::Array(list)) => list.iter().all(|item| item.as_str() == Some(text)),
            (Self::AllOnes, Value::Array(list)) => list.iter().all(|item| item.as_f64() == Some(1.0)),
            (Self::Empty | Self::AllText(_) | Self::AllOnes, _) => false,
        }
    }
}

const EXPERTS: &str = "mixtures of experts are not modelled";
const LATENT_ATTENTION: &str = "attention over a latent (MLA) is not modelled";
const SOFT_CAPPING: &str = "soft-capping of logits is not modelled";
const MULTIPLIER: &str = "this multiplier of activations is not modelled";
const LAYER_NORM: &str = "LayerNorm is not modelled, only RMS norm";
const LATER_POSITIONS: &str = "attention to later positions is not modelled";
const QK_NORM: &str = "this normalisation of queries and keys is not modelled";
const OTHER_MODEL: &str = "this kind of model is not modelled, only decoders";

/// Fields that change the mathematics unless they are neutral, and the feature that is not
/// modelled.
pub(super) const MUST_BE_NEUTRAL: [(&str, Neutral, &str); 60] = [
    ("add_cross_attention", Neutral::False, OTHER_MODEL),
    ("alibi", Neutral::False, "attention biases by distance (ALiBi) are not modelled"),
    ("attention_bias", Neutral::False, "biases on all attention projections are not modelled"),
    ("attention_multiplier", Neutral::Null, MULTIPLIER),
    ("attn_logit_softcapping", Neutral::Null, SOFT_CAPPING),
    ("auto_map", Neutral::Empty, "the model is defined by Python code that comes with the checkpoint"),
    ("chunk_size_feed_forward", Neutral::Zero, "a chunked feed-forward network is not modelled"),
    ("conv_bias", Neutral::False, "biases of short convolutions are not modelled"),
    ("cross_attention_hidden_size", Neutral::Null, OTHER_MODEL),
    ("dim_model_base", Neutral::Null, MULTIPLIER),
    ("embedding_multiplier", Neutral::One, MULTIPLIER),
    ("final_logit_softcapping", Neutral::Null, SOFT_CAPPING),
    ("first_k_dense_replace", Neutral::Null, EXPERTS),
    ("is_causal", Neutral::True, LATER_POSITIONS),
    ("is_encoder_decoder", Neutral::False, OTHER_MODEL),
    ("kv_lora_rank", Neutral::Null, LATENT_ATTENTION),
    ("layer_norm_eps", Neutral::Null, LAYER_NORM),
    ("layer_norm_epsilon", Neutral::Null, LAYER_NORM),
    ("layer_types", Neutral::AllText("full_attention"), "only full attention is modelled"),
    ("lm_head_bias", Neutral::False, "a bias on the output projection is not modelled"),
    ("logit_scale", Neutral::One, MULTIPLIER),
    ("logits_scaling", Neutral::One, MULTIPLIER),
    ("logit_softcapping", Neutral::Null, SOFT_CAPPING),
    ("mlp_bias", Neutral::False, "biases on the feed-forward network are not modelled"),
    ("moe_intermediate_size", Neutral::Null, EXPERTS),
    ("mup_denominator", Neutral::Null, MULTIPLIER),
    ("n_routed_experts", Neutral::Zero, EXPERTS),
    ("n_shared_experts", Neutral::Zero, EXPERTS),
    ("no_rope_layer_interval", Neutral::Zero, "layers without rotary embedding are not modelled"),
    ("no_rope_layers", Neutral::AllOnes, "layers without rotary embedding are not modelled"),
    ("norm_epsilon", Neutral::Null, LAYER_NORM),
    ("norm_type", Neutral::Text("rms_norm"), LAYER_NORM),
    ("num_experts", Neutral::Zero, EXPERTS),
    ("num_experts_per_tok", Neutral::Zero, EXPERTS),
    ("num_local_experts", Neutral::Zero, EXPERTS),
    ("num_nextn_predict_layers", Neutral::Zero, "layers that predict further tokens are not modelled"),
    ("parallel_attn", Neutral::False, "attention in parallel with the feed-forward network is not modelled"),
    ("pruned_heads", Neutral::Empty, "pruned heads are not modelled"),
    ("q_lora_rank", Neutral::Null, LATENT_ATTENTION),
    ("qk_layernorm", Neutral::False, QK_NORM),
    ("qk_nope_head_dim", Neutral::Null, LATENT_ATTENTION),
    ("qk_norm", Neutral::False, QK_NORM),
    ("qk_rope_head_dim", Neutral::Null, LATENT_ATTENTION),
    ("query_pre_attn_scalar", Neutral::Null, MULTIPLIER),
    ("residual_multiplier", Neutral::One, MULTIPLIER),
    ("rope_interleave", Neutral::False, "rotation of neighbouring elements is not modelled"),
    ("rope_interleaved", Neutral::False, "rotation of neighbouring elements is not modelled"),
    ("rotary_scaling_factor", Neutral::One, "a scaling of the rotary embedding outside `rope_scaling` is not modelled"),
    ("scale_depth", Neutral::Null, MULTIPLIER),
    ("scale_emb", Neutral::One, MULTIPLIER),
    ("shared_intermediate_size", Neutral::Null, EXPERTS),
    ("tie_encoder_decoder", Neutral::False, OTHER_MODEL),
    ("use_bidirectional_attention", Neutral::False, LATER_POSITIONS),
    ("use_mrope", Neutral::False, "rotary embeddings over several axes are not modelled"),
    ("use_parallel_residual", Neutral::False, "attention in parallel with the feed-forward network is not modelled"),
    ("use_qk_norm", Neutral::False, QK_NORM),
    ("use_qkv_bias", Neutral::False, "the architecture determines the biases, not a switch"),
    ("use_rms_norm", Neutral::True, LAYER_NORM),
    ("use_sliding_window", Neutral::False, "attention over a sliding window is not modelled"),
    ("v_head_dim", Neutral::Null, LATENT_ATTENTION),
];

/// The fields that change the mathematics and are refused unless they are off, with the reason.
pub fn neutral_fields() -> impl Iterator<Item = (&'static str, &'static str)> {
    MUST_BE_NEUTRAL.into_iter().map(|(field, _, reason)| (field, reason))
}

/// Whether an `auto_map` only names the Python file of a class that transformers itself has, and
/// uses unless told to run the file.
pub(super) fn is_own_class(field: &str, value: &Value, class: &str) -> bool {
    let named = value.get("AutoModelForCausalLM").and_then(Value::as_str);
    field == "auto_map" && named.and_then(|named| named.rsplit('.').next()) == Some(class)
}

/// Types of plain numbers, in which a file or a computation may be.
const PLAIN_DTYPES: [&str; 4] = ["bfloat16", "float16", "float32", "float64"];

/// Whether a field only records a config's origin or how Python runs the model, by its name and the
/// kind of its value: a private attribute of transformers' classes (`_name_or_path`,
/// `_attn_implementation_autoset`), a version, a name or path, an implementation, or a type of
/// plain numbers. A number or a list has a different meaning, whatever the name
/// (`_sliding_window_pattern`).
pub(super) fn is_bookkeeping(field: &str, value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) => field.starts_with('_'),
        Value::String(text) => {
            let ends = ["version", "name_or_path", "_implementation"].iter().any(|end| field.ends_with(end));
            let dtype = field.ends_with("dtype") && PLAIN_DTYPES.contains(&text.trim_start_matches("torch."));
            field.starts_with('_') || ends || dtype
        }
        Value::Number(_) | Value::Array(_) | Value::Object(_) => false,
    }
}

/// Fields without effect on the output of a trained decoder: training, bookkeeping, the Python
/// implementation, other tasks, and defaults of text generation, which come from
/// `generation_config.json`.
pub(super) const HARMLESS: [&str; 68] = [
    // Bookkeeping, in addition to [`is_bookkeeping`].
    "finetuning_task",
    "is_llama_config",
    "pad_token_id",
    "prefix",
    "sep_token_id",
    "tokenizer_class",
    "transformers.js_config",
    "unk_token_id",
    "unsloth_fixed",
    // Training.
    "attention_dropout",
    "attention_probs_dropout_prob",
    "attn_pdrop",
    "classifier_dropout",
    "embd_pdrop",
    "embedding_dropout",
    "hidden_dropout",
    "hidden_dropout_prob",
    "initializer_range",
    // In how many parts projections were multiplied; their sums are the same.
    "pretraining_tp",
    "resid_pdrop",
    "residual_dropout",
    "router_aux_loss_coef",
    // The Python implementation.
    "cache_implementation",
    "gradient_checkpointing",
    "is_decoder",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "return_dict",
    "return_dict_in_generate",
    "tf_legacy_loss",
    "torchscript",
    "use_bfloat16",
    "use_cache",
    // Other tasks.
    "id2label",
    "label2id",
    "problem_type",
    "task_specific_params",
    // Only read together with a sliding window, which is refused.
    "max_window_layers",
    // Defaults of text generation.
    "bad_words_ids",
    "begin_suppress_tokens",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "length_penalty",
    "max_length",
    "max_new_tokens",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "remove_invalid_values",
    "repetition_penalty",
    "suppress_tokens",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    "keys_to_ignore_at_inference",
    "ignore_keys_at_rope_validation",
    "max_sequence_length",
    "model_max_length",
];

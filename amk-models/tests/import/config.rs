//! Configs that are accepted, and configs that describe another model than the one computed.

use std::path::Path;

use amk_models::config::{ConfigError, ModelConfig, RopeScaling};
use serde_json::{Value, json};

use super::support::tiny_config;

fn read(config: &Value) -> Result<ModelConfig, ConfigError> {
    ModelConfig::from_json(Path::new("config.json"), config.to_string().as_bytes())
}

fn with(mut config: Value, fields: Value) -> Value {
    for (field, value) in fields.as_object().unwrap() {
        config[field] = value.clone();
    }
    config
}

fn qwen3() -> Value {
    with(tiny_config(), json!({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 4}))
}

fn mistral() -> Value {
    let fields = json!({"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": null});
    with(tiny_config(), fields)
}

/// `config` is refused for exactly `field`, and the reason contains `reason`.
#[track_caller]
fn refused(config: &Value, field: &str, reason: &str) {
    let error = read(config).expect_err(field);
    let [refusal] = error.refusals.as_slice() else { panic!("{error}") };
    assert_eq!(refusal.field, field, "{error}");
    assert!(refusal.reason.contains(reason), "{error}");
}

#[test]
fn smollm2_is_accepted() {
    // The config.json of SmolLM2-135M-Instruct.
    let config = read(&json!({
        "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 1,
        "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 576, "initializer_range": 0.041666666666666664,
        "intermediate_size": 1536, "is_llama_config": true, "max_position_embeddings": 8192, "mlp_bias": false,
        "model_type": "llama", "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3,
        "pad_token_id": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_interleaved": false, "rope_scaling": null,
        "rope_theta": 100000, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
        "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16", "fp16": "float16"}},
        "transformers_version": "4.42.3", "use_cache": true, "vocab_size": 49152
    }))
    .unwrap();
    assert_eq!(config.import.family, "llama");
    assert_eq!((config.heads, config.kv_heads, config.head_dim), (9, 3, 64));
    assert_eq!((config.norm_eps, config.rope.theta, config.rope.rotary_dims), (1e-5, 1e5, 64));
    assert_eq!((config.bos, config.eos.as_slice()), (Some(1), &[2][..]));
    assert!(config.tied_embeddings);
    assert_eq!(config.torch_dtype.as_deref(), Some("bfloat16"));
}

#[test]
fn llama_3_2_is_accepted() {
    let config = read(&json!({
        "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "head_dim": 64, "hidden_act": "silu",
        "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 131072,
        "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16,
        "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
        "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3"},
        "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
        "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 128256
    }))
    .unwrap();
    assert_eq!(config.eos, [128_001, 128_008, 128_009]);
    let expected =
        RopeScaling::Llama3 { factor: 32.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_context: 8192.0 };
    assert_eq!(config.rope.scaling, expected);
}

#[test]
fn qwen2_has_biases_and_a_window_that_is_off() {
    let config = read(&json!({
        "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
        "eos_token_id": 151645, "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
        "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 21, "model_type": "qwen2",
        "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
        "transformers_version": "4.43.1", "use_cache": true, "use_sliding_window": false, "vocab_size": 151936
    }))
    .unwrap();
    assert_eq!(config.import.family, "qwen2");
}

#[test]
fn qwen3_has_norms_and_wide_heads() {
    let config = read(&json!({
        "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024,
        "initializer_range": 0.02, "intermediate_size": 3072, "max_position_embeddings": 40960,
        "max_window_layers": 28, "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28,
        "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
        "sliding_window": null, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
        "transformers_version": "4.51.0", "use_cache": true, "use_sliding_window": false, "vocab_size": 151936
    }))
    .unwrap();
    assert_eq!(config.import.family, "qwen3");
    assert_eq!((config.hidden_size, config.heads * config.head_dim), (1024, 2048));
}

#[test]
fn absent_fields_have_the_defaults_of_transformers() {
    let config = read(&with(tiny_config(), json!({"rms_norm_eps": null, "num_key_value_heads": null}))).unwrap();
    assert_eq!((config.norm_eps, config.kv_heads), (1e-6, 2));
    assert_eq!(config.rope.theta, 10_000.0);
    let without = |mut config: Value, field: &str| {
        config.as_object_mut().unwrap().remove(field);
        config
    };
    // A default that is another field, which a kind of checkpoint has or has not.
    assert_eq!(read(&without(tiny_config(), "num_key_value_heads")).unwrap().kv_heads, 2);
    refused(&without(qwen3(), "num_key_value_heads"), "num_key_value_heads", "is missing");
    for (model_type, class) in [("olmo2", "Olmo2ForCausalLM"), ("granite", "GraniteForCausalLM")] {
        let config = with(tiny_config(), json!({"model_type": model_type, "architectures": [class]}));
        assert_eq!(read(&without(config, "num_key_value_heads")).unwrap().kv_heads, 2, "{model_type}");
    }
    let config = without(qwen3(), "head_dim");
    assert_eq!(read(&config).unwrap().head_dim, 128);
}

/// Models the reference implementation accepts and computes wrongly, and their relatives: (field,
/// value, reason).
fn other_models() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        ("sliding_window", json!(4), "window"),
        ("use_sliding_window", json!(true), "window"),
        ("layer_types", json!(["full_attention", "sliding_attention"]), "full attention"),
        ("attn_logit_softcapping", json!(50.0), "soft-capping"),
        ("final_logit_softcapping", json!(30.0), "soft-capping"),
        ("attention_bias", json!(true), "bias"),
        ("mlp_bias", json!(true), "bias"),
        ("lm_head_bias", json!(true), "bias"),
        ("num_local_experts", json!(8), "experts"),
        ("num_experts", json!(64), "experts"),
        ("num_experts_per_tok", json!(2), "experts"),
        ("n_routed_experts", json!(64), "experts"),
        ("moe_intermediate_size", json!(768), "experts"),
        ("kv_lora_rank", json!(512), "MLA"),
        ("qk_rope_head_dim", json!(64), "MLA"),
        ("layer_norm_eps", json!(1e-5), "LayerNorm"),
        ("norm_epsilon", json!(1e-5), "LayerNorm"),
        ("embedding_multiplier", json!(12.0), "multiplier"),
        ("attention_multiplier", json!(0.0078125), "multiplier"),
        ("residual_multiplier", json!(0.22), "multiplier"),
        ("logits_scaling", json!(8.0), "multiplier"),
        ("no_rope_layers", json!([1, 1, 1, 0]), "without rotary"),
        ("no_rope_layer_interval", json!(4), "without rotary"),
        ("scale_emb", json!(12), "multiplier"),
        ("scale_depth", json!(1.4), "multiplier"),
        ("dim_model_base", json!(256), "multiplier"),
        ("logit_scale", json!(0.0625), "multiplier"),
        ("query_pre_attn_scalar", json!(256), "multiplier"),
        ("use_qk_norm", json!(true), "normalisation"),
        ("qk_layernorm", json!(true), "normalisation"),
        ("use_parallel_residual", json!(true), "in parallel"),
        ("rope_interleaved", json!(true), "neighbouring"),
        ("rotary_scaling_factor", json!(2.0), "outside `rope_scaling`"),
        ("alibi", json!(true), "ALiBi"),
        ("hidden_act", json!("relu"), "activation"),
        ("auto_map", json!({"AutoModelForCausalLM": "modeling.X"}), "Python code"),
        ("is_encoder_decoder", json!(true), "decoders"),
        ("is_causal", json!(false), "later positions"),
        ("architectures", json!(["LlamaForSequenceClassification"]), "LlamaForCausalLM"),
        ("rope_scaling", json!({"full_attention": {"rope_type": "default"}}), "by layer"),
        ("some_new_trick", json!(3), "unknown"),
    ]
}

#[test]
fn other_models_are_refused_with_field_and_reason() {
    for (field, value, reason) in other_models() {
        refused(&with(tiny_config(), json!({ field: value })), field, reason);
    }
}

#[test]
fn the_same_fields_are_accepted_when_they_are_off() {
    let off = json!({
        "use_sliding_window": false, "sliding_window": null, "layer_types": ["full_attention"], "attention_bias": false,
        "attn_logit_softcapping": null, "num_experts": 0, "embedding_multiplier": 1.0, "residual_multiplier": 1,
        "logit_scale": 1.0, "no_rope_layers": [1], "rope_interleaved": false, "pruned_heads": {}, "auto_map": {},
        "quantization_config": null, "num_nextn_predict_layers": 0, "use_qk_norm": false, "scale_emb": 1,
        "rotary_scaling_factor": 1.0, "is_causal": true,
    });
    read(&with(tiny_config(), off)).unwrap();
}

#[test]
fn bookkeeping_is_known_by_name_and_kind_of_value() {
    let bookkeeping = json!({
        "_model_name_or_path": "model.gguf", "_name_or_path": "a/b", "base_model_name_or_path": "c/d", "_commit_hash": null,
        "_attn_implementation_autoset": true, "experts_implementation": "eager", "some_tool_version": "2026.1",
        "original_dtype": "torch.bfloat16", "_some_switch": false,
    });
    read(&with(tiny_config(), bookkeeping)).unwrap();
    for (field, value) in [
        ("_sliding_window_pattern", json!(6)),
        ("_layers", json!(["full_attention"])),
        ("rope_version", json!(2)),
        ("cache_dtype", json!("fp8_e4m3")),
        ("norm_name", json!("layer")),
    ] {
        refused(&with(tiny_config(), json!({ field: value })), field, "unknown");
    }
}

#[test]
fn a_field_that_is_merely_unknown_can_be_allowed_by_its_name() {
    let allowing = |config: &Value, fields: &[&str]| {
        let allowed = fields.iter().map(|&field| field.to_owned()).collect();
        ModelConfig::from_json_allowing(Path::new("config.json"), config.to_string().as_bytes(), &allowed)
    };
    let two = with(tiny_config(), json!({"some_new_trick": 3, "another": [1]}));
    let error = allowing(&two, &["some_new_trick"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "config.json: `another` is [1]: this field is unknown and may change what the model computes; \
         --allow-unknown another ignores it"
    );
    assert_eq!(allowing(&two, &["some_new_trick", "another"]).unwrap(), read(&tiny_config()).unwrap());
    let scaled = |more: Value| with(json!({"type": "linear", "factor": 2.0}), more);
    let nested = with(tiny_config(), json!({"rope_scaling": scaled(json!({"mrope_section": [1]}))}));
    let plain = with(tiny_config(), json!({"rope_scaling": scaled(json!({}))}));
    assert_eq!(allowing(&nested, &["rope_scaling.mrope_section"]).unwrap(), read(&plain).unwrap());
    // Fields known to change the mathematics are not unknown; and the remaining ones must not
    // contradict each other.
    let known = allowing(&with(tiny_config(), json!({"mlp_bias": true})), &["mlp_bias"]).unwrap_err();
    assert!(known.to_string().ends_with("biases on the feed-forward network are not modelled"), "{known}");
    let odd = with(
        tiny_config(),
        json!({"some_new_trick": 3, "num_key_value_heads": 2, "num_attention_heads": 3, "head_dim": 4}),
    );
    assert!(allowing(&odd, &["some_new_trick"]).unwrap_err().to_string().contains("does not divide"));
}

/// Frequencies that grow with a sequence do so beyond the context of the config alone.
#[test]
fn a_dynamic_scaling_is_none_within_the_context() {
    let config = with(tiny_config(), json!({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}));
    assert_eq!(read(&config).unwrap().rope, read(&tiny_config()).unwrap().rope);
}

#[test]
fn scalings_that_are_not_modelled_are_refused() {
    let scaling = |scaling: Value| with(tiny_config(), json!({"rope_scaling": scaling}));
    for name in ["mrope", "proportional"] {
        refused(&scaling(json!({"type": name, "factor": 2.0})), "rope_scaling.rope_type", "not modelled");
    }
    refused(&scaling(json!({"type": "linear"})), "rope_scaling.factor", "missing");
    refused(&scaling(json!({"type": "dynamic"})), "rope_scaling.factor", "missing");
    refused(&scaling(json!({"type": "linear", "factor": 0.0})), "rope_scaling.factor", "above 0");
    refused(
        &scaling(json!({"type": "linear", "factor": 2.0, "mrope_section": [1]})),
        "rope_scaling.mrope_section",
        "not one of",
    );
    refused(&scaling(json!({"type": "linear", "rope_type": "default"})), "rope_scaling.type", "contradicts");
    refused(&scaling(json!("linear")), "rope_scaling", "object");
    let both = json!({"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": {"rope_type": "default"}});
    refused(&with(tiny_config(), both), "rope_scaling", "contradicts");
    let thetas = json!({"rope_theta": 1e4, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}});
    refused(&with(tiny_config(), thetas), "rope_parameters.rope_theta", "contradicts");
}

#[test]
fn mistral_with_a_window_is_another_family() {
    let family = |config: &Value| {
        let config = read(config).unwrap();
        (config.family(), config.window)
    };
    assert_eq!(family(&mistral()), ("llama", None));
    assert_eq!(family(&with(mistral(), json!({"sliding_window": 8}))), ("mistral", Some(8)));
    // A window as long as the context cuts nothing off.
    assert_eq!(family(&with(mistral(), json!({"sliding_window": 16}))), ("llama", None));
    // MistralConfig has a window of 4096 where the config is silent.
    let mut silent = with(mistral(), json!({"max_position_embeddings": 32768}));
    silent.as_object_mut().unwrap().remove("sliding_window");
    assert_eq!(family(&silent), ("mistral", Some(4096)));
}

#[test]
fn unknown_architectures_are_refused_by_name_alone() {
    for name in ["gpt2", "gptj", "minicpm", "deepseek_v3", "qwen2_moe"] {
        let fields = json!({"model_type": name, "some": 1, "more": 2});
        refused(&with(tiny_config(), fields), "model_type", "supported are llama, mistral, phi3, ");
    }
    refused(&json!({}), "model_type", "missing");
}

#[test]
fn a_partial_rotation_is_refused_where_whole_heads_are_rotated() {
    for factor in [0.5, 2.0, -1.0] {
        let partial = json!({"partial_rotary_factor": factor});
        refused(&with(tiny_config(), partial.clone()), "partial_rotary_factor", "rotate whole heads");
        let inner = json!({"rope_parameters": partial});
        refused(&with(tiny_config(), inner), "rope_parameters.partial_rotary_factor", "rotate whole heads");
    }
    assert!(read(&with(tiny_config(), json!({"partial_rotary_factor": 1.0}))).is_ok());
}

#[test]
fn contradictions_are_refused() {
    refused(
        &with(tiny_config(), json!({"num_attention_heads": 4, "num_key_value_heads": 3})),
        "num_key_value_heads",
        "divide",
    );
    refused(&with(tiny_config(), json!({"head_dim": 3})), "head_dim", "even");
    refused(
        &with(tiny_config(), json!({"num_attention_heads": 3, "num_key_value_heads": 1})),
        "hidden_size",
        "multiple",
    );
    refused(&with(tiny_config(), json!({"rms_norm_eps": 0.0})), "rms_norm_eps", "positive");
    refused(&with(tiny_config(), json!({"rope_theta": 0.5})), "rope_theta", "above 1");
}

#[test]
fn absurd_values_are_refused() {
    for value in [json!(0), json!(-1), json!(1.5), json!("8"), json!(u64::MAX), json!(1e300), json!([8])] {
        refused(&with(tiny_config(), json!({"hidden_size": value})), "hidden_size", "whole number");
    }
    refused(&with(tiny_config(), json!({"hidden_size": null})), "hidden_size", "missing");
    for text in [&b"{"[..], b"[]", b"\xff", b""] {
        assert!(ModelConfig::from_json(Path::new("config.json"), text).is_err());
    }
    let deep = format!("{}{}", "{\"a\":".repeat(100_000), "1");
    assert!(ModelConfig::from_json(Path::new("config.json"), deep.as_bytes()).is_err());
}

#[test]
fn a_refusal_shows_only_values_of_the_file() {
    let refusals =
        |scaling: Value| read(&with(tiny_config(), json!({"rope_scaling": scaling}))).unwrap_err().to_string();
    let text = refusals(json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}));
    assert!(text.ends_with(": `rope_scaling.high_freq_factor`: is missing"), "{text}");
    let text = refusals(json!({"rope_type": "linear", "factor": "2"}));
    assert!(text.ends_with(": `rope_scaling.factor` is \"2\": expected a number"), "{text}");
}

#[test]
fn numbers_that_python_alone_writes_are_refused_where_they_are_read() {
    let read = |field: &str| {
        let text = tiny_config().to_string().replacen('{', &format!("{{\"{field}\": [0.0, Infinity, NaN], "), 1);
        ModelConfig::from_json(Path::new("config.json"), text.as_bytes())
    };
    assert_eq!(read("initializer_range").unwrap(), read("attention_dropout").unwrap());
    let error = read("head_dim").unwrap_err().to_string();
    assert!(error.contains("`head_dim` is [0.0,\"Infinity\",\"NaN\"]: expected a whole number"), "{error}");
    let broken = ModelConfig::from_json(Path::new("config.json"), b"{\"a\": NaN").unwrap_err().to_string();
    assert!(broken.contains("EOF while parsing an object at line 1"), "{broken}");
}

#[test]
fn every_refusal_is_reported() {
    let error = read(&with(tiny_config(), json!({"num_experts": 4, "mlp_bias": true}))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "config.json: `num_experts` is 4: mixtures of experts are not modelled; `mlp_bias` is true: \
         biases on the feed-forward network are not modelled"
    );
}

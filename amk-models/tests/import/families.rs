//! Published configs of each family, and what of a family's configs is refused.

use std::path::Path;

use amk_models::checkpoint::Checkpoint;
use amk_models::config::{ConfigError, ModelConfig, RopeScaling};
use serde_json::{Value, json};

use super::support::{TestTensor, golden, safetensors_file};

fn read(config: &Value) -> Result<ModelConfig, ConfigError> {
    ModelConfig::from_json(Path::new("config.json"), config.to_string().as_bytes())
}

/// The config of a golden checkpoint with some fields changed; null takes a field out.
fn changed(name: &str, fields: Value) -> Value {
    let text = std::fs::read(golden("families").join(name).join("config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&text).unwrap();
    for (field, value) in fields.as_object().unwrap() {
        config[field] = value.clone();
        if value.is_null() {
            config.as_object_mut().unwrap().remove(field);
        }
    }
    config
}

/// The golden config of `name` with these fields is refused for exactly `field`.
#[track_caller]
fn refused(name: &str, fields: Value, field: &str, reason: &str) {
    let error = read(&changed(name, fields)).expect_err(field);
    let [refusal] = error.refusals.as_slice() else { panic!("{error}") };
    assert_eq!(refusal.field, field, "{error}");
    assert!(refusal.reason.contains(reason), "{error}");
}

#[test]
fn phi_4_mini_is_a_llama_with_fused_projections_and_longrope() {
    let config = read(&changed("phi4_mini", json!({}))).unwrap();
    assert_eq!((config.import.family, config.head_dim, config.rope.rotary_dims), ("llama", 16, 12));
    let RopeScaling::LongRope { short, long, original_context, attention_factor } = &config.rope.scaling else {
        panic!("{:?}", config.rope)
    };
    assert_eq!((short.len(), long.len(), *original_context), (6, 6, 256.0));
    assert!((attention_factor - (1.0 + 4f64.ln() / 256f64.ln()).sqrt()).abs() < 1e-12);
    let pairs = |context| config.rope.frequencies(context).inv_freq[1];
    assert!(pairs(256) > pairs(257), "a longer context has the long factors");
}

#[test]
fn the_context_before_a_scaling_is_that_of_the_class() {
    let config = |model_type: &str, fields: Value| {
        let mut config = json!({
            "model_type": model_type, "vocab_size": 32, "hidden_size": 16, "intermediate_size": 24,
            "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "sliding_window": 8,
            "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "tie_word_embeddings": false,
        });
        config.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let RopeScaling::LongRope { original_context, .. } = read(&config).unwrap().rope.scaling else { panic!() };
        original_context
    };
    let factors = [1, 1, 1, 1];
    let scaling = |fields: Value| {
        let mut scaling = json!({"rope_type": "longrope", "short_factor": factors, "long_factor": factors});
        scaling.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({ "rope_scaling": scaling, "layer_types": ["full_attention"] })
    };
    let phi3 = |inner: Value| {
        let mut fields = scaling(inner);
        fields.as_object_mut().unwrap().remove("layer_types");
        fields
    };
    assert_eq!(config("phi3", phi3(json!({}))), 4096.0);
    assert_eq!(config("phi3", phi3(json!({"original_max_position_embeddings": 64}))), 4096.0);
    let with_outer = |inner: Value| {
        let mut fields = scaling(inner);
        fields["original_max_position_embeddings"] = 30.into();
        fields
    };
    assert_eq!(config("olmo3", with_outer(json!({}))), 8192.0, "its class does not read the outer field");
    assert_eq!(config("olmo3", with_outer(json!({"original_max_position_embeddings": 64}))), 64.0);
}

#[test]
fn a_mistral_with_kinds_of_layers_has_the_window_in_all_or_is_refused() {
    let config = |kinds: Value| {
        read(&json!({
            "model_type": "mistral", "vocab_size": 32, "hidden_size": 16, "intermediate_size": 24,
            "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "sliding_window": 8,
            "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": false,
            "layer_types": kinds,
        }))
    };
    assert_eq!(config(json!(["sliding_attention", "sliding_attention"])).unwrap().window, Some(8));
    let error = config(json!(["full_attention", "full_attention"])).unwrap_err();
    assert_eq!(error.refusals[0].field, "layer_types", "{error}");
}

#[test]
fn longrope_needs_a_factor_for_each_pair() {
    let scaling = |short: Value| json!({"rope_scaling": {"type": "longrope", "long_factor": [1, 1, 1, 1, 1, 1], "short_factor": short}});
    refused("phi4_mini", scaling(json!([1, 1])), "rope_scaling.long_factor", "each rotated pair");
    refused("phi4_mini", scaling(json!([1, 1, 1, 1, 1, 0])), "rope_scaling.long_factor", "positive");
    refused("phi4_mini", json!({"original_max_position_embeddings": 1}), "rope_scaling.long_factor", "be one");
    refused("gemma2", json!({"attn_logit_softcapping": 0.0}), "attn_logit_softcapping", "other than 0");
    refused("glm4", json!({"partial_rotary_factor": 1.5}), "partial_rotary_factor", "at most 1");
}

#[test]
fn fields_that_a_class_does_not_read_change_nothing() {
    for (name, field, value) in [
        ("gemma2", "sliding_window_size", json!(7)),
        ("gemma3", "max_sequence_length", json!(7)),
        ("gemma2", "hidden_act", json!("relu")),
        ("starcoder2", "layer_norm_epsilon", json!(0.5)),
        ("starcoder2", "attention_softmax_in_fp32", json!(true)),
        ("starcoder2", "scale_attention_softmax_in_fp32", json!(true)),
        ("starcoder2", "scale_attn_weights", json!(true)),
        ("starcoder2", "hidden_act", json!("gelu_fast")),
        ("gpt_neox", "classifier_dropout", json!(0.1)),
        ("gpt_neox", "attention_probs_dropout_prob", json!(0)),
        ("gpt_neox", "hidden_dropout_prob", json!(0)),
    ] {
        let with = |fields: Value| {
            let mut config = changed(name, json!({"hidden_activation": null}));
            config.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            read(&config).unwrap()
        };
        assert_eq!(with(json!({ field: value })), with(json!({})), "{name} {field}");
    }
}

#[test]
fn a_rotated_part_of_null_is_a_whole_head() {
    for name in ["glm4", "stablelm"] {
        let rope = |fields: Value| {
            let mut config = changed(name, json!({}));
            config.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            read(&config).unwrap().rope.rotary_dims
        };
        let head = read(&changed(name, json!({}))).unwrap().head_dim;
        assert_eq!(rope(json!({"partial_rotary_factor": null})), head, "{name}");
        assert!(rope(json!({"partial_rotary_factor": 0.5})) < head, "{name}");
    }
}

#[test]
fn a_head_of_null_is_the_quotient_and_an_absent_one_is_the_size_of_the_class() {
    for name in ["ernie4_5", "seed_oss"] {
        let absent = changed(name, json!({"head_dim": null}));
        assert_eq!(read(&absent).unwrap().head_dim, 128, "{name}");
        let mut null = absent;
        null["head_dim"] = Value::Null;
        let config = read(&null).unwrap();
        assert_eq!(config.head_dim, config.hidden_size / config.heads, "{name}");
    }
}

#[test]
fn rotary_settings_for_all_layers_are_refused_where_each_kind_has_its_own() {
    let flat =
        json!({"rope_theta": null, "rope_scaling": null, "rope_parameters": {"rope_type": "linear", "factor": 4.0}});
    for name in ["gemma3", "olmo3"] {
        refused(name, flat.clone(), "rope_parameters", "`full_attention` and `sliding_attention`");
        let full = json!({
            "rope_theta": null, "rope_scaling": null, "rope_parameters": {"full_attention": {"rope_theta": 900.0}},
        });
        let config = read(&changed(name, full)).unwrap();
        assert_eq!((config.rope.theta, config.rope.scaling.clone()), (900.0, RopeScaling::Default));
        assert_ne!(config.local().theta, 900.0);
    }
}

#[test]
fn granites_multipliers_are_numbers_of_the_page() {
    let config = read(&changed("granite", json!({}))).unwrap();
    let expected = [("embedding_scale", 6.0), ("logit_scale", 0.25), ("residual_scale", 0.5), ("score_scale", 0.125)];
    assert!(config.numbers.into_iter().eq(expected));
    refused("granite", json!({"logits_scaling": 0.0}), "logits_scaling", "finite");
    refused("granite", json!({"attention_bias": true}), "attention_bias", "biases");
    refused("granite", json!({"num_local_experts": 32}), "num_local_experts", "experts");
    // In other families they are refused as ever.
    refused("olmo2", json!({"residual_multiplier": 0.5}), "residual_multiplier", "multiplier");
}

#[test]
fn a_family_has_one_name_for_its_epsilon() {
    assert_eq!(read(&changed("stablelm", json!({"layer_norm_eps": 0.5}))).unwrap().norm_eps, 0.5);
    assert_eq!(read(&changed("olmo2", json!({"rms_norm_eps": null}))).unwrap().norm_eps, 1e-5);
    refused("olmo2", json!({"layer_norm_eps": 1e-5}), "layer_norm_eps", "LayerNorm");
    refused("stablelm", json!({"layer_norm_eps": 0.0}), "layer_norm_eps", "positive");
}

#[test]
fn stablelms_without_a_sequential_residual_are_refused() {
    assert!(read(&changed("stablelm", json!({}))).unwrap().flags["qkv_bias"]);
    assert!(!read(&changed("stablelm", json!({"use_qkv_bias": null}))).unwrap().flags["qkv_bias"]);
    refused("stablelm", json!({"use_parallel_residual": true}), "use_parallel_residual", "in parallel");
    refused("stablelm", json!({"qk_layernorm": true}), "qk_layernorm", "normalisation");
}

#[test]
fn phi_and_cohere_with_norms_of_queries_and_keys_are_refused() {
    let phi = read(&changed("phi", json!({"num_key_value_heads": null, "partial_rotary_factor": null}))).unwrap();
    assert_eq!((phi.kv_heads, phi.rope.rotary_dims), (4, 8));
    refused("phi", json!({"qk_layernorm": true}), "qk_layernorm", "normalisation");
    let cohere = read(&changed("cohere", json!({"logit_scale": null}))).unwrap();
    assert_eq!((cohere.numbers["logit_scale"], cohere.rope.theta), (0.0625, 500_000.0));
    assert!(cohere.tied_embeddings);
    refused("cohere", json!({"use_qk_norm": true}), "use_qk_norm", "normalisation");
}

#[test]
fn starcoder2_has_gelu_and_all_biases() {
    let config = read(&changed("starcoder2", json!({"tie_word_embeddings": null}))).unwrap();
    assert!(config.tied_embeddings);
    refused("starcoder2", json!({"use_bias": false}), "use_bias", "biases on all projections");
    assert_eq!(config.window, None, "it holds the context");
    assert_eq!(read(&changed("starcoder2", json!({"sliding_window": 128}))).unwrap().window, Some(128));
    refused("starcoder2", json!({"norm_type": "rms_norm"}), "norm_type", "LayerNorms");
    refused("starcoder2", json!({"mlp_type": "gated"}), "mlp_type", "feed-forward");
}

#[test]
fn glms_without_biases_are_refused() {
    for name in ["glm", "glm4"] {
        let config = read(&changed(name, json!({"partial_rotary_factor": null, "attention_bias": null}))).unwrap();
        assert_eq!(config.rope.rotary_dims, 8);
        refused(name, json!({"attention_bias": false}), "attention_bias", "with biases");
    }
}

#[test]
fn another_activation_than_the_pages_is_refused() {
    for (name, field, activation, modelled) in [
        ("glm4", "hidden_act", "gelu", "`glm4`; `silu` is"),
        ("starcoder2", "hidden_act", "silu", "`starcoder2`; `gelu_pytorch_tanh` is"),
        ("gemma3", "hidden_activation", "gelu", "`gemma3_text`; `gelu_pytorch_tanh` is"),
        ("gpt_neox", "hidden_act", "gelu_fast", "`gpt_neox`; `gelu` is"),
    ] {
        refused(name, json!({field: activation}), field, &format!("not modelled for {modelled}"));
        let error = read(&changed(name, json!({field: activation}))).unwrap_err().to_string();
        assert!(error.contains(&format!("`{field}` is \"{activation}\"")), "{error}");
    }
    assert!(read(&changed("starcoder2", json!({"hidden_act": "gelu_fast"}))).is_ok());
}

#[test]
fn layers_of_two_kinds_are_listed_or_follow_from_a_period() {
    let sliding = |name: &str, fields: Value| {
        let flags = read(&changed(name, fields)).unwrap().layer_flags;
        flags.into_values().next().unwrap().into_iter().map(u8::from).collect::<Vec<_>>()
    };
    assert_eq!(sliding("gemma2", json!({})), [1, 0, 1]);
    assert_eq!(sliding("gemma3", json!({})), [1, 1, 1, 1, 1, 0, 1]);
    assert_eq!(sliding("gemma3", json!({"sliding_window_pattern": 2})), [1, 0, 1, 0, 1, 0, 1]);
    assert_eq!(sliding("gemma3_rope_parameters", json!({})), [0, 1, 1]);
    // transformers reads the period in some classes alone, and never as it writes it itself.
    for period in ["sliding_window_pattern", "_sliding_window_pattern"] {
        assert_eq!(sliding("gemma2", json!({ period: 3 })), [1, 0, 1]);
        assert_eq!(sliding("olmo3", json!({"layer_types": null, period: 3})), [1, 1, 1, 0]);
    }
    for name in ["gemma3", "cohere2"] {
        let written = sliding(name, json!({"sliding_window_pattern": null, "_sliding_window_pattern": 2}));
        assert_eq!(written, sliding(name, json!({})), "{name}");
    }
    assert_eq!(sliding("smollm3", json!({})), [1, 1, 1, 0, 1]);
    assert_eq!(sliding("smollm3", json!({"no_rope_layers": null, "no_rope_layer_interval": 2})), [1, 0, 1, 0, 1]);
    let kinds = |kinds: Value| json!({ "layer_types": kinds });
    refused("olmo3", kinds(json!(["full_attention"])), "layer_types", "each of the 4 layers");
    let chunked = kinds(json!(["full_attention", "full_attention", "chunked_attention", "full_attention"]));
    refused("olmo3", chunked, "layer_types", "known kind");
    refused("smollm3", kinds(json!(["sliding_attention"])), "layer_types", "full attention");
    let old_name = json!({"rope_scaling": {"type": "linear", "factor": 2.0}});
    refused("olmo3", old_name, "rope_scaling.type", "`rope_type` alone");
    let yarn = |truncate: bool| json!({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "truncate": truncate}});
    assert!(read(&changed("olmo3", yarn(true))).is_ok());
    refused("olmo3", yarn(false), "rope_scaling.truncate", "all the same");
}

#[test]
fn exaone_4_rotates_only_layers_with_a_window_or_all_if_it_has_none() {
    let config = |fields: Value| read(&changed("exaone4", fields)).unwrap();
    assert_eq!(config(json!({})).window, Some(48));
    assert_eq!(config(json!({})).layer_flags["sliding"], [true, true, true, false, true]);
    assert_eq!(config(json!({"sliding_window": 4096})).window, Some(256), "it still says what is rotated");
    assert_eq!(read(&changed("exaone4_without_window", json!({}))).unwrap().window, None);
    let period = config(json!({"layer_types": null, "sliding_window_pattern": 2}));
    assert_eq!(period.layer_flags["sliding"], [true, false, true, false, true]);
    refused("exaone4", json!({"layer_types": null}), "sliding_window_pattern", "whole number");
    refused("exaone4", json!({"sliding_window": null}), "sliding_window", "missing");
}

#[test]
fn gpt_neox_has_its_own_names_of_fields_and_a_flag_of_its_residual() {
    let config = |name: &str, fields: Value| read(&changed(name, fields)).unwrap();
    let given = config("gpt_neox", json!({}));
    assert_eq!((given.rope.theta, given.rope.rotary_dims, given.head_dim, given.kv_heads), (1e4, 4, 16, 4));
    assert!(given.flags["parallel"]);
    assert!(config("gpt_neox", json!({"use_parallel_residual": null})).flags["parallel"]);
    assert!(!config("gpt_neox_sequential", json!({})).flags["parallel"]);
    assert_eq!(config("gpt_neox", json!({"rotary_pct": 0.5, "rotary_emb_base": 500})).rope.theta, 500.0);
    assert_eq!(config("gpt_neox_sequential", json!({"rotary_pct": null})).rope.rotary_dims, 4);
    let other_name = json!({"rotary_pct": null, "partial_rotary_factor": 0.5});
    assert_eq!(config("gpt_neox", other_name).rope.rotary_dims, 4, "it is not read by its usual name");
    assert_eq!(config("gpt_neox", json!({"rotary_pct": 0.5, "partial_rotary_factor": 0.25})).rope.rotary_dims, 8);
    let parameters = json!({"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5});
    let inside = json!({"rotary_pct": null, "rotary_emb_base": null, "rope_parameters": parameters});
    assert_eq!(config("gpt_neox", inside).rope.rotary_dims, 8);
    refused(
        "gpt_neox",
        json!({"num_key_value_heads": 2}),
        "num_key_value_heads",
        "as many key heads as query heads, 4",
    );
    refused("gpt_neox", json!({"attention_bias": false}), "attention_bias", "biases");
}

#[test]
fn layers_of_lfm2_attend_where_the_config_says() {
    let attends = |name: &str, fields: Value| read(&changed(name, fields)).unwrap().layer_flags["attends"].clone();
    assert_eq!(attends("lfm2", json!({})), [false, true, false, true]);
    assert_eq!(attends("lfm2_listed", json!({})), [true, false, false, true]);
    assert_eq!(attends("lfm2", json!({"full_attn_idxs": null})), [true; 4]);
    refused("lfm2", json!({"conv_bias": true}), "conv_bias", "biases of short convolutions");
    refused("lfm2_listed", json!({"layer_types": ["conv", "conv", "conv", "mamba"]}), "layer_types", "known kind");
    let width = |fields: Value| read(&changed("lfm2", fields)).unwrap().ffn_size;
    assert_eq!(width(json!({})), 48);
    assert_eq!(width(json!({"block_ffn_dim_multiplier": 1.1})), 64);
    assert_eq!(width(json!({"block_auto_adjust_ff_dim": false})), 72);
    refused("lfm2", json!({"block_ff_dim": 1}), "intermediate_size", "`block_auto_adjust_ff_dim` makes it 0");
}

#[test]
fn what_no_page_computes_is_refused_by_name() {
    refused("granite4", json!({"position_embedding_type": null}), "position_embedding_type", "without positions");
    refused("granite4", json!({"layer_types": null}), "layer_types", "all are where the field is absent");
    refused("granite4", json!({"num_local_experts": 8}), "num_local_experts", "experts");
    refused("seed_oss", json!({"attention_out_bias": true}), "attention_out_bias", "output projection");
    refused("ernie4_5", json!({"use_bias": true}), "use_bias", "biases");
    refused("helium", json!({"attention_bias": true}), "attention_bias", "biases");
    let mut inside = changed("gemma3_with_images", json!({}));
    inside["text_config"]["model_type"] = "gemma2".into();
    assert!(read(&inside).unwrap_err().to_string().contains("`text_config.model_type` is \"gemma2\""));
    refused("gemma3_with_images", json!({"sliding_window": 5}), "sliding_window", "not read beside the text");
    let without = read(&changed("gemma3_with_images", json!({"text_config": null}))).unwrap_err();
    assert!(without.to_string().contains("`text_config`: expected an object"), "{without}");
}

#[test]
fn what_is_off_in_gemma_is_refused_unless_the_page_has_it_off() {
    let config = read(&changed("gemma3", json!({}))).unwrap();
    assert_eq!((config.rope.theta, config.local().theta), (1e6, 1e4));
    assert_eq!(config.rope.scaling, RopeScaling::Linear { factor: 8.0 });
    assert_eq!(config.local().scaling, RopeScaling::Default);
    refused("gemma3", json!({"attn_logit_softcapping": 50.0}), "attn_logit_softcapping", "soft-capping");
    refused("gemma3", json!({"use_bidirectional_attention": true}), "use_bidirectional_attention", "later");
    let mut without = changed("gemma2", json!({}));
    without["final_logit_softcapping"] = Value::Null;
    let error = read(&without).unwrap_err();
    assert!(error.to_string().contains("`final_logit_softcapping`: is null"), "{error}");
    let mut scaled = changed("gemma3_rope_parameters", json!({}));
    scaled["rope_parameters"]["sliding_attention"]["rope_type"] = "linear".into();
    assert!(read(&scaled).unwrap_err().to_string().contains("not scaled"));
    // A window that holds the context is none.
    assert_eq!(read(&changed("gemma2", json!({"sliding_window": 256}))).unwrap().window, None);
    refused("gemma2", json!({"sliding_window": null}), "sliding_window", "missing");
}

/// A checkpoint of the golden config `name` with these tensors alone.
fn open(name: &str, tensors: &[(&str, TestTensor)]) -> Result<Checkpoint, String> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(golden("families").join(name).join("config.json"), folder.path().join("config.json")).unwrap();
    std::fs::write(folder.path().join("model.safetensors"), safetensors_file(tensors)).unwrap();
    Checkpoint::open(folder.path()).map_err(|error| error.to_string())
}

fn rows(rows: usize, columns: usize) -> TestTensor {
    let values = (0..rows).flat_map(|row| std::iter::repeat_n(row as f32, columns));
    ("F32", vec![rows, columns], values.flat_map(f32::to_le_bytes).collect())
}

#[test]
fn fused_projections_are_taken_apart_by_rows() {
    const QKV: &str = "model.layers.1.self_attn.qkv_proj.weight";
    let mut tensors = open("phi3", &[(QKV, rows(64 + 2 * 32, 64))]).unwrap().tensors;
    let mut first = |part: &str, rows: usize| {
        let name = QKV.replace("qkv_proj", part);
        let tensor = tensors.claim(&name, &[rows, 64]).unwrap().to_f32();
        (tensor[0], tensor[tensor.len() - 1])
    };
    assert_eq!(first("q_proj", 64), (0.0, 63.0));
    assert_eq!(first("k_proj", 32), (64.0, 95.0));
    assert_eq!(first("v_proj", 32), (96.0, 127.0));
    tensors.finish().unwrap();

    let error = open("phi3", &[(QKV, rows(96, 64))]).err().unwrap();
    assert!(error.contains("expected rows: 64 of self_attn.q_proj, 32 of self_attn.k_proj"), "{error}");
    let twice = [(QKV, rows(128, 64)), ("model.layers.1.self_attn.k_proj.weight", rows(32, 64))];
    assert!(open("phi3", &twice).err().unwrap().contains("model.layers.1.self_attn.k_proj.weight"));
}

#[test]
fn projections_that_lie_head_by_head_are_taken_apart() {
    const QKV: &str = "gpt_neox.layers.1.attention.query_key_value.weight";
    let mask = ("gpt_neox.layers.1.attention.bias", ("U8", vec![1, 1, 2, 2], vec![1; 4]));
    let mut tensors = open("gpt_neox", &[(QKV, rows(192, 64)), mask]).unwrap().tensors;
    for (part, start) in [("q_proj", 0.0), ("k_proj", 16.0), ("v_proj", 32.0)] {
        let tensor = tensors.claim(&format!("model.layers.1.self_attn.{part}.weight"), &[64, 64]).unwrap();
        assert_eq!(tensor.stored_len(), 64 * 64 * 4);
        let firsts: Vec<f32> = tensor.to_f32().chunks(64).map(|row| row[0]).collect();
        let expected = (0..64u8).map(|row| start + f32::from(row / 16 * 48 + row % 16));
        assert!(firsts.into_iter().eq(expected), "{part}");
    }
    tensors.finish().unwrap();
}

#[test]
fn rows_and_biases_that_are_rotated_by_neighbours_are_put_in_halves() {
    let bias = ("F32", vec![32], (0..32).flat_map(|n| (n as f32).to_le_bytes()).collect());
    let given = [
        ("model.layers.0.self_attn.k_proj.weight", rows(32, 64)),
        ("model.layers.0.self_attn.k_proj.bias", bias.clone()),
        ("model.layers.0.self_attn.v_proj.bias", bias),
    ];
    let mut tensors = open("glm4", &given).unwrap().tensors;
    // Half of a head of 16 is rotated.
    let halves = [0.0, 2.0, 4.0, 6.0, 1.0, 3.0, 5.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];
    let weight = tensors.claim("model.layers.0.self_attn.k_proj.weight", &[32, 64]).unwrap().to_f32();
    let firsts: Vec<f32> = weight.chunks(64).map(|row| row[0]).collect();
    assert_eq!(firsts[..16], halves);
    assert_eq!(firsts[16..], halves.map(|row| row + 16.0));
    let bias = tensors.claim("model.layers.0.self_attn.k_proj.bias", &[32]).unwrap().to_f32();
    assert_eq!(bias, firsts);
    let value = tensors.claim("model.layers.0.self_attn.v_proj.bias", &[32]).unwrap().to_f32();
    assert!(value.is_sorted());
}

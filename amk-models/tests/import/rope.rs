//! Rotary frequencies against transformers (`tests/golden/rope.json`).

use std::path::Path;

use amk_models::config::{ModelConfig, Rope};
use serde_json::{Value, json};

use super::support::{golden_json, tiny_config};

/// The rotary embedding of a golden case. The one with partly rotated heads is of a model that GGUF
/// files alone describe.
fn rope(parameters: &Value) -> Rope {
    let mut parameters = parameters.clone();
    let partial = parameters.as_object_mut().unwrap().remove("partial_rotary_factor");
    let text = config(&parameters).to_string();
    let mut rope = ModelConfig::from_json(Path::new("config.json"), text.as_bytes()).unwrap().rope;
    rope.rotary_dims = (rope.rotary_dims as f64 * partial.map_or(1.0, |factor| factor.as_f64().unwrap())) as usize;
    rope
}

/// A config with the heads and rotary fields of a golden case.
fn config(parameters: &Value) -> Value {
    let mut rotary = parameters.as_object().unwrap().clone();
    let mut config = tiny_config();
    config["head_dim"] = rotary.remove("head_dim").unwrap();
    config["max_position_embeddings"] = rotary.remove("context").unwrap();
    config["rope_parameters"] = rotary.into();
    config
}

#[test]
fn frequencies_are_those_of_transformers() {
    let golden = golden_json("rope.json");
    let cases = golden["cases"].as_object().unwrap();
    for (name, case) in cases {
        let found = rope(&case["parameters"]).frequencies(1);
        let expected = case["inv_freq"].as_array().unwrap();
        assert_eq!(found.inv_freq.len(), expected.len(), "{name}");
        for (pair, (found, expected)) in found.inv_freq.iter().zip(expected).enumerate() {
            let expected = expected.as_f64().unwrap() as f32;
            // Two units in the last place: torch's vectorised power is accurate to one.
            let off = (found - expected).abs() / (expected * f32::EPSILON);
            assert!(off <= 2.0, "{name}, pair {pair}: {found} instead of {expected}, {off} units off");
        }
        let expected = case["attention_scaling"].as_f64().unwrap() as f32;
        assert!((found.attention_factor - expected).abs() <= f32::EPSILON, "{name}: {}", found.attention_factor);
    }
    assert!(cases.len() >= 4, "only {} cases", cases.len());
}

#[test]
fn both_spellings_mean_the_same() {
    let scaling = json!({"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8});
    let with = |outer: &str, inner: &str| {
        let mut config = tiny_config();
        config[outer] = scaling.clone();
        config[outer][inner] = "llama3".into();
        config["rope_theta"] = 5e5.into();
        ModelConfig::from_json(Path::new("config.json"), config.to_string().as_bytes()).unwrap().rope
    };
    let rope = with("rope_scaling", "rope_type");
    assert_eq!(rope, with("rope_scaling", "type"));
    assert_eq!(rope, with("rope_parameters", "rope_type"));
}

/// transformers takes `dict.get("truncate", True)`, of which null is false.
#[test]
fn a_truncation_that_is_null_is_none() {
    let with = |truncate: Option<Value>| {
        let mut config = tiny_config();
        config["rope_scaling"] = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8});
        if let Some(truncate) = truncate {
            config["rope_scaling"]["truncate"] = truncate;
        }
        ModelConfig::from_json(Path::new("config.json"), config.to_string().as_bytes()).unwrap().rope
    };
    assert_eq!(with(Some(Value::Null)), with(Some(false.into())));
    assert_eq!(with(None), with(Some(true.into())));
    assert_ne!(with(None), with(Some(Value::Null)));
}

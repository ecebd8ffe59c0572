//! Configs as they are published, with fields that no class reads: `published.json` has them by the
//! model's name, with the family that computes it or the field that is refused.

use std::collections::BTreeMap;
use std::path::Path;

use amk_models::config::ModelConfig;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Published {
    family: Option<String>,
    refused: Option<String>,
    config: Value,
}

fn published() -> BTreeMap<String, Published> {
    serde_json::from_str(include_str!("published.json")).unwrap()
}

#[test]
fn published_configs_run_or_are_refused_for_what_is_not_modelled() {
    let mut wrong = Vec::new();
    for (name, published) in published() {
        let read = ModelConfig::from_json(Path::new("config.json"), published.config.to_string().as_bytes());
        let found = match &read {
            Ok(config) => config.family().to_owned(),
            Err(error) => error.refusals.iter().map(|refusal| refusal.field.clone()).collect::<Vec<_>>().join(", "),
        };
        let expected = published.family.or(published.refused).unwrap();
        if found != expected {
            wrong
                .push(format!("{name}: {found}, expected {expected}; {:?}", read.err().map(|error| error.to_string())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn sizes_that_published_configs_leave_out_are_those_of_the_class() {
    let config = |name: &str| {
        let text = published()[name].config.to_string();
        ModelConfig::from_json(Path::new("config.json"), text.as_bytes()).unwrap()
    };
    let gemma = config("google/gemma-3-4b-it");
    assert_eq!((gemma.vocab_size, gemma.heads, gemma.kv_heads, gemma.head_dim), (262_208, 8, 4, 256));
    assert_eq!((gemma.window, gemma.context_len, gemma.layers), (Some(1024), 131_072, 34));
    assert!(gemma.tied_embeddings);
    let granite = config("ibm-granite/granite-4.0-micro");
    assert_eq!((granite.ffn_size, granite.numbers["logit_scale"]), (8192, 0.1));
    let lfm = config("LiquidAI/LFM2-1.2B");
    assert_eq!((lfm.ffn_size, lfm.sizes["TAPS"], lfm.head_dim), (8192, 3, 64));
    let attends = (0..16).filter(|&layer| lfm.layer_flags["attends"][layer]);
    assert_eq!(attends.collect::<Vec<_>>(), [2, 5, 8, 10, 12, 14]);
}

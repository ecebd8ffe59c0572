//! Whole checkpoints: folders, shards, tied weights, and the accounting of tensors.

use std::path::Path;

use amk::encoding;
use amk_models::chain::Chain;
use amk_models::checkpoint::{Checkpoint, CheckpointError};
use amk_models::head::LM_HEAD;
use amk_models::model::{Model, Output, WeightFormat, WeightUse};
use amk_models::weights::TensorError;
use serde_json::json;

use super::support::{GgufBuilder, TestTensor, golden, golden_json, layout, safetensors_file, tiny_config, written};

/// A folder with the tiny llama, after `change` had its way with its tensors.
fn folder(change: impl FnOnce(&mut Vec<(String, TestTensor)>)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let text = tiny_config().to_string();
    std::fs::write(folder.path().join("config.json"), &text).unwrap();
    let config = amk_models::config::ModelConfig::from_json(Path::new("config.json"), text.as_bytes()).unwrap();
    let mut tensors: Vec<_> = layout(&config).into_iter().map(|(name, shape)| (name, zeros(shape))).collect();
    change(&mut tensors);
    let tensors: Vec<_> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
    std::fs::write(folder.path().join("model.safetensors"), safetensors_file(&tensors)).unwrap();
    folder
}

fn zeros(shape: Vec<usize>) -> TestTensor {
    let bytes = vec![0; 4 * shape.iter().product::<usize>()];
    ("F32", shape, bytes)
}

/// Claims the layout and finishes, as a model does.
fn claim_all(checkpoint: Checkpoint) -> Result<(), TensorError> {
    let mut tensors = checkpoint.tensors;
    for (name, shape) in layout(&checkpoint.config) {
        tensors.claim(&name, &shape)?;
    }
    if checkpoint.config.tied_embeddings {
        tensors.claim_duplicate("lm_head.weight", "model.embed_tokens.weight")?;
    }
    tensors.finish()
}

fn open_and_claim(folder: &tempfile::TempDir) -> Result<(), TensorError> {
    claim_all(Checkpoint::open(folder.path()).unwrap())
}

#[test]
fn every_golden_checkpoint_has_just_its_tensors() {
    let mut count = 0;
    for entry in std::fs::read_dir(golden("tiny")).unwrap() {
        let path = entry.unwrap().path();
        let checkpoint = Checkpoint::open(&path).unwrap();
        assert!(checkpoint.tokenizer().is_ok() && !checkpoint.generation.eos.is_empty(), "{}", path.display());
        // A model claims its tensors, and refuses others.
        let Checkpoint { config, tensors, .. } = checkpoint;
        Model::load(&config, tensors, 8, WeightFormat::Native, &mut |_| {}).map(drop).unwrap();
        count += 1;
    }
    assert!(count >= 6, "only {count} checkpoints");
}

#[test]
fn shards_are_one_set() {
    let checkpoint = Checkpoint::open(&golden("tiny/llama")).unwrap();
    assert!(golden("tiny/llama/model-00003-of-00003.safetensors").exists());
    assert_eq!(checkpoint.tensors.iter().count(), layout(&checkpoint.config).len());
    let map = golden_json("tiny/llama/model.safetensors.index.json");
    assert_eq!(checkpoint.tensors.stored_bytes(), map["metadata"]["total_size"].as_u64().unwrap());
}

#[test]
fn stored_types_decode_to_the_same_values() {
    let values = [1.0_f32, -2.5, 0.0, 0.15625];
    let f16: Vec<u8> = values.iter().flat_map(|&value| half::f16::from_f32(value).to_le_bytes()).collect();
    let bf16: Vec<u8> = values.iter().flat_map(|&value| half::bf16::from_f32(value).to_le_bytes()).collect();
    let f32: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let f64: Vec<u8> = values.iter().flat_map(|&value| f64::from(value).to_le_bytes()).collect();
    for (dtype, bytes, encoding) in [
        ("F32", f32, &encoding::F32),
        ("F64", f64, &encoding::F32),
        ("F16", f16, &encoding::F16),
        ("BF16", bf16, &encoding::BF16),
    ] {
        let folder = folder(|tensors| tensors.push(("extra".to_owned(), (dtype, vec![2, 2], bytes))));
        let mut tensors = Checkpoint::open(folder.path()).unwrap().tensors;
        let extra = tensors.claim("extra", &[2, 2]).unwrap();
        assert_eq!((extra.encoding(), extra.to_f32().as_slice()), (encoding, &values[..]));
        let (narrow, deviation) = extra.to_encoding(&encoding::BF16, encoding::BF16.encode.unwrap()).unwrap();
        let expected: Vec<u8> = values.iter().flat_map(|&value| half::bf16::from_f32(value).to_le_bytes()).collect();
        assert_eq!((narrow, deviation.relative()), (expected, 0.0));
        let mut row = [0.0; 2];
        extra.decode_rows(1..2, &mut row);
        assert_eq!(row, values[2..]);
    }
}

#[test]
fn a_missing_tensor_is_refused() {
    let folder = folder(|tensors| tensors.retain(|(name, _)| name != "model.norm.weight"));
    let error = open_and_claim(&folder).unwrap_err();
    assert_eq!(error, TensorError::Missing { name: "model.norm.weight".to_owned(), written: None });
}

#[test]
fn a_decoder_alone_has_names_without_a_prefix() {
    let folder = folder(|tensors| {
        for (name, _) in tensors.iter_mut() {
            *name = name.trim_start_matches("model.").to_owned();
        }
    });
    open_and_claim(&folder).unwrap();
    let mut config = tiny_config();
    config["architectures"] = ["LlamaModel"].into();
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    open_and_claim(&folder).unwrap();
}

/// As transformers saves `MistralModel` and others: without the head and the beginning of names.
#[test]
fn states_need_no_head() {
    for (family, decoder, head) in [
        ("mistral", "model.", "lm_head."),
        ("lfm2_listed", "model.", "lm_head."),
        ("phi", "model.", "lm_head."),
        ("gpt_neox", "gpt_neox.", "embed_out."),
    ] {
        let whole = golden("families").join(family);
        let bytes = std::fs::read(whole.join("model.safetensors")).unwrap();
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let kept = tensors.iter().filter(|(name, _)| !name.starts_with(head));
        let bare = kept.map(|(name, view)| (name.strip_prefix(decoder).unwrap(), view));
        let folder = tempfile::tempdir().unwrap();
        let mut config = golden_json(&format!("families/{family}/config.json"));
        config["tie_word_embeddings"] = false.into();
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        safetensors::serialize_to_file(bare, None, &folder.path().join("model.safetensors")).unwrap();
        let Checkpoint { config, tensors, .. } = Checkpoint::open(folder.path()).unwrap();
        let error = Model::check(&config, tensors.clone(), Output::Logits).err().unwrap();
        assert!(Chain(&error).to_string().contains("tensor `lm_head.weight` is missing"), "{family}: {error}");
        let states = WeightUse { output: Output::States, ..WeightUse::default() };
        let model = Model::load(&config, tensors, 8, states, &mut |_| {}).unwrap();
        let Checkpoint { config, tensors, .. } = Checkpoint::open(&whole).unwrap();
        let whole = Model::load(&config, tensors, 8, WeightFormat::Native, &mut |_| {}).unwrap();
        for (name, weight) in whole.bindings.weights() {
            let is_of_head = name == LM_HEAD || name == "w.head_bias";
            assert!(is_of_head || model.bindings.weights()[name].to_f32() == weight.to_f32(), "{family}: {name}");
        }
    }
}

#[test]
fn a_tensor_that_a_decoder_alone_lacks_is_named_as_it_was_looked_for() {
    let folder = folder(|tensors| {
        tensors.retain(|(name, _)| name != "model.norm.weight");
        for (name, _) in tensors.iter_mut() {
            *name = name.trim_start_matches("model.").to_owned();
        }
    });
    let error = open_and_claim(&folder).unwrap_err().to_string();
    let expected = "tensor `model.norm.weight` is missing: the checkpoint is one of a decoder alone and has no \
                    `norm.weight`";
    assert_eq!(error, expected);
}

#[test]
fn names_below_another_prefix_stay_as_they_are() {
    let folder = folder(|tensors| {
        for (name, _) in tensors.iter_mut() {
            *name = name.replacen("model.", "gpt_neox.", 1);
        }
    });
    let tensors = Checkpoint::open(folder.path()).unwrap().tensors;
    assert!(tensors.iter().all(|tensor| !tensor.name().starts_with("model.")));
    assert!(tensors.contains("gpt_neox.norm.weight"));
    let error = open_and_claim(&folder).unwrap_err().to_string();
    assert_eq!(error, "tensor `model.embed_tokens.weight` is missing");
}

#[test]
fn an_unused_tensor_is_refused() {
    let folder = folder(|tensors| {
        for name in ["model.layers.0.self_attn.q_proj.bias", "model.layers.0.self_attn.q_norm.weight"] {
            tensors.push((name.to_owned(), zeros(vec![8])));
        }
    });
    let error = open_and_claim(&folder).unwrap_err().to_string();
    let expected = "2 tensors the model does not use: `model.layers.0.self_attn.q_norm.weight`, \
                    `model.layers.0.self_attn.q_proj.bias`";
    assert_eq!(error, expected);
}

#[test]
fn a_misshaped_tensor_is_refused() {
    let folder = folder(|tensors| tensors[0].1 = zeros(vec![8, 6]));
    let error = open_and_claim(&folder).unwrap_err().to_string();
    assert_eq!(error, "tensor `model.embed_tokens.weight` has shape [8, 6], the config says [6, 8]");
}

#[test]
fn a_tensor_of_integers_is_refused() {
    let folder = folder(|tensors| tensors[0].1.0 = "I32");
    let error = open_and_claim(&folder).unwrap_err().to_string();
    assert_eq!(error, "tensor `model.embed_tokens.weight` is stored as I32, which cannot be read as a weight");
}

#[test]
fn stored_rotary_frequencies_are_ignored() {
    let name = "model.layers.0.self_attn.rotary_emb.inv_freq";
    let folder = folder(|tensors| tensors.push((name.to_owned(), zeros(vec![2]))));
    open_and_claim(&folder).unwrap();
    // A file of another form need not have a place for them.
    assert!(!Checkpoint::open(folder.path()).unwrap().tensors.contains(name));
}

#[test]
fn a_repeated_tied_output_must_be_equal() {
    let head = |value: u8| {
        folder(|tensors| {
            let mut repeated = tensors[0].1.clone();
            repeated.2[3] = value;
            tensors.push(("lm_head.weight".to_owned(), repeated));
        })
    };
    open_and_claim(&head(0)).unwrap();
    assert!(matches!(open_and_claim(&head(1)), Err(TensorError::NotADuplicate { .. })));
}

#[test]
fn a_repeated_tied_output_may_be_stored_in_another_type() {
    let head = |last: f32| {
        folder(|tensors| {
            let (_, shape, bytes) = tensors[0].1.clone();
            let elements = bytes.len() / 4;
            let halves: Vec<u8> = (0..elements).flat_map(|i| (i as u16 * 0x80).to_le_bytes()).collect();
            // A bf16 is the upper half of an f32.
            let mut floats: Vec<f32> = (0..elements).map(|i| f32::from_bits((i as u32 * 0x80) << 16)).collect();
            floats[elements - 1] += last;
            let floats = floats.into_iter().flat_map(f32::to_le_bytes).collect();
            tensors[0].1 = ("BF16", shape.clone(), halves);
            tensors.push(("lm_head.weight".to_owned(), ("F32", shape, floats)));
        })
    };
    open_and_claim(&head(0.0)).unwrap();
    assert!(matches!(open_and_claim(&head(1.0)), Err(TensorError::NotADuplicate { .. })));
}

#[test]
fn an_index_cannot_lead_out_of_the_folder() {
    let folder = folder(|_| ());
    let model = folder.path().join("model.safetensors");
    std::fs::rename(&model, folder.path().join("shard.safetensors")).unwrap();
    let open = |file: &str, name: &str| {
        let index = json!({"weight_map": {name: file}}).to_string();
        std::fs::write(folder.path().join("model.safetensors.index.json"), index).unwrap();
        Checkpoint::open(folder.path()).unwrap_err().to_string()
    };
    for file in ["../shard.safetensors", "/etc/passwd", "..", "", "a/b"] {
        assert!(open(file, "x").contains("is not a file name"), "{file}");
    }
    assert!(open("shard.safetensors", "x").contains("tensor `x` is not in shard.safetensors"));
    assert!(open("shard.safetensors", "model.norm.weight").contains("is not in the index"));
    assert!(open("gone.safetensors", "x").contains("gone.safetensors"));
}

#[test]
fn what_is_no_checkpoint_is_named() {
    let empty = tempfile::tempdir().unwrap();
    let message = |path: &Path| match Checkpoint::open(path) {
        Err(error @ CheckpointError::NotACheckpoint { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(message(empty.path()).ends_with("has neither a config.json nor a .gguf file"));
    assert!(message(&empty.path().join("gone")).contains("does not exist; give a folder with config.json"));
    std::fs::write(empty.path().join("a.gguf"), b"").unwrap();
    std::fs::write(empty.path().join("b.gguf"), b"").unwrap();
    assert!(message(empty.path()).ends_with("has 2 .gguf files (a.gguf, b.gguf); name one of them"));
    std::fs::write(empty.path().join("config.json"), tiny_config().to_string()).unwrap();
    assert!(message(empty.path()).ends_with("has 2 .gguf files (a.gguf, b.gguf); name one of them"));
    std::fs::remove_file(empty.path().join("a.gguf")).unwrap();
    std::fs::remove_file(empty.path().join("b.gguf")).unwrap();
    assert!(message(empty.path()).contains("has no model.safetensors, model.safetensors.index.json or .gguf file"));
}

#[test]
fn a_gguf_file_serves_a_folder_without_safetensors() {
    let folder = folder(|_| ());
    std::fs::write(folder.path().join("m.gguf"), GgufBuilder::tiny_llama().build()).unwrap();
    assert_eq!(Checkpoint::open(folder.path()).unwrap().path, folder.path());
    std::fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    assert_eq!(Checkpoint::open(folder.path()).unwrap().path, folder.path().join("m.gguf"));
}

#[test]
fn a_gguf_file_is_known_by_how_it_starts() {
    let (_folder, path) = written("sha256-0123", &GgufBuilder::tiny_llama().build());
    assert_eq!(Checkpoint::open(&path).unwrap().path, path);
    let (_folder, path) = written("notes", b"GGU");
    let refused = Checkpoint::open(&path).err().unwrap().to_string();
    assert!(refused.ends_with("is neither a folder nor a GGUF file"), "{refused}");
}

#[test]
fn generation_defaults_are_read_and_checked() {
    let folder = folder(|_| ());
    let path = folder.path().join("generation_config.json");
    let defaults = json!({"eos_token_id": [4, 5], "temperature": 0.6, "top_k": 20, "top_p": 0.95, "do_sample": true});
    std::fs::write(&path, defaults.to_string()).unwrap();
    let generation = Checkpoint::open(folder.path()).unwrap().generation;
    assert_eq!((generation.eos, generation.top_k, generation.do_sample), (vec![4, 5], Some(20), Some(true)));
    assert_eq!((generation.temperature, generation.top_p), (Some(0.6), Some(0.95)));
    assert_eq!(generation.left, [""; 0]);
    let others =
        json!({"suppress_tokens": [3], "min_length": 0, "num_beams": 4, "bad_words_ids": [], "typical_p": 1.0});
    std::fs::write(&path, others.to_string()).unwrap();
    assert_eq!(Checkpoint::open(folder.path()).unwrap().generation.left, ["num_beams", "suppress_tokens"]);
    for (field, wrong) in [
        ("do_sample", json!("yes")),
        ("temperature", json!("hot")),
        ("temperature", json!(1e39)),
        ("top_k", json!(-2)),
        ("top_p", json!(-1)),
        ("min_p", json!(2)),
        ("repetition_penalty", json!(1e-50)),
        ("eos_token_id", json!("</s>")),
    ] {
        std::fs::write(&path, json!({ field: wrong }).to_string()).unwrap();
        let error = Checkpoint::open(folder.path()).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, CheckpointError::Json { .. }) && text.contains(&format!("`{field}` is ")), "{text}");
    }
}

#[test]
fn generation_defaults_at_the_ends_of_their_ranges_mean_what_they_do_in_transformers() {
    let folder = folder(|_| ());
    let read = |field: &str, value: f64| {
        std::fs::write(folder.path().join("generation_config.json"), json!({ field: value }).to_string()).unwrap();
        Checkpoint::open(folder.path()).unwrap().generation
    };
    assert_eq!(read("top_p", 0.0).top_p, Some(f32::MIN_POSITIVE), "only the likeliest");
    assert_eq!(read("top_p", 1.5).top_p, Some(1.0), "all");
    assert_eq!((read("top_k", 0.0).top_k, read("top_k", -1.0).top_k), (Some(0), Some(0)), "all");
    assert_eq!(read("min_p", 1.0).min_p, Some(1.0));
}

#[test]
fn a_text_file_of_absurd_size_is_not_read() {
    let folder = folder(|_| ());
    // Sparse: it takes no room.
    let file = std::fs::File::create(folder.path().join("tokenizer.json")).unwrap();
    file.set_len(1 << 40).unwrap();
    let error = Checkpoint::open(folder.path()).unwrap_err();
    let error = Chain(&error).to_string();
    assert!(error.contains("tokenizer.json: file too large"), "{error}");
}

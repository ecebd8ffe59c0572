//! Files that are written are read again with the same bits.

use super::support::{encoding, folder, folder_of, gguf, load, open, quantized, quantized_with, random_tensors};
use amk::ir::DType;
use amk_kernels::encoding::GroupFormat;
use amk_models::checkpoint::Checkpoint;
use amk_models::config::{Rope, RopeScaling};
use amk_models::weights::FileForm;
use amk_quantize::{Method, Output, Quantized, Rest, convert_rest};
use safetensors::{Dtype, SafeTensors};
use serde_json::json;
use std::path::Path;

fn output<'a>(source: &'a Checkpoint, form: FileForm, path: &Path) -> Output<'a> {
    Output::new(source, form, path).unwrap_or_else(|error| panic!("{error}"))
}

/// Compares the matrices of a written checkpoint with the quantised ones, as the model has them.
fn assert_same(written: &Path, source: &Checkpoint, quantized: &Quantized) {
    let (found, before) = (load(written), load(&source.path));
    let expected = quantized.bind(&before);
    assert!(!quantized.weights.is_empty());
    for (buffer, expected) in expected.weights() {
        let found = &found.bindings.weights()[buffer];
        let bytes = |weight: &amk::Weight| {
            (0..weight.rows()).flat_map(|row| weight.row_bytes(row).to_vec()).collect::<Vec<_>>()
        };
        assert_eq!((found.encoding(), bytes(found)), (expected.encoding(), bytes(expected)), "{buffer}");
    }
}

#[test]
fn a_gguf_file_has_the_quantised_bits() {
    let (folder, file) = gguf();
    let source = open(&file);
    for (name, ends) in [("Q4_0", None), ("Q5_1", Some("Q8_0")), ("Q8_0", Some("bf16"))] {
        let mut quantized = quantized(&source, &[name], Method::Search);
        let rest = Rest { form: FileForm::Gguf, ends: ends.map(encoding) };
        convert_rest(&source.tensors, rest, &mut quantized).unwrap();
        let path = folder.path().join(format!("{name}.gguf"));
        output(&source, FileForm::Gguf, &path).write(&quantized, &mut |_| {}).unwrap();
        assert_same(&path, &source, &quantized);
        let head = open(&path).tensors.iter().find(|tensor| tensor.name() == "lm_head.weight").unwrap().encoding();
        assert_eq!(head.name, ends.unwrap_or("f32"));
    }
}

#[test]
fn a_folder_becomes_a_gguf_file() {
    let folder = folder();
    let source = open(folder.path());
    let mut quantized = quantized(&source, &["Q8_0"], Method::Rtn);
    convert_rest(&source.tensors, Rest { form: FileForm::Gguf, ends: None }, &mut quantized).unwrap();
    let path = folder.path().join("new.gguf");
    output(&source, FileForm::Gguf, &path).write(&quantized, &mut |_| {}).unwrap();
    assert_same(&path, &source, &quantized);
    assert_eq!(open(&path).config.hidden_size, 64);
}

#[test]
fn factors_of_a_convolution_stay_floats() {
    let config = json!({
        "architectures": ["Lfm2ForCausalLM"], "model_type": "lfm2", "hidden_size": 64, "num_hidden_layers": 2,
        "intermediate_size": 96, "block_auto_adjust_ff_dim": false, "num_attention_heads": 2,
        "num_key_value_heads": 1, "vocab_size": 96, "max_position_embeddings": 64, "full_attn_idxs": [1],
    });
    let of_each: [(&str, &[usize]); 5] = [
        ("operator_norm", &[64]),
        ("ffn_norm", &[64]),
        ("feed_forward.w1", &[96, 64]),
        ("feed_forward.w2", &[64, 96]),
        ("feed_forward.w3", &[96, 64]),
    ];
    let of_one: [(&str, &[usize]); 9] = [
        ("0.conv.conv", &[64, 1, 3]),
        ("0.conv.in_proj", &[192, 64]),
        ("0.conv.out_proj", &[64, 64]),
        ("1.self_attn.q_proj", &[64, 64]),
        ("1.self_attn.k_proj", &[32, 64]),
        ("1.self_attn.v_proj", &[32, 64]),
        ("1.self_attn.out_proj", &[64, 64]),
        ("1.self_attn.q_layernorm", &[32]),
        ("1.self_attn.k_layernorm", &[32]),
    ];
    let mut shapes: Vec<(String, &[usize])> =
        [0, 1].into_iter().flat_map(|layer| of_each.map(|(name, shape)| (format!("{layer}.{name}"), shape))).collect();
    shapes.extend(of_one.map(|(name, shape)| (name.to_owned(), shape)));
    let mut shapes: Vec<_> =
        shapes.into_iter().map(|(name, shape)| (format!("model.layers.{name}.weight"), shape)).collect();
    shapes.push(("model.embed_tokens.weight".to_owned(), &[96, 64]));
    shapes.push(("model.embedding_norm.weight".to_owned(), &[64]));
    let folder = folder_of(&config, &random_tensors(&shapes));
    let source = open(folder.path());
    let mut quantized = quantized(&source, &["Q8_0"], Method::Rtn);
    // The embeddings have another encoding than the factors.
    let rest = Rest { form: FileForm::Gguf, ends: Some(encoding("Q8_0")) };
    convert_rest(&source.tensors, rest, &mut quantized).unwrap();
    let path = folder.path().join("new.gguf");
    output(&source, FileForm::Gguf, &path).write(&quantized, &mut |_| {}).unwrap();
    assert_same(&path, &source, &quantized);
    let encoding = |name: &str| load(&path).bindings.weights()[name].encoding().name;
    assert_eq!(["taps", "out"].map(|part| encoding(&format!("w.layers[0].conv.{part}"))), ["f32", "Q8_0"]);
}

#[test]
fn the_text_model_in_a_larger_one_is_written_as_a_model_of_its_own() {
    let config = json!({
        "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "torch_dtype": "float32",
        "image_token_index": 95, "mm_tokens_per_image": 4, "eos_token_id": [1, 106],
        "text_config": {
            "model_type": "gemma3_text", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1,
            "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 96,
            "max_position_embeddings": 64, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        },
        "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 8},
    });
    let of_layer: [(&str, &[usize]); 13] = [
        ("input_layernorm", &[64]),
        ("post_attention_layernorm", &[64]),
        ("pre_feedforward_layernorm", &[64]),
        ("post_feedforward_layernorm", &[64]),
        ("self_attn.q_norm", &[32]),
        ("self_attn.k_norm", &[32]),
        ("self_attn.q_proj", &[64, 64]),
        ("self_attn.k_proj", &[32, 64]),
        ("self_attn.v_proj", &[32, 64]),
        ("self_attn.o_proj", &[64, 64]),
        ("mlp.gate_proj", &[96, 64]),
        ("mlp.up_proj", &[96, 64]),
        ("mlp.down_proj", &[64, 96]),
    ];
    let named = |(name, shape)| (format!("language_model.model.layers.0.{name}.weight"), shape);
    let mut shapes: Vec<(String, &[usize])> = of_layer.map(named).to_vec();
    shapes.push(("language_model.model.embed_tokens.weight".to_owned(), &[96, 64]));
    shapes.push(("language_model.model.norm.weight".to_owned(), &[64]));
    shapes.push(("vision_tower.vision_model.post_layernorm.weight".to_owned(), &[8]));
    let folder = folder_of(&config, &random_tensors(&shapes));
    let source = open(folder.path());
    let quantized = quantized_with(&source, &["int8:32"], Method::Rtn, DType::F32);
    let path = folder.path().join("quantized");
    output(&source, FileForm::Folder, &path).write(&quantized, &mut |_| {}).unwrap();
    assert_same(&path, &source, &quantized);
    let text = std::fs::read(path.join("config.json")).unwrap();
    let written: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(written["architectures"], json!(["Gemma3ForCausalLM"]));
    assert_eq!(written["model_type"], "gemma3_text");
    // A window as long as the context is one all the same.
    assert_eq!((&written["sliding_window"], &written["vision_config"]), (&json!(64), &json!(null)));
    assert_eq!(written["rope_scaling"], json!({"rope_type": "linear", "factor": 8.0}));
    assert_eq!((&written["eos_token_id"], &written["tie_word_embeddings"]), (&json!([1, 106]), &json!(true)));
}

#[test]
fn scaled_rotary_frequencies_are_in_a_gguf_file() {
    let llama3 = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32});
    let yarn = json!({"rope_type": "yarn", "factor": 2.0, "beta_fast": 16,
        "original_max_position_embeddings": 32});
    for scaling in [llama3, yarn] {
        let folder = folder();
        let path = folder.path().join("config.json");
        let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        config["rope_scaling"] = scaling;
        std::fs::write(&path, config.to_string()).unwrap();
        let source = open(folder.path());
        let mut quantized = quantized(&source, &["Q8_0"], Method::Rtn);
        convert_rest(&source.tensors, Rest { form: FileForm::Gguf, ends: None }, &mut quantized).unwrap();
        let path = folder.path().join("new.gguf");
        output(&source, FileForm::Gguf, &path).write(&quantized, &mut |_| {}).unwrap();
        let (expected, found) = (&source.config.rope, &open(&path).config.rope);
        let [expected, found, plain] =
            [expected.clone(), found.clone(), plain(expected)].map(|rope| rope.frequencies(64));
        assert_ne!(expected.inv_freq, plain.inv_freq);
        assert_eq!(expected.attention_factor, found.attention_factor);
        for (expected, found) in expected.inv_freq.iter().zip(found.inv_freq) {
            assert!((found / expected - 1.0).abs() < 2e-7, "{found}, not {expected}");
        }
    }
}

fn plain(rope: &Rope) -> Rope {
    Rope { scaling: RopeScaling::Default, ..rope.clone() }
}

#[test]
fn a_folder_has_packed_codes_and_scales() {
    let folder = folder();
    let source = open(folder.path());
    let quantized = quantized_with(&source, &["int4:128", "int8:32"], Method::Search, DType::F32);
    let path = folder.path().join("quantized");
    output(&source, FileForm::Folder, &path).write(&quantized, &mut |_| {}).unwrap();
    let bytes = std::fs::read(path.join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let name = "model.layers.1.mlp.down_proj.weight";
    let (packed, scales) =
        (file.tensor(&format!("{name}_packed")).unwrap(), file.tensor(&format!("{name}_scale")).unwrap());
    assert_eq!((packed.dtype(), packed.shape()), (Dtype::I32, &[64, 16][..]));
    assert_eq!((scales.dtype(), scales.shape()), (Dtype::F32, &[64, 1][..]));
    let sizes = file.tensor(&format!("{name}_shape")).unwrap();
    assert_eq!((sizes.dtype(), sizes.data()), (Dtype::I64, &[64u64.to_le_bytes(), 128u64.to_le_bytes()].concat()[..]));
    let expected = quantized.weights[name].to_f32();
    let words = packed.data().as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
    let codes = words.flat_map(|word| (0..8).map(move |at| ((word >> (4 * at)) & 15) as f32 - 8.0));
    let scale = |row: usize| f32::from_le_bytes(scales.data()[4 * row..][..4].try_into().unwrap());
    for (at, code) in codes.enumerate() {
        assert_eq!(code * scale(at / 128), expected[at], "element {at}");
    }
    assert_eq!(file.tensor("lm_head.weight").unwrap().dtype(), Dtype::F32);
    assert_same(&path, &source, &quantized);
    assert!(path.join("generation_config.json").exists());
    assert!(path.join("additional_chat_templates/tool_use.jinja").exists());
}

#[test]
fn a_folder_is_not_described_in_two_ways() {
    let folder = folder();
    let write = |source: &Checkpoint, name: &str| {
        let path = folder.path().join(name);
        let quantized = quantized(source, &["int8:32"], Method::Rtn);
        output(source, FileForm::Folder, &path).write(&quantized, &mut |_| {}).unwrap();
        path
    };
    let first = write(&open(folder.path()), "first");
    // As older folders have it.
    let config = first.join("config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("quantization_config", "compression_config")).unwrap();
    open(&write(&open(&first), "second"));
}

#[test]
fn a_folder_made_of_a_gguf_file_has_its_rows_in_order() {
    let (folder, file) = gguf();
    let source = open(&file);
    let quantized = quantized_with(&source, &["int8:64"], Method::Rtn, DType::BF16);
    let path = folder.path().join("quantized");
    output(&source, FileForm::Folder, &path).write(&quantized, &mut |_| {}).unwrap();
    let bytes = std::fs::read(path.join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    // The rows of queries lie otherwise in a GGUF file of this architecture.
    let name = "model.layers.0.self_attn.q_proj.weight";
    let format = GroupFormat::of(encoding("int8:64:bf16")).unwrap();
    let (weight, packed) = (&quantized.weights[name], file.tensor(&format!("{name}_packed")).unwrap());
    for row in 0..64 {
        let mut codes = [0; 64];
        format.split(weight.row_bytes(row), &mut codes);
        assert_eq!(packed.data()[64 * row..][..64], codes, "row {row}");
    }
    assert_same(&path, &source, &quantized);
    let config = std::fs::read_to_string(path.join("config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    // That of the embeddings: readers convert all floats to it.
    assert_eq!((&config["model_type"], &config["dtype"]), (&"llama".into(), &"float32".into()));
    assert_eq!(config["quantization_config"]["config_groups"]["group_0"]["weights"]["num_bits"], 8);
}

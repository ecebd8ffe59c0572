//! An error's line: what failed and why, each once.

use super::amk::{fails, tiny_llama};
use tempfile::TempDir;

fn error(model: &TempDir) -> String {
    fails("generate", model, &["a", "-q"])
}

#[test]
fn a_missing_tensor_is_told_once() {
    let model = tiny_llama();
    let config = model.path().join("config.json");
    let more = std::fs::read_to_string(&config).unwrap().replace("hidden_layers\": 2", "hidden_layers\": 3");
    std::fs::write(config, more).unwrap();
    let error = error(&model);
    assert!(error.contains("` cannot be filled: tensor `model.layers.2."), "{error}");
    assert_eq!(error.matches(" is missing").count(), 1, "{error}");
}

#[test]
fn a_damaged_header_is_told_once() {
    let model = tiny_llama();
    std::fs::write(model.path().join("model-00001-of-00003.safetensors"), b"\x01\0\0\0\0\0\0\0{").unwrap();
    let error = error(&model);
    assert_eq!(error.matches("EOF while parsing").count(), 1, "{error}");
}

#[test]
fn a_file_that_cannot_be_read_is_told_with_the_reason() {
    let model = tiny_llama();
    let tokenizer = model.path().join("tokenizer.json");
    std::fs::remove_file(&tokenizer).unwrap();
    std::fs::create_dir(&tokenizer).unwrap();
    let reason = std::fs::read(&tokenizer).unwrap_err();
    assert_eq!(error(&model), format!("cannot read {}: {reason}", tokenizer.display()));
}

#[test]
fn another_activation_is_told_by_its_name_and_the_model() {
    let model = tiny_llama();
    let config = model.path().join("config.json");
    let other = std::fs::read_to_string(&config).unwrap().replace("\"silu\"", "\"gelu\"");
    std::fs::write(&config, other).unwrap();
    let path = config.display();
    let expected = format!("{path}: `hidden_act` is \"gelu\": this activation is not modelled for `llama`; `silu` is");
    assert_eq!(error(&model), expected);
}

//! `perplexity`: files, windows and what is refused.

use super::amk::{fails, run_with, succeeds, tiny_llama};
use serde_json::Value;
use std::path::PathBuf;
use tempfile::TempDir;

fn text(folder: &TempDir) -> PathBuf {
    let path = folder.path().join("text.txt");
    std::fs::write(&path, "the cat sat on the mat and the dog sat on the cat ".repeat(4)).unwrap();
    path
}

fn measured(model: &TempDir, arguments: &[&str]) -> Value {
    let path = text(model);
    let output = succeeds("perplexity", model, &[&[path.to_str().unwrap(), "--json"], arguments].concat());
    serde_json::from_str(&output).unwrap()
}

#[test]
fn every_token_but_the_first_counts_once() {
    let model = tiny_llama();
    let whole = measured(&model, &[]);
    let count = |found: &Value| found["tokens"].as_u64().unwrap();
    assert!(count(&whole) > 100 && whole["perplexity"].as_f64().unwrap() > 1.0, "{whole}");
    let cut = measured(&model, &["-c", "40", "--stride", "7"]);
    assert_eq!(count(&cut), count(&whole));
    assert_ne!(cut["perplexity"], whole["perplexity"]);
    let short = measured(&model, &["-n", "50"]);
    assert_eq!(count(&short), 49);
    // f32 in the file: the default has the same bits, fewer bits have other ones.
    assert_eq!(measured(&model, &["--weights", "f32"])["loss"], whole["loss"]);
    assert_ne!(measured(&model, &["--weights", "q4_0"])["loss"], whole["loss"]);
}

#[test]
fn matrices_that_no_block_fits_are_counted() {
    let model = tiny_llama();
    let path = text(&model);
    let told = |options: &[&str]| {
        let arguments = [&[path.to_str().unwrap(), "--weights", "Q4_K"], options].concat();
        String::from_utf8(run_with("", "perplexity", &model, &arguments).stderr).unwrap()
    };
    let left = told(&[]);
    assert!(left.contains(" matrices stay as in the file: their rows are not whole blocks of 256 (Q4_K)"), "{left}");
    let rounded = told(&["--activations", "q8"]);
    assert!(rounded.contains(" matrices were not converted, as their rows are not whole blocks"), "{rounded}");
}

#[test]
fn a_text_from_standard_input_is_the_same() {
    let model = tiny_llama();
    let input = std::fs::read_to_string(text(&model)).unwrap();
    let output = run_with(&input, "perplexity", &model, &["-", "-q"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let expected = measured(&model, &[])["perplexity"].as_f64().unwrap();
    let line = String::from_utf8(output.stdout).unwrap();
    assert!(line.starts_with(&format!("perplexity {expected:.4} ± ")), "{line}");
    assert!(output.stderr.is_empty());
}

#[test]
fn one_token_that_counts_has_no_error() {
    let model = tiny_llama();
    let path = text(&model);
    let line = succeeds("perplexity", &model, &[path.to_str().unwrap(), "-n", "2"]);
    assert!(line.starts_with("perplexity ") && !line.contains('±'), "{line}");
    assert_eq!(measured(&model, &["-n", "2"])["error"], Value::Null);
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let model = tiny_llama();
    let path = text(&model);
    let path = path.to_str().unwrap();
    let error = fails("perplexity", &model, &[path, "-c", "16", "--stride", "16"]);
    assert_eq!(error, "a stride of 16 in a context of 16 tokens; it has to be less");
    std::fs::write(path, "").unwrap();
    let error = fails("perplexity", &model, &[path]);
    assert!(error.ends_with("a text of fewer than 2 tokens has none to expect"), "{error}");
    let error = fails("perplexity", &model, &["no-such-text"]);
    assert!(error.starts_with("cannot read the text no-such-text"), "{error}");
}

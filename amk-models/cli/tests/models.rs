//! `amk models`: what runs, and what is refused before a weight is read.

use super::amk::tiny_llama;
use std::path::Path;
use std::process::{Command, Output};

fn models(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_amk")).arg("models").args(arguments).output().unwrap()
}

fn out(arguments: &[&str]) -> String {
    let output = models(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(path: &Path) -> String {
    let output = models(&["--check", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

#[cfg(unix)]
#[test]
fn what_is_neither_file_nor_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(refused(&pipe).ends_with("pipe: is neither a folder nor a GGUF file\n"));
}

#[test]
fn families_are_listed_with_what_is_modelled_of_their_configs() {
    let text = out(&[]);
    assert!(
        text.contains("granite: Granite 3 and 4, dense\n  `granite`, GGUF `granite`: embedding_multiplier, "),
        "{text}"
    );
    assert!(text.contains("  `glm`, no GGUF: partial_rotary_factor, attention_bias = true\n"), "{text}");
    let refused = out(&["--refused"]);
    assert!(refused.contains("alibi") && refused.contains("attention biases by distance"), "{refused}");
}

#[test]
fn a_checkpoint_that_would_run_is_named_by_its_family() {
    let families = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/families");
    for (name, family) in [("phi4_mini", "llama"), ("phi3_window", "mistral"), ("gemma3", "gemma3"), ("lfm2", "lfm2")] {
        for path in [families.join(name), families.join(name).join(format!("{name}.gguf"))] {
            let text = out(&["--check", path.to_str().unwrap()]);
            assert!(text.contains(&format!("runs as `{family}`, but has no tokenizer")), "{text}");
        }
    }
    let llama = tiny_llama();
    assert!(out(&["--check", llama.path().to_str().unwrap()]).ends_with("runs as `llama`\n"));
}

#[test]
fn a_quantised_folder_is_checked_and_its_activations_are_noted() {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/quantized");
    for (name, noted) in [("gptq", false), ("fp8_blocks", true)] {
        let text = out(&["--check", folders.join(name).to_str().unwrap()]);
        assert!(text.contains("runs as `"), "{text}");
        assert_eq!(text.contains("made for quantised activations"), noted, "{text}");
    }
}

#[test]
fn fields_are_allowed_in_checks_alone() {
    let output = models(&["--allow-unknown", "odd"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--check"), "{output:?}");
}

#[test]
fn a_checkpoint_that_would_not_run_is_refused_with_the_reason() {
    let folder = tiny_llama();
    let config = folder.path().join("config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replacen('{', "{\"odd\": 1, \"new\": 2, ", 1)).unwrap();
    let error = refused(folder.path());
    assert!(error.contains("--allow-unknown odd") && error.contains("--allow-unknown new"), "{error}");
    let allowed = ["--allow-unknown", "odd", "--allow-unknown", "new"];
    assert!(out(&[&["--check", folder.path().to_str().unwrap()], &allowed[..]].concat()).contains("runs as `llama`"));
    std::fs::write(&config, text.replace("\"mlp_bias\": false", "\"mlp_bias\": true")).unwrap();
    assert!(refused(folder.path()).contains("biases on the feed-forward network are not modelled"));
    std::fs::write(&config, text.replace("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3")).unwrap();
    let error = refused(folder.path());
    let named = error.starts_with(&format!("error: {}: ", folder.path().display()));
    assert!(named && error.contains("model.layers.2."), "a layer is missing: {error}");
    std::fs::write(&config, text.replace("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1")).unwrap();
    assert!(refused(folder.path()).contains("the model does not use"), "a layer is left over");
}

//! `quantize`: what it writes and says, and what is refused.

use super::amk::tiny_llama;
use amk_models::checkpoint::Checkpoint;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// The tiny llama with a feed-forward network of 64, so that all rows are whole groups of 32.
fn wide_llama() -> TempDir {
    let folder = tiny_llama();
    let source = Checkpoint::open(folder.path()).unwrap();
    let (mut header, mut data) = (Map::new(), Vec::new());
    for tensor in source.tensors.iter() {
        let (rows, columns) = (tensor.rows(), tensor.row_len());
        let wide = |extent: usize| if extent == 48 { 64 } else { extent };
        let elements = tensor.to_f32();
        let begin = data.len();
        for row in 0..if tensor.shape().len() > 1 { wide(rows) } else { 1 } {
            let row = &elements[row % rows * columns..][..columns];
            data.extend(row.iter().cycle().take(wide(columns)).flat_map(|x| x.to_le_bytes()));
        }
        let shape: Vec<usize> = tensor.shape().iter().map(|&extent| wide(extent)).collect();
        let about = json!({"dtype": "F32", "shape": shape, "data_offsets": [begin, data.len()]});
        header.insert(tensor.name().to_owned(), about);
    }
    let header = Value::Object(header).to_string();
    let file = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().contains("safetensors") {
            std::fs::remove_file(path).unwrap();
        }
    }
    std::fs::write(folder.path().join("model.safetensors"), file).unwrap();
    let config = folder.path().join("config.json");
    let text =
        std::fs::read_to_string(&config).unwrap().replace("\"intermediate_size\": 48", "\"intermediate_size\": 64");
    std::fs::write(config, text).unwrap();
    std::fs::write(folder.path().join("text.txt"), "the cat sat on the mat and the dog sat on the cat ".repeat(8))
        .unwrap();
    folder
}

fn run(model: &Path, arguments: &[&str], output: &Path) -> Output {
    let mut amk = Command::new(env!("CARGO_BIN_EXE_amk"));
    amk.arg("quantize").arg(model).args(arguments).arg("-o").arg(output).output().unwrap()
}

fn succeeds(model: &TempDir, arguments: &[&str]) -> (String, PathBuf) {
    let folder = model.path().join("quantised");
    let output = run(model.path(), arguments, &folder);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    (String::from_utf8(output.stdout).unwrap(), folder)
}

fn fails(model: &TempDir, arguments: &[&str], output: &Path) -> String {
    let output = run(model.path(), arguments, output);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    text.lines().find_map(|line| line.strip_prefix("error: ")).unwrap_or_default().to_owned()
}

#[test]
fn a_text_calibrates_and_measures() {
    let model = wide_llama();
    let text = model.path().join("text.txt");
    let (out, folder) = succeeds(&model, &["--to", "int4:32", "--calibrate", text.to_str().unwrap(), "-q"]);
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("size ") && lines[0].contains(" MiB, before "), "{out}");
    assert!(lines[1].starts_with("perplexity ") && lines[1].contains(" of it, over "), "{out}");
    let config = std::fs::read_to_string(folder.join("config.json")).unwrap();
    let config: Value = serde_json::from_str(&config).unwrap();
    let weights = &config["quantization_config"]["config_groups"]["group_0"]["weights"];
    assert_eq!((&weights["num_bits"], &weights["group_size"]), (&json!(4), &json!(32)));
    // The tokenizer is the source's.
    let tokenizer = |folder: &Path| std::fs::read(folder.join("tokenizer.json")).unwrap();
    assert_eq!(tokenizer(&folder), tokenizer(model.path()));
}

#[test]
fn without_a_text_nothing_is_measured() {
    let (out, _) = succeeds(&wide_llama(), &["--to", "int8:64", "-q"]);
    assert!(out.ends_with("perplexity not measured: that takes a text, --evaluate FILE\n"), "{out}");
}

#[test]
fn every_encoding_in_the_help_has_a_method_of_its_own() {
    let amk = Command::new(env!("CARGO_BIN_EXE_amk")).args(["quantize", "--help"]).output().unwrap();
    let help = String::from_utf8(amk.stdout).unwrap();
    let model = wide_llama();
    for name in ["IQ4_NL", "MXFP4", "Q4_0"] {
        assert!(help.contains(name), "{help}");
        let output = run(model.path(), &["--to", name, "-q"], &model.path().join(name));
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
    // Its rows are too short for these: that is all.
    for name in ["Q4_K", "Q5_K", "Q6_K"] {
        let error = fails(&model, &["--to", name], &model.path().join(name));
        assert!(help.contains(name) && error.contains("are not whole blocks of 256"), "{error}");
    }
}

#[test]
fn the_size_before_is_that_of_the_weights() {
    let model = wide_llama();
    std::fs::write(model.path().join("other.bin"), vec![0; 8 << 20]).unwrap();
    let (out, folder) = succeeds(&model, &["--to", "int8:64", "-q"]);
    let mib = |file: PathBuf| std::fs::metadata(file).unwrap().len() as f64 / f64::from(1 << 20);
    let [before, after] = [model.path(), &folder].map(|path| mib(path.join("model.safetensors")));
    assert!(out.starts_with(&format!("size {after:.1} MiB, before {before:.1} MiB\n")), "{out}");
}

#[test]
fn places_that_take_no_result_are_refused() {
    let model = wide_llama();
    let place = model.path().join("no/such/q");
    let folder = place.parent().unwrap().display();
    let expected = format!("cannot write {}: there is no folder {folder}", place.display());
    assert_eq!(fails(&model, &["--to", "int4:32"], &place), expected);
    let error = fails(&model, &["--to", "Q4_0"], Path::new("-"));
    assert_eq!(error, "a checkpoint is not written to standard output; give a path: -o PATH");
    let error = fails(&model, &["--to", "int4:32"], &model.path().join("q.gguf"));
    assert!(error.starts_with("int4:32 is written into a folder, not ") && error.contains("q.gguf"), "{error}");
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_leaves_nothing() {
    let model = wide_llama();
    // Copies of them take long enough to be interrupted.
    for number in 0..3000 {
        std::fs::write(model.path().join(format!("{number}.txt")), "other").unwrap();
    }
    let place = tempfile::tempdir().unwrap();
    let names = || std::fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    // Whoever runs the tests in the background may ignore the signal, which processes inherit.
    let mut amk = Command::new("env");
    amk.args(["--default-signal=INT", env!("CARGO_BIN_EXE_amk"), "quantize", "--to", "int4:32", "-q", "-o"]);
    let mut run = amk.arg(place.path().join("q")).arg(model.path()).spawn().unwrap();
    while names().is_empty() && run.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let kill = Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap();
    let code = run.wait().unwrap().code();
    // A machine that has written all of it by then has nothing to remove.
    match code {
        Some(0) => println!("skipped: all was written before the signal came, {kill}"),
        _ => assert_eq!((code, names().len()), (Some(130), 0), "{:?}", names()),
    }
}

#[test]
fn what_cannot_be_quantised_is_refused() {
    let (model, wide) = (tiny_llama(), wide_llama());
    let new = model.path().join("new");
    let error = fails(&model, &["--to", "int4:32"], &new);
    assert_eq!(
        error,
        "rows of 48 elements of `model.layers.0.mlp.down_proj.weight` are not whole blocks of 32 (int4:32)"
    );
    let error = fails(&model, &["--to", "int3:32"], &new);
    assert!(error.starts_with("`int3:32` does not quantise; these do: ") && error.contains("int4:32"), "{error}");
    let error = fails(&wide, &["--to", "int4:32", "--method", "gptq"], &new);
    assert_eq!(error, "`gptq` needs a text to calibrate on: --calibrate FILE");
    let error = fails(&wide, &["--to", "int4:32"], wide.path());
    assert!(error.ends_with("exists already; name another place or remove it"), "{error}");
    let config = wide.path().join("config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1")).unwrap();
    let error = fails(&wide, &["--to", "Q4_0"], &new);
    assert!(error.contains("9 tensors the model does not use: `model.layers.1."), "{error}");
    let text = text.replace("LlamaForCausalLM", "MistralForCausalLM");
    std::fs::write(config, text.replace("\"model_type\": \"llama\"", "\"model_type\": \"mistral\"")).unwrap();
    let error = fails(&wide, &["--to", "Q4_0"], &new);
    assert_eq!(error, "this model cannot be written as a GGUF file: GGUF files of `mistral` are not known");
    assert!(!new.exists());
}

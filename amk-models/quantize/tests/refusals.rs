//! What is refused, and how.

use super::support::{encoding, folder, folder_with, gguf, open, quantized, tasks, tensors};
use amk_models::checkpoint::Checkpoint;
use amk_models::weights::FileForm;
use amk_quantize::{Method, Output, Recipe, Rest, quantize};
use std::path::Path;

fn recipe(names: &[&str], method: Method) -> String {
    Recipe::new(names, method).expect_err("refused").to_string()
}

#[test]
fn targets_are_named() {
    let unknown = recipe(&["int5:64"], Method::Rtn);
    assert!(unknown.starts_with("`int5:64` does not quantise; these do: "), "{unknown}");
    for name in ["int4:128", "int8:32", "Q4_0", "Q4_K"] {
        assert!(unknown.contains(name), "{unknown}");
    }
    assert!(!unknown.contains("bf16") && !unknown.contains("zero"), "{unknown}");
    assert_eq!(recipe(&["int4:64", "Q4_0"], Method::Rtn), "`int4:64` and `Q4_0` are not encodings of one kind of file");
    for name in ["Q4_K", "Q5_K", "Q6_K"] {
        let why = "have a scale for each of several groups, which `gptq` does not choose; take `--method rtn`";
        assert_eq!(recipe(&[name], Method::Gptq), format!("blocks of {name} {why}"));
    }
    for name in ["IQ4_NL", "MXFP4"] {
        let why = "are not whole multiples of their block's scale, which `search` does not choose; take `--method rtn`";
        assert_eq!(recipe(&[name], Method::Search), format!("elements of {name} {why}"));
    }
    let error = quantize(Vec::new(), Method::Gptq, &mut |_, _| {}).expect_err("refused").to_string();
    assert_eq!(error, "`gptq` needs a text to calibrate on");
}

#[test]
fn a_method_that_is_not_named_is_the_best_that_an_encoding_takes() {
    let method = |names: &[&str]| Recipe::new(names, None).unwrap().method();
    for name in ["Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4"] {
        assert_eq!(method(&[name]), Method::Rtn, "{name}");
    }
    assert_eq!([method(&["int4:64"]), method(&["Q4_0"]), method(&["Q4_K", "Q4_0"])], [Method::Search; 3]);
}

#[test]
fn an_element_that_is_not_finite_is_named_with_its_tensor() {
    const NAME: &str = "model.layers.1.mlp.up_proj.weight";
    let mut tensors = tensors();
    tensors.iter_mut().find(|(name, ..)| name == NAME).unwrap().2[70] = f32::INFINITY;
    let folder = folder_with(&tensors);
    let source = open(folder.path());
    for (name, method) in [("int4:64", Method::Search), ("Q4_0", Method::Rtn)] {
        let recipe = Recipe::new(&[name], method).unwrap();
        let error = quantize(tasks(&source, &recipe), method, &mut |_, _| {}).unwrap_err().to_string();
        assert_eq!(error, format!("`{NAME}`: block 70 of f32 has an element that is not finite"), "{name}");
    }
}

#[test]
fn rows_that_are_not_whole_groups_are_named() {
    let folder = folder();
    let source = open(folder.path());
    let tensor = source.tensors.iter().find(|tensor| tensor.name().ends_with("0.mlp.gate_proj.weight")).unwrap();
    let error =
        |names: &[&str]| Recipe::new(names, Method::Rtn).unwrap().encoding(tensor).expect_err("refused").to_string();
    let rows = "rows of 64 elements of `model.layers.0.mlp.gate_proj.weight` are not whole blocks of";
    assert_eq!(error(&["int4:128"]), format!("{rows} 128 (int4:128); int4:64 fits, alone or as a second choice"));
    assert_eq!(error(&["Q4_K"]), format!("{rows} 256 (Q4_K); Q4_0 fits, alone or as a second choice"));
    // A second choice is taken where the first does not fit.
    let both = Recipe::new(&["int4:128", "int4:64"], Method::Rtn).unwrap();
    let of_kind =
        |kind: &str| tasks(&source, &both).into_iter().find(|task| task.tensor.name().contains(kind)).unwrap();
    assert_eq!(
        (of_kind("gate_proj").encoding, of_kind("down_proj").encoding),
        (encoding("int4:64"), encoding("int4:128"))
    );
}

fn output(source: &Checkpoint, form: FileForm, path: &Path) -> String {
    Output::new(source, form, path).err().expect("refused").to_string()
}

#[test]
fn a_result_replaces_nothing() {
    let (folder, file) = gguf();
    let source = open(&file);
    for (form, path) in [(FileForm::Folder, folder.path()), (FileForm::Gguf, &file)] {
        let expected = format!("{} exists already; name another place or remove it", path.display());
        assert_eq!(output(&source, form, path), expected);
    }
    // Also what came to be there meanwhile.
    let path = folder.path().join("new");
    let prepared = Output::new(&source, FileForm::Gguf, &path).unwrap_or_else(|error| panic!("{error}"));
    std::fs::write(&path, "theirs").unwrap();
    let quantized = quantized(&source, &["Q4_0"], Method::Rtn);
    assert!(prepared.write(&quantized, &mut |_| {}).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"theirs");
}

#[test]
fn another_form_is_recommended_only_where_there_is_one() {
    let error = |name: &str, form| {
        let folder = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/families").join(name);
        output(&open(&source), form, &folder.path().join("new"))
    };
    let folder = "this model cannot be written as a folder: folders of";
    let names = "have other names of tensors, which are only read";
    assert_eq!(error("lfm2", FileForm::Folder), format!("{folder} `lfm2` {names}; write a GGUF file"));
    assert_eq!(error("granite4", FileForm::Folder), format!("{folder} `granitemoehybrid` {names}"));
    let file = "this model cannot be written as a GGUF file: GGUF files of";
    assert_eq!(error("granite4", FileForm::Gguf), format!("{file} `granitemoehybrid` are not known"));
    assert_eq!(error("helium", FileForm::Gguf), format!("{file} `helium` are not known"));
    let error = error("gemma3_with_images", FileForm::Gguf);
    assert!(error.ends_with("its norms are stored less 1 in this folder, and not in a file"), "{error}");
}

#[test]
fn a_rotary_embedding_that_llama_cpp_would_not_read_is_refused() {
    let folder = folder();
    let path = folder.path().join("config.json");
    let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    config["rope_scaling"] = serde_json::json!({"rope_type": "yarn", "factor": 2.0, "attention_factor": 1.25,
        "original_max_position_embeddings": 32});
    std::fs::write(&path, config.to_string()).unwrap();
    let error = output(&open(folder.path()), FileForm::Gguf, &folder.path().join("new"));
    let cause = "a GGUF file cannot say the attention factor 1.25 of its `rope_scaling`";
    assert!(error.contains(cause) && error.ends_with("; write a folder"), "{error}");
}

#[test]
fn embeddings_have_a_form_that_the_file_has() {
    let folder = folder();
    let source = open(folder.path());
    let head = source.tensors.iter().find(|tensor| tensor.name() == "lm_head.weight").unwrap();
    let rest = |form, name| Rest { form, ends: Some(encoding(name)) }.encoding(head).map_err(|error| error.to_string());
    assert_eq!(rest(FileForm::Gguf, "Q8_0"), Ok(encoding("Q8_0")));
    assert_eq!(rest(FileForm::Folder, "Q8_0"), Err("a folder cannot hold `lm_head.weight` as Q8_0".to_owned()));
    assert_eq!(rest(FileForm::Gguf, "int4:64"), Err("a GGUF file cannot hold `lm_head.weight` as int4:64".to_owned()));
    let error = rest(FileForm::Gguf, "Q4_K").unwrap_err();
    assert!(error.starts_with("rows of 64 elements of `lm_head.weight` are not whole blocks of 256"), "{error}");
}

//! `embed`: texts to vectors.

use super::amk::{fails, run_with, succeeds, tiny_llama};
use serde_json::Value;
use tempfile::TempDir;

fn vectors(output: &str) -> Vec<Vec<f64>> {
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let vector: Vec<f64> = line["embedding"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
        assert!((vector.iter().map(|x| x * x).sum::<f64>() - 1.0).abs() < 1e-5, "{vector:?}");
        vector
    };
    output.lines().map(line).collect()
}

#[test]
fn each_text_has_a_vector_of_its_own_and_of_length_one() {
    let model = tiny_llama();
    let of = |arguments: &[&str]| vectors(&succeeds("embed", &model, arguments));
    let both = of(&["the cat", "a dog"]);
    assert_eq!(both, [of(&["the cat"]), of(&["a dog"])].concat());
    assert_ne!(both[0], both[1]);
    assert_ne!(of(&["--pooling", "last", "the cat"]), both[..1]);
    let from_input = run_with("the cat\na dog\n", "embed", &model, &["-f", "-"]);
    assert_eq!(vectors(&String::from_utf8(from_input.stdout).unwrap()), both);
}

#[test]
fn a_text_longer_than_the_context_is_refused_with_its_number() {
    let refused = fails("embed", &tiny_llama(), &["-c", "8", "a", "the cat sat on the mat"]);
    assert!(refused.starts_with("text 2: the text has ") && refused.contains("the context has 8"), "{refused}");
}

/// Takes the output head out of a checkpoint.
fn take_head(model: &TempDir) {
    let list = model.path().join("model.safetensors.index.json");
    let mut index: Value = serde_json::from_slice(&std::fs::read(&list).unwrap()).unwrap();
    let shard = index["weight_map"].as_object_mut().unwrap().remove("lm_head.weight").unwrap();
    std::fs::write(list, index.to_string()).unwrap();
    let path = model.path().join(shard.as_str().unwrap());
    let file = std::fs::read(&path).unwrap();
    let (len, rest) = file.split_first_chunk::<8>().unwrap();
    let (header, data) = rest.split_at(u64::from_le_bytes(*len) as usize);
    let mut tensors: serde_json::Map<String, Value> = serde_json::from_slice(header).unwrap();
    let offsets = |tensor: &Value| [0, 1].map(|at| tensor["data_offsets"][at].as_u64().unwrap());
    let [begin, end] = offsets(&tensors.remove("lm_head.weight").unwrap());
    for tensor in tensors.iter_mut().filter(|(name, _)| *name != "__metadata__").map(|(_, tensor)| tensor) {
        let shift = |at: u64| if at >= end { at - (end - begin) } else { at };
        tensor["data_offsets"] = offsets(tensor).map(shift).to_vec().into();
    }
    let header = Value::from(tensors).to_string();
    let len = (header.len() as u64).to_le_bytes();
    let data = [&data[..begin as usize], &data[end as usize..]].concat();
    std::fs::write(path, [&len, header.as_bytes(), &data].concat()).unwrap();
}

#[test]
fn a_checkpoint_without_a_head_embeds_and_says_so_where_tokens_are_asked_for() {
    let model = tiny_llama();
    let before = vectors(&succeeds("embed", &model, &["the cat"]));
    take_head(&model);
    assert_eq!(vectors(&succeeds("embed", &model, &["the cat"])), before);
    let refused = fails("generate", &model, &["the cat"]);
    assert!(refused.contains("lm_head.weight"), "{refused}");
    assert!(refused.ends_with("; it has no output head: only `amk embed` runs it"), "{refused}");
}

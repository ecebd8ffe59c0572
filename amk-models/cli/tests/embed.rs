//! `embed`: texts to vectors.

use super::amk::{fails, run_with, succeeds, tiny_llama};
use serde_json::Value;

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

//! `generate`: what the options and the model's defaults do to the text.

use crate::amk::{fails, run_with, succeeds, tiny_llama, write_json};
use serde_json::json;

const PROMPT: &str = "the cat";

/// The text of some tokens after [`PROMPT`].
fn text(model: &tempfile::TempDir, arguments: &[&str]) -> String {
    succeeds("generate", model, &[&[PROMPT, "-q", "-n", "24", "--ignore-eos"], arguments].concat())
}

#[test]
fn every_greedy_way_has_the_repetition_penalty() {
    let model = tiny_llama();
    let plain = text(&model, &["--greedy"]);
    write_json(&model, "generation_config.json", &json!({"do_sample": false, "repetition_penalty": 3.0}));
    let penalised = text(&model, &["--temperature", "0"]);
    assert_ne!(penalised, plain);
    assert_eq!(text(&model, &["--greedy"]), penalised);
    assert_eq!(text(&model, &[]), penalised);
    assert_eq!(text(&model, &["--greedy", "--repetition-penalty", "1"]), plain);
}

#[test]
fn a_rate_stands_only_beside_what_was_timed() {
    let model = tiny_llama();
    let summary = |arguments: &[&str]| {
        let output = run_with("", "generate", &model, arguments);
        String::from_utf8(output.stderr).unwrap()
    };
    // An empty text is one token, that of the beginning.
    let one = summary(&["", "--greedy", "-n", "3"]);
    assert!(one.starts_with("[1 prompt tokens; 3 new tokens, "), "{one}");
    let none = summary(&[PROMPT, "--greedy", "-n", "0"]);
    assert!(none.contains(" tokens/s; 0 new tokens; MaxTokens]"), "{none}");
}

#[test]
fn one_newline_at_the_end_of_standard_input_is_not_of_the_prompt() {
    let model = tiny_llama();
    let read = |input: &str| {
        let output = run_with(input, "generate", &model, &["-", "--greedy", "-q", "-n", "24", "--ignore-eos"]);
        String::from_utf8(output.stdout).unwrap()
    };
    let plain = text(&model, &["--greedy"]);
    assert_eq!(read(PROMPT), plain);
    assert_eq!(read(&format!("{PROMPT}\n")), plain);
    assert_eq!(read(&format!("{PROMPT}\r\n")), plain);
    assert_ne!(read(&format!("{PROMPT}\n\n")), plain);
}

#[test]
fn a_prompt_may_fill_the_context() {
    let model = tiny_llama();
    // Seven tokens.
    let of = |context: &str| {
        let output = run_with("", "generate", &model, &[PROMPT, "--greedy", "--ignore-eos", "-c", context]);
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(of("8").contains("; 2 new tokens, ") && of("7").contains("; 1 new tokens, "), "{}", of("7"));
    let longer = fails("generate", &model, &[PROMPT, "-c", "6"]);
    assert!(longer.starts_with("the prompt has 7 tokens, but the context has 6 positions"), "{longer}");
}

#[test]
fn a_default_out_of_range_names_its_file_and_stops_only_who_uses_it() {
    let model = tiny_llama();
    let plain = text(&model, &["--greedy"]);
    write_json(&model, "generation_config.json", &json!({"temperature": 0.6, "top_p": 1.5}));
    assert_eq!(text(&model, &["--greedy"]), plain);
    text(&model, &["--top-p", "0.9"]);
    let expected = format!(
        "{}: the model's generation_config.json: top-p is 1.5, but must be above 0 and at most 1",
        model.path().display()
    );
    assert_eq!(fails("generate", &model, &[PROMPT]), expected);
    let own = fails("generate", &model, &[PROMPT, "--top-p", "2"]);
    assert_eq!(own, "top-p is 2, but must be above 0 and at most 1");
}

//! `bench`, `trace` and `tune`: what is refused before a GPU is looked for, and steps on the CPU.

use crate::amk::{fails, succeeds, tiny_llama};

#[test]
fn positions_and_steps_that_do_not_fit_are_refused_by_the_name_of_their_option() {
    let model = tiny_llama();
    let past = "--position is 256, but the model's context has 256 positions; they count from 0";
    assert_eq!(fails("trace", &model, &["--position", "256"]), past);
    assert!(fails("trace", &model, &["--position", "4294967295"]).starts_with("--position is 4294967295"));
    let bench = |arguments: &[&str]| fails("bench", &model, arguments);
    assert_eq!(bench(&["-n", "249"]), "--steps is 249, but the model's context has room for 248");
    assert_eq!(bench(&["-n", "4294967295"]), "--steps is 4294967295, but the model's context has room for 248");
}

#[test]
fn tune_looks_at_the_context_before_it_looks_for_a_gpu() {
    let model = tiny_llama();
    let short = "schedules are compared at positions up to 304; the model's context ends before";
    assert_eq!(fails("tune", &model, &[]), short);
    let config = std::fs::read_to_string(model.path().join("config.json")).unwrap();
    std::fs::write(model.path().join("config.json"), config.replace("256", "512")).unwrap();
    let late = "--positions has 449, but the steps from there leave the model's context; use at most 448";
    assert_eq!(fails("tune", &model, &["--positions", "0,449"]), late);
    let long = "--steps is 4294967295, but the model's context has room for 512";
    assert_eq!(fails("tune", &model, &["-n", "4294967295"]), long);
}

#[test]
fn the_whole_context_can_be_timed() {
    assert!(succeeds("bench", &tiny_llama(), &["-n", "248", "--threads", "1"]).contains("tokens/s"));
}

#[test]
fn a_model_without_a_tokenizer_is_timed() {
    let model = tiny_llama();
    std::fs::remove_file(model.path().join("tokenizer.json")).unwrap();
    assert!(succeeds("bench", &model, &["-n", "2", "--threads", "1"]).contains("tokens/s"));
}

#[test]
fn no_threads_are_refused_as_by_generate() {
    let model = tiny_llama();
    let refused = "--threads is 0; use at least 1";
    assert_eq!(fails("bench", &model, &["--threads", "0"]), refused);
    assert_eq!(fails("generate", &model, &["a", "--threads", "0"]), refused);
}

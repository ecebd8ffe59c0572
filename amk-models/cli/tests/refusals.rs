//! Refusals that come before a model is opened: no test here has one.

use std::process::Command;

/// The exit code and the error of a run with a model that does not exist.
fn refusal(arguments: &[&str]) -> (Option<i32>, String) {
    let mut amk = Command::new(env!("CARGO_BIN_EXE_amk"));
    let output = amk.args(arguments).args(["-m", "no/such/model"]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), error.lines().next().unwrap_or_default().to_owned())
}

#[test]
fn numbers_out_of_range_are_refused_with_their_range() {
    for (arguments, range) in [
        (["generate", "a", "--threads", "0"], "invalid value '0' for '--threads <N>': 0 is not in 1..=1024"),
        (["generate", "a", "-c", "0"], "invalid value '0' for '--context <N>': 0 is not in 1..=4294967295"),
        (["generate", "a", "-n", "-1"], "invalid value '-1' for '--max-tokens <N>': -1 is not in 0..=4294967295"),
        (["generate", "a", "--top-k", "-1"], "invalid value '-1' for '--top-k <K>': -1 is not in 0..=4294967295"),
        (
            ["generate", "a", "--seed", "-1"],
            "invalid value '-1' for '--seed <N>': a seed is a whole number from 0 to 18446744073709551615",
        ),
        (
            ["bench", "--device", "cpu", "--threads=1025"],
            "invalid value '1025' for '--threads <N>': 1025 is not in 1..=1024",
        ),
    ] {
        assert_eq!(refusal(&arguments), (Some(2), format!("error: {range}")));
    }
    for (arguments, range) in [
        (["generate", "a", "--temperature", "-1"], "temperature is -1, but must be a finite number, 0 or more"),
        (["generate", "a", "--temperature", "inf"], "temperature is inf, but must be a finite number, 0 or more"),
        (["generate", "a", "--top-p", "-0.5"], "top-p is -0.5, but must be above 0 and at most 1"),
        (["generate", "a", "--min-p", "-1"], "min-p is -1, but must be from 0 to 1"),
    ] {
        assert_eq!(refusal(&arguments), (Some(1), format!("error: {range}")));
    }
}

#[test]
fn a_model_is_not_served_without_a_name() {
    let (code, error) = refusal(&["serve", "--alias", ""]);
    assert_eq!(code, Some(2));
    assert!(error.contains("--alias <NAME>"), "{error}");
}

#[test]
fn an_empty_stop_string_is_refused() {
    let (code, error) = refusal(&["generate", "a", "--stop", ""]);
    assert_eq!(code, Some(2));
    assert!(error.contains("--stop <TEXT>"), "{error}");
}

#[test]
fn a_missing_schedule_is_refused_on_either_device() {
    for arguments in
        [&["generate", "a"][..], &["generate", "a", "--device", "cuda"], &["bench"], &["bench", "--device", "cuda"]]
    {
        let (code, error) = refusal(&[arguments, &["--schedule", "no-such.json"]].concat());
        assert_eq!(code, Some(1));
        assert!(error.starts_with("error: cannot read the schedule no-such.json: "), "{error}");
    }
}

#[test]
fn rounded_inputs_are_refused_on_a_gpu() {
    for arguments in [&["generate", "a"][..], &["bench"], &["bench", "--rows", "2"]] {
        let (code, error) = refusal(&[arguments, &["--device", "cuda", "--activations", "q8"]].concat());
        let why = "error: --activations q8 is for a CPU; leave it out with --device cuda";
        assert_eq!((code, error.as_str()), (Some(1), why));
    }
}

#[test]
fn a_gpu_that_is_not_there_is_refused() {
    let Err(why) = amk_cuda::probe() else { return println!("skipped: there is a GPU") };
    for arguments in [&["generate", "a"][..], &["bench"], &["bench", "--ablate"]] {
        assert_eq!(refusal(&[arguments, &["--device", "cuda"]].concat()), (Some(1), format!("error: {why}")));
    }
    // Nor is the default model fetched for it.
    for command in ["trace", "tune"] {
        let folder = tempfile::tempdir().unwrap();
        let mut amk = Command::new(env!("CARGO_BIN_EXE_amk"));
        let output = amk.arg(command).env("AMK_CACHE", folder.path()).output().unwrap();
        assert_eq!(String::from_utf8(output.stderr).unwrap(), format!("error: {why}\n"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_model_that_is_not_there_is_told_with_what_to_give_instead() {
    let of = |model: &str| {
        let mut amk = Command::new(env!("CARGO_BIN_EXE_amk"));
        let amk = amk.args(["generate", "a", "-m", model]).env("HF_HUB_OFFLINE", "1").env("HF_HOME", "/nowhere");
        String::from_utf8(amk.output().unwrap().stderr).unwrap()
    };
    let folder = "give the folder with their config.json";
    assert!(of("x.safetensors").contains(&format!("{folder}: .")), "{}", of("x.safetensors"));
    assert!(of("a/b/x.safetensors").contains(&format!("{folder}: a/b")), "{}", of("a/b/x.safetensors"));
    let cached = "is not in the cache /nowhere/hub/models--HuggingFaceTB--SmolLM2-135M, and HF_HUB_OFFLINE is set";
    let repository = of("HuggingFaceTB/SmolLM2-135M");
    assert_eq!(repository, format!("error: HuggingFaceTB/SmolLM2-135M {cached}\n"));
    for path in ["./a/b", "a/b/c", "/a/b", "../a", "model.gguf"] {
        assert!(!of(path).contains("HF_HUB_OFFLINE"), "{}", of(path));
    }
}

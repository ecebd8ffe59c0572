//! `bench`, `trace`, `tune` and `verify-kernels`: refusals that need no GPU, and runs on the CPU.

use super::amk::{fails, succeeds, tiny_llama};
use std::process::Command;

#[test]
fn positions_and_steps_that_do_not_fit_are_refused_by_the_name_of_their_option() {
    let model = tiny_llama();
    let past = "--position is 256, but the model's context has 256 positions; they count from 0";
    assert_eq!(fails("trace", &model, &["--position", "256"]), past);
    assert!(fails("trace", &model, &["--position", "4294967295"]).starts_with("--position is 4294967295"));
    let bench = |arguments: &[&str]| fails("bench", &model, arguments);
    assert_eq!(bench(&["-n", "257"]), "--steps is 257, but the model's context has room for 256");
    assert_eq!(bench(&["-n", "4294967295"]), "--steps is 4294967295, but the model's context has room for 256");
    assert_eq!(
        bench(&["-n", "6", "--positions", "251"]),
        "none of --positions leaves room for 6 steps in the model's context; use at most 250"
    );
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
    assert!(succeeds("bench", &tiny_llama(), &["-n", "256", "--threads", "1"]).contains("tokens/s"));
}

#[test]
fn a_model_without_a_tokenizer_is_timed() {
    let model = tiny_llama();
    std::fs::remove_file(model.path().join("tokenizer.json")).unwrap();
    assert!(succeeds("bench", &model, &["-n", "2", "--threads", "1"]).contains("tokens/s"));
}

#[test]
fn a_cpu_times_the_positions_that_it_is_asked_for() {
    let model = tiny_llama();
    let json = succeeds("bench", &model, &["-n", "4", "--positions", "0,100,300", "--json", "-", "--threads", "1"]);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    let of = |field: &str| rows.iter().map(|row| row[field].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!(of("position"), [0, 100]);
    // Keys and values of two layers with two heads of 16, in f32, for each position.
    assert_eq!(of("bytes")[1] - of("bytes")[0], 100 * 2 * 2 * 2 * 16 * 4);
    let table = succeeds("bench", &model, &["-n", "4", "--positions", "0,300", "--threads", "1"]);
    assert!(table.contains(": position 300 is outside the model's context\n"), "{table}");
    let table = succeeds("bench", &model, &["-n", "4", "--positions", "0,255", "--threads", "1"]);
    assert!(table.contains(": position 255 leaves no room for 4 steps in the model's context\n"), "{table}");
}

#[test]
fn a_cpu_times_rows_and_prompts_and_draws_them() {
    let model = tiny_llama();
    let picture = model.path().join("rows.svg");
    let rows = ["-n", "2", "--rows", "1,3", "--prompt", "8", "--positions", "0,5", "--threads", "1", "--svg"];
    let arguments = [&rows[..], &[picture.to_str().expect("a name"), "--json", "-"]].concat();
    let report: serde_json::Value = serde_json::from_str(&succeeds("bench", &model, &arguments)).unwrap();
    let steps: Vec<_> = report["models"][0]["steps"].as_array().unwrap().iter().map(|time| &time["step"]).collect();
    let prompt = |position: u32| serde_json::json!({ "prompt": { "tokens": 8, "position": position } });
    let decode = |rows: u32, at: u32| serde_json::json!({ "decode": { "rows": rows, "position": at } });
    let decoded = [decode(1, 0), decode(3, 0), decode(1, 5), decode(3, 5)];
    assert!(steps.into_iter().eq([prompt(0), prompt(5)].iter().chain(&decoded)), "{report}");
    let picture = std::fs::read_to_string(picture).unwrap();
    let names = ["3 rows at 0", "prompt of 8 at 5"];
    assert!(picture.starts_with("<svg") && names.iter().all(|name| picture.contains(name)), "{picture}");
}

#[test]
fn files_that_cannot_be_written_are_refused_before_a_model_is_looked_for() {
    let model = tempfile::tempdir().unwrap();
    let path = model.path().join("no/such/times.json");
    let path = path.to_str().unwrap();
    for option in ["--json", "--svg"] {
        let error = fails("bench", &model, &["--rows", "1", option, path]);
        assert!(error.starts_with(&format!("cannot write {path}: ")), "{error}");
    }
    // What can be is not made before there are times.
    let path = model.path().join("times.json");
    fails("bench", &model, &["--json", path.to_str().unwrap()]);
    assert!(!path.exists());
}

#[test]
fn a_cpu_refuses_what_only_a_gpu_has_a_use_for() {
    let model = tiny_llama();
    for option in [&["--ablate"][..], &["--peers", "none"], &["--samples", "3"], &["--svg", "r.svg"]] {
        assert_eq!(fails("bench", &model, option), format!("{} is for a GPU; add --device cuda", option[0]));
    }
    assert!(!std::path::Path::new("r.svg").exists());
}

#[test]
fn a_log_has_each_checked_instruction_and_json_stays_alone() {
    let verified = |arguments: &[&str]| {
        let mut amk = Command::new(env!("CARGO_BIN_EXE_amk"));
        let output =
            amk.args(["verify-kernels", "--cases", "1", "--only", "amk_kernels::add"]).args(arguments).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap())
    };
    let [table, log] = verified(&[]);
    let words = |line: &str| line.replace('│', "").split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let rows: Vec<_> = table.lines().filter(|line| line.contains("amk_kernels::add")).map(words).collect();
    let told: Vec<_> = log.lines().map(words).collect();
    assert!(told.len() > 2, "{log}");
    assert_eq!(told, rows, "{table}");
    assert_eq!(verified(&["--quiet"]), [table, String::new()]);
    let [json, log] = verified(&["--json"]);
    let checked: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    assert_eq!((checked.len(), log.as_str()), (told.len(), ""));
}

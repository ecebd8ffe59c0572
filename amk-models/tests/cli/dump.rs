//! `check` and `dump`: what was asked for is printed, or it is said that it cannot be.

use std::process::Command;

/// The exit code and the error of a run.
fn refusal(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_amk")).args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_program_and_an_instance_exclude_one_another() {
    for arguments in [["check", "p.amk", "--instance", "llama.tiny"], ["dump", "program", "p.amk", "--workers=2"]] {
        let (code, error) = refusal(&arguments);
        assert_eq!(code, Some(2), "{error}");
        assert!(error.contains("cannot be used with"), "{error}");
    }
}

#[test]
fn a_program_comes_from_standard_input_too() {
    use std::io::Write as _;
    use std::process::Stdio;
    let through = |input: &str, arguments: &[&str]| {
        let mut amk = Command::new(env!("CARGO_BIN_EXE_amk"));
        let mut run = amk.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        run.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        String::from_utf8(run.wait_with_output().unwrap().stdout).unwrap()
    };
    let program = "program @p\ninstruction i0 \"t::w\" w() -> (y)\nbuffer b0 @y output f32[4]\ntask t0: w() -> (b0[..])\nworker w0: t0\n";
    assert!(through(program, &["check", "-"]).starts_with("accepted p: 1 tasks on 1 workers"));
    let json = through(program, &["dump", "program", "-", "--format", "json"]);
    assert!(through(&json, &["check", "-"]).starts_with("accepted p: 1 tasks on 1 workers"));
}

#[test]
fn a_program_has_neither_graph_nor_expansion_and_an_expansion_one_format() {
    for what in ["graph", "expansion"] {
        let (code, error) = refusal(&["dump", what, "p.amk"]);
        assert_eq!((code, error.contains("p.amk is a program, which has no graph")), (Some(1), true), "{error}");
    }
    let (code, error) = refusal(&["dump", "expansion", "--format", "json"]);
    assert_eq!((code, error.contains("leave out --format")), (Some(1), true), "{error}");
}

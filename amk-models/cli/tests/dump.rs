//! `check` and `dump` print the requested form, or report that they cannot.

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
    let program = "program @p\ninstruction i0 \"t::w\" w() -> (y)\nbuffer b0 @y output \
    f32[4]\ntask t0: w() -> (b0[..])\nworker w0: t0\n";
    assert!(through(program, &["check", "-"]).contains("accepted p: 1 tasks on 1 workers"));
    let json = through(program, &["dump", "program", "-", "--format", "json"]);
    assert!(through(&json, &["check", "-"]).contains("accepted p: 1 tasks on 1 workers"));
}

#[test]
fn a_program_has_neither_graph_nor_expansion_and_an_expansion_one_format() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("p.amk");
    std::fs::write(&file, "program @p\n").unwrap();
    for what in ["graph", "expansion"] {
        let (code, error) = refusal(&["dump", what, file.to_str().unwrap()]);
        assert_eq!(code, Some(1));
        assert!(error.contains(&format!("p.amk is a program, which has no {what}; name a model")), "{error}");
    }
    let (code, error) = refusal(&["dump", "expansion", "--format", "json"]);
    let why = "`amk dump expansion` has no use for --format json, which is for `amk dump program` and \
               `amk dump graph`";
    assert_eq!((code, error), (Some(1), format!("error: {why}\n")));
}

#[test]
fn a_graph_is_told_from_a_program() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("g.amk");
    std::fs::write(&file, output(&["dump", "graph"])).unwrap();
    let path = file.to_str().unwrap();
    for (arguments, why) in [
        (&["check"][..], "is a graph, not a program; `amk dump schedule` lowers it"),
        (&["dump", "program"], "is a graph, not a program; `amk dump schedule` lowers it"),
        (&["dump", "graph"], "is a graph already; `amk dump schedule` lowers it"),
    ] {
        let refused = refusal(&[arguments, &[path]].concat());
        assert_eq!(refused, (Some(1), format!("error: {path} {why}\n")));
    }
}

#[test]
fn options_that_what_is_printed_does_not_depend_on_are_refused() {
    let lowered = "`amk dump program` and `amk dump schedule`";
    for (what, option, of) in [
        ("graph", &["--workers", "3"][..], lowered),
        ("graph", &["--schedule", "nosuch.json"], lowered),
        ("graph", &["--target", "l4"], lowered),
        ("graph", &["--why"], "`amk dump schedule`"),
        ("graph", &["--format", "dot"], "`amk dump program`"),
        ("expansion", &["--device", "cuda"], lowered),
        ("program", &["--why"], "`amk dump schedule`"),
        ("schedule", &["--format", "json"], "`amk dump program` and `amk dump graph`"),
        ("schedule", &["--format", "dot"], "`amk dump program`"),
    ] {
        let (code, error) = refusal(&[&["dump", what], option].concat());
        let expected = format!("error: `amk dump {what}` has no use for {}", option[0]);
        assert!(code == Some(1) && error.starts_with(&expected) && error.ends_with(&format!("for {of}\n")), "{error}");
    }
}

#[test]
fn a_certificate_is_of_one_program() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.json");
    let (code, error) = refusal(&["check", "--certificate", file.to_str().unwrap()]);
    assert!(code == Some(1) && error.starts_with("error: --certificate is for one program; of "), "{error}");
    assert!(error.ends_with(" name one with --instance\n") && !file.exists(), "{error}");
}

#[test]
fn an_error_that_every_layer_has_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.json");
    std::fs::write(&file, r#"{"fuse": [{"op": "attention", "into": "consumers"}]}"#).unwrap();
    let (code, error) = refusal(&["check", "--instance", "llama.smollm2_135m", "--schedule", file.to_str().unwrap()]);
    assert_eq!((code, error.matches("AMK0613").count()), (Some(1), 1), "{error}");
    assert!(error.contains("note: 30 times"), "{error}");
}

/// The standard output of a run that succeeds.
fn output(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_amk")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_program_of_a_gpu_is_printed_and_calls_what_is_linked() {
    let dump = ["dump", "program", "--device", "cuda", "--instance", "llama.smollm2_135m"];
    let text = output(&dump);
    assert!(text.starts_with("program @decode.cuda\n") && text.contains("limits workers 132"), "{}", &text[..200]);
    let other = output(&[&dump[..], &["--target", "l4", "--workers", "50"]].concat());
    assert!(other.contains("limits workers 50"), "{}", &other[..200]);
    let folder = tempfile::tempdir().unwrap();
    for (name, format) in [("p.amk", "amk"), ("p.json", "json")] {
        let file = folder.path().join(name);
        std::fs::write(&file, output(&[&dump[..], &["--format", format]].concat())).unwrap();
        let report = output(&["check", "--strict", file.to_str().unwrap()]);
        assert!(report.starts_with("accepted decode.cuda: ") && report.lines().count() == 1, "{report}");
    }
    assert!(output(&[&dump[..], &["--workers", "20", "--format", "dot"]].concat()).starts_with("digraph"));
}

#[test]
fn a_schedule_in_a_file_replaces_fields_of_the_devices_own() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.json");
    let path = file.to_str().unwrap();
    std::fs::write(&file, r#"{"workers": 50, "exchange": "counters"}"#).unwrap();
    let dump = ["dump", "program", "--instance", "llama.smollm2_135m", "--schedule", path];
    let text = output(&[&dump[..], &["--device", "cuda"]].concat());
    assert!(text.contains("limits workers 50") && text.contains("event e0 "), "{}", &text[..200]);
    assert!(output(&dump).contains("worker w49: "), "the same file on a CPU");
    for (fields, device, message) in [
        (r#"{"exchange": "packets"}"#, "cpu", "the CPU VM cannot honour `exchange` = packets of the schedule"),
        (r#"{"queue": "ticket"}"#, "cuda", "the CUDA VM cannot honour the schedule's `queue` = ticket"),
        (r#"{"ring": {"slots": 9}}"#, "cuda", "`ring.slots` is 9; on h200 it must be in 2..=6"),
        (r#"{"ring_slots": 6}"#, "cuda", "unknown field `ring_slots`"),
    ] {
        std::fs::write(&file, fields).unwrap();
        let (code, error) = refusal(&[&dump[..], &["--device", device]].concat());
        assert!(code == Some(1) && error.contains(message), "{fields}: {error}");
    }
}

#[test]
fn the_schedule_of_a_gpu_says_what_calls_lack() {
    let dump = ["dump", "schedule", "--why", "--device", "cuda", "--instance", "llama.smollm2_135m"];
    let text = output(&[&dump[..], &["--target", "l4"]].concat());
    assert!(text.starts_with("decode.cuda: ") && text.contains(" tasks on 58 workers\nphase 0 "), "{text}");
    assert!(text.ends_with("every call runs by a fused body\n"), "{text}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.json");
    std::fs::write(&file, r#"{"fusion": false}"#).unwrap();
    let text = output(&[&dump[..], &["--schedule", file.to_str().unwrap()]].concat());
    assert!(
        text.contains("`linear` runs by its generic body: the schedule has `fusion = false` (211 calls)"),
        "{text}"
    );
}

#[test]
fn gpus_that_nobody_knows_and_options_that_say_nothing_are_refused() {
    let cuda = ["dump", "program", "--device", "cuda"];
    let (code, error) = refusal(&[&cuda[..], &["--target", "h300"]].concat());
    assert!(code == Some(1) && error.contains("there is no GPU `h300`; known ones: a100, a10g, "), "{error}");
    let (code, error) = refusal(&["dump", "program", "--target", "h200"]);
    assert!(code == Some(1) && error.contains("add --device cuda"), "{error}");
    let (code, error) = refusal(&["dump", "graph", "--device", "cuda"]);
    assert!(code == Some(1) && error.contains("has no use for --device"), "{error}");
    let (code, error) = refusal(&["dump", "program", "p.amk", "--device", "cuda"]);
    assert!(code == Some(2) && error.contains("cannot be used with"), "{error}");
}

/// Exit code and standard output of `amk check` on a program of one task.
fn check(instruction: &str, call: &str, options: &[&str]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("p.amk");
    let text = format!(
        "program @\"p\\naccepted \\u001b[2Kq\"\ninstruction i0 {instruction}\nbuffer b0 @x input \
        f32[8]\nbuffer b1 @w weight f32[16, 8]\n\
         buffer b2 @y output f32[16]\nbuffer b3 @long output f32[9999]\ntask t0: {call}\nworker w0: t0\n"
    );
    let unused = if call.contains("b3") { "buffer b2 @y output" } else { "buffer b3 @long output" };
    std::fs::write(&file, text.replace(unused, &unused.replace("output", "activation"))).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_amk")).arg("check").arg(&file).args(options).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn calls_are_compared_with_the_linked_functions() {
    let linear = "\"amk_kernels::linear\" linear(x, w) -> (y)";
    let (code, report) = check(linear, "linear(b0[..], b1[.., ..]) -> (b2[..])", &["--strict"]);
    assert_eq!((code, report.lines().count()), (Some(0), 1), "{report}");
    assert!(report.starts_with(r"accepted p\naccepted \u001b[2Kq: 1 tasks on 1 workers"), "{report}");
    let norm = "\"amk_kernels::rms_norm\" rms_norm(x, w) -> (y)";
    let gone = "\"amk_kernels::no_such_thing\" f(x) -> (y)";
    let add = "\"amk_kernels::add\" add(x, y) -> (z)";
    for (instruction, call, headline) in [
        (
            linear,
            "linear(b0[0..4], b1[.., ..]) -> (b2[..])",
            "AMK0704: dimension 1 of `w` of `linear` in `t0` is `8`, expected `4`",
        ),
        (
            add,
            "add(b0[0..4], b0[4..8]) -> (b3[..])",
            "AMK0704: dimension 0 of `z` of `add` in `t0` is `9999`, expected `4`",
        ),
        (norm, "rms_norm(b0[..], b0[..]) -> (b2[..])", "AMK0702: `rms_norm` is declared otherwise than its function"),
        (
            gone,
            "f(b0[..]) -> (b2[..])",
            "AMK0701: crate `amk_kernels` registers no instruction `amk_kernels::no_such_thing`; it has: ",
        ),
    ] {
        let (code, report) = check(instruction, call, &[]);
        assert_eq!(code, Some(1), "{report}");
        assert!(report.starts_with(&format!("error: {headline}")), "{report}");
        assert!(report.ends_with("1 tasks on 1 workers, 4 buffers; 1 violation\n"), "{report}");
    }
}

#[test]
fn what_is_not_linked_is_said_and_refused_where_it_is_asked_for() {
    let (instruction, call) = ("\"x::y\" y(x) -> (y)", "y(b0[..]) -> (b2[..])");
    let (code, report) = check(instruction, call, &[]);
    assert_eq!(
        (code, report.lines().next()),
        (Some(0), Some("note: not linked: `x::y`; shapes not checked")),
        "{report}"
    );
    let (code, report) = check(instruction, call, &["--strict"]);
    assert_eq!(code, Some(1));
    assert!(report.starts_with("error: AMK0701: instruction `x::y` is not linked into this program"), "{report}");
}

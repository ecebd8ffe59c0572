//! Runs of the binary, and checkpoints for them.

use serde_json::Value;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// A copy of the tiny llama, which a test may change.
pub(crate) fn tiny_llama() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/tiny/llama");
    for entry in std::fs::read_dir(golden).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    folder
}

/// Writes a JSON file of a checkpoint.
pub(crate) fn write_json(folder: &TempDir, name: &str, value: &Value) {
    std::fs::write(folder.path().join(name), value.to_string()).unwrap();
}

/// Returns the output of `amk COMMAND -m FOLDER ARGUMENTS`, with this text on its standard input.
pub(crate) fn run_with(input: &str, command: &str, model: &TempDir, arguments: &[&str]) -> Output {
    let mut amk = Command::new(env!("CARGO_BIN_EXE_amk"));
    amk.args([command, "-m"]).arg(model.path()).args(arguments);
    amk.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut run = amk.spawn().unwrap();
    // A run that is refused does not read it.
    let _ = run.stdin.take().unwrap().write_all(input.as_bytes());
    run.wait_with_output().unwrap()
}

/// The standard output of a run that succeeds.
pub(crate) fn succeeds(command: &str, model: &TempDir, arguments: &[&str]) -> String {
    let output = run_with("", command, model, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The error of a run that fails, without what names its line.
pub(crate) fn fails(command: &str, model: &TempDir, arguments: &[&str]) -> String {
    let output = run_with("", command, model, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    let error = text.lines().find_map(|line| line.strip_prefix("error: "));
    error.unwrap_or_else(|| panic!("no error in {text}")).to_owned()
}

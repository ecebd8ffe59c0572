//! Parts of the device code that are plain C++, compiled for this machine.

use amk_cuda::source;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A file of the device code, without what it includes.
pub(crate) fn text(file: &str) -> String {
    plain(source::files().find(|(known, _)| *known == file).expect("the file").1)
}

/// Device code without what it includes.
pub(crate) fn plain(code: &str) -> String {
    let plain = code.lines().filter(|line| !line.starts_with("#include") && !line.starts_with("#pragma once"));
    plain.map(|line| format!("{line}\n")).collect()
}

/// Compiles `tests/device/NAME.cpp`, which includes `text` as `NAME.inc`, with some macros defined.
/// `None` without a C++ compiler. The folder holds the program.
pub(crate) fn build(text: &str, name: &str, defines: &[&str]) -> Option<(TempDir, PathBuf)> {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join(name).with_extension("inc"), text).expect("it should be written");
    let program = folder.path().join(name);
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/device");
    let source = format!("{sources}/{name}.cpp");
    let mut build = Command::new("c++");
    build.args(defines.iter().map(|define| format!("-D{define}")));
    build.args(["-std=c++17", "-O1", "-I", sources, "-I"]).arg(folder.path()).arg("-o").arg(&program).arg(source);
    let output = build.output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some((folder, program))
}

/// Runs a program and returns what it answers to an input.
pub(crate) fn answer(program: &Path, input: String) -> String {
    let mut child =
        Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it should start");
    let mut stdin = child.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("it should end");
    writer.join().expect("the writer").expect("all should be read");
    assert!(output.status.success(), "{}", output.status);
    String::from_utf8(output.stdout).expect("numbers")
}

//! Parts of the device code that are plain C++, compiled for this machine.

use amk_cuda::source;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// The text of a file of the device code.
pub(crate) fn file(name: &str) -> &'static str {
    source::files().find(|(known, _)| *known == name).expect("the file").1
}

/// Compiles `tests/device/NAME.cpp`, which includes device code as `NAME.inc`, with some macros
/// defined. `None` without a C++ compiler. The folder holds the program.
pub(crate) fn build(text: &str, name: &str, defines: &[&str]) -> Option<(TempDir, PathBuf)> {
    let folder = tempfile::tempdir().expect("a folder");
    let plain: String =
        text.lines().filter(|line| !line.starts_with("#include")).map(|line| format!("{line}\n")).collect();
    std::fs::write(folder.path().join(name).with_extension("inc"), plain).expect("it should be written");
    let program = folder.path().join(name);
    let source = format!("{}/device/{name}.cpp", env!("CARGO_MANIFEST_DIR"));
    let mut build = Command::new("c++");
    build.args(defines.iter().map(|define| format!("-D{define}")));
    build.args(["-std=c++17", "-O1", "-I"]).arg(folder.path()).arg("-o").arg(&program).arg(source);
    let output = build.output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some((folder, program))
}

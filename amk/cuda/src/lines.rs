//! Line directives of the generated source, so that the compiler's messages name the original file
//! and line.

use core::fmt::Write as _;

/// The name of the generated source in messages.
pub(super) const GENERATED: &str = "vm.cu";

/// Goes on with the generated source; [`numbered`] knows at which line.
const RESUME: &str = "#line generated";

/// Renders a file of device code: messages about it name `file` and its own lines. The `#include`
/// and `#pragma once` lines are left empty: files are concatenated in order, so includes serve only
/// editors.
pub fn file(file: &str, text: &str) -> String {
    let mut out = format!("#line 1 {file:?}\n");
    for line in text.lines() {
        out.push_str(if serves_editors(line) { "" } else { line });
        out.push('\n');
    }
    out.push_str(RESUME);
    out.push('\n');
    out
}

/// Returns the lines of a generated text without those that serve only editors.
pub(super) fn own_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !serves_editors(line))
}

fn serves_editors(line: &str) -> bool {
    line.starts_with("#include") || line.starts_with("#pragma once")
}

/// Numbers the lines after each [`file`] marker of a whole source.
pub(super) fn numbered(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    for (line, next) in source.lines().zip(2..) {
        let _ = match line {
            RESUME => writeln!(out, "#line {next} {GENERATED:?}"),
            line => writeln!(out, "{line}"),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_own_lines_and_the_source_its_own() {
        let text = "#pragma once\n#include \"task.cuh\"\nint a;";
        let source = numbered(&format!("int first;\n{}int last;\n", file("scale \"1\".cuh", text)));
        let expected =
            ["int first;", "#line 1 \"scale \\\"1\\\".cuh\"", "", "", "int a;", "#line 7 \"vm.cu\"", "int last;"];
        assert_eq!(source.lines().collect::<Vec<_>>(), expected);
    }
}

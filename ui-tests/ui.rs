//! Compiles the cases: those in `pass` must compile and run, those in `fail` must not, and must
//! print the text of the `.stderr` file next to them.
//! `TRYBUILD=overwrite cargo test -p amk-ui-tests` rewrites the expected texts; review them as
//! code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Words of the implementation that no user should meet.
const INTERNAL: [&str; 12] = [
    "TokenStream",
    "ValueId",
    "TaskId",
    "BufferId",
    "CallNode",
    "FieldPath",
    "GraphError",
    "Some(",
    "None",
    "Expr",
    "__amk",
    "@amk1",
];

#[test]
fn cases() {
    let cases = trybuild::TestCases::new();
    cases.pass("pass/*.rs");
    cases.compile_fail("fail/*.rs");
}

/// The expected texts in `fail`, by file name.
fn expected() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fail");
    let paths = std::fs::read_dir(folder).expect("the folder `fail`").map(|entry| entry.expect("an entry").path());
    let texts: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "stderr")).collect();
    let name = |path: &PathBuf| path.file_stem().expect("a name").to_string_lossy().into_owned();
    texts.iter().map(|path| (name(path), std::fs::read_to_string(path).expect("a text"))).collect()
}

#[test]
fn every_message_has_its_code_and_ends_with_a_fix() {
    let all = expected();
    assert!(all.len() >= 15, "{} rejected cases", all.len());
    for (name, text) in all {
        let code = name[..7].to_uppercase();
        assert!(text.contains(&format!("{code}: ")), "{name} does not report {code}:\n{text}");
        for message in text.split("\nerror").map(|message| message.trim_start_matches("error")) {
            // rustc's own messages besides have no code of ours; a constant's are
            // `[E0080]: evaluation panicked: AMK0923: ..`.
            if message.lines().next().is_some_and(|headline| headline.contains(": AMK")) {
                let words = message.split("-->").next().unwrap_or_default().trim_end();
                let last = words.lines().last().unwrap_or_default();
                assert!(last.trim_start().starts_with("help: "), "{name} does not end with a fix:\n{message}");
                let internal = INTERNAL.iter().find(|word| words.contains(*word));
                assert!(internal.is_none(), "{name} says {internal:?}:\n{message}");
            }
        }
    }
}

#[test]
fn every_code_of_the_language_has_a_case() {
    let cases: BTreeSet<String> = expected().into_iter().map(|(name, _)| name[3..7].to_owned()).collect();
    let codes = amk::ir::explain::pages().map(|page| format!("{:04}", page.code)).filter(|code| code.starts_with("09"));
    let missing: Vec<String> = codes.filter(|code| !cases.contains(code)).collect();
    assert!(missing.is_empty(), "codes without a case in `fail`: {missing:?}");
}

//! The README matches the code: its programs are compiled elsewhere, and its outputs are the
//! tools'.

use std::path::Path;
use std::process::Command;

/// A file of the repository.
fn file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The README's block of code with this line in it.
fn block(line: &str) -> String {
    let readme = file("README.md");
    let blocks = readme.split("\n```").skip(1).step_by(2).map(|block| block.split_once('\n').unwrap().1);
    blocks.into_iter().find(|block| block.contains(line)).unwrap_or_else(|| panic!("no block has {line}")).to_owned()
}

/// The tokens of Rust code, as far as comments, layout and trailing commas do not matter.
fn plain(code: &str) -> String {
    let without_comments = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    let joined: String = without_comments.flat_map(str::chars).filter(|char| !char.is_whitespace()).collect();
    joined.replace(",)", ")").replace(",}", "}")
}

#[test]
fn the_program_on_the_cpu_vm_is_the_one_that_amk_documents_and_runs() {
    let documented: String = file("amk/src/lib.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("//!"))
        .map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line)))
        .collect();
    let shown = block("Vm::of(");
    assert!(
        documented.contains(&format!("```\n{shown}\n```")),
        "amk/src/lib.rs documents another program than\n{shown}"
    );
}

#[test]
fn the_model_is_the_one_that_generates() {
    let shown = plain(&block("pub fn decode("));
    let (attribute, function) = shown.split_at(shown.find("pubfndecode").unwrap());
    let model = plain(&file("amk-models/src/models/llama.rs"));
    assert!(model.contains(function), "{function}\nis not in\n{model}");
    // The README shows one of the instances.
    let declared = attribute.trim_start_matches("#[megakernel(").trim_end_matches(")]").trim_end_matches(')');
    for part in declared.split("instances(") {
        assert!(model.contains(part.trim_end_matches(',')), "{part}\nis not in\n{model}");
    }
}

#[test]
fn the_race_is_told_as_rustc_tells_it() {
    let case = "ui-tests/fail/amk0302_partial_wait";
    let (code, stderr) = (file(&format!("{case}.rs")), file(&format!("{case}.stderr")));
    assert!(
        plain(&code).contains(&plain(&block("#[wait(up_done == 3)]           //"))),
        "{case}.rs has another kernel"
    );
    assert_eq!(
        block("AMK0302: race").trim_end(),
        stderr.replace(&format!("{}.rs", &case[9..]), "src/model.rs").trim_end()
    );
}

#[test]
fn the_instruction_is_that_of_the_example() {
    let example = plain(&file("examples/user-instruction/src/scale.rs"));
    let (rust, cuda) = (block("pub fn scale_by"), block("AMK_DEVICE void scale_by"));
    assert!(example.contains(&plain(&rust)), "{rust}\nis not in\n{example}");
    assert!(plain(&file("examples/user-instruction/src/scale.cuh")).contains(&plain(&cuda)), "{cuda}");
}

#[test]
fn the_graph_is_what_dump_prints() {
    let dumped = Command::new(env!("CARGO_BIN_EXE_amk")).args(["dump", "graph"]).output().unwrap();
    let dumped = String::from_utf8(dumped.stdout).unwrap();
    let shown = block("x: f32[HIDDEN] = embed(");
    let shown = shown.trim_end().trim_end_matches("..").trim_end();
    assert!(dumped.contains(shown), "{dumped}\ndoes not have\n{shown}");
}

#[test]
fn every_command_is_in_the_table() {
    let help = Command::new(env!("CARGO_BIN_EXE_amk")).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let commands = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    for command in commands.lines().filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help") {
        assert!(
            file("README.md").contains(&format!("\n| `amk {command}")),
            "the README's table has no `amk {command}`"
        );
    }
}

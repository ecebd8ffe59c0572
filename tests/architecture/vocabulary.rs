//! The VMs know no instruction and no model: their sources are read for the names.

use amk::registry::Registry;
use amk_models::model::FAMILIES;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Sources of the VMs and of what they stand on, from the workspace's root.
const VMS: [&str; 5] = ["amk/src/vm", "amk/src/registry", "amk/cuda/src", "amk/cuda/device", "amk-ir/src/lower"];

/// Instructions whose names are also words that any code uses: pointer arithmetic, the best of
/// several, probing for a device, what to choose.
const WORDS: [&str; 4] = ["add", "best", "choose", "probe"];

/// Words of models and of sampling that no name of a VM contains.
const OF_MODELS: [&str; 20] = [
    "top_k",
    "top_p",
    "min_p",
    "temperature",
    "greedy",
    "rope",
    "rotary",
    "eps",
    "epsilon",
    "kv",
    "heads",
    "head_dim",
    "hidden",
    "ffn",
    "embedding",
    "residual",
    "softmax",
    "gemv",
    "projection",
    "query",
];

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.extension().and_then(|extension| extension.to_str()) {
            _ if path.is_dir() => files(&path, found),
            Some("rs" | "cuh") => found.push(path),
            _ => {}
        }
    }
}

/// The instructions and families that are linked into this binary, and words of models.
fn names() -> BTreeSet<String> {
    let registry = Registry::linked().expect("the registry");
    let paths = registry.iter().filter_map(|entry| entry.path.strip_prefix("amk_kernels::"));
    let families = FAMILIES.iter().map(|family| family.name);
    let of_models = OF_MODELS.into_iter();
    paths.chain(families).chain(of_models).filter(|name| !WORDS.contains(name)).map(str::to_owned).collect()
}

/// The identifiers of a text, without its comments and, in Rust, its tests and help texts.
fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    let code = lines.filter(|line| !line.contains("let help =") && !line.contains("#[error("));
    code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'))
}

fn named<'n>(text: &str, names: &'n BTreeSet<String>) -> BTreeSet<&'n str> {
    let of_crates = ["amk_kernels", "amk_models"];
    assert!(of_crates.iter().all(|krate| identifiers(text).all(|found| found != *krate)), "{of_crates:?}");
    // A part of an identifier counts, such as the last of `inv_rope`.
    let contains = |found: &str, name: &str| format!("_{}_", found.to_lowercase()).contains(&format!("_{name}_"));
    let is = |found: &str, name: &str| if OF_MODELS.contains(&name) { contains(found, name) } else { found == name };
    identifiers(text).flat_map(|found| names.iter().filter(move |name| is(found, name))).map(String::as_str).collect()
}

#[test]
fn no_vm_names_an_instruction_or_a_family() {
    let names = names();
    assert!(names.len() > 20 && names.contains("linear") && names.contains("llama"), "{names:?}");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all = Vec::new();
    VMS.iter().for_each(|folder| files(&root.join(folder), &mut all));
    assert!(all.len() > 60, "{}", all.len());
    let mut found = Vec::new();
    for path in all.iter().filter(|path| !path.ends_with("tests.rs")) {
        let text = std::fs::read_to_string(path).expect("text");
        found.extend(named(&text, &names).into_iter().map(|name| format!("{}: {name}", path.display())));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_name_in_code_is_found_and_one_in_a_comment_is_not() {
    let names = names();
    let planted =
        "let path = \"x\"; // linear\nif is(rope) { attention<3>(KV_BLOCKS) }\n#[cfg(test)]\nmod tests { embed }";
    assert_eq!(named(planted, &names), BTreeSet::from(["attention", "kv", "rope"]));
}

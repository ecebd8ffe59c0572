//! The crates depend on each other one way, and `amk-ir` on next to nothing: read from
//! `cargo metadata`.

mod book;
mod manifests;
mod vocabulary;
mod width;

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::Command;

/// Each crate may use those before it.
const ORDER: [&str; 17] = [
    "amk-ir",
    "amk-checker",
    "amk-macros-core",
    "amk-macros",
    "amk",
    "amk-cuda",
    "amk-kernels",
    "amk-user-instruction",
    "amk-models",
    "amk-quantize",
    "amk-run",
    "amk-serve",
    "amk-bench",
    "amk-cli",
    "amk-fast-instruction",
    "amk-tests",
    "amk-ui-tests",
];

/// Crates that must not be linked into the first one: Rust syntax and devices are for others.
const FOREIGN: [&str; 5] = ["syn", "quote", "proc-macro2", "cudarc", "inventory"];

fn metadata(arguments: &[&str]) -> Value {
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO"));
        command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR"));
        command.output().expect("cargo runs")
    };
    let version = String::from_utf8(cargo(&["-vV"]).stdout).expect("text");
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("cargo names its host");
    let output = cargo(&[&["metadata", "--format-version", "1", "--filter-platform", host], arguments].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo prints JSON")
}

fn names<'a>(list: &'a Value, key: &str) -> impl Iterator<Item = &'a str> {
    let key = key.to_owned();
    list.as_array().into_iter().flatten().filter_map(move |item| item[&key].as_str())
}

/// Returns the dependencies against the order of the crates.
fn against_order(metadata: &Value) -> Vec<String> {
    let place = |name: &str| ORDER.iter().position(|crate_name| *crate_name == name);
    let mut found = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(own) = place(name) else {
            if package["source"].is_null() {
                found.push(format!("{name} has no place in the order"));
            }
            continue;
        };
        for used in names(&package["dependencies"], "name") {
            if place(used).is_some_and(|used| used >= own) {
                found.push(format!("{name} uses {used}"));
            }
        }
    }
    found
}

/// Crates linked into a workspace crate: its dependencies, without the ones that a procedural macro
/// needs in the compiler.
fn linked(metadata: &Value, root: &str) -> BTreeSet<String> {
    let package = |id: &str| {
        metadata["packages"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|package| package["id"] == id)
            .unwrap_or(&Value::Null)
    };
    let is_macro = |id: &str| {
        names(&package(id)["targets"], "name").next().is_some_and(|_| {
            let targets = package(id)["targets"].as_array().into_iter().flatten();
            targets.flat_map(|target| target["kind"].as_array().into_iter().flatten()).any(|kind| kind == "proc-macro")
        })
    };
    let nodes = metadata["resolve"]["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let start = nodes.iter().filter_map(|node| node["id"].as_str()).find(|id| package(id)["name"] == root);
    let mut open: Vec<&str> = start.into_iter().collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        let node = nodes.iter().find(|node| node["id"] == id).unwrap_or(&Value::Null);
        for dep in node["deps"].as_array().into_iter().flatten() {
            let normal = dep["dep_kinds"].as_array().into_iter().flatten().any(|kind| kind["kind"].is_null());
            let Some(used) = dep["pkg"].as_str() else { continue };
            if normal && !is_macro(used) && seen.insert(package(used)["name"].as_str().unwrap_or_default().to_owned()) {
                open.push(used);
            }
        }
    }
    seen
}

#[test]
fn crates_depend_one_way() {
    let mut metadata = metadata(&["--no-deps"]);
    assert_eq!(against_order(&metadata), [""; 0]);
    let present: Vec<&str> = names(&metadata["packages"], "name").collect();
    assert!(ORDER.iter().all(|name| present.contains(name)), "{present:?}");

    // The check itself: a planted dependency the wrong way, and a crate without a place, are found.
    for package in metadata["packages"].as_array_mut().expect("packages") {
        if package["name"] == "amk" {
            package["dependencies"].as_array_mut().expect("dependencies").push(json!({"name": "amk-models"}));
        }
        if package["name"] == "amk-ui-tests" {
            package["name"] = "amk-utils".into();
        }
    }
    let found = against_order(&metadata);
    assert!(found.contains(&"amk uses amk-models".to_owned()), "{found:?}");
    assert!(found.contains(&"amk-utils has no place in the order".to_owned()), "{found:?}");
}

#[test]
fn programs_know_nothing_of_syntax_and_devices() {
    let metadata = metadata(&[]);
    let foreign = |root: &str| -> Vec<String> {
        linked(&metadata, root).into_iter().filter(|name| FOREIGN.contains(&name.as_str())).collect()
    };
    assert_eq!(foreign("amk-ir"), [""; 0]);
    // The check itself: a crate that does link them is found.
    assert!(foreign("amk-macros-core").contains(&"syn".to_owned()));
    assert_eq!(foreign("amk"), ["inventory"]);
    assert!(foreign("amk-cuda").contains(&"cudarc".to_owned()));
}

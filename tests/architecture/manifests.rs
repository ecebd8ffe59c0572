//! Manifests declare the crates that code names, and every file of tests is run.

use super::metadata;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Dependencies that no code names and that are needed all the same: crate, dependency, reason.
const UNNAMED: [(&str, &str, &str); 0] = [];

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn folder(path: &Value) -> PathBuf {
    Path::new(text(path)).parent().map(Path::to_owned).unwrap_or_default()
}

/// The Rust code under a folder without comments. Packages inside it are left out.
fn code(folder: &Path) -> String {
    let mut code = String::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("it can be listed").path();
        if path.is_dir() {
            if !path.join("Cargo.toml").exists() && !path.ends_with("target") {
                code.push_str(&self::code(&path));
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path).expect("it can be read");
            let lines = source.lines().map(|line| line.split("//").next().unwrap_or_default());
            lines.for_each(|line| code.extend([line, "\n"]));
        }
    }
    code
}

/// Whether code has a path that starts with this crate, or a `use` of it.
fn names(code: &str, krate: &str) -> bool {
    code.match_indices(krate).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + krate.len()..]);
        let whole = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let used = before.ends_with("use ") && (after.starts_with(';') || after.starts_with(" as "));
        whole && (used || after.starts_with("::"))
    })
}

/// Dependencies that no code of their crate names: for libraries and binaries in their sources, for
/// tests in all files.
fn unnamed(package: &Value) -> Vec<String> {
    let own = |target: &&Value| items(&target["kind"]).any(|kind| !["test", "bench", "example"].contains(&text(kind)));
    let sources: String =
        items(&package["targets"]).filter(own).map(|target| code(&folder(&target["src_path"]))).collect();
    let all = code(&folder(&package["manifest_path"]));
    let mut found = Vec::new();
    for dependency in items(&package["dependencies"]) {
        let (krate, name) = (text(&package["name"]), text(&dependency["name"]));
        let ident = dependency["rename"].as_str().unwrap_or(name).replace('-', "_");
        let code = if dependency["kind"].is_null() { &sources } else { &all };
        let allowed = UNNAMED.iter().any(|(own, other, _)| (*own, *other) == (krate, name));
        if names(code, &ident) == allowed {
            found.push(format!("{krate}: {name}"));
        }
    }
    found
}

#[test]
fn every_dependency_is_named_in_code() {
    let mut metadata = metadata(&["--no-deps"]);
    let found: Vec<String> = items(&metadata["packages"]).flat_map(unnamed).collect();
    assert!(found.is_empty(), "nothing uses {}", found.join(", "));

    // The check itself: planted dependencies are found.
    let planted = json!([{"name": "serde_yaml", "kind": "dev"}, {"name": "serde_json", "kind": null}]);
    for package in metadata["packages"].as_array_mut().expect("packages") {
        package["dependencies"] = planted.clone();
    }
    let found: Vec<String> = items(&metadata["packages"]).flat_map(unnamed).collect();
    assert!(found.contains(&"amk-ir: serde_yaml".to_owned()), "{found:?}");
    assert!(found.contains(&"amk-kernels: serde_json".to_owned()), "{found:?}");
    assert!(!found.contains(&"amk-ir: serde_json".to_owned()), "{found:?}");
    assert!(!names("use object_store::x; my_object::y", "object") && names("use object as _;", "object"));
}

/// Fields that a registry asks for and a package lacks, and licences that its archive must carry.
fn lacks(package: &Value) -> Vec<String> {
    let fields = ["description", "license", "readme", "rust_version"];
    let missing = fields.into_iter().filter(|field| text(&package[*field]).is_empty());
    let lists = ["keywords", "categories"].into_iter().filter(|field| items(&package[*field]).next().is_none());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = folder(&package["manifest_path"]);
    let differs = |name: &&str| fs::read(folder.join(name)).ok() != fs::read(root.join(name)).ok();
    let licences = ["LICENSE-MIT", "LICENSE-APACHE"].into_iter().filter(differs);
    missing.chain(lists).chain(licences).map(|what| format!("{}: {what}", text(&package["name"]))).collect()
}

#[test]
fn published_crates_have_what_a_registry_asks_for() {
    let metadata = metadata(&["--no-deps"]);
    let published = |package: &&Value| package["publish"].is_null();
    let lacking: Vec<String> = items(&metadata["packages"]).filter(published).flat_map(lacks).collect();
    assert!(lacking.is_empty(), "{}", lacking.join(", "));
    // The others, which no registry gets, show that the check finds something.
    let own = items(&metadata["packages"]).find(|package| package["name"] == "amk-tests").expect("these tests");
    assert!(lacks(own).contains(&"amk-tests: LICENSE-MIT".to_owned()), "{:?}", lacks(own));
    // What is published cannot depend on what is not.
    let unpublished: Vec<&str> = items(&metadata["packages"])
        .filter(|package| !published(package))
        .map(|package| text(&package["name"]))
        .collect();
    for package in items(&metadata["packages"]).filter(published) {
        for dependency in items(&package["dependencies"]) {
            assert!(!unpublished.contains(&text(&dependency["name"])), "{}: {dependency}", package["name"]);
        }
    }
}

/// Files in the folder of a tests' `main.rs` that it does not declare.
fn orphans(main: &Path) -> Vec<PathBuf> {
    let declared = fs::read_to_string(main).expect("it can be read");
    let siblings = fs::read_dir(main.parent().unwrap_or(main)).expect("it can be listed");
    let mut orphans: Vec<PathBuf> = siblings.map(|entry| entry.expect("it can be listed").path()).collect();
    orphans.retain(|path| {
        let module = path.extension().is_some_and(|extension| extension == "rs") || path.join("mod.rs").exists();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        module && path != main && !declared.lines().any(|line| line == format!("mod {name};"))
    });
    orphans
}

#[test]
fn a_crate_has_one_binary_of_tests_and_each_file_is_a_module_of_it() {
    let metadata = metadata(&["--no-deps"]);
    let mut mains = 0;
    for package in items(&metadata["packages"]) {
        let is_test = |target: &&Value| items(&target["kind"]).any(|kind| kind == "test");
        let tests: Vec<&Value> = items(&package["targets"]).filter(is_test).collect();
        assert!(tests.len() <= 1, "{}: {} binaries of tests", package["name"], tests.len());
        for main in tests.iter().map(|target| Path::new(text(&target["src_path"]))) {
            if main.ends_with("main.rs") {
                assert!(orphans(main).is_empty(), "{:?} not in {}", orphans(main), main.display());
                mains += 1;
            }
        }
    }
    assert!(mains >= 5, "{mains}");

    // The check itself: a file that nothing declares is found.
    let folder = tempfile::tempdir().expect("a folder");
    let main = folder.path().join("main.rs");
    fs::write(&main, "mod a;\n").expect("it should be written");
    for name in ["a.rs", "b.rs"] {
        fs::write(folder.path().join(name), "").expect("it should be written");
    }
    assert_eq!(orphans(&main), [folder.path().join("b.rs")]);
}

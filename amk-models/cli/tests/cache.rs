//! The default model, fetched from a hub of our own into a cache of our own.

use super::amk::tiny_llama;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

/// Serves files of a folder until the test ends, the last one only in part. Returns its address.
fn broken_hub(folder: &Path) -> String {
    let file = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let weights = file("model-00001-of-00003.safetensors");
    let files = [("config.json", file("config.json")), ("tokenizer.json", file("tokenizer.json"))];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut lines = BufReader::new(connection.try_clone().unwrap()).lines();
            let request = lines.next().unwrap().unwrap();
            while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
            let name = request.split(' ').nth(1).unwrap().rsplit('/').next().unwrap();
            let found = files.iter().find(|(known, _)| *known == name).map(|(_, bytes)| (bytes.len(), &bytes[..]));
            let half = (weights.len(), &weights[..weights.len() / 2]);
            let (status, length, body) = match found.or((name == "model.safetensors").then_some(half)) {
                Some((length, body)) => (200, length, body),
                None => (404, 0, &b""[..]),
            };
            let head = format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
            connection.write_all(head.as_bytes()).unwrap();
            connection.write_all(body).unwrap();
        }
    });
    address
}

#[test]
fn a_cache_that_cannot_be_written_is_missing() {
    let doctor = |cache: &Path| {
        let mut amk = Command::new(env!("CARGO_BIN_EXE_amk"));
        let output = amk.args(["doctor", "--quick"]).env("AMK_CACHE", cache).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().find(|line| line.contains(" cache ")).unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    let folder = tempfile::tempdir().unwrap();
    let (file, new) = (folder.path().join("file"), folder.path().join("new"));
    std::fs::write(&file, "").unwrap();
    let line = doctor(&file);
    assert!(
        line.starts_with("missing cache ") && line.contains(&format!("cannot write {}: ", file.display())),
        "{line}"
    );
    assert!(doctor(&new).starts_with("ok      cache "));
    assert_eq!(std::fs::read_dir(&new).unwrap().count(), 0);
}

/// The error of `amk generate` with this cache.
fn error(cache: &Path, hub: &str) -> String {
    let mut amk = Command::new(env!("CARGO_BIN_EXE_amk"));
    // Without Python there is one source.
    let amk = amk.args(["generate", "a"]).env("AMK_CACHE", cache).env("HF_ENDPOINT", hub).env("PATH", "");
    let output = amk.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_broken_download_is_told_line_by_line_and_leaves_nothing() {
    let (cache, model) = (tempfile::tempdir().unwrap(), tiny_llama());
    let error = error(cache.path(), &broken_hub(model.path()));
    assert!(error.contains("fetching config.json: ") && error.contains("fetching model.safetensors: "), "{error}");
    assert!(error.contains("error: SmolLM2-135M-Instruct is not in the cache, and no source gave it"), "{error}");
    let left = std::fs::read_dir(cache.path().join("models/SmolLM2-135M-Instruct")).unwrap();
    assert_eq!(left.map(|entry| entry.unwrap().path()).collect::<Vec<_>>(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn a_damaged_file_of_the_cache_is_told_with_what_to_delete() {
    let (cache, model) = (tempfile::tempdir().unwrap(), tiny_llama());
    let hub = cache.path().join("models/SmolLM2-135M-Instruct/hub");
    std::fs::create_dir_all(&hub).unwrap();
    for name in ["config.json", "tokenizer.json"] {
        std::fs::copy(model.path().join(name), hub.join(name)).unwrap();
    }
    let weights = std::fs::read(model.path().join("model-00001-of-00003.safetensors")).unwrap();
    std::fs::write(hub.join("model.safetensors"), &weights[..weights.len() / 2]).unwrap();
    let abandoned = cache.path().join("models/SmolLM2-135M-Instruct/.partial-x");
    std::fs::create_dir(&abandoned).unwrap();
    let error = error(cache.path(), "http://127.0.0.1:9");
    assert!(error.contains("model.safetensors: the file is truncated: the tensors' data needs "), "{error}");
    assert!(error.ends_with(&format!("; delete {} to have the model fetched again\n", hub.display())), "{error}");
    assert!(!abandoned.exists());
}

#[cfg(unix)]
#[test]
fn a_model_of_the_hub_is_found_in_the_cache_of_pythons_tools() {
    let (home, model) = (tempfile::tempdir().unwrap(), tiny_llama());
    let folder = home.path().join("hub/models--owner--tiny");
    std::fs::create_dir_all(folder.join("refs")).unwrap();
    std::fs::create_dir_all(folder.join("snapshots")).unwrap();
    std::fs::write(folder.join("refs/main"), "c0ffee").unwrap();
    std::os::unix::fs::symlink(model.path(), folder.join("snapshots/c0ffee")).unwrap();
    let generate = |model: &str| {
        let mut amk = Command::new(env!("CARGO_BIN_EXE_amk"));
        amk.args(["generate", "-q", "--raw", "--greedy", "-n", "8", "the cat", "-m", model]);
        let output = amk.env("HF_HOME", home.path()).env("HF_HUB_OFFLINE", "1").output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let of_path = generate(&model.path().display().to_string());
    assert!(!of_path.0.is_empty());
    assert_eq!(generate("owner/tiny"), of_path);
    assert_eq!(generate("owner/tiny@c0ffee"), of_path);
    assert!(generate("owner/tiny@v2").1.contains("owner/tiny@v2 is not in the cache"));
    assert!(generate("owner/tiny:m.gguf").1.contains("owner/tiny has no file m.gguf"));
}

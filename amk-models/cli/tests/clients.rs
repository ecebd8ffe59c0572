//! Programs as people have them, against `amk serve`. One whose package is missing is skipped.

use super::amk::{tiny_llama, write_json};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A running server.
struct Server {
    process: Child,
    url: String,
    _model: TempDir,
}

impl Server {
    /// Serves the tiny llama, with room for prompts of tools.
    fn start() -> Self {
        let model = tiny_llama();
        let config = std::fs::read_to_string(model.path().join("config.json")).unwrap();
        let mut config: Value = serde_json::from_str(&config).unwrap();
        config["max_position_embeddings"] = 4096.into();
        write_json(&model, "config.json", &config);
        let mut amk = Command::new(env!("CARGO_BIN_EXE_amk"));
        amk.args(["serve", "-p", "0", "-c", "4096", "--grace", "5", "--alias", "tiny", "-m"]).arg(model.path());
        let mut process = amk.stderr(Stdio::piped()).spawn().unwrap();
        let mut messages = BufReader::new(process.stderr.take().unwrap()).lines();
        let served = messages.find_map(|line| line.unwrap().split_once(" at ").map(|(_, rest)| rest.to_owned()));
        let url = served.and_then(|rest| rest.split(',').next().map(str::to_owned)).expect("an address");
        Self { process, url, _model: model }
    }

    /// Runs a program of `tests/clients` with the server's address and more arguments.
    fn ask(&self, program: &str, script: &str, arguments: &[&str]) {
        let output = Command::new(program).arg(clients().join(script)).arg(&self.url).args(arguments).output().unwrap();
        let (out, messages) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{script}: {out}{messages}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn clients() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

/// Whether Python has a package.
fn python_has(package: &str) -> bool {
    let found = Command::new("python3").args(["-c", &format!("import {package}")]).output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: Python has no {package}");
    }
    found
}

#[test]
fn openais_python_package_is_served() {
    if python_has("openai") {
        Server::start().ask("python3", "openai_client.py", &[]);
    }
}

#[test]
fn langchain_is_served() {
    if python_has("langchain_openai") {
        Server::start().ask("python3", "langchain_client.py", &["tiny"]);
    }
}

#[test]
fn openais_npm_package_is_served() {
    // `npm install --prefix amk-models/cli/tests/clients openai`
    if clients().join("node_modules/openai").is_dir() {
        Server::start().ask("node", "openai_client.mjs", &[]);
    } else {
        eprintln!("skipped: tests/clients has no node_modules/openai");
    }
}

#[test]
fn the_page_works_in_a_browser() {
    let browser = ["chromium", "google-chrome"].iter().any(|name| Command::new(name).arg("--version").output().is_ok());
    if browser && python_has("playwright") {
        Server::start().ask("python3", "page.py", &[]);
    } else {
        eprintln!("skipped: there is no Chromium, or no playwright to drive it");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn many_clients_have_their_own_answers_and_the_server_ends_in_its_grace_time() {
    if python_has("http.client") {
        let server = Server::start();
        let process = server.process.id().to_string();
        server.ask("python3", "load.py", &[&process, "3", "32", "5"]);
    }
}

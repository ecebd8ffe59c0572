//! `serve` as a process: what it writes, and what its options do.

use super::amk::tiny_llama;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Stdio};
use tempfile::TempDir;

/// A server that is killed in the end, and its model.
struct Process(Child, #[expect(dead_code, reason = "it is deleted with this")] TempDir);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server of the tiny llama, and the records that it writes.
fn serve(options: &[&str]) -> (Process, impl Iterator<Item = Value>) {
    let model = tiny_llama();
    let mut amk = Command::new(env!("CARGO_BIN_EXE_amk"));
    amk.args(["serve", "-p", "0", "--alias", "tiny", "--log-format", "json", "-m"]).arg(model.path()).args(options);
    let mut process = amk.stderr(Stdio::piped()).spawn().unwrap();
    let stderr: ChildStderr = process.stderr.take().unwrap();
    let records = BufReader::new(stderr).lines().map(|line| {
        let line = line.unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    });
    (Process(process, model), records)
}

fn post(address: &str, path: &str, id: &str, body: &Value) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let body = body.to_string();
    let head = format!("POST {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nX-Request-Id: {id}\r\n");
    let length = body.len();
    write!(stream, "{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn records_are_json_with_the_ids_of_requests() {
    let (_process, mut records) = serve(&["--embeddings", "--max-tokens", "5"]);
    let serving = records.next().unwrap();
    assert_eq!((&serving["message"], &serving["model"]), (&json!("serving"), &json!("tiny")), "{serving}");
    let start = serving["start"].as_str().unwrap();
    assert!(start.starts_with("ready in ") && start.contains(", read the weights ") && start.contains(", planned "));
    let address = serving["address"].as_str().unwrap();
    let answer =
        post(address, "/v1/completions", "first", &json!({ "prompt": "the cat", "temperature": 0, "max_tokens": 9 }));
    assert!(answer.contains(r#""completion_tokens":5"#), "{answer}");
    let (answer, request) = (records.next().unwrap(), records.next().unwrap());
    assert_eq!((&answer["message"], &answer["outcome"]), (&json!("answer"), &json!("ended")), "{answer}");
    assert_eq!((&answer["completion_tokens"], &answer["prompt_tokens"]), (&json!(5), &json!(7)), "{answer}");
    assert_eq!((&request["message"], &request["status"]), (&json!("request"), &json!(200)), "{request}");
    for record in [&answer, &request] {
        assert_eq!((&record["span"]["id"], &record["level"]), (&json!("first"), &json!("INFO")), "{record}");
    }
    let embeddings = post(address, "/v1/embeddings", "second", &json!({ "input": ["the cat", "a dog"] }));
    assert!(embeddings.starts_with("HTTP/1.1 200") && embeddings.contains(r#""index":1"#), "{embeddings}");
    assert_eq!(records.next().unwrap()["span"]["path"], "/v1/embeddings");
}

#[test]
fn a_reader_of_records_that_goes_takes_nothing_along() {
    let (_process, mut records) = serve(&[]);
    let serving = records.next().unwrap();
    drop(records);
    for _ in 0..3 {
        let answer =
            post(serving["address"].as_str().unwrap(), "/v1/completions", "a", &json!({ "prompt": "the cat" }));
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

#[test]
fn a_server_listens_at_a_name() {
    let (_process, mut records) = serve(&["--host", "localhost"]);
    let serving = records.next().unwrap();
    let answer = post(serving["address"].as_str().unwrap(), "/tokenize", "a", &json!({ "content": "the cat" }));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[cfg(unix)]
#[test]
fn a_server_that_is_announced_can_be_asked_to_end() {
    for signal in ["-INT", "-TERM"].repeat(4) {
        let (mut process, mut records) = serve(&[]);
        assert_eq!(records.next().unwrap()["message"], "serving");
        assert!(Command::new("kill").args([signal, &process.0.id().to_string()]).status().unwrap().success());
        assert_eq!(process.0.wait().unwrap().code(), Some(0), "{signal}");
    }
}

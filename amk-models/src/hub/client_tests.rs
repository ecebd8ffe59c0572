//! The client against a hub of our own.

use super::*;
use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use tempfile::TempDir;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A repository with a config and two shards, whose hub breaks off the first transfer of a shard.
struct Hub {
    address: String,
    /// The heads of all requests.
    asked: Arc<Mutex<Vec<String>>>,
    home: TempDir,
}

fn shard(number: u8) -> Vec<u8> {
    (0..100_000_u32).map(|at| (at % 251) as u8 ^ number).collect()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The second shard of a hub that sends far more than it lists.
const LONGER: &[u8] = b"longer";
const MUCH: usize = 256 << 20;

/// Sends up to this many bytes. Returns how many were sent.
fn send_more(connection: &mut TcpStream) -> usize {
    let mut sent = 0;
    connection.write_all(b"HTTP/1.1 200 x\r\nconnection: close\r\n\r\n").unwrap();
    while sent < MUCH && connection.write_all(&[0; CHUNK]).is_ok() {
        sent += CHUNK;
    }
    sent
}

impl Hub {
    /// A hub that lists shards by these hashes, and wants a token where one is named.
    fn start(hashes: [String; 2], token: Option<&'static str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                let lines = BufReader::new(connection.try_clone().unwrap()).lines();
                let head: Vec<String> = lines.map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
                let head = head.join("\n").to_lowercase();
                let first = !seen.lock().unwrap().contains(&head);
                seen.lock().unwrap().push(head.clone());
                if head.contains("model-2") && hashes[1] == sha256(LONGER) {
                    seen.lock().unwrap().push(format!("sent {}", send_more(&mut connection)));
                    continue;
                }
                let (status, body) = answer(&head, &hashes, token);
                let header =
                    format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
                connection.write_all(header.as_bytes()).unwrap();
                let breaks = first && head.contains("model-2") && !head.contains("range:");
                let sent = if breaks { body.len() / 2 } else { body.len() };
                connection.write_all(&body[..sent]).unwrap();
            }
        });
        Self { address, asked, home: tempfile::tempdir().unwrap() }
    }

    fn settings(&self, more: &[(&str, &str)]) -> HubSettings {
        let home = self.home.path().display().to_string();
        HubSettings::of(|name| match name {
            "HF_HOME" => Some(home.clone()),
            "HF_ENDPOINT" => Some(self.address.clone()),
            name => more.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()),
        })
    }

    fn count(&self, part: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|head| head.contains(part)).count()
    }
}

fn answer(head: &str, hashes: &[String; 2], token: Option<&str>) -> (u16, Vec<u8>) {
    if token.is_some_and(|token| !head.contains(&format!("authorization: bearer {token}"))) {
        return (401, Vec::new());
    }
    let path = head.split(' ').nth(1).unwrap();
    let range = head.split_once("range: bytes=").and_then(|(_, range)| range.split('-').next()?.parse().ok());
    let whole = match path {
        "/api/models/a/b/revision/main?blobs=true" => {
            let shard = |number: usize| {
                let (sha256, name) = (&hashes[number - 1], format!("model-{number}.safetensors"));
                serde_json::json!({ "rfilename": name, "size": 100_000, "lfs": { "sha256": sha256 } })
            };
            let config = serde_json::json!({ "rfilename": "config.json", "size": 2, "blobId": "c0ffee" });
            let bad = serde_json::json!({ "rfilename": "../model-3.safetensors", "size": 2, "blobId": "bad" });
            let siblings = [config, shard(1), shard(2), bad];
            serde_json::json!({ "sha": COMMIT, "siblings": siblings }).to_string().into_bytes()
        }
        _ => match path.strip_prefix(&format!("/a/b/resolve/{COMMIT}/")) {
            Some("config.json") => b"{}".to_vec(),
            Some("model-1.safetensors") => shard(1),
            Some("model-2.safetensors") => shard(2),
            _ => return (404, Vec::new()),
        },
    };
    match range {
        Some(from) => (206, whole[from..].to_vec()),
        None => (200, whole),
    }
}

fn hashes() -> [String; 2] {
    [sha256(&shard(1)), sha256(&shard(2))]
}

fn model(text: &str) -> HubModel {
    text.parse().unwrap()
}

#[test]
fn a_model_is_fetched_once_and_resumed_where_it_broke_off() {
    let hub = Hub::start(hashes(), None);
    let path = model("a/b").resolve(&hub.settings(&[])).unwrap();
    assert_eq!(path, hub.home.path().join(format!("hub/models--a--b/snapshots/{COMMIT}")));
    assert_eq!(std::fs::read(path.join("model-1.safetensors")).unwrap(), shard(1));
    assert_eq!(std::fs::read(path.join("model-2.safetensors")).unwrap(), shard(2));
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 3);
    assert_eq!((hub.count("/resolve/"), hub.count("range: bytes=50000-")), (4, 1));
    // Nothing more is fetched, also where nothing may be.
    assert_eq!(model("a/b").resolve(&hub.settings(&[])).unwrap(), path);
    assert_eq!((hub.count("/resolve/"), hub.count("/api/")), (4, 2));
    let offline = hub.settings(&[("HF_HUB_OFFLINE", "1")]);
    assert_eq!(model("a/b").resolve(&offline).unwrap(), path);
    assert_eq!(model(&format!("a/b@{COMMIT}")).resolve(&offline).unwrap(), path);
    let gone = HubSettings::of(|name| match name {
        "HF_HOME" => Some(hub.home.path().display().to_string()),
        "HF_ENDPOINT" => Some("http://127.0.0.1:9".to_owned()),
        _ => None,
    });
    assert_eq!(model("a/b").resolve(&gone).unwrap(), path);
    assert_eq!(hub.count("/"), 6);
}

#[test]
fn what_is_not_there_is_told() {
    let hub = Hub::start(hashes(), None);
    let error = |name: &str, more: &[(&str, &str)]| model(name).resolve(&hub.settings(more)).unwrap_err().to_string();
    assert!(error("a/b", &[("HF_HUB_OFFLINE", "1")]).ends_with("and HF_HUB_OFFLINE is set"));
    assert!(error("a/c", &[]).starts_with("the hub answers 404 for a/c; its name or revision may be wrong"));
    assert!(error("a/b:m.gguf", &[]).starts_with("a/b has no file m.gguf"));
}

#[test]
fn a_private_model_needs_the_token() {
    let hub = Hub::start(hashes(), Some("secret"));
    let error = model("a/b").resolve(&hub.settings(&[])).unwrap_err().to_string();
    assert!(error.contains("401") && error.contains("HF_TOKEN"), "{error}");
    model("a/b").resolve(&hub.settings(&[("HF_TOKEN", "secret")])).unwrap();
}

#[test]
fn a_damaged_file_is_not_kept() {
    let hub = Hub::start([sha256(&shard(1)), sha256(b"another")], None);
    let error = model("a/b").resolve(&hub.settings(&[])).unwrap_err().to_string();
    assert!(error.starts_with("model-2.safetensors was damaged"), "{error}");
    let blobs = hub.home.path().join("hub/models--a--b/blobs");
    assert!(std::fs::read_dir(blobs).unwrap().all(|blob| !blob.unwrap().path().ends_with(sha256(b"another"))));
}

#[test]
fn a_transfer_ends_where_more_comes_than_is_listed() {
    let hub = Hub::start([sha256(&shard(1)), sha256(LONGER)], None);
    let error = model("a/b").resolve(&hub.settings(&[])).unwrap_err().to_string();
    assert!(error.starts_with("model-2.safetensors was damaged"), "{error}");
    let sent = loop {
        let asked = hub.asked.lock().unwrap();
        if let Some(sent) = asked.iter().find_map(|line| line.strip_prefix("sent ")?.parse::<usize>().ok()) {
            break sent;
        }
        drop(asked);
        std::thread::yield_now();
    };
    assert!(sent < MUCH / 4, "{sent} bytes were taken of a file of 100000");
}

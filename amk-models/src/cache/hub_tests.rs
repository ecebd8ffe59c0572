//! The client against a hub of our own.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use super::*;
use crate::cache::Disk;

/// Answers requests by path with a status, a declared length and a body, until the test ends.
/// Returns its address.
fn hub(answers: &'static [(&'static str, u16, usize, &'static [u8])]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut lines = BufReader::new(connection.try_clone().unwrap()).lines();
            let request = lines.next().unwrap().unwrap();
            while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
            let path = request.split(' ').nth(1).unwrap();
            let found = answers.iter().find(|(known, ..)| *known == path);
            let (status, length, body) =
                found.map_or((404, 0, &b""[..]), |&(_, status, length, body)| (status, length, body));
            let head = format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
            connection.write_all(head.as_bytes()).unwrap();
            connection.write_all(body).unwrap();
        }
    });
    address
}

const FILES: [HubFile; 2] =
    [HubFile { name: "config.json", required: true }, HubFile { name: "chat_template.jinja", required: false }];

fn fetched(address: &str) -> Result<Vec<u8>, FetchError> {
    let folder = tempfile::tempdir().unwrap();
    let partial = PartialFolder::new(folder.path()).unwrap();
    fetch(address, "owner/name", &FILES, &partial, &Disk)?;
    Ok(std::fs::read(partial.model().join("config.json")).unwrap())
}

#[test]
fn files_are_fetched_and_optional_ones_may_be_missing() {
    let address = hub(&[("/owner/name/resolve/main/config.json", 200, 5, b"hello")]);
    assert_eq!(fetched(&address).unwrap(), b"hello");
}

#[test]
fn a_missing_required_file_is_an_error() {
    let error = fetched(&hub(&[])).unwrap_err().to_string();
    assert!(error.starts_with("config.json: ") && error.contains("404"), "{error}");
}

#[test]
fn a_body_that_ends_early_is_an_error() {
    let address = hub(&[("/owner/name/resolve/main/config.json", 200, 10, b"hello")]);
    assert!(matches!(fetched(&address), Err(FetchError::Unavailable(_))));
}

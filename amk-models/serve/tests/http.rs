//! What clients see of HTTP itself: methods, headers, and heads of any kind.

use super::{ask, server};
use amk_serve::ServeOptions;
use serde_json::json;
use std::time::Duration;

const JSON: &str = "Content-Type: application/json";
/// For heads that may have no end, so that the server waits for more.
const WAIT: Duration = Duration::from_millis(50);

#[test]
fn every_error_is_json_with_a_message() {
    let server = server(0, 8, ServeOptions::default());
    let body = ask("t1").to_string();
    for (line, headers, status, message) in [
        ("GET /nothing", &[][..], 404, "there is no GET /nothing; the API begins with /v1"),
        ("POST /v1/completions/", &[JSON], 404, "there is no POST /v1/completions/"),
        ("GET /v1/models/other", &[], 404, "this server has `count`"),
        ("GET /v1/models/%ff", &[], 400, "Invalid UTF-8"),
        ("GET /v1/completions", &[], 405, "/v1/completions is not asked by GET"),
        ("DELETE /v1/models/count", &[], 405, "is not asked by DELETE"),
        ("OPTIONS /v1/completions", &["Origin: http://a.org"], 405, "is not asked by OPTIONS"),
        ("POST /v1/completions", &[], 415, "`Content-Type` is missing, expected `application/json`"),
        ("POST /v1/completions", &["Content-Type: text/plain"], 415, "`text/plain`, expected `application/json`"),
        ("POST /v1/completions", &[JSON, "Content-Encoding: gzip"], 415, "is encoded as `gzip`"),
    ] {
        let answer = server.ask(line, headers, &body);
        let error = answer.json()["error"].clone();
        assert_eq!((answer.status, &error["type"]), (status, &json!("invalid_request_error")), "{line}: {error}");
        assert!(error["message"].as_str().is_some_and(|text| text.contains(message)), "{line}: {error}");
    }
    let with_charset = ["Content-Type: Application/JSON; charset=utf-8"];
    assert_eq!(server.ask("POST /v1/completions", &with_charset, &body).status, 200);
    assert_eq!(server.ask("GET /v1/models/count", &[], "").json()["id"], "count");
    let head = server.ask("HEAD /v1/models", &[], "");
    assert_eq!((head.status, head.text.as_str()), (200, ""));
}

#[test]
fn a_body_that_is_announced_as_too_large_is_not_waited_for() {
    let server = server(0, 8, ServeOptions { body: 2000, ..ServeOptions::default() });
    let head = format!("POST /v1/completions HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{JSON}\r\n");
    let answer =
        server.raw(format!("{head}Expect: 100-continue\r\nContent-Length: 2001\r\n\r\n").as_bytes(), WAIT * 20);
    assert_eq!(answer.map(|answer| answer.status), Some(413));
}

#[test]
fn pages_ask_where_their_origin_is_allowed() {
    let asks = |allowed: &[&str]| {
        let origins = allowed.iter().map(|origin| origin.parse().expect("an origin")).collect();
        let server = server(0, 8, ServeOptions { origins, key: Some("secret".into()), ..ServeOptions::default() });
        let origin = "Origin: http://localhost:3000";
        let asked = ["Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization,x-lang"];
        let before = server.ask("OPTIONS /v1/completions", &[&[origin], &asked[..]].concat(), "");
        let answer =
            server.ask("POST /v1/completions", &[origin, JSON, "Authorization: Bearer secret"], &ask("t1").to_string());
        assert_eq!(answer.status, 200);
        let header = |name: &str| answer.header(name).unwrap_or_default();
        let headers = before.header("access-control-allow-headers").unwrap_or_default();
        (header("access-control-allow-origin"), header("access-control-expose-headers"), headers)
    };
    let (exposed, sent) = ("x-request-id,retry-after".to_owned(), "authorization,x-lang".to_owned());
    let own = "http://localhost:3000".to_owned();
    assert_eq!(asks(&["https://a.org", "http://localhost:3000"]), (own, exposed.clone(), sent.clone()));
    assert_eq!(asks(&["*"]), ("*".to_owned(), exposed, sent));
    assert_eq!(asks(&["https://a.org"]).0, "");
    assert_eq!(asks(&[]).0, "");
}

#[test]
fn every_answer_has_the_id_of_its_request() {
    let server = server(0, 8, ServeOptions::default());
    let id = |headers: &[&str]| server.ask("GET /v1/models", headers, "").header("x-request-id").expect("an id");
    let (first, second) = (id(&[]), id(&[]));
    assert!(first.starts_with("req-") && first != second, "{first} {second}");
    assert_eq!(id(&["X-Request-Id: of-the-client"]), "of-the-client");
    assert!(id(&["X-Request-Id: two words"]).starts_with("req-"));
    assert!(id(&[&format!("X-Request-Id: {}", "long".repeat(99))]).starts_with("req-"));
    assert!(server.get("/nothing").header("x-request-id").is_some());
}

#[test]
fn a_head_that_does_not_come_in_time_ends_its_connection() {
    let limit = Duration::from_millis(200);
    let server = server(20, 8, ServeOptions { head_time: limit, ..ServeOptions::default() });
    for begun in ["", "GET /hea", "GET /health HTTP/1.1\r\nHost: test\r\nX: "] {
        assert_eq!(server.drip(begun.as_bytes()).as_deref(), Some(""), "{begun}");
    }
    let next = server.drip(b"GET /health HTTP/1.1\r\nHost: test\r\n\r\n").expect("it is closed");
    assert!(next.starts_with("HTTP/1.1 200"), "{next}");
    // An answer may take longer.
    let text = server.post("/v1/completions", &json!({ "prompt": "t1", "max_tokens": 20, "temperature": 0 })).text;
    assert!(text.contains("t21"), "{text}");
}

/// Bytes that mean something in a head, or nothing anywhere.
const ODD: &[u8] = b"\0\r\n\t :/%?;,=0-9AZaz\x7f\xff\xc3";

#[test]
fn no_head_brings_the_server_down() {
    let server = server(0, 8, ServeOptions::default());
    let body = ask("t1").to_string();
    let length = body.len();
    let head = format!("POST /v1/completions?x=%20 HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{JSON}\r\n");
    let head = format!("{head}Authorization: Bearer \u{e9}\r\nX-Request-Id: a\r\nContent-Length: {length}\r\n\r\n");
    // Bytes of a head, a few of them changed, by a plain generator of numbers.
    let mut state = 7_u64;
    let mut number = |most: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % most
    };
    for _ in 0..200 {
        let mut bytes = head.clone().into_bytes();
        for _ in 0..1 + number(4) {
            let (at, byte) = (number(bytes.len()), ODD[number(ODD.len())]);
            match number(3) {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
        }
        bytes.extend_from_slice(body.as_bytes());
        let status = server.status(&bytes, WAIT);
        assert!(status.is_none_or(|status| status < 500 || status == 505), "{}", String::from_utf8_lossy(&bytes));
    }
    let long = format!("GET /{} HTTP/1.1\r\nX: {}\r\n\r\n", "a".repeat(99_999), "b".repeat(999_999));
    assert!(server.status(long.as_bytes(), WAIT).is_none_or(|status| (400..500).contains(&status)));
    assert_eq!(server.post("/v1/completions", &ask("t1")).status, 200);
}

//! A server in the background, and a plain client for it.

use serde_json::Value;
use std::future::Future;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Completes when the server should end.
pub(crate) type End = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A running server.
pub(crate) struct Server {
    address: SocketAddr,
    key: Option<String>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    }

    /// The data of all events but the one that ends a stream.
    pub(crate) fn events(&self) -> Vec<Value> {
        let data = self.text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).expect("JSON")).collect()
    }
}

/// An answer that is still coming.
pub(crate) struct Coming(BufReader<TcpStream>);

impl Coming {
    /// All that comes until the server closes the connection, without the lengths of chunks.
    pub(crate) fn rest(mut self) -> String {
        let mut text = String::new();
        self.0.read_to_string(&mut text).expect("an answer");
        unchunked(text.as_bytes())
    }
}

impl Server {
    pub(crate) fn start<F>(serve: impl FnOnce(TcpListener, End) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()>,
    {
        let (end, ended) = oneshot::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            let runtime = runtime.expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
                tell.send(listener.local_addr().expect("an address")).expect("the test waits");
                let end = async {
                    let _ = ended.await;
                };
                serve(listener, Box::pin(end)).await;
            });
            runtime.shutdown_background();
        });
        let address = told.recv().expect("it listens");
        Self { address, key: None, end: Some(end), thread: Some(thread) }
    }

    /// The same server, asked with a key.
    pub(crate) fn with_key(&self, key: &str) -> Self {
        Self { address: self.address, key: Some(key.to_owned()), end: None, thread: None }
    }

    pub(crate) fn end(&mut self) {
        self.end = None;
    }

    pub(crate) fn join(&mut self) {
        self.thread.take().expect("it is joined once").join().expect("it ends well");
    }

    fn send(&self, method: &str, path: &str, body: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
        let key = self.key.as_ref().map_or_else(String::new, |key| format!("Authorization: Bearer {key}\r\n"));
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{key}");
        let head = format!("{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all((head + body).as_bytes()).expect("it reads");
        BufReader::new(stream)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        answer(self.send("GET", path, ""))
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        answer(self.send("POST", path, &body.to_string()))
    }

    /// Sends bytes as the body of a request that names another length.
    pub(crate) fn post_bytes(&self, path: &str, body: &[u8], length: usize) -> Answer {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
        let head = format!("POST {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n");
        let head = format!("{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(&[head.as_bytes(), body].concat()).expect("it reads");
        answer(BufReader::new(stream))
    }

    /// Sends bytes as they are; `None` where no answer begins in this time.
    pub(crate) fn raw(&self, bytes: &[u8], wait: Duration) -> Option<Answer> {
        let reader = self.begun(bytes, wait)?;
        reader.get_ref().set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
        Some(answer(reader))
    }

    /// The status of the answer to bytes as they are, which may leave the connection open.
    pub(crate) fn status(&self, bytes: &[u8], wait: Duration) -> Option<u16> {
        let mut line = String::new();
        self.begun(bytes, wait)?.read_line(&mut line).ok()?;
        line.split_whitespace().nth(1)?.parse().ok()
    }

    /// Sends bytes and then one every 20 ms: what has come when the server closes the connection,
    /// or `None` where it is open after 5 s.
    pub(crate) fn drip(&self, bytes: &[u8]) -> Option<String> {
        let mut stream = self.half(bytes);
        stream.set_read_timeout(Some(Duration::from_millis(20))).expect("a limit");
        let mut come = Vec::new();
        for _ in 0..250 {
            let closed = match stream.read_to_end(&mut come) {
                Ok(_) => true,
                Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            };
            if closed || stream.write_all(b"a").is_err() {
                return Some(String::from_utf8(come).expect("text"));
            }
        }
        None
    }

    /// A connection that has sent bytes as they are.
    pub(crate) fn half(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        stream.write_all(bytes).expect("it reads");
        stream
    }

    fn begun(&self, bytes: &[u8], wait: Duration) -> Option<BufReader<TcpStream>> {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(wait)).expect("a limit");
        // It may close before it has read all.
        let _ = stream.write_all(bytes);
        let mut reader = BufReader::new(stream);
        reader.fill_buf().is_ok_and(|bytes| !bytes.is_empty()).then_some(reader)
    }

    /// An answer to a request with these lines of a head.
    pub(crate) fn ask(&self, line: &str, headers: &[&str], body: &str) -> Answer {
        let length = body.len();
        let head = format!("{line} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: {length}\r\n");
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        self.raw(format!("{head}{headers}\r\n{body}").as_bytes(), Duration::from_secs(60)).expect("an answer")
    }

    /// An answer of which the first event has come.
    pub(crate) fn stream(&self, path: &str, body: &Value) -> Coming {
        let mut reader = self.send("POST", path, &body.to_string());
        let mut line = String::new();
        while !line.starts_with("data: ") {
            line.clear();
            assert!(reader.read_line(&mut line).expect("an answer") > 0, "the answer ends");
        }
        Coming(reader)
    }

    /// Waits until the metrics have a line.
    pub(crate) fn eventually(&self, line: &str) {
        for _ in 0..200 {
            if self.get("/metrics").text.lines().any(|found| found == line) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("no {line} in\n{}", self.get("/metrics").text);
    }
}

fn answer(mut reader: BufReader<TcpStream>) -> Answer {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).expect("an answer") > 0, "the answer ends: {head}");
    }
    let mut body = Vec::new();
    // A server that refuses a body may close before it has read all.
    let _ = reader.read_to_end(&mut body);
    let text = match head.to_lowercase().contains("transfer-encoding: chunked") {
        true => unchunked(&body),
        false => String::from_utf8(body).expect("text"),
    };
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Answer { status, head, text }
}

/// The text of chunks, each with its length in front. The first may have begun before.
fn unchunked(mut body: &[u8]) -> String {
    let mut text = Vec::new();
    while let Some(end) = body.windows(2).position(|pair| pair == b"\r\n") {
        let line = &body[..end];
        let length = std::str::from_utf8(line).ok().and_then(|line| usize::from_str_radix(line, 16).ok());
        body = &body[end + 2..];
        if let Some(length) = length {
            text.extend_from_slice(&body[..length.min(body.len())]);
            body = &body[(length + 2).min(body.len())..];
        } else {
            text.extend_from_slice(line);
        }
    }
    String::from_utf8(text).expect("text")
}

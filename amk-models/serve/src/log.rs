//! Log records of requests and of the texts that answer them, through `tracing`.

use crate::reply::Usage;
use crate::server::Shared;
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::middleware::Next;
use axum::response::Response;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{Instrument as _, Span, debug, info, info_span};

/// The header with the id of a request.
pub(crate) const REQUEST_ID: &str = "x-request-id";
/// Maximum length in characters of an id chosen by a client.
const LONGEST_ID: usize = 128;
/// Paths that monitors ask every few seconds.
const MONITORED: [&str; 2] = ["/health", "/metrics"];

/// Gives each request an id, the client's own if it sends one, and logs the response.
pub(crate) async fn logged(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let id = id(&request).unwrap_or_else(|| format!("req-{}", shared.number()));
    let path = request.uri().path().to_owned();
    let span = info_span!("request", %id, method = %request.method(), path);
    let mut response = next.run(request).instrument(span.clone()).await;
    let (status, seconds) = (response.status().as_u16(), begun.elapsed().as_secs_f64());
    if MONITORED.contains(&path.as_str()) {
        debug!(parent: &span, status, seconds, "request");
    } else {
        info!(parent: &span, status, seconds, "request");
    }
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// The id that a client gave a request, if it is a short word.
fn id(request: &Request) -> Option<String> {
    let id = request.headers().get(REQUEST_ID)?.to_str().ok()?;
    let word = !id.is_empty() && id.len() <= LONGEST_ID && id.bytes().all(|byte| byte.is_ascii_graphic());
    word.then(|| id.to_owned())
}

/// The record of an answer, written when its texts have ended or its client has disconnected.
pub(crate) struct AnswerRecord {
    span: Span,
    begun: Instant,
    first: Option<Duration>,
    pub(crate) usage: Usage,
    outcome: &'static str,
}

impl AnswerRecord {
    /// The record for the current request.
    pub(crate) fn new() -> Self {
        let (span, begun) = (Span::current(), Instant::now());
        Self { span, begun, first: None, usage: Usage::default(), outcome: "left" }
    }

    /// There is text.
    pub(crate) fn text(&mut self) {
        self.first.get_or_insert_with(|| self.begun.elapsed());
    }

    /// All texts have ended.
    pub(crate) fn ended(&mut self) {
        self.outcome = "ended";
    }

    /// A text cannot be written.
    pub(crate) fn failed(&mut self) {
        self.outcome = "failed";
    }
}

impl Drop for AnswerRecord {
    fn drop(&mut self) {
        let Usage { prompt, shared, written } = self.usage;
        info!(
            parent: &self.span,
            outcome = self.outcome,
            prompt_tokens = prompt,
            cached_tokens = shared,
            completion_tokens = written,
            first_text_seconds = self.first.map(|first| first.as_secs_f64()),
            seconds = self.begun.elapsed().as_secs_f64(),
            "answer"
        );
    }
}

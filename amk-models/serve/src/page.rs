//! A page to try the model and to see what the engine is doing. All of it is in the binary.

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::IntoResponse;
use axum::routing::get;

/// Nothing is loaded from elsewhere or sent elsewhere.
const POLICY: &str = "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'";

/// The page and its parts.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/", get(|| async { part("text/html; charset=utf-8", include_str!("page/page.html")) }))
        .route("/page.css", get(|| async { part("text/css", include_str!("page/page.css")) }))
        .route("/page.js", get(|| async { part("text/javascript", include_str!("page/page.js")) }))
}

fn part(kind: &'static str, text: &'static str) -> impl IntoResponse {
    // Another version of the server may follow at the same address.
    ([(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-cache"), (CONTENT_SECURITY_POLICY, POLICY)], text)
}

//! Bodies of requests: JSON, not too large, and not too slow.

use crate::error::ApiError;
use crate::server::Shared;
use axum::body::{Bytes, HttpBody as _};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use std::sync::Arc;

/// A body that came in time.
pub(crate) struct Body(pub(crate) Bytes);

impl FromRequest<Arc<Shared>> for Body {
    type Rejection = ApiError;

    async fn from_request(request: Request, shared: &Arc<Shared>) -> Result<Self, ApiError> {
        check_type(request.headers())?;
        // A client that waits for `100 Continue` need not send a body that is refused.
        if request.body().size_hint().lower() > shared.options.body as u64 {
            return Err(too_large());
        }
        let limit = shared.options.body_time;
        let body = tokio::time::timeout(limit, Bytes::from_request(request, shared)).await;
        let body = body.map_err(|_| ApiError::too_slow(format!("the body did not come in {limit:?}")))?;
        body.map(Self).map_err(|error| match error.status().as_u16() {
            413 => too_large(),
            _ => ApiError::invalid(None, error.body_text()),
        })
    }
}

fn too_large() -> ApiError {
    ApiError::too_large("the body is too large")
}

/// A page of any site may send text or a form to this address unasked, but JSON only if the server
/// allows it ([`crate::ServeOptions::origins`]).
fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let text = |name| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
    if let Some(encoding) = text(header::CONTENT_ENCODING).filter(|encoding| encoding != "identity") {
        return Err(ApiError::unsupported_type(format!("the body is encoded as `{encoding}`, expected plain JSON")));
    }
    let missing = || ApiError::unsupported_type("the header `Content-Type` is missing, expected `application/json`");
    let kind = text(header::CONTENT_TYPE).ok_or_else(missing)?;
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(ApiError::unsupported_type(format!("the header `Content-Type` is `{kind}`, expected `application/json`")))
}

//! Bodies of requests: not too large, and not too slow.

use crate::error::ApiError;
use crate::server::Shared;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use std::sync::Arc;

/// A body that came in time.
pub(crate) struct Body(pub(crate) Bytes);

impl FromRequest<Arc<Shared>> for Body {
    type Rejection = ApiError;

    async fn from_request(request: Request, shared: &Arc<Shared>) -> Result<Self, ApiError> {
        let limit = shared.options.body_time;
        let body = tokio::time::timeout(limit, Bytes::from_request(request, shared)).await;
        let body = body.map_err(|_| ApiError::too_slow(format!("the body did not come in {limit:?}")))?;
        body.map(Self).map_err(|error| match error.status().as_u16() {
            413 => ApiError::too_large("the body is too large"),
            _ => ApiError::invalid(None, error.body_text()),
        })
    }
}

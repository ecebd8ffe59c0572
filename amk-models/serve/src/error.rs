//! Errors as OpenAI's API gives them.

use crate::engine::EngineError;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// An answer that is an error.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    kind: &'static str,
    message: String,
    /// The field of the request that is at fault.
    param: Option<&'static str>,
    /// The code for programs.
    code: Option<&'static str>,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, message: message.into(), param: None, code: None }
    }

    /// The request is not one that can be answered.
    pub(crate) fn invalid(param: impl Into<Option<&'static str>>, message: impl Into<String>) -> Self {
        let error = Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message);
        Self { param: param.into(), ..error }
    }

    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", message)
    }

    pub(crate) fn too_slow(message: impl Into<String>) -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "invalid_request_error", message)
    }

    /// The body is not written as JSON.
    pub(crate) fn unsupported_type(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request_error", message)
    }

    /// The path has no such method.
    pub(crate) fn method_not_allowed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", message).with_code("method_not_supported")
    }

    pub(crate) fn unauthorized() -> Self {
        let message = "a key is needed: `Authorization: Bearer KEY`";
        Self::new(StatusCode::UNAUTHORIZED, "invalid_request_error", message).with_code("invalid_api_key")
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "invalid_request_error", message)
    }

    /// There is no such model.
    pub(crate) fn model_not_found(message: impl Into<String>) -> Self {
        Self { param: Some("model"), ..Self::not_found(message) }.with_code("model_not_found")
    }

    /// An error of the engine, with the field of the prompt if it concerns the prompt.
    pub(crate) fn of_engine(error: EngineError, prompt: &'static str) -> Self {
        let about = matches!(error, EngineError::TooLong(_) | EngineError::Empty(_)).then_some(prompt);
        Self { param: about, ..Self::from(error) }
    }

    fn with_code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    pub(crate) fn json(&self) -> Value {
        json!({ "error": { "message": self.message, "type": self.kind, "param": self.param, "code": self.code } })
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        let message = error.to_string();
        match error {
            EngineError::Busy(_) => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message).with_code("rate_limit_exceeded")
            }
            EngineError::TooLong(_) => Self::invalid(None, message).with_code("context_length_exceeded"),
            EngineError::Empty(_) | EngineError::Refused(_) => Self::invalid(None, message),
            EngineError::Failed(_) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message),
            EngineError::Stopped(_) => Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", message),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.json())).into_response();
        let header = match self.status {
            StatusCode::TOO_MANY_REQUESTS => Some((header::RETRY_AFTER, "1")),
            StatusCode::UNAUTHORIZED => Some((header::WWW_AUTHENTICATE, "Bearer")),
            _ => None,
        };
        response.headers_mut().extend(header.map(|(name, value)| (name, HeaderValue::from_static(value))));
        response
    }
}

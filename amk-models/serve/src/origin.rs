//! Pages of other sites that may send requests from a browser.

use axum::http::{HeaderName, HeaderValue, Method, header};
use std::str::FromStr;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

/// An origin, such as `https://example.org` or `http://localhost:3000`; `*` stands for all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin(HeaderValue);

/// The text is not an origin.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not an origin; expected `SCHEME://HOST`, with `:PORT` where it has one, or `*` for all")]
pub struct OriginError(String);

impl FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        let named = text.split_once("://").is_some_and(|(scheme, host)| {
            !scheme.is_empty() && !host.is_empty() && !host.contains(['/', '?', '#', '*', ' '])
        });
        let value = HeaderValue::from_str(text).ok().filter(|_| named || text == "*");
        value.map(Self).ok_or_else(|| OriginError(text.to_owned()))
    }
}

/// Tells browsers that pages of these origins may ask, also with a key, and may read the answers.
pub(crate) fn layer(origins: &[Origin]) -> CorsLayer {
    let all = origins.iter().any(|Origin(value)| value == "*");
    let origins = origins.iter().map(|Origin(value)| value.clone());
    CorsLayer::new()
        .allow_origin(if all { AllowOrigin::any() } else { AllowOrigin::list(origins) })
        .allow_methods([Method::GET, Method::POST])
        // Clients send headers of their own, and `*` would not include the key.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([HeaderName::from_static(crate::log::REQUEST_ID), header::RETRY_AFTER])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_a_scheme_and_a_host_and_nothing_else() {
        for text in ["*", "https://example.org", "http://localhost:3000", "http://[::1]:80"] {
            assert!(Origin::from_str(text).is_ok(), "{text}");
        }
        for text in ["", "example.org", "https://", "https://example.org/", "https://*.org", "http://a\n"] {
            assert_eq!(Origin::from_str(text), Err(OriginError(text.to_owned())));
        }
    }
}

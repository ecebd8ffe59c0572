//! The content of a message as OpenAI's API has it.

use serde::Deserialize;

/// The content of a message: a text, or a list of parts.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected `content` to be a text or a list of parts")]
pub enum Content {
    /// A text.
    Text(String),
    /// Parts, which are joined.
    Parts(Vec<ContentPart>),
}

/// A part of a message.
#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "a part of a message")]
pub struct ContentPart {
    /// `text`, or `refusal` of an earlier answer; others are not text.
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    refusal: Option<String>,
}

/// A part of a message has no text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// It has a type that no model here reads.
    #[error("content of type `{0}` is not supported")]
    Unsupported(String),
    /// Without its text.
    #[error("content of type `{0}` has no `{0}`")]
    Missing(String),
}

impl Content {
    /// The text of all parts.
    ///
    /// # Errors
    /// [`ContentError`] for a part without a text.
    pub fn text(self) -> Result<String, ContentError> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Parts(parts) => parts.into_iter().map(ContentPart::text).collect(),
        }
    }
}

impl ContentPart {
    fn text(self) -> Result<String, ContentError> {
        let Self { kind, text, refusal } = self;
        let text = match kind.as_str() {
            "text" => text,
            "refusal" => refusal,
            _ => return Err(ContentError::Unsupported(kind)),
        };
        text.ok_or(ContentError::Missing(kind))
    }
}

//! The content of a message as OpenAI's API has it.

use serde::Deserialize;

/// The content of a message: a text, or parts of one.
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

/// A part of a message is not text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("content of type `{kind}` is not supported")]
pub struct ContentError {
    /// The type of the part.
    pub kind: String,
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
            _ => None,
        };
        text.ok_or(ContentError { kind })
    }
}

//! Messages, as clients of OpenAI's API write them.

use crate::error::ApiError;
use amk_models::chat::Message;
use serde::Deserialize;
use serde_json::{Map, Value};

/// A message of a chat.
#[derive(Debug, Deserialize)]
pub(crate) struct Turn {
    role: String,
    content: Option<Content>,
    /// The calls that the assistant made.
    tool_calls: Option<Vec<Value>>,
    /// The call that a `tool` message answers.
    tool_call_id: Option<String>,
    name: Option<String>,
}

/// The content of a message.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

impl Turn {
    /// The message, as chat templates take it.
    ///
    /// # Errors
    /// Content that is not text.
    pub(crate) fn message(self) -> Result<Message, ApiError> {
        let content = match self.content {
            None => String::new(),
            Some(Content::Text(text)) => text,
            Some(Content::Parts(parts)) => {
                let text = |part: Part| match part {
                    Part { kind, text: Some(text) } if kind == "text" => Ok(text),
                    Part { kind, .. } => {
                        Err(ApiError::invalid("messages", format!("content of type `{kind}` is not supported")))
                    }
                };
                parts.into_iter().map(text).collect::<Result<_, _>>()?
            }
        };
        // OpenAI's newer name of the same role.
        let role = if self.role == "developer" { "system".to_owned() } else { self.role };
        let mut more = Map::new();
        let calls: Vec<Value> = self.tool_calls.unwrap_or_default().into_iter().map(with_object).collect();
        if !calls.is_empty() {
            more.insert("tool_calls".to_owned(), calls.into());
        }
        for (field, value) in [("tool_call_id", self.tool_call_id), ("name", self.name)] {
            more.extend(value.map(|value| (field.to_owned(), value.into())));
        }
        Ok(Message { role, content, more })
    }
}

/// The call with its arguments as an object, which templates expect: clients write them as a text.
fn with_object(mut call: Value) -> Value {
    if let Some(arguments) = call.pointer_mut("/function/arguments")
        && let Some(object) = arguments.as_str().and_then(|text| serde_json::from_str(text).ok())
    {
        *arguments = object;
    }
    call
}

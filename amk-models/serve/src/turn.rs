//! Messages, as clients of OpenAI's API write them.

use crate::error::ApiError;
use amk_models::chat::{ChatTemplate, Content, ContentError, Message, RoleError};
use serde::Deserialize;
use serde_json::{Map, Value};

/// A message of a chat.
#[derive(Debug, Deserialize)]
#[serde(expecting = "a message")]
pub(crate) struct Turn {
    role: String,
    content: Option<Content>,
    /// The calls that the assistant made.
    tool_calls: Option<Vec<Value>>,
    /// The call that a `tool` message answers.
    tool_call_id: Option<String>,
    name: Option<String>,
}

impl Turn {
    /// The message, as chat templates take it.
    ///
    /// # Errors
    /// A role that neither OpenAI's API nor the template has; no content, or some that is not text.
    pub(crate) fn message(self, template: &ChatTemplate) -> Result<Message, ApiError> {
        let invalid = |error: RoleError| ApiError::invalid("messages", error.to_string());
        let role = template.role(self.role).map_err(invalid)?;
        let content = match self.content {
            // It may have called tools without saying anything.
            None if role == "assistant" => String::new(),
            None => {
                return Err(ApiError::invalid("messages", format!("a message of the role `{role}` has no `content`")));
            }
            Some(content) => {
                content.text().map_err(|error: ContentError| ApiError::invalid("messages", error.to_string()))?
            }
        };
        let mut more = Map::new();
        let calls: Vec<Value> = self.tool_calls.into_iter().flatten().map(call).collect::<Result<_, _>>()?;
        if !calls.is_empty() {
            more.insert("tool_calls".to_owned(), calls.into());
        }
        for (field, value) in [("tool_call_id", self.tool_call_id), ("name", self.name)] {
            more.extend(value.map(|value| (field.to_owned(), value.into())));
        }
        Ok(Message { role, content, more })
    }
}

/// Returns the call with its arguments as an object, which templates expect, although clients write
/// them as text. They remain text if an object would not preserve all their digits.
fn call(mut call: Value) -> Result<Value, ApiError> {
    if !call["function"]["name"].is_string() {
        let message = format!("`tool_calls` has {call}, expected the call of a function with its `name`");
        return Err(ApiError::invalid("messages", message));
    }
    if let Some(arguments) = call.pointer_mut("/function/arguments")
        && let Some(text) = arguments.as_str().filter(|text| !has_long_integer(text))
        && let Ok(object) = serde_json::from_str(text)
    {
        *arguments = object;
    }
    Ok(call)
}

/// Whether JSON has an integer of more than 64 bits, of which parsing keeps only the first digits.
fn has_long_integer(json: &str) -> bool {
    let (mut inside, mut escaped) = (false, false);
    let outside_strings = |character: char| {
        let ends = character == '"' && !escaped;
        inside ^= ends;
        escaped = character == '\\' && !escaped;
        if inside { '"' } else { character }
    };
    let bare: String = json.chars().map(outside_strings).collect();
    let numbers = bare.split(|c: char| !c.is_ascii_digit() && !"+-.eE".contains(c));
    let is_integer = |word: &&str| word.bytes().any(|c| c.is_ascii_digit()) && !word.contains(['.', 'e', 'E']);
    numbers.filter(is_integer).any(|word| word.parse::<i64>().is_err() && word.parse::<u64>().is_err())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_that_an_object_would_round_stay_a_text() {
        let of = |arguments: &str| {
            let called = call(json!({ "function": { "name": "add", "arguments": arguments } })).unwrap();
            called["function"]["arguments"].clone()
        };
        assert_eq!(of(r#"{"a": 18446744073709551615}"#), json!({ "a": u64::MAX }));
        let long = r#"{"a": [18446744073709551616]}"#;
        assert_eq!(of(long), long);
        let digits = r#"{"\"18446744073709551616": "-18446744073709551616", "b": 1e30}"#;
        assert!(of(digits).is_object());
        assert_eq!(of("add"), "add");
    }
}

//! The fields of a request's body.

use crate::error::ApiError;
use crate::parameter::ParameterError;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Numbers by the names that serde has for them, and in words.
const NUMBERS: [(&str, &str); 4] = [
    ("usize", "a whole number of at least 0"),
    ("u32", "a whole number of at least 0"),
    ("i64", "a whole number"),
    ("f32", "a number"),
];

/// Fields that have not been read.
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    /// Reads a body.
    ///
    /// # Errors
    /// It is not a JSON object.
    pub(crate) fn read(body: &[u8]) -> Result<Self, ApiError> {
        let of_json = |error: serde_json::Error| ApiError::invalid(None, format!("the body is not a request: {error}"));
        serde_json::from_slice(body).map(Self).map_err(of_json)
    }

    /// Takes a field; `None` if it is missing or null.
    ///
    /// # Errors
    /// If it has a different type.
    pub(crate) fn take<T: DeserializeOwned>(&mut self, name: &'static str) -> Result<Option<T>, ApiError> {
        let value = self.0.remove(name).unwrap_or_default();
        serde_json::from_value(value)
            .map_err(|error| ApiError::invalid(name, format!("`{name}`: {}", in_words(&error))))
    }

    /// Takes a field that `read` parses; `None` if it is missing or null.
    ///
    /// # Errors
    /// A value that `read` refuses.
    pub(crate) fn parameter<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&'static str, &Value) -> Result<T, ParameterError>,
    ) -> Result<Option<T>, ApiError> {
        let value = self.0.remove(name).filter(|value| !value.is_null());
        let read = value.map(|value| read(name, &value)).transpose();
        read.map_err(|error| ApiError::invalid(name, error.to_string()))
    }

    /// Takes a field that has two names.
    ///
    /// # Errors
    /// As for [`Self::take`].
    pub(crate) fn either<T: DeserializeOwned>(
        &mut self,
        name: &'static str,
        other: &'static str,
    ) -> Result<Option<T>, ApiError> {
        let first = self.take(name)?;
        Ok(first.or(self.take(other)?))
    }

    /// Whether a field is set to a value that has an effect.
    pub(crate) fn asks(&self, name: &str) -> bool {
        match self.0.get(name) {
            None | Some(Value::Null | Value::Bool(false)) => false,
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Array(items)) => !items.is_empty(),
            Some(Value::Object(fields)) => !fields.is_empty(),
            Some(_) => true,
        }
    }

    #[cfg(test)]
    pub(crate) fn of(body: Value) -> Self {
        Self::read(body.to_string().as_bytes()).unwrap()
    }
}

/// The fault of a value, without the names of Rust's types.
fn in_words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let number = NUMBERS.iter().find_map(|(name, words)| Some((text.strip_suffix(name)?, words)));
    match number {
        Some((before, words)) if before.ends_with("expected ") => format!("{before}{words}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_type_is_named_in_words() {
        fn error<T: DeserializeOwned + std::fmt::Debug>(value: Value) -> String {
            let error = Fields::of(serde_json::json!({ "x": value })).take::<T>("x").unwrap_err();
            error.json()["error"]["message"].as_str().unwrap().to_owned()
        }
        let text = "`x`: invalid type: string \"a\", expected";
        assert_eq!(error::<usize>("a".into()), format!("{text} a whole number of at least 0"));
        assert_eq!(error::<i64>("a".into()), format!("{text} a whole number"));
        assert_eq!(error::<f32>("a".into()), format!("{text} a number"));
        assert_eq!(
            error::<Vec<u32>>(vec![-1].into()),
            "`x`: invalid value: integer `-1`, expected a whole number of at least 0"
        );
        assert_eq!(error::<String>(5.into()), "`x`: invalid type: integer `5`, expected a string");
    }
}

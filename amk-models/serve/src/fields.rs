//! The fields of a request's body.

use crate::error::ApiError;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

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

    /// A field; `None` where it is missing or null.
    ///
    /// # Errors
    /// It has another type.
    pub(crate) fn take<T: DeserializeOwned>(&mut self, name: &'static str) -> Result<Option<T>, ApiError> {
        let value = self.0.remove(name).unwrap_or_default();
        serde_json::from_value(value).map_err(|error| ApiError::invalid(name, format!("`{name}`: {error}")))
    }

    /// A field that has two names.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub(crate) fn either<T: DeserializeOwned>(
        &mut self,
        name: &'static str,
        other: &'static str,
    ) -> Result<Option<T>, ApiError> {
        let first = self.take(name)?;
        Ok(first.or(self.take(other)?))
    }

    /// Whether a field is given and asks for something.
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

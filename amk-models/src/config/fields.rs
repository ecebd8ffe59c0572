//! Typed access to the fields of a JSON object that records the fields read and the errors found.

use serde_json::{Map, Value};

use super::Refusal;

/// The unread fields of an object, and the refusals so far.
///
/// Each getter takes its field out. A value of the wrong type is recorded as a refusal and replaced
/// by a harmless default, so that one pass reports all errors.
pub(super) struct Fields {
    map: Map<String, Value>,
    /// Path of the object inside the file, with a final dot; empty at the top.
    prefix: String,
    refusals: Vec<Refusal>,
}

impl Fields {
    pub(super) fn new(map: Map<String, Value>, prefix: &str) -> Self {
        Self { map, prefix: prefix.to_owned(), refusals: Vec::new() }
    }

    /// Returns the fields of the object in `field`.
    pub(super) fn inner(&self, field: &str, map: Map<String, Value>) -> Self {
        Self::new(map, &format!("{}{field}.", self.prefix))
    }

    /// Records a refusal of `field`.
    pub(super) fn refuse(&mut self, field: &str, value: &Value, reason: impl Into<String>) {
        self.refusals.push(Refusal::new(format!("{}{field}", self.prefix), shown(value), reason));
    }

    /// Records that `field` is one that nothing here knows.
    pub(super) fn refuse_unknown(&mut self, field: &str, value: &Value, reason: &str) {
        self.refusals.push(Refusal::unknown(format!("{}{field}", self.prefix), shown(value), reason));
    }

    /// Adds the refusals of a nested object.
    pub(super) fn refuse_all(&mut self, refusals: Vec<Refusal>) {
        self.refusals.extend(refusals);
    }

    /// Whether nothing has been refused so far.
    pub(super) fn is_accepted(&self) -> bool {
        self.refusals.is_empty()
    }

    /// Takes `field`; `None` when it is absent or null.
    pub(super) fn take(&mut self, field: &str) -> Option<Value> {
        self.map.remove(field).filter(|value| !value.is_null())
    }

    /// Gives `field` a value unless it has one.
    pub(super) fn put_default(&mut self, field: &str, value: Value) {
        if self.peek(field).is_none_or(Value::is_null) {
            self.put(field, value);
        }
    }

    /// Puts a value in the place of `field`'s.
    pub(super) fn put(&mut self, field: &str, value: Value) {
        self.map.insert(field.to_owned(), value);
    }

    /// Returns `field` without taking it.
    pub(super) fn peek(&self, field: &str) -> Option<&Value> {
        self.map.get(field)
    }

    /// Takes the remaining fields.
    pub(super) fn take_rest(&mut self) -> Map<String, Value> {
        std::mem::take(&mut self.map)
    }

    /// Ends the reading with all refusals.
    pub(super) fn into_refusals(self) -> Vec<Refusal> {
        self.refusals
    }

    /// Returns the value that `read` extracts from `field`; refuses the field if it extracts none.
    fn read<T>(&mut self, field: &str, expected: &str, read: impl FnOnce(&Value) -> Option<T>) -> Option<T> {
        let value = self.take(field)?;
        let read = read(&value);
        if read.is_none() {
            self.refuse(field, &value, format!("expected {expected}"));
        }
        read
    }

    /// A size from 1 to `limit`, if present.
    pub(super) fn size(&mut self, field: &str, limit: u64) -> Option<usize> {
        self.read(field, &format!("a whole number from 1 to {limit}"), |value| {
            value.as_u64().filter(|size| (1..=limit).contains(size)).map(|size| size as usize)
        })
    }

    /// A size from 1 to `limit` that must be present.
    pub(super) fn required_size(&mut self, field: &str, limit: u64) -> usize {
        let present = self.peek(field).is_some_and(|value| !value.is_null());
        if !present {
            self.refuse(field, &Value::Null, "is missing");
        }
        self.size(field, limit).unwrap_or(1)
    }

    /// Two sizes from 1 to `limit`, if present.
    pub(super) fn pair(&mut self, field: &str, limit: u64) -> Option<[usize; 2]> {
        self.read(field, &format!("two whole numbers from 1 to {limit}"), |value| {
            let size =
                |value: &Value| value.as_u64().filter(|size| (1..=limit).contains(size)).map(|size| size as usize);
            let sizes: Option<Vec<usize>> = value.as_array()?.iter().map(size).collect();
            sizes?.try_into().ok()
        })
    }

    /// A finite number, if present.
    pub(super) fn number(&mut self, field: &str) -> Option<f64> {
        self.read(field, "a number", |value| value.as_f64().filter(|number| number.is_finite()))
    }

    /// A finite positive number that must be present.
    pub(super) fn required_positive(&mut self, field: &str) -> f64 {
        if self.peek(field).is_none_or(Value::is_null) {
            self.refuse(field, &Value::Null, "is missing");
        }
        let number = self.number(field);
        if let Some(number) = number.filter(|number| *number <= 0.0) {
            self.refuse(field, &number.into(), "must be above 0");
        }
        number.filter(|number| *number > 0.0).unwrap_or(1.0)
    }

    /// A truth value, if present.
    pub(super) fn truth(&mut self, field: &str) -> Option<bool> {
        self.read(field, "true or false", Value::as_bool)
    }

    /// Finite numbers; empty if the field is absent.
    pub(super) fn numbers(&mut self, field: &str) -> Vec<f32> {
        let number = |value: &Value| value.as_f64().map(|number| number as f32).filter(|number| number.is_finite());
        let list = |value: &Value| value.as_array()?.iter().map(number).collect();
        self.read(field, "a list of numbers", list).unwrap_or_default()
    }

    /// A text, if present.
    pub(super) fn text(&mut self, field: &str) -> Option<String> {
        self.read(field, "a string", |value| value.as_str().map(str::to_owned))
    }

    /// Token ids: one number or a list of numbers; empty when absent.
    pub(super) fn token_ids(&mut self, field: &str) -> Vec<u32> {
        self.read(field, "a token id or a list of them", token_ids).unwrap_or_default()
    }
}

/// A value as a refusal shows it.
fn shown(value: &Value) -> String {
    if value.is_null() { String::new() } else { value.to_string() }
}

/// Token ids as configs write them: one number or a list of numbers.
pub(crate) fn token_ids(value: &Value) -> Option<Vec<u32>> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Value::Array(ids) => ids.iter().map(id).collect(),
        value => Some(vec![id(value)?]),
    }
}

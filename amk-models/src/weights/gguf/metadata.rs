//! The key-value metadata of a GGUF file.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::super::{FormatCause, FormatError};
use super::cursor::Cursor;

/// Most metadata entries of a file.
const MAX_ENTRIES: u64 = 1 << 16;
/// Most elements of an array: vocabularies and merge lists stay below a million.
const MAX_ARRAY_LEN: u64 = 1 << 24;
/// Longest part of a value that a message shows.
const SHOWN_CHARS: usize = 40;

/// A metadata value. All widths of integers and floats are kept in the widest.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// u8, u16, u32 or u64.
    Unsigned(u64),
    /// i8, i16, i32 or i64.
    Signed(i64),
    /// f32 or f64.
    Float(f64),
    /// One byte, 0 or 1.
    Bool(bool),
    /// UTF-8 text.
    String(String),
    /// Values of one type.
    Array(Array),
}

/// A metadata array. Arrays of arrays are refused: no known key uses one.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// u8, u16, u32 or u64.
    Unsigned(Vec<u64>),
    /// i8, i16, i32 or i64.
    Signed(Vec<i64>),
    /// f32 or f64.
    Float(Vec<f64>),
    /// Bytes, 0 or 1.
    Bool(Vec<bool>),
    /// UTF-8 texts.
    String(Vec<String>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned(value) => write!(f, "{value}"),
            Self::Signed(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::String(value) if value.chars().count() > SHOWN_CHARS => {
                write!(f, "{:?}..", value.chars().take(SHOWN_CHARS).collect::<String>())
            }
            Self::String(value) => write!(f, "{value:?}"),
            Self::Array(array) => write!(f, "an array of {}", array.len()),
        }
    }
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::Unsigned(values) => values.len(),
            Self::Signed(values) => values.len(),
            Self::Float(values) => values.len(),
            Self::Bool(values) => values.len(),
            Self::String(values) => values.len(),
        }
    }

    /// Whether it has no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The metadata of a file, by key, with typed access that names file and key in its errors.
#[derive(Debug)]
pub struct Metadata {
    path: PathBuf,
    entries: BTreeMap<String, Value>,
}

impl Metadata {
    /// Entries that are not in a file yet; errors name `path`.
    pub(crate) fn new(path: &Path, entries: BTreeMap<String, Value>) -> Self {
        Self { path: path.to_owned(), entries }
    }

    /// Reads the entries at the cursor; `count` follows the tensor count in the header.
    pub(super) fn read(cursor: &mut Cursor<'_>, path: &Path, count: usize) -> Result<Self, FormatError> {
        let mut entries = BTreeMap::new();
        for _ in 0..count {
            let start = cursor.position();
            let key = cursor.string("a metadata key")?.to_owned();
            let value = read_value(cursor)?;
            if entries.contains_key(&key) {
                let cause = FormatCause::Duplicate { what: "metadata key", name: key };
                return Err(FormatError::new(path, start as u64, cause));
            }
            entries.insert(key, value);
        }
        Ok(Self { path: path.to_owned(), entries })
    }

    /// Reads the number of entries.
    pub(super) fn count(cursor: &mut Cursor<'_>) -> Result<usize, FormatError> {
        // A key length, a type code and one byte of value.
        cursor.count("the metadata count", MAX_ENTRIES, 8 + 4 + 1)
    }

    /// All entries, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The value of `key`, if there is one.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.get(key)
    }

    /// Whether the value of `key` is the text `text`.
    pub fn is_text(&self, key: &str, text: &str) -> bool {
        matches!(self.get(key), Some(Value::String(found)) if found == text)
    }

    /// The text of `key`, if there is one.
    ///
    /// # Errors
    /// [`FormatCause::BadMetadata`] if it is not text.
    pub fn text(&self, key: &str) -> Result<Option<&str>, FormatError> {
        self.typed(key, "a string", |value| match value {
            Value::String(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// The non-negative integer of `key`, if present.
    ///
    /// # Errors
    /// [`FormatCause::BadMetadata`] if the value is not one.
    pub fn unsigned(&self, key: &str) -> Result<Option<u64>, FormatError> {
        self.typed(key, "a non-negative integer", |value| match *value {
            Value::Unsigned(value) => Some(value),
            Value::Signed(value) => value.try_into().ok(),
            _ => None,
        })
    }

    /// The number of `key`, if present.
    ///
    /// # Errors
    /// [`FormatCause::BadMetadata`] if the value is not one.
    pub fn float(&self, key: &str) -> Result<Option<f64>, FormatError> {
        self.typed(key, "a number", |value| match *value {
            Value::Float(value) => Some(value),
            _ => None,
        })
    }

    /// The boolean of `key`, if present.
    ///
    /// # Errors
    /// [`FormatCause::BadMetadata`] if the value is not one.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, FormatError> {
        self.typed(key, "true or false", |value| match *value {
            Value::Bool(value) => Some(value),
            _ => None,
        })
    }

    /// The texts of `key`, if there are any.
    ///
    /// # Errors
    /// [`FormatCause::BadMetadata`] if it is not an array of texts.
    pub fn texts(&self, key: &str) -> Result<Option<&[String]>, FormatError> {
        self.typed(key, "an array of strings", |value| match value {
            Value::Array(Array::String(texts)) => Some(texts.as_slice()),
            _ => None,
        })
    }

    /// The integers of `key`, if there are any.
    ///
    /// # Errors
    /// [`FormatCause::BadMetadata`] if it is not an array of integers.
    pub fn integers(&self, key: &str) -> Result<Option<Vec<i64>>, FormatError> {
        self.typed(key, "an array of integers", |value| match value {
            Value::Array(Array::Signed(values)) => Some(values.clone()),
            Value::Array(Array::Unsigned(values)) => values.iter().map(|&value| value.try_into().ok()).collect(),
            _ => None,
        })
    }

    /// The numbers of `key`, if there are any.
    ///
    /// # Errors
    /// [`FormatCause::BadMetadata`] if it is not an array of floats.
    pub fn floats(&self, key: &str) -> Result<Option<&[f64]>, FormatError> {
        self.typed(key, "an array of floats", |value| match value {
            Value::Array(Array::Float(values)) => Some(values.as_slice()),
            _ => None,
        })
    }

    /// An error about `key`.
    pub(crate) fn error(&self, key: &str, reason: impl Into<String>) -> FormatError {
        let cause = FormatCause::BadMetadata { key: key.to_owned(), reason: reason.into() };
        FormatError::new(&self.path, 0, cause)
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, FormatError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match read(value) {
            Some(read) => Ok(Some(read)),
            None => Err(self.error(key, format!("expected {expected}, found {value}"))),
        }
    }
}

/// Type codes of GGUF (`gguf_type`).
pub(super) mod code {
    pub(in super::super) const U8: u32 = 0;
    pub(in super::super) const I8: u32 = 1;
    pub(in super::super) const U16: u32 = 2;
    pub(in super::super) const I16: u32 = 3;
    pub(in super::super) const U32: u32 = 4;
    pub(in super::super) const I32: u32 = 5;
    pub(in super::super) const F32: u32 = 6;
    pub(in super::super) const BOOL: u32 = 7;
    pub(in super::super) const STRING: u32 = 8;
    pub(in super::super) const ARRAY: u32 = 9;
    pub(in super::super) const U64: u32 = 10;
    pub(in super::super) const I64: u32 = 11;
    pub(in super::super) const F64: u32 = 12;
}

const VALUE: &str = "a metadata value";

fn read_value(cursor: &mut Cursor<'_>) -> Result<Value, FormatError> {
    Ok(match cursor.u32("a metadata type")? {
        code @ (code::U8 | code::U16 | code::U32 | code::U64) => Value::Unsigned(read_unsigned(cursor, code)?),
        code @ (code::I8 | code::I16 | code::I32 | code::I64) => Value::Signed(read_signed(cursor, code)?),
        code @ (code::F32 | code::F64) => Value::Float(read_float(cursor, code)?),
        code::BOOL => Value::Bool(read_bool(cursor)?),
        code::STRING => Value::String(read_text(cursor)?),
        code::ARRAY => Value::Array(read_array(cursor)?),
        code => return Err(cursor.error(FormatCause::UnknownCode { what: "metadata type", code })),
    })
}

fn read_array(cursor: &mut Cursor<'_>) -> Result<Array, FormatError> {
    let code = cursor.u32("an array's type")?;
    let least_bytes = match code {
        code::U8 | code::I8 | code::BOOL => 1,
        code::U16 | code::I16 => 2,
        code::U32 | code::I32 | code::F32 => 4,
        code::U64 | code::I64 | code::F64 | code::STRING => 8,
        _ => return Err(cursor.error(FormatCause::UnknownCode { what: "array type", code })),
    };
    let len = cursor.count("an array's length", MAX_ARRAY_LEN, least_bytes)?;
    Ok(match code {
        code::U8 | code::U16 | code::U32 | code::U64 => Array::Unsigned(many(len, || read_unsigned(cursor, code))?),
        code::I8 | code::I16 | code::I32 | code::I64 => Array::Signed(many(len, || read_signed(cursor, code))?),
        code::BOOL => Array::Bool(many(len, || read_bool(cursor))?),
        code::STRING => Array::String(many(len, || read_text(cursor))?),
        _ => Array::Float(many(len, || read_float(cursor, code))?),
    })
}

fn many<T>(len: usize, mut read: impl FnMut() -> Result<T, FormatError>) -> Result<Vec<T>, FormatError> {
    (0..len).map(|_| read()).collect()
}

fn read_text(cursor: &mut Cursor<'_>) -> Result<String, FormatError> {
    cursor.string(VALUE).map(str::to_owned)
}

fn read_unsigned(cursor: &mut Cursor<'_>, code: u32) -> Result<u64, FormatError> {
    Ok(match code {
        code::U8 => u8::from_le_bytes(cursor.array(VALUE)?).into(),
        code::U16 => u16::from_le_bytes(cursor.array(VALUE)?).into(),
        code::U32 => cursor.u32(VALUE)?.into(),
        _ => cursor.u64(VALUE)?,
    })
}

fn read_signed(cursor: &mut Cursor<'_>, code: u32) -> Result<i64, FormatError> {
    Ok(match code {
        code::I8 => i8::from_le_bytes(cursor.array(VALUE)?).into(),
        code::I16 => i16::from_le_bytes(cursor.array(VALUE)?).into(),
        code::I32 => i32::from_le_bytes(cursor.array(VALUE)?).into(),
        _ => i64::from_le_bytes(cursor.array(VALUE)?),
    })
}

fn read_float(cursor: &mut Cursor<'_>, code: u32) -> Result<f64, FormatError> {
    Ok(match code {
        code::F32 => f32::from_le_bytes(cursor.array(VALUE)?).into(),
        _ => f64::from_le_bytes(cursor.array(VALUE)?),
    })
}

fn read_bool(cursor: &mut Cursor<'_>) -> Result<bool, FormatError> {
    match cursor.array(VALUE)? {
        [0] => Ok(false),
        [1] => Ok(true),
        [other] => Err(cursor.error(FormatCause::UnknownCode { what: "truth value", code: other.into() })),
    }
}

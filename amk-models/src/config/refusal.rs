//! Why a config was refused.

use std::fmt;
use std::path::PathBuf;

/// Longest value shown in a message, in characters.
const SHOWN_CHARS: usize = 60;

/// One field of a config that cannot be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The field, with its path inside nested objects (`rope_scaling.rope_type`).
    pub field: String,
    /// Its value as the source writes it, shortened; empty when the field is absent.
    pub value: String,
    /// Why.
    pub reason: String,
}

impl Refusal {
    pub(super) fn new(field: impl Into<String>, value: impl Into<String>, reason: impl Into<String>) -> Self {
        let value: String = value.into();
        let shortened = match value.char_indices().nth(SHOWN_CHARS) {
            Some((at, _)) => format!("{}..", &value[..at]),
            None => value,
        };
        Self { field: field.into(), value: shortened, reason: reason.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value.as_str() {
            "" => write!(f, "`{}`: {}", self.field, self.reason),
            value => write!(f, "`{}` is {value}: {}", self.field, self.reason),
        }
    }
}

/// A config that describes a model this crate does not compute, or no model at all.
#[derive(Debug)]
pub struct ConfigError {
    /// The file.
    pub path: PathBuf,
    /// Everything that is wrong with it; never empty.
    pub refusals: Vec<Refusal>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        for (i, refusal) in self.refusals.iter().enumerate() {
            write!(f, "{}{refusal}", if i == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

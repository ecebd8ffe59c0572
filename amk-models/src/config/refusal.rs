//! The reasons why a config is refused.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use super::ModelConfig;

/// Longest value shown in a message, in characters.
const SHOWN_CHARS: usize = 60;

/// One field of a config that cannot be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The field, with its path inside nested objects (`rope_scaling.rope_type`).
    pub field: String,
    /// Its value as written in the source, shortened; empty if the field is absent.
    pub value: String,
    /// Why.
    pub reason: String,
    /// Whether the field is unknown, so that [`AllowedFields`] may allow it.
    pub unknown: bool,
}

impl Refusal {
    pub(super) fn new(field: impl Into<String>, value: impl Into<String>, reason: impl Into<String>) -> Self {
        let value: String = value.into();
        let shortened = match value.char_indices().nth(SHOWN_CHARS) {
            Some((at, _)) => format!("{}..", &value[..at]),
            None => value,
        };
        Self { field: field.into(), value: shortened, reason: reason.into(), unknown: false }
    }

    /// Returns the refusal of an unknown field.
    pub(super) fn unknown(field: impl Into<String>, value: impl Into<String>, reason: &str) -> Self {
        let field = field.into();
        let reason = format!("{reason} and may change what the model computes; --allow-unknown {field} ignores it");
        Self { unknown: true, ..Self::new(field, value, reason) }
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

/// Unknown fields that the user declares harmless, by their names in refusals. A field that is
/// known to change the mathematics is refused nevertheless.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedFields(BTreeSet<String>);

impl FromIterator<String> for AllowedFields {
    fn from_iter<T: IntoIterator<Item = String>>(fields: T) -> Self {
        Self(fields.into_iter().collect())
    }
}

impl AllowedFields {
    /// The config, if no refusals remain and nothing in it contradicts itself.
    pub(super) fn judge(
        &self,
        path: &Path,
        config: ModelConfig,
        mut refusals: Vec<Refusal>,
    ) -> Result<ModelConfig, ConfigError> {
        refusals.retain(|refusal| !(refusal.unknown && self.0.contains(&refusal.field)));
        if refusals.is_empty() {
            refusals = config.contradictions();
        }
        if refusals.is_empty() { Ok(config) } else { Err(ConfigError { path: path.to_owned(), refusals }) }
    }
}

/// A config that describes a model that this crate does not support, or no model at all.
#[derive(Debug)]
pub struct ConfigError {
    /// The file.
    pub path: PathBuf,
    /// All defects; never empty.
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

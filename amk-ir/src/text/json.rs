//! JSON: serde's view of a program, with a version.

use super::shown::OneLine;
use crate::Program;
use core::fmt;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The version that is written; a reader accepts this version alone.
pub const JSON_VERSION: u32 = 1;

#[derive(Serialize)]
struct Written<'a> {
    version: u32,
    program: &'a Program,
}

/// Read first: a text of another version may have other fields.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    #[serde(rename = "version")]
    _version: u32,
    program: Program,
}

/// The text is not JSON, or lacks the expected form: why, and at which line and column.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FormError(String);

impl FormError {
    /// The text may have put anything into the message: it stays on its line, and short.
    fn new(error: &serde_json::Error) -> Self {
        const LONGEST: usize = 400;
        const PLACE: usize = 60;
        let message = OneLine(&error.to_string()).to_string();
        let chars = message.chars().count();
        if chars <= LONGEST {
            return Self(message);
        }
        let (head, tail) = (message.chars().take(LONGEST - PLACE), message.chars().skip(chars - PLACE));
        Self(head.chain("..".chars()).chain(tail).collect())
    }
}

impl fmt::Display for FormError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FormError {}

/// Reads a value from JSON that somebody wrote.
///
/// # Errors
/// On text that is not JSON of that form.
pub fn read_json<T: DeserializeOwned>(text: &str) -> Result<T, FormError> {
    serde_json::from_str(text).map_err(|error| FormError::new(&error))
}

/// Why a JSON text is not a program, or a program has no JSON text.
#[derive(Debug)]
pub enum JsonError {
    /// Not JSON, or not of the form of a program; line and column are in the source's message.
    Form(FormError),
    /// Written by another version.
    Version {
        /// The version found.
        found: u32,
    },
    /// A parameter is infinite or NaN, which JSON cannot represent.
    NotFinite,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form(_) => write!(f, "not a program in JSON"),
            Self::Version { found } => write!(f, "the program is of version {found}, expected version {JSON_VERSION}"),
            Self::NotFinite => write!(f, "a parameter is infinite or not a number, which JSON cannot say"),
        }
    }
}

impl std::error::Error for JsonError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Form(error) => Some(error),
            _ => None,
        }
    }
}

impl Program {
    /// The program as JSON with a version.
    ///
    /// # Errors
    /// [`JsonError::NotFinite`] for an infinite or NaN parameter.
    pub fn to_json(&self) -> Result<String, JsonError> {
        let params = self.tasks.iter().flat_map(|t| &t.calls).flat_map(|c| &c.params);
        if params.into_iter().any(|p| matches!(p, crate::Param::F32(x) if !x.is_finite())) {
            return Err(JsonError::NotFinite);
        }
        let json = serde_json::to_string(&Written { version: JSON_VERSION, program: self });
        // Unprintable characters occur only in strings, where JSON can escape them.
        json.map(|json| OneLine(&json).to_string()).map_err(|error| JsonError::Form(FormError::new(&error)))
    }

    /// Reads the output of [`Program::to_json`]. The program is not verified.
    ///
    /// # Errors
    /// On text that is not JSON of that form, with a field that there is not for one, and on
    /// another version.
    pub fn from_json(text: &str) -> Result<Self, JsonError> {
        let Version { version } = read_json(text).map_err(JsonError::Form)?;
        if version != JSON_VERSION {
            return Err(JsonError::Version { found: version });
        }
        read_json::<Read>(text).map(|read| read.program).map_err(JsonError::Form)
    }
}

//! JSON: serde's view of a program, with a version.

use crate::Program;
use core::fmt;
use serde::{Deserialize, Serialize};

/// The version that is written; a reader accepts this version alone.
pub const JSON_VERSION: u32 = 1;

#[derive(Serialize)]
struct Written<'a> {
    version: u32,
    program: &'a Program,
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

#[derive(Deserialize)]
struct Read {
    program: Program,
}

/// Why a JSON text is not a program, or a program has no JSON text.
#[derive(Debug)]
pub enum JsonError {
    /// Not JSON, or not of the form of a program; line and column are in the source's message.
    Form(serde_json::Error),
    /// Written by another version.
    Version {
        /// The version found.
        found: u32,
    },
    /// A parameter is infinite or not a number, which JSON cannot say.
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
        serde_json::to_string(&Written { version: JSON_VERSION, program: self }).map_err(JsonError::Form)
    }

    /// Reads what [`Program::to_json`] wrote. The program is not verified.
    ///
    /// # Errors
    /// On text that is not JSON of that form, and on another version.
    pub fn from_json(text: &str) -> Result<Self, JsonError> {
        let Version { version } = serde_json::from_str(text).map_err(JsonError::Form)?;
        if version != JSON_VERSION {
            return Err(JsonError::Version { found: version });
        }
        serde_json::from_str::<Read>(text).map(|read| read.program).map_err(JsonError::Form)
    }
}

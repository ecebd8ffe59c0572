//! The reasons why a weight file is refused: file, byte offset, cause.

use amk::ir::text::{OneLine, Shown};
use std::fmt;
use std::path::{Path, PathBuf};

/// A weight file that could not be read.
#[derive(Debug)]
pub struct FormatError {
    /// The file.
    pub path: PathBuf,
    /// Byte offset in the file at which the cause was found.
    pub offset: u64,
    /// The cause.
    pub cause: FormatCause,
}

impl FormatError {
    pub(crate) fn new(path: &Path, offset: u64, cause: FormatCause) -> Self {
        Self { path: path.to_owned(), offset, cause }
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.cause)?;
        match self.cause {
            FormatCause::Io(_) | FormatCause::LfsPointer => Ok(()),
            _ => write!(f, " (at byte {})", self.offset),
        }
    }
}

// The message contains the whole cause, with the place in the middle: there is no further source.
impl std::error::Error for FormatError {}

/// Defects of a weight file.
#[derive(Debug, thiserror::Error)]
pub enum FormatCause {
    /// The file could not be opened, mapped or read.
    #[error("{0}")]
    Io(std::io::Error),
    /// The file ends inside something it declares.
    #[error("the file is truncated: {what} needs {needed} bytes, {available} are left")]
    Truncated {
        /// The thing that does not fit.
        what: &'static str,
        /// Bytes it needs.
        needed: u64,
        /// Bytes left in the file.
        available: u64,
    },
    /// The file ends before the data that a count or length announces.
    #[error("the file is truncated: {what} of {count} needs at least {needed} bytes, {available} are left")]
    TruncatedCount {
        /// The count or length.
        what: &'static str,
        /// Its value.
        count: u64,
        /// Bytes that it needs.
        needed: u64,
        /// Bytes left in the file.
        available: u64,
    },
    /// The file only names one that Git LFS has not fetched.
    #[error("a pointer of Git LFS instead of the file; `git lfs pull` in its repository fetches it")]
    LfsPointer,
    /// The first bytes are not the format's magic number.
    #[error("not a {format} file")]
    WrongMagic {
        /// The expected format.
        format: &'static str,
    },
    /// An unsupported version or byte order of the format.
    #[error("{format} {found} is not supported; supported are {supported}")]
    UnsupportedVersion {
        /// The format.
        format: &'static str,
        /// The version or byte order found.
        found: String,
        /// The supported ones.
        supported: &'static str,
    },
    /// A count or length beyond any real file's.
    #[error("{what} is {found}, more than the limit of {limit}")]
    OverLimit {
        /// The counted item.
        what: &'static str,
        /// The declared count.
        found: u64,
        /// The largest accepted count.
        limit: u64,
    },
    /// Text that is not UTF-8.
    #[error("{what} is not valid UTF-8")]
    InvalidUtf8 {
        /// Which text.
        what: &'static str,
    },
    /// A type code the format does not define.
    #[error("unknown {what} {code}")]
    UnknownCode {
        /// Which kind of code.
        what: &'static str,
        /// The code.
        code: u32,
    },
    /// A header that is not valid JSON of the required form.
    #[error("invalid JSON header: {}", OneLine(&_0.to_string()))]
    Json(serde_json::Error),
    /// Two entries of one name.
    #[error("{what} `{}` appears twice", Shown(name))]
    Duplicate {
        /// Which kind of entry.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// A tensor whose extent contradicts its shape and type, or exceeds the file.
    #[error("tensor `{}`: {reason}", Shown(name))]
    BadTensor {
        /// Its name.
        name: String,
        /// The contradiction.
        reason: String,
    },
    /// A metadata entry of the wrong type or value.
    #[error("metadata `{}`: {reason}", Shown(key))]
    BadMetadata {
        /// Its key.
        key: String,
        /// The contradiction.
        reason: String,
    },
}

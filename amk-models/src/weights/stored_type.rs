//! How a stored tensor's elements are written.

use amk::Encoding;
use std::fmt;

/// How the elements of a stored tensor are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredType {
    /// In an encoding that is registered.
    Encoded(&'static Encoding),
    /// A type that cannot be a weight's, by its name in the file: integers, and quantisations that
    /// no linked crate decodes. A model cannot claim it.
    Other(&'static str),
}

impl StoredType {
    /// The registered encoding with this name, or only the name.
    pub(super) fn named(name: &'static str) -> Self {
        // The block encodings are in `amk_kernels`, which is not linked if nothing names it.
        amk_kernels::link();
        Encoding::find(name).map_or(Self::Other(name), Self::Encoded)
    }

    /// The encoding.
    pub fn encoding(self) -> Option<&'static Encoding> {
        match self {
            Self::Encoded(encoding) => Some(encoding),
            Self::Other(_) => None,
        }
    }
}

impl fmt::Display for StoredType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Encoded(encoding) => encoding.fmt(f),
            Self::Other(name) => f.write_str(name),
        }
    }
}

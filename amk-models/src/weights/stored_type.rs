//! How a stored tensor's elements are written.

use amk::Encoding;
use std::fmt;

/// How the elements of a stored tensor are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredType {
    /// In an encoding that is registered.
    Encoded(&'static Encoding),
    /// In a type that is none of a weight, by its name in the file: integers, quantisations that no
    /// linked crate decodes. A model cannot claim it.
    Other(&'static str),
}

impl StoredType {
    /// The registered encoding of this name, or the name alone.
    pub(super) fn named(name: &'static str) -> Self {
        // The block encodings are in this crate, whose own code may name nothing of it.
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

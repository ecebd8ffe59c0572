//! A file in memory, without reading it.

use std::fs::File;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use super::{FormatCause, FormatError};

/// A read-only mapping of a whole file.
#[derive(Debug)]
pub struct MappedFile {
    path: PathBuf,
    bytes: Mmap,
}

impl MappedFile {
    /// Maps the file at `path`.
    ///
    /// # Errors
    /// [`FormatCause::Io`] if it cannot be opened or mapped.
    pub fn open(path: &Path) -> Result<Self, FormatError> {
        let io = |error| FormatError::new(path, 0, FormatCause::Io(error));
        let file = File::open(path).map_err(io)?;
        // A directory opens on Unix and fails only at the mapping, with an obscure cause.
        if file.metadata().map_err(io)?.is_dir() {
            return Err(io(std::io::ErrorKind::IsADirectory.into()));
        }
        // SAFETY: the mapping is private to this process and read-only. As with every mapped
        // checkpoint, another process that truncates the file while it is in use ends this one with
        // a bus error; nothing is written through the mapping.
        let bytes = unsafe { Mmap::map(&file) }.map_err(io)?;
        Ok(Self { path: path.to_owned(), bytes })
    }

    /// The file's path as it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The whole file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn error(&self, offset: usize, cause: FormatCause) -> FormatError {
        FormatError::new(&self.path, offset as u64, cause)
    }
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

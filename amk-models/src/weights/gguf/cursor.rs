//! A reading position that stays within a GGUF file.

use super::super::{FormatCause, FormatError, MappedFile};

/// Longest accepted string: metadata holds chat templates and licence texts, nothing larger.
const MAX_STRING_BYTES: u64 = 1 << 24;

/// A reading position in a file.
pub(super) struct Cursor<'a> {
    file: &'a MappedFile,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(file: &'a MappedFile) -> Self {
        Self { file, at: 0 }
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Bytes left.
    pub(super) fn remaining(&self) -> usize {
        self.file.bytes().len() - self.at
    }

    /// An error at the current position.
    pub(super) fn error(&self, cause: FormatCause) -> FormatError {
        self.file.error(self.at, cause)
    }

    /// Returns the next `len` bytes, which errors refer to as `what`.
    pub(super) fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], FormatError> {
        let rest = &self.file.bytes()[self.at..];
        let Some(bytes) = rest.get(..len) else {
            let cause = FormatCause::Truncated { what, needed: len as u64, available: rest.len() as u64 };
            return Err(self.error(cause));
        };
        self.at += len;
        Ok(bytes)
    }

    /// The next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], FormatError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, what)?);
        Ok(array)
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// Reads a count of `what`, each of which takes at least `least_bytes` of the file: at most
    /// `limit`, and no more than fit in the remaining bytes. A hostile count is thus refused before
    /// any allocation.
    pub(super) fn count(&mut self, what: &'static str, limit: u64, least_bytes: u64) -> Result<usize, FormatError> {
        let start = self.at;
        let found = self.u64(what)?;
        if found > limit {
            return Err(self.file.error(start, FormatCause::OverLimit { what, found, limit }));
        }
        let (needed, available) = (found * least_bytes, self.remaining() as u64);
        if needed > available {
            return Err(self.file.error(start, FormatCause::TruncatedCount { what, count: found, needed, available }));
        }
        Ok(found as usize)
    }

    /// A string: `u64 length | UTF-8 bytes`.
    pub(super) fn string(&mut self, what: &'static str) -> Result<&'a str, FormatError> {
        let len = self.count(what, MAX_STRING_BYTES, 1)?;
        let start = self.at;
        let bytes = self.take(len, what)?;
        std::str::from_utf8(bytes)
            .map_err(|error| self.file.error(start + error.valid_up_to(), FormatCause::InvalidUtf8 { what }))
    }
}

//! Files that appear whole or not at all.

use crate::error::QuantizeError;
use std::fs;
use std::path::{Path, PathBuf};

/// An error of a file.
pub(crate) fn io(action: &'static str, path: &Path) -> impl Fn(std::io::Error) -> QuantizeError {
    move |cause| QuantizeError::Io { action, path: path.to_owned(), cause }
}

/// Refuses a place where there is something.
///
/// # Errors
/// [`QuantizeError::Exists`].
pub(crate) fn check_free(path: &Path) -> Result<(), QuantizeError> {
    match fs::symlink_metadata(path) {
        Ok(_) => Err(QuantizeError::Exists { path: path.to_owned() }),
        Err(_) => Ok(()),
    }
}

/// The folder that a path lies in.
pub(crate) fn parent(path: &Path) -> PathBuf {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

/// Bytes of a file, or of all files of a folder.
pub fn size(path: &Path) -> u64 {
    let of_entry = |entry: fs::DirEntry| entry.metadata().map_or(0, |about| about.len());
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(of_entry).sum(),
        Err(_) => fs::metadata(path).map_or(0, |about| about.len()),
    }
}

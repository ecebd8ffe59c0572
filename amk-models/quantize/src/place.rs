//! Files that appear whole or not at all.

use crate::error::QuantizeError;
use std::fs;
use std::path::Path;

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

/// Makes a file or folder at another path and puts it in its place.
///
/// # Errors
/// Those of `make`, or when there is something at the place meanwhile: nothing is left then.
pub(crate) fn appear(path: &Path, make: impl FnOnce(&Path) -> Result<(), QuantizeError>) -> Result<(), QuantizeError> {
    let within = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let building = tempfile::Builder::new().prefix(".quantize").tempdir_in(within);
    let building = building.map_err(io("write into", within))?;
    // A temporary folder is its owner's alone, what is made in it need not be.
    let made = building.path().join("made");
    make(&made)?;
    check_free(path)?;
    fs::rename(made, path).map_err(io("write", path))
}

/// Bytes of a file, or of all files of a folder.
pub fn size(path: &Path) -> u64 {
    let of_entry = |entry: fs::DirEntry| entry.metadata().map_or(0, |about| about.len());
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(of_entry).sum(),
        Err(_) => fs::metadata(path).map_or(0, |about| about.len()),
    }
}

//! Files that appear whole or not at all.

use crate::error::QuantizeError;
use amk_models::weights::TensorSet;
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

/// Bytes of the files with a checkpoint's weights.
pub fn size(tensors: &TensorSet) -> u64 {
    tensors.files().into_iter().map(bytes).sum()
}

/// Bytes of the files with the weights of a result.
pub fn size_of_result(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else { return bytes(path) };
    let files = entries.flatten().map(|entry| entry.path());
    files.filter(|file| file.extension().is_some_and(|end| end == "safetensors")).map(|file| bytes(&file)).sum()
}

fn bytes(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |about| about.len())
}

//! Files that appear whole or not at all.

use crate::error::QuantizeError;
use amk_models::weights::TensorSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An error of a file.
pub(crate) fn io(action: &'static str, path: &Path) -> impl Fn(std::io::Error) -> QuantizeError {
    move |cause| QuantizeError::Io { action, path: path.to_owned(), cause }
}

/// Refuses a place where there is something, or that is in no folder.
///
/// # Errors
/// [`QuantizeError::Exists`] or [`QuantizeError::NoFolder`].
pub(crate) fn check_free(path: &Path) -> Result<(), QuantizeError> {
    if fs::symlink_metadata(path).is_ok() {
        return Err(QuantizeError::Exists { path: path.to_owned() });
    }
    match folder_of(path) {
        folder if folder.is_dir() => Ok(()),
        folder => Err(QuantizeError::NoFolder { path: path.to_owned(), folder: folder.to_owned() }),
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Folders with results that are not in their places yet.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Times that a folder is removed while another thread may write into it.
const ATTEMPTS: usize = 100;

/// Removes results that are being written, so that the process can end. None is put into its place
/// while what this returns is held.
#[must_use = "the process should end while this is held"]
pub fn remove_unfinished() -> Unfinished {
    let folders = unfinished();
    for folder in folders.iter() {
        let gone = |_: &usize| fs::remove_dir_all(folder).is_ok() || !folder.exists();
        let _ = (0..ATTEMPTS).find(gone);
    }
    Unfinished { _folders: folders }
}

/// Keeps results from their places.
pub struct Unfinished {
    _folders: MutexGuard<'static, Vec<PathBuf>>,
}

/// A folder beside a result, removed when it is dropped.
struct Building(tempfile::TempDir);

impl Building {
    fn new(within: &Path) -> std::io::Result<Self> {
        let mut folders = unfinished();
        let folder = tempfile::Builder::new().prefix(".quantize").tempdir_in(within)?;
        folders.push(folder.path().to_owned());
        Ok(Self(folder))
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        unfinished().retain(|folder| folder != self.0.path());
    }
}

/// Makes a file or folder at another path and puts it in its place.
///
/// # Errors
/// Those of `make`, or when there is something at the place meanwhile: nothing is left then.
pub(crate) fn appear(path: &Path, make: impl FnOnce(&Path) -> Result<(), QuantizeError>) -> Result<(), QuantizeError> {
    check_free(path)?;
    let within = folder_of(path);
    // The error of a temporary folder has its name, which means nothing to the user.
    let building = Building::new(within).map_err(|error| io("write into", within)(error.kind().into()))?;
    // A temporary folder is its owner's alone, what is made in it need not be.
    let made = building.0.path().join("made");
    make(&made).map_err(|error| error.at(&made, path))?;
    let _unfinished = unfinished();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_is_told_by_the_place_of_the_result() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("q");
        let error = |file: &str| {
            let fail = |made: &Path| Err(io("write", &made.join(file))(std::io::ErrorKind::StorageFull.into()));
            appear(&place, fail).unwrap_err().to_string()
        };
        assert_eq!(error(""), format!("cannot write {}", place.display()));
        assert_eq!(error("config.json"), format!("cannot write {}", place.join("config.json").display()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_unfinished_result_is_removed_and_does_not_appear() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("q");
        let made = appear(&place, |made| {
            fs::create_dir(made).map_err(io("write", made))?;
            drop(remove_unfinished());
            Ok(())
        });
        assert!(made.is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

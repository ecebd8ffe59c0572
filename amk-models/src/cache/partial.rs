//! A folder that appears under its final name only when it is complete.

use std::fs::{DirEntry, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

const PREFIX: &str = ".partial-";
/// Where folders cannot be locked, one of this age was left by a process that was killed.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);

/// A temporary folder next to the final one, removed unless it is published. It is locked while its
/// process lives.
pub(super) struct PartialFolder {
    scratch: TempDir,
    model: PathBuf,
    _lock: Option<File>,
}

impl PartialFolder {
    /// A new one in `folder`, which is created.
    pub(super) fn new(folder: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        // No process takes the new folder for abandoned before it is locked.
        let all = lock(folder);
        let scratch = tempfile::Builder::new().prefix(PREFIX).tempdir_in(folder)?;
        let own = lock(scratch.path());
        drop(all);
        let model = scratch.path().join("model");
        std::fs::create_dir(&model)?;
        Ok(Self { scratch, model, _lock: own })
    }

    /// For files that are only needed on the way.
    pub(super) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// For the files of the model.
    pub(super) fn model(&self) -> &Path {
        &self.model
    }

    /// Moves the model to `place` and removes the rest.
    pub(super) fn publish(self, place: &Path) -> io::Result<PathBuf> {
        match std::fs::rename(&self.model, place) {
            Ok(()) => Ok(place.to_owned()),
            // Another process was faster; its folder is as complete as this one.
            Err(_) if place.is_dir() => Ok(place.to_owned()),
            Err(error) => Err(error),
        }
    }
}

/// The folder, locked for this process; `None` if that is not possible.
fn lock(folder: &Path) -> Option<File> {
    File::open(folder).ok().filter(|folder| folder.lock().is_ok())
}

/// Removes the remains of killed processes from `folder`, if there is such a folder. Failures are
/// ignored.
pub(super) fn remove_abandoned(folder: &Path) {
    let _all = lock(folder);
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) && is_abandoned(&entry) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether the lock of a partial folder is free or, if that cannot be determined, whether the
/// folder is old.
fn is_abandoned(entry: &DirEntry) -> bool {
    match File::open(entry.path()).map(|folder| folder.try_lock()) {
        Ok(Ok(())) => true,
        Ok(Err(TryLockError::WouldBlock)) => false,
        Ok(Err(TryLockError::Error(_))) | Err(_) => {
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > ABANDONED))
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_process_left_is_removed_and_what_a_living_one_makes_stays() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join(".partial-left");
        std::fs::create_dir_all(left.join("model")).unwrap();
        std::fs::write(left.join("model/model.safetensors"), b"half").unwrap();
        let living = PartialFolder::new(folder.path()).unwrap();
        remove_abandoned(folder.path());
        assert!(!left.exists() && living.model().exists());
        drop(living);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

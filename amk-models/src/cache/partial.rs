//! A folder that appears under its final name only when it is whole.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

const PREFIX: &str = ".partial-";
/// A temporary folder of this age was left by a process that was killed.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);

/// A temporary folder beside the final place of what is made in it; removed unless it is published.
pub(super) struct PartialFolder {
    scratch: TempDir,
    model: PathBuf,
}

impl PartialFolder {
    /// A new one in `folder`, which is created.
    pub(super) fn new(folder: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        remove_abandoned(folder);
        let scratch = tempfile::Builder::new().prefix(PREFIX).tempdir_in(folder)?;
        let model = scratch.path().join("model");
        std::fs::create_dir(&model)?;
        Ok(Self { scratch, model })
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
            // Another process was faster; what it published is as whole as this.
            Err(_) if place.is_dir() => Ok(place.to_owned()),
            Err(error) => Err(error),
        }
    }
}

/// Removes what killed processes left. Failing to is no reason not to go on.
fn remove_abandoned(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let is_partial = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let age = entry.metadata().and_then(|metadata| metadata.modified()).map(|modified| modified.elapsed());
        if is_partial && age.is_ok_and(|age| age.is_ok_and(|age| age > ABANDONED)) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

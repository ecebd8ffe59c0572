//! The model that a command is about: a path, or a name on the hub.

use amk_models::cache::{Cache, SMOLLM2_135M_INSTRUCT};
use amk_models::hub::{HubModel, HubSettings};
use anyhow::Result;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A path, or else the name of a model on the hub.
#[derive(Clone, Debug)]
pub(crate) enum ModelArg {
    Path(PathBuf),
    Hub(HubModel),
}

impl FromStr for ModelArg {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let path = Path::new(text);
        // What is there goes first; weights and GGUF files of a folder that is not are paths.
        let is_file = path.extension().is_some_and(|extension| extension == "gguf" || extension == "safetensors");
        let of_hub = text.parse().ok().filter(|model: &HubModel| model.file.is_some() || !is_file);
        Ok(match of_hub {
            Some(model) if !path.exists() => Self::Hub(model),
            _ => Self::Path(path.to_owned()),
        })
    }
}

impl ModelArg {
    /// Where it is, fetched where it is on the hub.
    pub(crate) fn path(&self) -> Result<PathBuf> {
        match self {
            Self::Path(path) => Ok(path.clone()),
            Self::Hub(model) => Ok(model.resolve(&HubSettings::from_env())?),
        }
    }

    /// What clients call it.
    pub(crate) fn name(&self) -> Option<String> {
        match self {
            Self::Path(path) => path.file_stem().map(|stem| stem.to_string_lossy().into_owned()),
            Self::Hub(model) => Some(model.to_string()),
        }
    }
}

/// Where the model is that is asked for; without one, the default model.
pub(crate) fn path_of(model: Option<&ModelArg>) -> Result<PathBuf> {
    match model {
        Some(model) => model.path(),
        None => Ok(Cache::from_env()?.resolve(&SMOLLM2_135M_INSTRUCT)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_of_the_hub_unless_it_is_a_path() {
        let is_hub = |text: &str| matches!(text.parse(), Ok(ModelArg::Hub(_)));
        assert!(is_hub("owner/name") && is_hub("owner/name:m.gguf@v1"));
        for path in ["name", "./owner/name", "a/b/c", "folder/m.gguf", "folder/m.safetensors", "src/chat"] {
            assert!(!is_hub(path), "{path}");
        }
    }
}

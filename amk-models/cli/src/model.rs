//! The model that a command is about.

use amk_models::cache::{Cache, SMOLLM2_135M_INSTRUCT};
use amk_run::named::NamedModel;
use anyhow::Result;
use std::path::PathBuf;

/// Where the model is that is asked for; without one, the default model.
pub(crate) fn path_of(model: Option<&NamedModel>) -> Result<PathBuf> {
    match model {
        Some(model) => Ok(model.path()?),
        None => Ok(Cache::from_env()?.resolve(&SMOLLM2_135M_INSTRUCT)?),
    }
}

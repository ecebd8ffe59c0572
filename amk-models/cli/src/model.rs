//! The model that a command is about.

use crate::load::LoadArgs;
use crate::options::AllowArg;
use amk_models::cache::{Cache, SMOLLM2_135M_INSTRUCT};
use amk_models::checkpoint::Checkpoint;
use amk_run::named::NamedModel;
use anyhow::Result;
use std::path::PathBuf;

/// The model that a command runs, and how it is held.
#[derive(clap::Args)]
pub(crate) struct SourceArgs {
    /// A Hugging Face folder, a GGUF file, or a model of the hub: `owner/name[:file][@revision]`.
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: Option<NamedModel>,
    #[command(flatten)]
    pub(crate) allow: AllowArg,
    #[command(flatten)]
    pub(crate) held: LoadArgs,
}

impl SourceArgs {
    /// Opens the model; without a name, the default model.
    pub(crate) fn open(&self) -> Result<Checkpoint> {
        self.allow.open(&path_of(self.model.as_ref())?)
    }
}

/// Where the model is that is asked for; without one, the default model.
pub(crate) fn path_of(model: Option<&NamedModel>) -> Result<PathBuf> {
    match model {
        Some(model) => Ok(model.path()?),
        None => Ok(Cache::from_env()?.resolve(&SMOLLM2_135M_INSTRUCT)?),
    }
}

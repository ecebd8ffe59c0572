//! What is measured: a checkpoint, or a declared instance over random weights.

use super::options::{find_instance, model_path};
use amk_models::checkpoint::Checkpoint;
use amk_models::model::{Model, WeightFormat};
use anyhow::Result;
use std::path::PathBuf;

/// What is measured.
#[derive(Clone, clap::Args)]
pub(crate) struct SubjectArgs {
    /// A Hugging Face folder or a GGUF file [default: SmolLM2-135M-Instruct].
    #[arg(short, long, value_name = "PATH", conflicts_with = "random")]
    model: Option<PathBuf>,
    /// A declared instance over random weights instead, as in `llama.llama_3_2_1b` (see `amk models`).
    #[arg(long, value_name = "MODEL.INSTANCE")]
    random: Option<String>,
}

/// A model to measure.
pub(crate) struct Subject {
    /// What it is called.
    pub(crate) name: String,
    /// The model.
    pub(crate) model: Model,
}

impl SubjectArgs {
    /// Loads it in bf16, as a GPU holds it, for a context of `context` positions.
    pub(crate) fn load(&self, context: u32) -> Result<Subject> {
        if let Some(name) = &self.random {
            let (family, instance) = find_instance(name)?;
            return Ok(Subject { name: name.clone(), model: Model::random(family, &instance, context)? });
        }
        let path = model_path(self.model.as_ref())?;
        let checkpoint = Checkpoint::open(&path)?;
        let model =
            Model::load(&checkpoint.config, checkpoint.tensors, context as usize, WeightFormat::BF16, &mut |_| {})?;
        let name =
            path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
        Ok(Subject { name, model })
    }
}

//! What is measured: checkpoints, or declared instances over random weights.

use super::options::model_path;
use amk_models::checkpoint::Checkpoint;
use amk_models::model::{Model, WeightFormat, find_instance};
use amk_models::tokenizer::SpecialTokens;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// What is measured.
#[derive(Clone, clap::Args)]
pub(crate) struct SubjectArgs {
    /// A Hugging Face folder or a GGUF file; may be given several times [default: SmolLM2-135M-Instruct].
    #[arg(short, long, value_name = "PATH")]
    model: Vec<PathBuf>,
    /// Declared instances over random weights, as in `llama.llama_3_2_1b` (see `amk models`).
    #[arg(long, value_name = "MODEL.INSTANCE", value_delimiter = ',')]
    random: Vec<String>,
}

/// One of them.
pub(crate) enum Which {
    /// A checkpoint.
    Checkpoint(PathBuf),
    /// A declared instance.
    Random(String),
}

/// A model to measure.
pub(crate) struct Subject {
    /// What it is called.
    pub(crate) name: String,
    /// The model.
    pub(crate) model: Model,
    /// Tokens to compare logits with before any time is shown.
    pub(crate) gate: Vec<u32>,
}

/// Tokens to compare logits with.
const GATE_TOKENS: usize = 8;

impl SubjectArgs {
    /// All of them.
    pub(crate) fn all(&self) -> Result<Vec<Which>> {
        let checkpoints = self.model.iter().cloned().map(Which::Checkpoint);
        let all: Vec<Which> = checkpoints.chain(self.random.iter().cloned().map(Which::Random)).collect();
        if all.is_empty() { Ok(vec![Which::Checkpoint(model_path(None)?)]) } else { Ok(all) }
    }

    /// The one that there may be.
    pub(crate) fn one(&self) -> Result<Which> {
        let mut all = self.all()?;
        match all.pop() {
            Some(which) if all.is_empty() => Ok(which),
            _ => bail!("one model is looked at here; name one"),
        }
    }
}

impl Which {
    /// Positions that it was made for; random weights are for any number.
    pub(crate) fn positions(&self) -> Result<u32> {
        match self {
            Self::Checkpoint(path) => Ok(u32::try_from(Checkpoint::open(path)?.config.context_len).unwrap_or(u32::MAX)),
            Self::Random(_) => Ok(u32::MAX),
        }
    }

    /// Loads it for a context of `context` positions; random weights are bf16 whatever the format.
    pub(crate) fn load(&self, context: u32, format: WeightFormat) -> Result<Subject> {
        match self {
            Self::Checkpoint(path) => checkpoint(path, context, format),
            Self::Random(name) => {
                let (family, instance) = find_instance(name)?;
                let model = Model::random(family, &instance, context)?;
                let gate = fixed_tokens(&model);
                Ok(Subject { name: name.clone(), model, gate })
            }
        }
    }
}

fn checkpoint(path: &Path, context: u32, format: WeightFormat) -> Result<Subject> {
    let checkpoint = Checkpoint::open(path)?;
    // Ordinary text: special tokens, which a text starts with at most, have activations far outside the usual range.
    let text = "The gate compares logits of a few words before any time is shown.";
    let words =
        checkpoint.tokenizer().ok().map(|tokenizer| tokenizer.encode(text, SpecialTokens::AsWritten)).transpose()?;
    let name = path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
    let model = Model::load(&checkpoint.config, checkpoint.tensors, context as usize, format, &mut |_| {})?;
    let mut gate = words.unwrap_or_else(|| fixed_tokens(&model));
    gate.truncate(GATE_TOKENS);
    Ok(Subject { name, model, gate })
}

/// Tokens of no text, for a model without a tokenizer.
fn fixed_tokens(model: &Model) -> Vec<u32> {
    let vocab = model.instance.dims.get("VOCAB").copied().unwrap_or(u32::MAX);
    (0..GATE_TOKENS as u32).map(|pos| (17 + 91 * pos) % vocab).collect()
}

//! Subjects of measurements: checkpoints, or declared instances over random weights.

use super::model::path_of;
use super::options::{AllowArg, Device};
use amk::encoding::BF16;
use amk_bench::fixed_tokens;
use amk_models::cache::SMOLLM2_135M_INSTRUCT;
use amk_models::checkpoint::Checkpoint;
use amk_models::model::{Model, WeightFormat, WeightUse, find_instance};
use amk_models::tokenizer::SpecialTokens;
use amk_run::named::NamedModel;
use anyhow::{Result, bail};

/// Selects the subjects.
#[derive(Clone, clap::Args)]
pub(crate) struct SubjectArgs {
    /// A Hugging Face folder, a GGUF file, or a model of the hub: `owner/name[:file][@revision]`;
    /// may be given several times [default: SmolLM2-135M-Instruct].
    #[arg(short, long, value_name = "MODEL")]
    model: Vec<NamedModel>,
    /// Declared instances over random weights, as in `llama.llama_3_2_1b` (see `amk models`).
    #[arg(long, value_name = "MODEL.INSTANCE", value_delimiter = ',')]
    random: Vec<String>,
    #[command(flatten)]
    allow: AllowArg,
}

/// One of them.
pub(crate) enum Which {
    /// A checkpoint, the default one where none is named, with unknown fields that it may have.
    Checkpoint(Option<NamedModel>, AllowArg),
    /// A declared instance.
    Random(String),
}

/// One that was opened, and not loaded.
pub(crate) struct Opened {
    name: String,
    /// None of a declared instance.
    checkpoint: Option<Checkpoint>,
}

/// A model to measure.
pub(crate) struct Subject {
    /// Its name.
    pub(crate) name: String,
    /// The model.
    pub(crate) model: Model,
    /// Tokens to compare logits with before any time is shown.
    pub(crate) gate: Vec<u32>,
}

/// Tokens to compare logits with.
const GATE_TOKENS: usize = 8;

impl SubjectArgs {
    /// All subjects, for a device: without such a device, nothing is fetched.
    pub(crate) fn all(&self, device: Device) -> Result<Vec<Which>> {
        let checkpoints = self.model.iter().map(|model| Which::Checkpoint(Some(model.clone()), self.allow.clone()));
        let all: Vec<Which> = checkpoints.chain(self.random.iter().cloned().map(Which::Random)).collect();
        if !all.is_empty() {
            return Ok(all);
        }
        device.require()?;
        Ok(vec![Which::Checkpoint(None, self.allow.clone())])
    }

    /// The one that there may be, for a GPU.
    pub(crate) fn one(&self) -> Result<Which> {
        let mut all = self.all(Device::Cuda)?;
        match all.pop() {
            Some(which) if all.is_empty() => Ok(which),
            _ => bail!("this command takes one model; name one"),
        }
    }
}

impl Which {
    /// Opens it; a declared instance is made when it is loaded.
    pub(crate) fn open(&self) -> Result<Opened> {
        match self {
            Self::Checkpoint(model, allow) => {
                let path = path_of(model.as_ref())?;
                let file = path.file_name().map_or_else(|| path.to_string_lossy(), |name| name.to_string_lossy());
                let name = match model {
                    Some(NamedModel::Hub(model)) => model.to_string(),
                    None => SMOLLM2_135M_INSTRUCT.name.to_owned(),
                    _ => file.into_owned(),
                };
                Ok(Opened { name, checkpoint: Some(allow.open(&path)?) })
            }
            Self::Random(name) => Ok(Opened { name: name.clone(), checkpoint: None }),
        }
    }
}

impl Opened {
    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Positions that it was made for; random weights are for any number.
    pub(crate) fn positions(&self) -> u32 {
        let made_for = |checkpoint: &Checkpoint| u32::try_from(checkpoint.config.context_len).unwrap_or(u32::MAX);
        self.checkpoint.as_ref().map_or(u32::MAX, made_for)
    }

    /// Loads it for a context of `context` positions; random weights are bf16 by themselves.
    pub(crate) fn load(self, context: u32, weights: impl Into<WeightUse>) -> Result<Subject> {
        let weights = weights.into();
        let Self { name, checkpoint } = self;
        let Some(checkpoint) = checkpoint else {
            let (family, instance) = find_instance(&name)?;
            let encoding = match weights.format {
                WeightFormat::Native => &BF16,
                WeightFormat::As(encoding) => encoding,
            };
            let model = Model::random(family, &instance, context, encoding, weights.inputs)?;
            let gate = no_text(&model);
            return Ok(Subject { name, model, gate });
        };
        // Ordinary text: special tokens, which a text starts with at most, have activations far
        // outside the usual range.
        let text = "The gate compares logits of a few words before any time is shown.";
        let words = checkpoint
            .tokenizer()
            .ok()
            .map(|tokenizer| tokenizer.encode(text, SpecialTokens::AsWritten))
            .transpose()?;
        let model = Model::load(&checkpoint.config, checkpoint.tensors, context as usize, weights, &mut |_| {})?;
        let mut gate = words.unwrap_or_else(|| no_text(&model));
        gate.truncate(GATE_TOKENS);
        Ok(Subject { name, model, gate })
    }
}

/// Tokens for a model without a tokenizer.
fn no_text(model: &Model) -> Vec<u32> {
    fixed_tokens(GATE_TOKENS as u32, model.instance.dims.get("VOCAB").copied().unwrap_or(u32::MAX))
}

//! A model, ready to generate: from its name to a session on this machine's cores.

use crate::generate::GenerateError;
use crate::named::NamedModel;
use crate::sampler::SamplerConfig;
use crate::session::ModelSession;
use crate::text::Request;
use amk::MegakernelError;
use amk::ir::schedule::{RowSchedule, Schedule};
use amk::ir::verify::Verified;
use amk::registry::{Registry, RegistryError};
use amk::rows::PoolSize;
use amk::vm::cpu::{Options, Vm, VmError};
use amk_models::chat::{ChatError, ChatOptions, Message};
use amk_models::checkpoint::{Checkpoint, CheckpointError};
use amk_models::hub::HubError;
use amk_models::model::{Model, ModelError, WeightFormat, WeightUse};
use amk_models::tokenizer::{SpecialTokens, Tokenizer, TokenizerError};
use std::convert::Infallible;
use std::path::PathBuf;

/// Default number of positions, if the model has more.
const DEFAULT_CONTEXT: usize = 2048;
/// Default maximum number of rows in a step on a CPU: enough to hide the reading of weights.
pub const CPU_ROWS: u32 = 128;

/// The reasons why a model cannot be opened, or does not answer.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be had from the hub.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// Its files cannot be used.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The model is not supported.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// It has no program.
    #[error(transparent)]
    Kernel(#[from] MegakernelError),
    /// An instruction cannot be used.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The VM cannot be made.
    #[error(transparent)]
    Vm(#[from] VmError),
    /// A conversation was requested from a model without a chat template.
    #[error("{} has no chat template; `complete` goes on from a text", path.display())]
    NoTemplate {
        /// The file or folder.
        path: PathBuf,
    },
    /// The chat template refuses a conversation.
    #[error(transparent)]
    Chat(#[from] ChatError),
    /// A text cannot be encoded.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A text cannot be written.
    #[error(transparent)]
    Generate(#[from] GenerateError),
}

impl From<Infallible> for OpenError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// A model in memory, with its tokenizer and settings.
pub struct OpenModel {
    checkpoint: Checkpoint,
    model: Model,
    context: usize,
}

/// Opens a model: a Hugging Face folder, a GGUF file, or a model on the hub
/// (`owner/name[:file][@revision]`). The context is the model's, limited to 2048 positions.
///
/// # Errors
/// [`OpenError`] if it does not exist or is not supported.
pub fn open(name: &str) -> Result<OpenModel, OpenError> {
    open_with(name, None, WeightFormat::Native)
}

/// Like [`open`], with this many positions, and with weights in another format or for
/// [embeddings](amk_models::model::Output::States) alone.
///
/// # Errors
/// As for [`open`], and for a context longer than the model's.
pub fn open_with(name: &str, context: Option<usize>, weights: impl Into<WeightUse>) -> Result<OpenModel, OpenError> {
    amk_kernels::link();
    let path = name.parse::<NamedModel>()?.path()?;
    let mut checkpoint = Checkpoint::open(&path)?;
    let context = context.unwrap_or(DEFAULT_CONTEXT.min(checkpoint.config.context_len));
    let tensors = std::mem::take(&mut checkpoint.tensors);
    let model = Model::load(&checkpoint.config, tensors, context, weights, &mut |_| {})?;
    Ok(OpenModel { checkpoint, model, context })
}

impl OpenModel {
    /// Returns a session that keeps one conversation.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn session(&self) -> Result<ModelSession<'_>, OpenError> {
        ModelSession::new(self, 1)
    }

    /// Returns a session that generates up to this many texts in one batch.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn session_of(&self, texts: usize) -> Result<ModelSession<'_>, OpenError> {
        ModelSession::new(self, texts)
    }

    /// Returns a VM for steps of rows on all cores, with enough pages for this many sequences of
    /// the whole context.
    ///
    /// # Errors
    /// [`OpenError::Kernel`], [`OpenError::Registry`] and [`OpenError::Vm`].
    pub fn vm(&self, sequences: usize) -> Result<Vm, OpenError> {
        let graph = self.model.family.kernel.graph()?;
        let schedule = with_rows(self.model.instance.schedule_in(graph).over(all_cores()), CPU_ROWS);
        let verified = self.model.family.kernel.verified(&self.model.instance, Some(&schedule))?;
        rows_vm(verified, &self.model, PoolSize::sequences(sequences, self.context))
    }

    /// The checkpoint without its weights.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The weights and their function.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The tokenizer.
    ///
    /// # Errors
    /// [`CheckpointError::NoTokenizer`].
    pub fn tokenizer(&self) -> Result<&Tokenizer, OpenError> {
        Ok(self.checkpoint.tokenizer()?)
    }

    /// Returns the prompt for the answer to a conversation, from the model's chat template.
    ///
    /// # Errors
    /// [`OpenError::NoTemplate`], and a conversation that the template refuses.
    pub fn prompt(&self, messages: &[Message]) -> Result<Vec<u32>, OpenError> {
        let none = || OpenError::NoTemplate { path: self.checkpoint.path.clone() };
        let template = self.checkpoint.chat_template.as_ref().ok_or_else(none)?;
        let text = template.render(messages, &ChatOptions::answer())?;
        Ok(self.tokenizer()?.encode(&text, SpecialTokens::AsWritten)?)
    }

    /// Maximum number of positions of a text, including its prompt.
    pub fn context(&self) -> usize {
        self.context
    }

    /// The settings that the model's author recommends: the sampler, and the tokens that end a
    /// text.
    pub fn request(&self) -> Request {
        let sampler = SamplerConfig::of_model(&self.checkpoint.generation, None);
        Request { sampler, stop_tokens: self.checkpoint.stop_tokens(), ..Request::default() }
    }
}

/// Returns a schedule for all cores of this machine.
pub fn all_cores() -> Schedule {
    Schedule { workers: cores(), ..Schedule::default() }
}

/// Default number of computing threads: one per core.
pub fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(1))
}

/// Returns the schedule with rows in its steps: this many if it sets none.
pub fn with_rows(schedule: Schedule, most: u32) -> Schedule {
    let rows = schedule.rows.unwrap_or(RowSchedule { most, block: None });
    Schedule { rows: Some(rows), ..schedule }
}

/// Returns a CPU VM for a model's program with rows, with pools of this size.
///
/// # Errors
/// [`OpenError::Registry`] and [`OpenError::Vm`].
pub fn rows_vm(verified: Verified, model: &Model, pages: PoolSize) -> Result<Vm, OpenError> {
    let options = Options { pages: Some(pages), ..Options::default() };
    Ok(Vm::with(verified, &model.bindings, &Registry::linked()?, options)?)
}

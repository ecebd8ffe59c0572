//! A checkpoint on disk: config, tensors, tokenizer, chat template and generation defaults, from
//! one path.
//!
//! ```text
//! Checkpoint::open("folder/")            config.json, model.safetensors or shards with an index, tokenizer.json,
//!                                        tokenizer_config.json, special_tokens_map.json, added_tokens.json,
//!                                        generation_config.json, chat_template.jinja
//! Checkpoint::open("model.gguf")         all of it in one file; a tokenizer.json next to the file serves
//!                                        where the embedded tokenizer cannot be built
//! Checkpoint::open("folder with a .gguf and no safetensors/")
//! ```
//!
//! Whatever the source, tensors have their Hugging Face names and shapes. Opening maps the files
//! and reads their headers; no weights are decoded.

mod folder;
mod generation;
mod gguf;
mod names;
mod shards;
mod tokens;

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::chat::ChatTemplate;
use crate::config::{AllowedFields, ConfigError, ModelConfig};
use crate::tokenizer::{Tokenizer, TokenizerError};
use crate::weights::{FormatError, TensorSet};

pub use generation::GenerationDefaults;

/// An opened checkpoint.
#[derive(Debug)]
pub struct Checkpoint {
    /// The file or folder.
    pub path: PathBuf,
    /// The model's hyperparameters.
    pub config: ModelConfig,
    /// All its tensors; the model claims the ones it needs and [finishes](TensorSet::finish) the
    /// set.
    pub tensors: TensorSet,
    /// The author's recommended generation settings, and the tokens that end a text.
    pub generation: GenerationDefaults,
    /// The template that turns a conversation into a prompt, if there is one.
    pub chat_template: Option<ChatTemplate>,
    tokenizer: Option<Tokenizer>,
}

/// A checkpoint that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// Nothing that is a checkpoint.
    #[error("{}: {reason}", path.display())]
    NotACheckpoint {
        /// The file or folder.
        path: PathBuf,
        /// The expected contents.
        reason: String,
    },
    /// A file of the checkpoint cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A JSON file of the checkpoint does not have the required form.
    #[error("{}: {reason}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The defect.
        reason: String,
    },
    /// A weight file is damaged or of an unsupported format.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The model is not supported.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The tokenizer cannot be used.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// Text was requested from a checkpoint without a tokenizer.
    #[error("{}: there is no tokenizer.json, so this checkpoint takes token ids only", path.display())]
    NoTokenizer {
        /// The file or folder.
        path: PathBuf,
    },
}

impl Checkpoint {
    /// Opens the checkpoint at `path`: a folder of Hugging Face files, a `.gguf` file, or a folder
    /// with one `.gguf` file and no safetensors.
    ///
    /// # Errors
    /// [`CheckpointError`] for anything that is missing, damaged or not modelled.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        Self::open_allowing(path, &AllowedFields::default())
    }

    /// Like [`Self::open`], but accepts these unknown fields of the config.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn open_allowing(path: &Path, allowed: &AllowedFields) -> Result<Self, CheckpointError> {
        // Reading something that is neither, such as a pipe, may never end.
        let mut checkpoint = if path.is_dir() {
            open_folder(path, allowed)?
        } else if path.is_file() && gguf::is_one(path) {
            gguf::open(path, allowed)?
        } else {
            let reason = not_a_checkpoint(path);
            return Err(CheckpointError::NotACheckpoint { path: path.to_owned(), reason });
        };
        if let Some(tokenizer) = &mut checkpoint.tokenizer {
            tokenizer.limit_to_vocabulary(checkpoint.config.vocab_size);
        }
        Ok(checkpoint)
    }

    /// The tokenizer.
    ///
    /// # Errors
    /// [`CheckpointError::NoTokenizer`].
    pub fn tokenizer(&self) -> Result<&Tokenizer, CheckpointError> {
        self.tokenizer.as_ref().ok_or_else(|| CheckpointError::NoTokenizer { path: self.path.clone() })
    }

    /// The tokens that end a text, in order.
    pub fn stop_tokens(&self) -> Vec<u32> {
        let mut stop_tokens = [&self.generation.eos[..], &self.config.eos].concat();
        stop_tokens.sort_unstable();
        stop_tokens.dedup();
        stop_tokens
    }
}

/// Explains why a path is not a checkpoint, and which path to give instead.
fn not_a_checkpoint(path: &Path) -> String {
    if path.extension().is_some_and(|extension| extension == "safetensors") {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        return format!("has weights alone; give the folder with their config.json: {}", folder.display());
    }
    if path.exists() {
        return "is neither a folder nor a GGUF file".to_owned();
    }
    match repository(path) {
        Some(name) => format!(
            "does not exist; for the Hugging Face repository of this name, download it first and give the folder: \
             `hf download {} --local-dir {name}`",
            path.display()
        ),
        None => {
            "does not exist; give a folder with config.json, safetensors and tokenizer.json, or a GGUF file".to_owned()
        }
    }
}

/// Returns the last part of a path that could be a repository name, `owner/name`.
fn repository(path: &Path) -> Option<&str> {
    let (owner, name) = path.to_str()?.split_once('/')?;
    let is_name = |part: &str| {
        let legal = |char: char| char.is_ascii_alphanumeric() || "-_.".contains(char);
        part.starts_with(|char: char| char.is_ascii_alphanumeric()) && part.chars().all(legal)
    };
    (is_name(owner) && is_name(name)).then_some(name)
}

fn open_folder(path: &Path, allowed: &AllowedFields) -> Result<Checkpoint, CheckpointError> {
    if folder::is_hugging_face(path) && shards::are_in(path) {
        return folder::open(path, allowed);
    }
    match gguf::only_file(path)? {
        Some(file) => gguf::open(&file, allowed),
        // Refused because it has no weights, after its config.
        None if folder::is_hugging_face(path) => folder::open(path, allowed),
        None => {
            let reason = "has neither a config.json nor a .gguf file".to_owned();
            Err(CheckpointError::NotACheckpoint { path: path.to_owned(), reason })
        }
    }
}

/// Largest accepted text file; the largest tokenizers have some tens of megabytes.
const MAX_TEXT_BYTES: u64 = 1 << 28;

/// Returns the bytes of the text file at `path`; `None` if there is no such file.
fn read_if_present(path: &Path) -> Result<Option<Vec<u8>>, CheckpointError> {
    let io = |source| CheckpointError::Io { path: path.to_owned(), source };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    if file.metadata().map_err(io)?.len() > MAX_TEXT_BYTES {
        return Err(io(std::io::ErrorKind::FileTooLarge.into()));
    }
    let mut bytes = Vec::new();
    // The limit holds again while reading: a device or a growing file has no length beforehand.
    file.take(MAX_TEXT_BYTES).read_to_end(&mut bytes).map_err(io)?;
    Ok(Some(bytes))
}

/// Returns the JSON object in the file at `path`; `None` if there is no such file.
fn read_json(path: &Path) -> Result<Option<serde_json::Map<String, serde_json::Value>>, CheckpointError> {
    let Some(bytes) = read_if_present(path)? else { return Ok(None) };
    match serde_json::from_slice(&bytes) {
        Ok(serde_json::Value::Object(object)) => Ok(Some(object)),
        Ok(_) => Err(json_error(path, "is not a JSON object")),
        Err(error) => Err(json_error(path, format!("invalid JSON: {error}"))),
    }
}

fn json_error(path: &Path, reason: impl Into<String>) -> CheckpointError {
    CheckpointError::Json { path: path.to_owned(), reason: reason.into() }
}

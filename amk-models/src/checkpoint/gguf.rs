//! Opens a GGUF file.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::chat::{ChatTemplate, TokenTexts};
use crate::config::{AllowedFields, Architecture, GgufTensors, ModelConfig};
use crate::tokenizer::Tokenizer;
use crate::weights::gguf::{GgufFile, MAGIC, Metadata};
use crate::weights::{FormatCause, FormatError, RowOrder};

use super::{Checkpoint, CheckpointError, GenerationDefaults, folder};

/// The version of the quantised block layouts (`GGML_QNT_VERSION`).
const QUANTIZATION_VERSION: u64 = 2;

/// Whether a file is GGUF: by its name or, as the blobs of a store have no extension, by its first
/// bytes.
pub(super) fn is_one(path: &Path) -> bool {
    let starts = || {
        let mut start = MAGIC.map(|_| 0);
        File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == MAGIC
    };
    has_extension(path) || starts()
}

fn has_extension(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}

/// The one `.gguf` file in a folder, if there is any.
pub(super) fn only_file(folder: &Path) -> Result<Option<PathBuf>, CheckpointError> {
    let io = |source| CheckpointError::Io { path: folder.to_owned(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if has_extension(&path) {
            files.push(path);
        }
    }
    if files.len() > 1 {
        files.sort();
        let names: Vec<_> = files.iter().filter_map(|file| file.file_name()?.to_str()).collect();
        let reason = format!("has {} .gguf files ({}); name one of them", files.len(), names.join(", "));
        return Err(CheckpointError::NotACheckpoint { path: folder.to_owned(), reason });
    }
    Ok(files.pop())
}

pub(super) fn open(path: &Path, allowed: &AllowedFields) -> Result<Checkpoint, CheckpointError> {
    let file = GgufFile::open(path)?;
    check_quantization_version(&file.metadata)?;
    let config = ModelConfig::from_gguf(path, &file.metadata, about_tensors(path, &file)?, allowed)?;
    let tokenizer = tokenizer(path, &file.metadata)?;
    let chat_template = chat_template(&file.metadata)?;
    let generation = GenerationDefaults { eos: config.eos.clone(), ..GenerationDefaults::default() };
    let mut tensors = file.into_tensors(projection_rows(&config))?;
    // Read into the config; no weight of the model.
    tensors.take(ROPE_FACTORS);
    Ok(Checkpoint { path: path.to_owned(), config, tensors, generation, chat_template, tokenizer })
}

/// The embedded tokenizer, or the `tokenizer.json` in the file's folder where the embedded one
/// cannot be built.
fn tokenizer(path: &Path, metadata: &Metadata) -> Result<Option<Tokenizer>, CheckpointError> {
    let embedded = metadata.get("tokenizer.ggml.model").map(|_| Tokenizer::from_gguf(path, metadata)).transpose();
    if let Ok(Some(embedded)) = embedded {
        return Ok(Some(embedded));
    }
    match path.parent().map(folder::tokenizer).transpose()?.flatten() {
        Some(file) => Ok(Some(file)),
        None => Ok(embedded?),
    }
}

const ROPE_FACTORS: &str = "rope_freqs.weight";

fn about_tensors(path: &Path, file: &GgufFile) -> Result<GgufTensors, FormatError> {
    let find = |name: &str| file.tensors.iter().find(|tensor| tensor.name() == name);
    let rope_factors = match find(ROPE_FACTORS) {
        Some(tensor) if tensor.stored_type().encoding().is_none() => {
            let reason = format!("stored as {}, which is not decoded", tensor.stored_type());
            let cause = FormatCause::BadTensor { name: ROPE_FACTORS.to_owned(), reason };
            return Err(FormatError { path: path.to_owned(), offset: 0, cause });
        }
        found => found.map(|tensor| tensor.to_f32()),
    };
    Ok(GgufTensors {
        vocab_size: find("token_embd.weight").and_then(|tensor| tensor.shape().first().copied()),
        tied_embeddings: find("output.weight").is_none(),
        rope_factors,
    })
}

/// The rows that the exporter interleaved (`LlamaModel.permute` of llama.cpp's
/// `convert_hf_to_gguf.py`): in llama files, whose rotation takes neighbouring elements.
fn projection_rows(config: &ModelConfig) -> RowOrder {
    match config.architecture {
        Architecture::Llama => {
            RowOrder::InterleavedHalves { head_dim: config.head_dim, rotary_dims: config.rope.rotary_dims }
        }
        Architecture::Qwen2 | Architecture::Qwen3 => RowOrder::Natural,
    }
}

fn check_quantization_version(metadata: &Metadata) -> Result<(), FormatError> {
    const KEY: &str = "general.quantization_version";
    match metadata.unsigned(KEY)? {
        None | Some(QUANTIZATION_VERSION) => Ok(()),
        Some(other) => {
            Err(metadata.error(KEY, format!("version {other} is not supported, only {QUANTIZATION_VERSION}")))
        }
    }
}

fn chat_template(metadata: &Metadata) -> Result<Option<ChatTemplate>, FormatError> {
    let Some(source) = metadata.text("tokenizer.chat_template")? else { return Ok(None) };
    let tokens = metadata.texts("tokenizer.ggml.tokens")?.unwrap_or_default();
    let text = |name: &str| -> Result<Option<String>, FormatError> {
        let id = metadata.unsigned(&format!("tokenizer.ggml.{name}_token_id"))?;
        Ok(id.and_then(|id| tokens.get(usize::try_from(id).ok()?)).cloned())
    };
    let tokens = TokenTexts {
        bos_token: text("bos")?,
        eos_token: text("eos")?,
        unk_token: text("unknown")?,
        pad_token: text("padding")?,
    };
    Ok(Some(ChatTemplate::new(source.to_owned(), tokens)))
}

//! Opens a GGUF file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::chat::{ChatTemplate, TokenTexts};
use crate::config::{AllowedFields, GgufTensors, ModelConfig, RopeFactors};
use crate::import::Gguf;
use crate::tokenizer::Tokenizer;
use crate::weights::gguf::{GgufFile, MAGIC, Metadata, hugging_face_name};
use crate::weights::{FileForm, FormatCause, FormatError};

use super::{Checkpoint, CheckpointError, GenerationDefaults, folder};

/// The version of the quantised block layouts (`GGML_QNT_VERSION`).
const QUANTIZATION_VERSION: u64 = 2;

/// Whether a file is GGUF: by its name or, since the blobs of a store have no extension, by its
/// first bytes.
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
    let gguf = config.import.gguf.unwrap_or(Gguf::of(""));
    let tokenizer = tokenizer(path, &file.metadata, &gguf)?;
    let chat_template = chat_template(&file.metadata)?;
    let generation = GenerationDefaults { eos: config.eos.clone(), ..GenerationDefaults::default() };
    let mut tensors = file.into_tensors(gguf.names)?;
    // Read into the config; no weights of the model.
    for name in [Gguf::FACTORS, Gguf::FACTORS_SHORT, Gguf::FACTORS_LONG] {
        tensors.take(name);
    }
    tensors.arrange(&config, FileForm::Gguf)?;
    Ok(Checkpoint { path: path.to_owned(), config, tensors, generation, chat_template, tokenizer })
}

/// Returns the embedded tokenizer, or the `tokenizer.json` in the file's folder if the embedded one
/// cannot be built.
fn tokenizer(path: &Path, metadata: &Metadata, gguf: &Gguf) -> Result<Option<Tokenizer>, CheckpointError> {
    let embedded = metadata.get("tokenizer.ggml.model").map(|_| Tokenizer::from_gguf(path, metadata, gguf));
    let embedded = embedded.transpose();
    if let Ok(Some(embedded)) = embedded {
        return Ok(Some(embedded));
    }
    match path.parent().map(|folder| folder::tokenizer(folder, None)).transpose()?.flatten() {
        Some(file) => Ok(Some(file)),
        None => Ok(embedded?),
    }
}

fn about_tensors(path: &Path, file: &GgufFile) -> Result<GgufTensors, FormatError> {
    let find = |name: &str| file.tensors.iter().find(|tensor| tensor.name() == name);
    let factors = |name: &str| match find(name) {
        Some(tensor) if tensor.stored_type().encoding().is_none() => {
            let reason = format!("stored as {}, which is not decoded", tensor.stored_type());
            let cause = FormatCause::BadTensor { name: name.to_owned(), reason };
            Err(FormatError { path: path.to_owned(), offset: 0, cause })
        }
        found => Ok(found.map(|tensor| tensor.to_f32())),
    };
    let of_length = (factors(Gguf::FACTORS_SHORT)?, factors(Gguf::FACTORS_LONG)?);
    let rope_factors = match (factors(Gguf::FACTORS)?, of_length) {
        (Some(factors), _) => RopeFactors::One(factors),
        (None, (Some(short), Some(long))) => RopeFactors::ShortAndLong(short, long),
        (None, _) => RopeFactors::None,
    };
    Ok(GgufTensors {
        vocab_size: find("token_embd.weight").and_then(|tensor| tensor.shape().first().copied()),
        tied_embeddings: find("output.weight").is_none(),
        rope_factors,
        names: file.tensors.iter().map(|tensor| hugging_face_name(tensor.name(), &[])).collect(),
    })
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
        more: BTreeMap::new(),
    };
    let tool_use = metadata.text("tokenizer.chat_template.tool_use")?.map(str::to_owned);
    Ok(Some(ChatTemplate::new(source.to_owned(), tokens).with_tool_use(tool_use)))
}

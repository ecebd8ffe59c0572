//! Writes a GGUF file.

use crate::error::QuantizeError;
use crate::held::{Held, form_name};
use crate::place::{io, parent};
use crate::quantize::Quantized;
use amk_models::checkpoint::Checkpoint;
use amk_models::weights::gguf::{GgufFile, NewTensor, Value, write};
use amk_models::weights::{FileForm, FileTensor};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::BufWriter;
use std::path::Path;

/// The key that says how most tensors are stored, and the value for those that it does not number.
const FILE_TYPE: &str = "general.file_type";
const GUESSED: u64 = 1024;

/// Values of `general.file_type` (`llama_ftype`).
const FILE_TYPES: [(&str, u64); 8] =
    [("Q4_0", 2), ("Q4_1", 3), ("Q8_0", 7), ("Q5_0", 8), ("Q5_1", 9), ("Q4_K", 14), ("Q5_K", 16), ("Q6_K", 18)];

/// The version of the block layouts (`GGML_QNT_VERSION`), which files with blocks state.
const QUANTIZATION_VERSION: u64 = 2;

/// What a GGUF file has beside the tensors.
pub(crate) struct About {
    file: GgufFile,
    tensors: Vec<FileTensor>,
}

impl About {
    /// That of a checkpoint, which is a GGUF file.
    ///
    /// # Errors
    /// When it is a folder, or the file has no names for its tensors.
    pub(crate) fn new(source: &Checkpoint) -> Result<Self, QuantizeError> {
        if source.path.is_dir() {
            return Err(not_converted(
                "its tokenizer and settings are those of a folder; give a GGUF file of the model",
            ));
        }
        let tensors = FileForm::Gguf.tensors(&source.config, &source.tensors).map_err(not_converted)?;
        Ok(Self { file: GgufFile::open(&source.path)?, tensors })
    }

    /// Writes the checkpoint to a new file, with the metadata of the source.
    ///
    /// # Errors
    /// When the file cannot be written: nothing is left then.
    pub(crate) fn write(
        self,
        source: &Checkpoint,
        quantized: &Quantized,
        path: &Path,
        progress: &mut dyn FnMut(f64),
    ) -> Result<(), QuantizeError> {
        let held = Held::new(&source.tensors, quantized);
        let tensors = in_order(&self.file, &held, &self.tensors);
        let metadata = metadata(&self.file, quantized);
        let bytes = |tensor: &NewTensor<'_>| tensor.encoding.byte_len(tensor.shape.iter().product());
        let total = tensors.iter().filter_map(bytes).sum::<usize>().max(1);
        let within = parent(path);
        let building = tempfile::NamedTempFile::new_in(&within).map_err(io("write into", &within))?;
        let mut out = BufWriter::new(building);
        let mut see = |done: u64| progress(done as f64 / total as f64);
        let entries = metadata.iter().map(|(key, value)| (key.as_str(), value));
        write(&mut out, entries, &tensors, &mut see).map_err(io("write", path))?;
        let building = out.into_inner().map_err(|error| io("write", path)(error.into_error()))?;
        building.persist_noclobber(path).map(drop).map_err(|error| io("write", path)(error.error))
    }
}

fn not_converted(reason: impl ToString) -> QuantizeError {
    QuantizeError::NotConverted { form: form_name(FileForm::Gguf), reason: reason.to_string() }
}

/// The source's metadata, but for how the weights are stored.
fn metadata(file: &GgufFile, quantized: &Quantized) -> BTreeMap<String, Value> {
    let kept = file.metadata.iter().filter(|(key, _)| !key.starts_with("split."));
    let mut metadata: BTreeMap<String, Value> = kept.map(|(key, value)| (key.to_owned(), value.clone())).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for weight in quantized.weights.values().filter(|weight| weight.encoding().float.is_none()) {
        *counts.entry(weight.encoding().name).or_default() += weight.len();
    }
    let most = counts.into_iter().max_by_key(|(_, elements)| *elements).map(|(name, _)| name);
    let file_type = FILE_TYPES.iter().find(|(name, _)| Some(*name) == most).map_or(GUESSED, |(_, number)| *number);
    metadata.insert(FILE_TYPE.to_owned(), Value::Unsigned(file_type));
    metadata.insert("general.quantization_version".to_owned(), Value::Unsigned(QUANTIZATION_VERSION));
    metadata
}

/// The tensors in the order of the source; those that are not weights of the model, as factors of
/// rotary frequencies, as they are.
fn in_order<'a>(file: &'a GgufFile, held: &'a Held<'_>, placed: &'a [FileTensor]) -> Vec<NewTensor<'a>> {
    let tensors = file.tensors.iter().filter_map(|stored| {
        let name = stored.name().to_owned();
        Some(match placed.iter().find(|tensor| tensor.name == name) {
            Some(tensor) => {
                let (encoding, shape) = held.form(tensor);
                NewTensor { name, shape, encoding, bytes: Box::new(|| Cow::Owned(held.bytes(tensor))) }
            }
            None => NewTensor {
                name,
                shape: stored.shape().to_vec(),
                encoding: stored.stored_type().encoding()?,
                bytes: Box::new(|| Cow::Borrowed(stored.stored_bytes())),
            },
        })
    });
    tensors.collect()
}

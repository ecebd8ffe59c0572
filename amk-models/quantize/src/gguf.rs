//! Writes a GGUF file.

use crate::error::QuantizeError;
use crate::held::{Held, form_name};
use crate::place::{appear, io};
use crate::quantize::Quantized;
use amk::encoding::F32;
use amk_models::checkpoint::Checkpoint;
use amk_models::config::GgufSettings;
use amk_models::weights::gguf::{GgufFile, NewTensor, Value, write};
use amk_models::weights::{FileForm, FileTensor, StoredTensor};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

/// The key that says how most tensors are stored, and the value for those that it does not number.
const FILE_TYPE: &str = "general.file_type";
const GUESSED: u64 = 1024;

/// Values of `general.file_type` (`llama_ftype`).
const FILE_TYPES: [(&str, u64); 9] = [
    ("Q4_0", 2),
    ("Q4_1", 3),
    ("Q8_0", 7),
    ("Q5_0", 8),
    ("Q5_1", 9),
    ("Q4_K", 14),
    ("Q5_K", 16),
    ("Q6_K", 18),
    ("IQ4_NL", 25),
];

/// The version of the block layouts (`GGML_QNT_VERSION`), which files with blocks state.
const QUANTIZATION_VERSION: u64 = 2;

/// The parts of a GGUF file other than weights.
pub(crate) struct About {
    metadata: BTreeMap<String, Value>,
    tensors: Vec<FileTensor>,
    /// Factors of rotary frequencies that the source's config has.
    factors: Vec<(&'static str, Vec<f32>)>,
    /// The source, where it is such a file.
    file: Option<GgufFile>,
}

impl About {
    /// That of a checkpoint.
    ///
    /// # Errors
    /// When a GGUF file has no names for its tensors, or cannot say its settings or its tokenizer.
    pub(crate) fn new(source: &Checkpoint) -> Result<Self, QuantizeError> {
        let alone = source.config.alone();
        let config = alone.as_ref().unwrap_or(&source.config);
        let tensors = FileForm::Gguf.tensors(config, &source.tensors).map_err(not_converted)?;
        if source.path.is_dir() {
            if config.norms_less_one {
                return Err(not_converted("its norms are stored less 1 in this folder, and not in a file"));
            }
            let GgufSettings { metadata, factors } = made(source)?;
            return Ok(Self { metadata, tensors, factors, file: None });
        }
        let file = GgufFile::open(&source.path)?;
        let kept = file.metadata.iter().filter(|(key, _)| !key.starts_with("split."));
        let metadata = kept.map(|(key, value)| (key.to_owned(), value.clone())).collect();
        Ok(Self { metadata, tensors, factors: Vec::new(), file: Some(file) })
    }

    /// Writes the checkpoint to a new file.
    ///
    /// # Errors
    /// When the file cannot be written: nothing is left then.
    pub(crate) fn write(
        mut self,
        source: &Checkpoint,
        quantized: &Quantized,
        path: &Path,
        progress: &mut dyn FnMut(f64),
    ) -> Result<(), QuantizeError> {
        self.state_blocks(quantized);
        let held = Held::new(&source.tensors, quantized);
        let tensors = self.in_order(&held);
        let bytes = |tensor: &NewTensor<'_>| tensor.encoding.byte_len(tensor.shape.iter().product());
        let total = tensors.iter().filter_map(bytes).sum::<usize>().max(1);
        let mut see = |done: u64| progress(done as f64 / total as f64);
        let entries = self.metadata.iter().map(|(key, value)| (key.as_str(), value));
        appear(path, |path| {
            let mut out = BufWriter::new(File::create(path).map_err(io("write", path))?);
            write(&mut out, entries, &tensors, &mut see).map_err(io("write", path))
        })
    }

    /// States how the weights are stored.
    fn state_blocks(&mut self, quantized: &Quantized) {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for weight in quantized.weights.values().filter(|weight| weight.encoding().float.is_none()) {
            *counts.entry(weight.encoding().name).or_default() += weight.len();
        }
        let most = counts.into_iter().max_by_key(|(_, elements)| *elements).map(|(name, _)| name);
        let file_type = FILE_TYPES.iter().find(|(name, _)| Some(*name) == most).map_or(GUESSED, |(_, number)| *number);
        self.metadata.insert(FILE_TYPE.to_owned(), Value::Unsigned(file_type));
        self.metadata.insert("general.quantization_version".to_owned(), Value::Unsigned(QUANTIZATION_VERSION));
    }

    /// The tensors, in the order of the source file; those that are not weights of the model, as
    /// factors of rotary frequencies, as they are.
    fn in_order<'a>(&'a self, held: &'a Held<'_>) -> Vec<NewTensor<'a>> {
        let of_model = |tensor: &'a FileTensor| {
            let (encoding, shape) = held.form(tensor);
            NewTensor { name: tensor.name.clone(), shape, encoding, bytes: Box::new(|| Cow::Owned(held.bytes(tensor))) }
        };
        let Some(file) = &self.file else {
            let factors = self.factors.iter().map(|(name, factors)| NewTensor {
                name: (*name).to_owned(),
                shape: vec![factors.len()],
                encoding: &F32,
                bytes: Box::new(|| Cow::Owned(factors.iter().flat_map(|factor| factor.to_le_bytes()).collect())),
            });
            return factors.chain(self.tensors.iter().map(of_model)).collect();
        };
        let stored = |stored: &'a StoredTensor| {
            Some(NewTensor {
                name: stored.name().to_owned(),
                shape: stored.shape().to_vec(),
                encoding: stored.stored_type().encoding()?,
                bytes: Box::new(|| Cow::Owned(stored.to_stored())),
            })
        };
        let tensors = file.tensors.iter().filter_map(|tensor| {
            let placed = self.tensors.iter().find(|placed| placed.name == tensor.name());
            placed.map(of_model).or_else(|| stored(tensor))
        });
        tensors.collect()
    }
}

/// The metadata of a file for a folder's model.
fn made(source: &Checkpoint) -> Result<GgufSettings, QuantizeError> {
    let names = source.tensors.iter().map(|tensor| tensor.name().to_owned()).collect();
    let mut settings = source.config.to_gguf(names).map_err(not_converted)?;
    if let Ok(tokenizer) = source.tokenizer() {
        settings.metadata.extend(tokenizer.to_gguf(source.config.vocab_size).map_err(not_converted)?);
    }
    if let Some(template) = &source.chat_template {
        let template = Value::String(template.source().to_owned());
        settings.metadata.insert("tokenizer.chat_template".to_owned(), template);
    }
    Ok(settings)
}

fn not_converted(reason: impl ToString) -> QuantizeError {
    QuantizeError::NotConverted { form: form_name(FileForm::Gguf), reason: reason.to_string() }
}

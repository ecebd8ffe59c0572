//! Writes a folder of compressed-tensors (`pack-quantized`), which vLLM and transformers read.

use crate::error::QuantizeError;
use crate::held::{Held, form_name};
use crate::packed::{self, Packed, bits, scale_dtype};
use crate::place::{appear, io};
use crate::quantize::Quantized;
use amk::encoding::{BF16, F16};
use amk::ir::DType;
use amk_kernels::encoding::GroupFormat;
use amk_models::checkpoint::Checkpoint;
use amk_models::weights::{FileForm, FileTensor};
use safetensors::tensor::View;
use safetensors::{Dtype, serialize_to_file};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

const CONFIG: &str = "config.json";
/// The field of a config that says how weights are quantised, and its name in older folders.
const FIELD: &str = "quantization_config";
const OTHER_FIELD: &str = "compression_config";
/// The folder of a checkpoint's further chat templates.
const TEMPLATES: &str = "additional_chat_templates";

/// Bytes of a file of tensors, unless one tensor has more.
const SHARD_BYTES: usize = 5_000_000_000;

/// Endings of files of a source that are not copied: weights in any form, and their index.
const WEIGHTS: [&str; 6] = [".safetensors", ".bin", ".gguf", ".pt", ".pth", ".index.json"];

/// A folder's files other than tensors.
pub(crate) struct About {
    config: Map<String, Value>,
    tensors: Vec<FileTensor>,
}

impl About {
    /// That of a checkpoint.
    ///
    /// # Errors
    /// When its configuration cannot be written as `config.json`.
    pub(crate) fn new(source: &Checkpoint) -> Result<Self, QuantizeError> {
        let tensors = FileForm::Folder.tensors(&source.config, &source.tensors).map_err(not_converted)?;
        if let Some(alone) = source.config.alone() {
            // The larger model's config would ask for tensors that are not written.
            let dtype = alone.torch_dtype.as_deref().unwrap_or("bfloat16");
            return Ok(Self { config: alone.to_json(dtype).map_err(not_converted)?, tensors });
        }
        if source.path.is_dir() {
            return Ok(Self { config: read_config(source)?, tensors });
        }
        if source.config.import.norms_less_one {
            return Err(not_converted("its norms are stored less 1 in a folder, and not in this file"));
        }
        let dtype = match float_type(source) {
            DType::F32 => "float32",
            DType::F16 => "float16",
            _ => "bfloat16",
        };
        Ok(Self { config: source.config.to_json(dtype).map_err(not_converted)?, tensors })
    }

    /// Writes the checkpoint into a new folder.
    ///
    /// # Errors
    /// When a file cannot be written: nothing is left then.
    pub(crate) fn write(
        self,
        source: &Checkpoint,
        quantized: &Quantized,
        folder: &Path,
        progress: &mut dyn FnMut(f64),
    ) -> Result<(), QuantizeError> {
        let held = Held::new(&source.tensors, quantized);
        let mut config = self.config;
        config.remove(OTHER_FIELD);
        config.insert(FIELD.to_owned(), packed::config(&modules(&held, &self.tensors)));
        appear(folder, |folder| {
            fs::create_dir(folder).map_err(io("write", folder))?;
            write_json(&folder.join(CONFIG), &Value::Object(config))?;
            match source.path.is_dir() {
                true => copy_others(source, folder)?,
                false => write_others(source, folder)?,
            }
            write_tensors(&held, &self.tensors, folder, progress)
        })
    }
}

/// The type of a checkpoint's embeddings, to which readers convert the scales of a folder; bf16
/// where these are not floats.
pub fn float_type(source: &Checkpoint) -> DType {
    let embeddings = source.tensors.iter().find(|tensor| tensor.name() == "model.embed_tokens.weight");
    let encoding = embeddings.and_then(|tensor| tensor.stored_type().encoding());
    encoding.and_then(|encoding| encoding.float).unwrap_or(DType::BF16)
}

fn not_converted(reason: impl ToString) -> QuantizeError {
    QuantizeError::NotConverted { form: form_name(FileForm::Folder), reason: reason.to_string() }
}

/// The packed modules by name.
fn modules(held: &Held<'_>, tensors: &[FileTensor]) -> BTreeMap<String, GroupFormat> {
    let format = |tensor: &FileTensor| {
        let format = GroupFormat::of(held.form(tensor).0)?;
        Some((tensor.name.strip_suffix(".weight")?.to_owned(), format))
    };
    tensors.iter().filter(|tensor| held.is_packed(tensor)).filter_map(format).collect()
}

fn read_config(source: &Checkpoint) -> Result<Map<String, Value>, QuantizeError> {
    let path = source.path.join(CONFIG);
    let text = fs::read(&path).map_err(io("read", &path))?;
    serde_json::from_slice(&text).map_err(|error| io("read", &path)(error.into()))
}

/// Copies the other files of a folder.
fn copy_others(source: &Checkpoint, folder: &Path) -> Result<(), QuantizeError> {
    for entry in fs::read_dir(&source.path).map_err(io("read", &source.path))? {
        let path = entry.map_err(io("read", &source.path))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if path.is_file() && name != CONFIG && WEIGHTS.iter().all(|ending| !name.ends_with(ending)) {
            fs::copy(&path, folder.join(name)).map_err(io("copy", &path))?;
        }
    }
    copy_templates(&source.path.join(TEMPLATES), &folder.join(TEMPLATES))
}

/// Copies the chat templates that lie in a folder of their own, if there are any.
fn copy_templates(from: &Path, to: &Path) -> Result<(), QuantizeError> {
    if !from.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(to).map_err(io("make", to))?;
    for entry in fs::read_dir(from).map_err(io("read", from))? {
        let path = entry.map_err(io("read", from))?.path();
        if let Some(name) = path.file_name().filter(|_| path.is_file()) {
            fs::copy(&path, to.join(name)).map_err(io("copy", &path))?;
        }
    }
    Ok(())
}

/// Writes tokenizer, chat template and generation settings of a GGUF file.
fn write_others(source: &Checkpoint, folder: &Path) -> Result<(), QuantizeError> {
    if let Ok(tokenizer) = source.tokenizer() {
        let path = folder.join("tokenizer.json");
        fs::write(&path, tokenizer.to_json().map_err(not_converted)?).map_err(io("write", &path))?;
        let mut about = json!({
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": source.config.context_len,
            "clean_up_tokenization_spaces": false,
        });
        if let (Some(template), Some(about)) = (&source.chat_template, about.as_object_mut()) {
            about.insert("chat_template".to_owned(), template.source().into());
            if let Value::Object(texts) = json!(template.tokens()) {
                about.extend(texts);
            }
        }
        write_json(&folder.join("tokenizer_config.json"), &about)?;
    }
    let generation = json!({"bos_token_id": source.config.bos, "eos_token_id": source.stop_tokens()});
    write_json(&folder.join("generation_config.json"), &generation)
}

fn write_json(path: &Path, value: &Value) -> Result<(), QuantizeError> {
    fs::write(path, format!("{value:#}\n")).map_err(io("write", path))
}

/// A tensor of a file, which makes its bytes when they are written.
struct Entry<'a> {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Box<dyn Fn() -> Vec<u8> + 'a>,
}

impl Entry<'_> {
    fn len(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bitsize() / 8
    }
}

impl View for &Entry<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Owned((self.bytes)())
    }

    fn data_len(&self) -> usize {
        self.len()
    }
}

/// The entries of a tensor, by name.
fn entries<'a>(held: &'a Held<'_>, tensor: &'a FileTensor) -> Vec<(String, Entry<'a>)> {
    let (encoding, shape) = held.form(tensor);
    let part = |end: &str| tensor.name.strip_suffix("weight").map_or_else(String::new, |name| format!("{name}{end}"));
    let Some(format) = GroupFormat::of(encoding) else {
        let dtype = match encoding.name {
            name if name == BF16.name => Dtype::BF16,
            name if name == F16.name => Dtype::F16,
            _ => Dtype::F32,
        };
        return vec![(tensor.name.clone(), Entry { dtype, shape, bytes: Box::new(|| held.bytes(tensor)) })];
    };
    let (rows, columns) = (shape[0], shape[1]);
    let packed = move || -> Packed { packed::pack(encoding, format, &held.bytes(tensor)) };
    let codes = Entry {
        dtype: Dtype::I32,
        shape: vec![rows, columns * bits(format) / 32],
        bytes: Box::new(move || packed().codes),
    };
    let scales = Entry {
        dtype: scale_dtype(format),
        shape: vec![rows, columns / format.len],
        bytes: Box::new(move || packed().scales),
    };
    let sizes = move || [rows, columns].iter().flat_map(|&extent| (extent as i64).to_le_bytes()).collect();
    let sizes = Entry { dtype: Dtype::I64, shape: vec![2], bytes: Box::new(sizes) };
    vec![(part("weight_packed"), codes), (part("weight_scale"), scales), (part("weight_shape"), sizes)]
}

fn write_tensors(
    held: &Held<'_>,
    tensors: &[FileTensor],
    folder: &Path,
    progress: &mut dyn FnMut(f64),
) -> Result<(), QuantizeError> {
    let entries: Vec<_> = tensors.iter().flat_map(|tensor| entries(held, tensor)).collect();
    let total: usize = entries.iter().map(|(_, entry)| entry.len()).sum();
    let mut shards: Vec<Vec<&(String, Entry<'_>)>> = Vec::new();
    let mut bytes = SHARD_BYTES;
    for entry in &entries {
        bytes += entry.1.len();
        if bytes > SHARD_BYTES {
            shards.push(Vec::new());
            bytes = entry.1.len();
        }
        shards.last_mut().into_iter().for_each(|shard| shard.push(entry));
    }
    let (mut places, mut done) = (Map::new(), 0);
    for (number, shard) in shards.iter().enumerate() {
        let name = match shards.len() {
            1 => "model.safetensors".to_owned(),
            count => format!("model-{:05}-of-{count:05}.safetensors", number + 1),
        };
        let path = folder.join(&name);
        let about = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        let views = shard.iter().map(|(name, entry)| (name.as_str(), entry));
        serialize_to_file(views, Some(about), &path)
            .map_err(|cause| QuantizeError::Safetensors { path: path.clone(), cause })?;
        // The library's files are their owner's alone.
        let config = folder.join(CONFIG);
        let others = fs::metadata(&config).map_err(io("read", &config))?.permissions();
        fs::set_permissions(&path, others).map_err(io("write", &path))?;
        places.extend(shard.iter().map(|(tensor, _)| (tensor.clone(), Value::from(name.as_str()))));
        done += shard.iter().map(|(_, entry)| entry.len()).sum::<usize>();
        progress(done as f64 / total.max(1) as f64);
    }
    if shards.len() > 1 {
        let index = json!({"metadata": {"total_size": total}, "weight_map": places});
        write_json(&folder.join("model.safetensors.index.json"), &index)?;
    }
    Ok(())
}

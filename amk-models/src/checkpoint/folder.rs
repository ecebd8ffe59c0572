//! Opens a folder of Hugging Face files.

use std::path::Path;

use serde_json::Value;

use crate::chat::ChatTemplate;
use crate::config::{AllowedFields, ModelConfig};
use crate::tokenizer::Tokenizer;
use crate::weights::FileForm;

use super::tokens::FolderTokens;
use super::{Checkpoint, CheckpointError, GenerationDefaults, json_error, names, read_if_present, read_json, shards};

const CONFIG: &str = "config.json";
/// The chat template for tools beside `chat_template.jinja`, if there are several.
const TOOL_USE: &str = "additional_chat_templates/tool_use.jinja";

/// Whether the folder holds a Hugging Face checkpoint.
pub(super) fn is_hugging_face(folder: &Path) -> bool {
    folder.join(CONFIG).exists()
}

pub(super) fn open(folder: &Path, allowed: &AllowedFields) -> Result<Checkpoint, CheckpointError> {
    let path = folder.join(CONFIG);
    // It was there a moment ago; an empty text is refused as JSON.
    let config = ModelConfig::from_json_allowing(&path, &read_if_present(&path)?.unwrap_or_default(), allowed)?;
    let generation = generation(folder, &config)?;
    let mut tensors = shards::read(folder)?;
    if let Some(quantization) = &config.quantization {
        tensors.join(quantization)?;
    }
    let mut tensors = names::usual(tensors, config.import)?;
    tensors.arrange(&config, FileForm::Folder)?;
    let tokens = FolderTokens::read(folder)?;
    Ok(Checkpoint {
        path: folder.to_owned(),
        tensors,
        tokenizer: tokenizer(folder, Some(&tokens))?,
        chat_template: chat_template(folder, &tokens)?,
        generation,
        config,
    })
}

fn generation(folder: &Path, config: &ModelConfig) -> Result<GenerationDefaults, CheckpointError> {
    let path = folder.join("generation_config.json");
    let mut generation = match read_json(&path)? {
        Some(object) => GenerationDefaults::read(&path, &object)?,
        None => GenerationDefaults::default(),
    };
    if generation.eos.is_empty() {
        generation.eos.clone_from(&config.eos);
    }
    Ok(generation)
}

/// The tokenizer of the folder's `tokenizer.json`, if there is one, with the tokens that its other
/// files add. `tokens`: those, if they have been read.
pub(super) fn tokenizer(folder: &Path, tokens: Option<&FolderTokens>) -> Result<Option<Tokenizer>, CheckpointError> {
    let path = folder.join("tokenizer.json");
    let Some(text) = read_if_present(&path)? else { return Ok(None) };
    let mut tokenizer = Tokenizer::from_json(&path, &text)?;
    let mut add = |tokens: &FolderTokens| {
        let (path, added) = tokens.added();
        tokenizer.add(path, &added)
    };
    match tokens {
        Some(tokens) => add(tokens)?,
        None => add(&FolderTokens::read(folder)?)?,
    }
    Ok(Some(tokenizer))
}

/// The folder's chat template: a separate file, with one for tools in another, or the older
/// `chat_template` of `tokenizer_config.json`.
fn chat_template(folder: &Path, tokens: &FolderTokens) -> Result<Option<ChatTemplate>, CheckpointError> {
    let listed = |name: &str| tokens.fields().get("chat_template").and_then(|value| named_template(value, name));
    let (source, tool_use) = match read_text(&folder.join("chat_template.jinja"))? {
        source @ Some(_) => (source, read_text(&folder.join(TOOL_USE))?),
        None => (listed("default"), listed("tool_use")),
    };
    Ok(source.map(|source| ChatTemplate::new(source, tokens.texts()).with_tool_use(tool_use)))
}

/// The text of a file, if there is one.
fn read_text(path: &Path) -> Result<Option<String>, CheckpointError> {
    let Some(bytes) = read_if_present(path)? else { return Ok(None) };
    String::from_utf8(bytes).map(Some).map_err(|_| json_error(path, "is not valid UTF-8"))
}

/// The template of a name in a list of them; one that has no name is the `default`.
fn named_template(value: &Value, name: &str) -> Option<String> {
    let source = match value {
        Value::String(_) => Some(value).filter(|_| name == "default"),
        Value::Array(named) => named.iter().find(|entry| entry["name"] == name).map(|entry| &entry["template"]),
        _ => None,
    };
    source?.as_str().map(str::to_owned)
}

//! The tokens that a folder names beside its `tokenizer.json`, as transformers merges its files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use tokenizers::AddedToken;

use crate::chat::TokenTexts;
use crate::tokenizer::NumberedToken;

use super::{CheckpointError, json_error, read_json};

const CONFIG: &str = "tokenizer_config.json";
/// The special tokens of older folders.
const SPECIAL: &str = "special_tokens_map.json";
/// The added tokens of older folders, with their numbers.
const ADDED: &str = "added_tokens.json";
/// The field of [`CONFIG`] that takes the place of both.
const DECODER: &str = "added_tokens_decoder";
/// Lists of further special tokens, or an object that names them.
const EXTRA: [&str; 2] = ["extra_special_tokens", "additional_special_tokens"];

/// The tokens of a folder.
pub(super) struct FolderTokens {
    /// The fields of `tokenizer_config.json`, with those of an older folder's other files.
    fields: Map<String, Value>,
    /// The tokens with numbers, and the file that has them.
    numbered: BTreeMap<u32, AddedToken>,
    path: PathBuf,
}

impl FolderTokens {
    pub(super) fn read(folder: &Path) -> Result<Self, CheckpointError> {
        let path = folder.join(CONFIG);
        let mut fields = read_json(&path)?.unwrap_or_default();
        if let Some(decoder) = fields.get(DECODER) {
            let numbered = numbered(&path, decoder)?;
            return Ok(Self { fields, numbered, path });
        }
        fields.extend(read_json(&folder.join(SPECIAL))?.unwrap_or_default());
        let path = folder.join(ADDED);
        let special: Vec<_> = special(&fields).map(|token| token.content).collect();
        let mut added = BTreeMap::new();
        for (text, id) in read_json(&path)?.unwrap_or_default() {
            let is_special = special.contains(&text);
            let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
            let id = id.ok_or_else(|| json_error(&path, format!("token {text:?} has no number")))?;
            added.insert(id, AddedToken::from(text, is_special));
        }
        Ok(Self { fields, numbered: added, path })
    }

    /// The fields of `tokenizer_config.json`.
    pub(super) fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// The special tokens that a chat template may name.
    pub(super) fn texts(&self) -> TokenTexts {
        let mut more: BTreeMap<_, _> = named(&self.fields)
            .filter_map(|(name, value)| Some((name.clone(), added_token(value, true)?.content)))
            .collect();
        let mut text = |name: &str| more.remove(name);
        TokenTexts {
            bos_token: text("bos_token"),
            eos_token: text("eos_token"),
            unk_token: text("unk_token"),
            pad_token: text("pad_token"),
            more,
        }
    }

    /// The tokens that the tokenizer must have, and the file that gives their numbers.
    pub(super) fn added(&self) -> (&Path, Vec<NumberedToken>) {
        let numbered = self.numbered.iter().map(|(id, token)| NumberedToken { id: Some(*id), token: token.clone() });
        let special = special(&self.fields).map(|token| NumberedToken { id: None, token });
        (&self.path, numbered.chain(special).collect())
    }
}

/// The tokens of an `added_tokens_decoder`.
fn numbered(path: &Path, decoder: &Value) -> Result<BTreeMap<u32, AddedToken>, CheckpointError> {
    let error = |reason: String| json_error(path, format!("`{DECODER}` {reason}"));
    let decoder = decoder.as_object().ok_or_else(|| error("is not an object".to_owned()))?;
    let entry = |(id, value): (&String, &Value)| {
        let special = value.get("special").and_then(Value::as_bool).unwrap_or(false);
        let token = added_token(value, special);
        id.parse().ok().zip(token).ok_or_else(|| error(format!("has an entry {id:?} that is not a token")))
    };
    decoder.iter().map(entry).collect()
}

/// The fields that name a special token each.
fn named(fields: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    let extra = EXTRA.iter().filter_map(|field| fields.get(*field)?.as_object()).flatten();
    fields.iter().filter(|(name, _)| name.ends_with("_token")).chain(extra)
}

/// All special tokens.
fn special(fields: &Map<String, Value>) -> impl Iterator<Item = AddedToken> {
    let listed = EXTRA.iter().filter_map(|field| fields.get(*field)?.as_array()).flatten();
    named(fields).map(|(_, value)| value).chain(listed).filter_map(|value| added_token(value, true))
}

/// A token, written as its text or as an object with it.
fn added_token(value: &Value, special: bool) -> Option<AddedToken> {
    let content = value.as_str().or_else(|| value.get("content")?.as_str())?;
    let flag = |name: &str| value.get(name).and_then(Value::as_bool);
    Some(AddedToken {
        content: content.to_owned(),
        single_word: flag("single_word").unwrap_or(false),
        lstrip: flag("lstrip").unwrap_or(false),
        rstrip: flag("rstrip").unwrap_or(false),
        normalized: flag("normalized").unwrap_or(!special),
        special,
    })
}

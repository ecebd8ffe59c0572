//! Writes a tokenizer as the metadata of a GGUF file.

use serde_json::Value as Json;
use tokenizers::PreTokenizerWrapper;

use crate::weights::gguf::{Array, Value};

use super::gguf::{CONTROL_TOKEN, NORMAL_TOKEN, UNUSED_TOKEN, USER_DEFINED_TOKEN};
use super::pre_tokenizer::{NAMES, pre_tokenizer};
use super::{SpecialTokens, Tokenizer, TokenizerError};

impl Tokenizer {
    /// Returns the metadata of a GGUF file for a model with this many embeddings.
    ///
    /// # Errors
    /// [`TokenizerError::Unwritten`] for a model other than byte-level BPE, or one that splits text
    /// in a way for which GGUF has no known name.
    pub fn to_gguf(&self, vocab_size: usize) -> Result<Vec<(String, Value)>, TokenizerError> {
        let unwritten = |reason: &str| TokenizerError::Unwritten(reason.to_owned());
        let json: Json = serde_json::from_str(&self.to_json()?).map_err(|_| unwritten("it is not JSON"))?;
        if json["model"]["type"] != "BPE" || json["model"]["byte_fallback"] == true {
            return Err(unwritten("only byte-level BPE is written"));
        }
        let pre = self.method(&json).ok_or_else(|| unwritten("its way of cutting text has no known name"))?;
        let merges = json["model"]["merges"].as_array().into_iter().flatten().map(merge).collect::<Option<Vec<_>>>();
        let merges = merges.ok_or_else(|| unwritten("a merge is not two pieces"))?;
        let (tokens, types) = self.tokens(vocab_size);
        let starts = self.encode("", SpecialTokens::Add)?;
        let mut entries = vec![
            ("model", Value::String("gpt2".to_owned())),
            ("pre", Value::String(pre.to_owned())),
            ("tokens", Value::Array(Array::String(tokens))),
            ("token_type", Value::Array(Array::Signed(types))),
            ("merges", Value::Array(Array::String(merges))),
            ("add_bos_token", Value::Bool(!starts.is_empty())),
        ];
        if let [bos] = starts[..] {
            entries.push(("bos_token_id", Value::Unsigned(bos.into())));
        }
        Ok(entries.into_iter().map(|(key, value)| (format!("tokenizer.ggml.{key}"), value)).collect())
    }

    /// Returns the name of the method that splits text as this one does.
    fn method(&self, json: &Json) -> Option<&'static str> {
        let ignores_merges = json["model"]["ignore_merges"] == true;
        let normalizes = json["normalizer"]["type"] == "NFC";
        if !normalizes && !json["normalizer"].is_null() {
            return None;
        }
        let cut = without_offsets(json["pre_tokenizer"].clone());
        NAMES.into_iter().find(|name| {
            pre_tokenizer(name).is_some_and(|method| {
                let same = serialized(&method.cut) == Some(cut.clone());
                same && method.nfc == normalizes && method.ignore_merges == ignores_merges
            })
        })
    }

    /// The texts and types of all tokens; embeddings without a token get a name that no text has.
    fn tokens(&self, vocab_size: usize) -> (Vec<String>, Vec<i64>) {
        let added = self.inner.get_added_tokens_decoder();
        let kind = |id: u32| match added.get(&id) {
            Some(token) if token.special => CONTROL_TOKEN,
            Some(_) => USER_DEFINED_TOKEN,
            None => NORMAL_TOKEN,
        };
        let token = |id: u32| match self.token(id) {
            Some(text) => (text, kind(id)),
            None => (format!("[PAD{id}]"), UNUSED_TOKEN),
        };
        (0..u32::try_from(vocab_size).unwrap_or(u32::MAX)).map(token).unzip()
    }
}

/// The two pieces of a merge, which older files write as one text.
fn merge(merge: &Json) -> Option<String> {
    match merge {
        Json::String(text) => Some(text.clone()),
        Json::Array(pieces) => match &pieces[..] {
            [Json::String(first), Json::String(second)] => Some(format!("{first} {second}")),
            _ => None,
        },
        _ => None,
    }
}

fn serialized(cut: &PreTokenizerWrapper) -> Option<Json> {
    serde_json::to_value(cut).ok().map(without_offsets)
}

/// Removes everything that concerns only the places of tokens in a text.
fn without_offsets(mut json: Json) -> Json {
    if let Json::Object(fields) = &mut json {
        fields.remove("trim_offsets");
        fields.values_mut().for_each(|value| *value = without_offsets(value.take()));
    } else if let Json::Array(items) = &mut json {
        items.iter_mut().for_each(|item| *item = without_offsets(item.take()));
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::Gguf;
    use crate::weights::gguf::Metadata;
    use std::path::Path;

    fn read(entries: Vec<(String, Value)>) -> Tokenizer {
        let path = Path::new("model.gguf");
        let metadata = Metadata::new(path, entries.into_iter().collect());
        Tokenizer::from_gguf(path, &metadata, &Gguf::of("llama")).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Metadata with four tokens, and names for embeddings without one.
    fn entries(pre: &str, unused: usize) -> Vec<(String, Value)> {
        let texts = |texts: &[&str]| Value::Array(Array::String(texts.iter().map(|&text| text.to_owned()).collect()));
        let entries = [
            ("model", Value::String("gpt2".to_owned())),
            ("pre", Value::String(pre.to_owned())),
            ("tokens", texts(&["a", "b", "ab", "<end>", "[PAD4]"][..4 + unused])),
            ("token_type", Value::Array(Array::Signed([1, 1, 1, 3, 5][..4 + unused].to_vec()))),
            ("merges", texts(&["a b"])),
            ("add_bos_token", Value::Bool(true)),
            ("bos_token_id", Value::Unsigned(3)),
        ];
        entries.into_iter().map(|(key, value)| (format!("tokenizer.ggml.{key}"), value)).collect()
    }

    #[test]
    fn what_is_written_is_the_same_tokenizer() {
        for pre in NAMES {
            let first = read(entries(pre, 0));
            let written = first.to_gguf(5).unwrap_or_else(|error| panic!("{pre}: {error}"));
            assert_eq!(written, entries(pre, 1));
            let again = read(written);
            let ids = |tokenizer: &Tokenizer| tokenizer.encode("abba<end>", SpecialTokens::Add).ok();
            assert_eq!(ids(&again), ids(&first));
            assert_eq!(ids(&again), Some(vec![3, 2, 1, 0, 3]));
        }
    }

    #[test]
    fn what_has_no_name_is_refused() {
        let written = read(entries("smollm", 0)).to_json().unwrap_or_else(|error| panic!("{error}"));
        let other = written.replace("\"individual_digits\":true", "\"individual_digits\":false");
        let other = Tokenizer::from_json(Path::new("tokenizer.json"), other.as_bytes());
        let error = other.unwrap_or_else(|error| panic!("{error}")).to_gguf(5).expect_err("it has no name");
        assert_eq!(error.to_string(), "this tokenizer cannot be written: its way of cutting text has no known name");
    }
}

//! Builds a tokenizer from the vocabulary inside a GGUF file (ggml, `docs/gguf.md`, "Tokenizer").
//!
//! Byte-level BPE (`tokenizer.ggml.model` = `gpt2`) is built. SentencePiece vocabularies (`llama`)
//! are refused: a `tokenizer.json` next to the file serves then.

use std::path::Path;

use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::unicode::NFC;
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{AddedToken, NormalizerWrapper};

use crate::weights::gguf::Metadata;

use super::pre_tokenizer::{PreTokenizer, pre_tokenizer};
use super::{Tokenizer, TokenizerError};

/// Token types (`llama_token_type`): control tokens are special, user-defined ones are matched
/// whole but printed.
pub(crate) const CONTROL_TOKEN: i64 = 3;
pub(super) const NORMAL_TOKEN: i64 = 1;
pub(super) const USER_DEFINED_TOKEN: i64 = 4;
pub(super) const UNUSED_TOKEN: i64 = 5;

impl Tokenizer {
    /// Builds the tokenizer that the metadata of the GGUF file at `path` describes.
    ///
    /// # Errors
    /// [`TokenizerError::Invalid`].
    pub(crate) fn from_gguf(path: &Path, metadata: &Metadata) -> Result<Self, TokenizerError> {
        let parts = Parts { path, metadata };
        parts.check_model()?;
        let tokens = parts.texts("tokenizer.ggml.tokens")?;
        let method = parts.method()?;
        let mut inner = tokenizers::Tokenizer::new(parts.model(tokens, method.ignore_merges)?);
        inner.with_pre_tokenizer(Some(method.cut));
        inner.with_normalizer(method.nfc.then_some(NormalizerWrapper::NFC(NFC)));
        inner.with_decoder(Some(ByteLevel::new(false, true, true)));
        parts.add_special_tokens(&mut inner, tokens)?;
        inner.with_post_processor(parts.surroundings(tokens, method.adds_bos)?);
        Ok(Self::new(inner))
    }
}

/// The metadata of a file while a tokenizer is made from it.
struct Parts<'a> {
    path: &'a Path,
    metadata: &'a Metadata,
}

impl<'a> Parts<'a> {
    fn invalid(&self, reason: impl ToString) -> TokenizerError {
        TokenizerError::invalid(self.path, reason)
    }

    fn check_model(&self) -> Result<(), TokenizerError> {
        const KEY: &str = "tokenizer.ggml.model";
        match self.metadata.get(KEY) {
            Some(_) if self.metadata.is_text(KEY, "gpt2") => Ok(()),
            Some(other) => Err(self.invalid(format!(
                "the embedded tokenizer {other} is not supported, only \"gpt2\"; put the model's \
                tokenizer.json into the \
                 same folder"
            ))),
            None => Err(self.invalid("there is no embedded tokenizer")),
        }
    }

    fn texts(&self, key: &str) -> Result<&'a [String], TokenizerError> {
        let texts = self.metadata.texts(key).map_err(|error| self.invalid(error.cause))?;
        texts.ok_or_else(|| self.invalid(format!("metadata `{key}` is missing")))
    }

    fn method(&self) -> Result<PreTokenizer, TokenizerError> {
        const KEY: &str = "tokenizer.ggml.pre";
        let name = self.metadata.text(KEY).map_err(|error| self.invalid(error.cause))?;
        let name = name.ok_or_else(|| self.invalid(format!("metadata `{KEY}` is missing")))?;
        pre_tokenizer(name).ok_or_else(|| {
            self.invalid(format!(
                "the embedded tokenizer cuts text by {name:?}, which is not known; put the \
                model's tokenizer.json into the \
                 same folder"
            ))
        })
    }

    fn model(&self, tokens: &[String], ignore_merges: bool) -> Result<BPE, TokenizerError> {
        let mut vocabulary = tokenizers::models::bpe::Vocab::default();
        for (token, id) in tokens.iter().zip(0_u32..) {
            if let Some(first) = vocabulary.insert(token.clone(), id) {
                return Err(self.invalid(format!("tokens {first} and {id} are both {token:?}")));
            }
        }
        let merges = self.texts("tokenizer.ggml.merges")?.iter().map(|merge| {
            // The first part may itself start with a space.
            let (at, _) = merge.char_indices().skip(1).find(|&(_, c)| c == ' ')?;
            Some((merge[..at].to_owned(), merge[at + 1..].to_owned()))
        });
        let merges = merges.collect::<Option<Vec<_>>>().ok_or_else(|| self.invalid("a merge is not two pieces"))?;
        let builder = BPE::builder().vocab_and_merges(vocabulary, merges).ignore_merges(ignore_merges);
        builder.build().map_err(|error| self.invalid(error))
    }

    fn add_special_tokens(&self, inner: &mut tokenizers::Tokenizer, tokens: &[String]) -> Result<(), TokenizerError> {
        const KEY: &str = "tokenizer.ggml.token_type";
        let types = self.metadata.integers(KEY).map_err(|error| self.invalid(error.cause))?.unwrap_or_default();
        if !types.is_empty() && types.len() != tokens.len() {
            return Err(self.invalid(format!("{} token types for {} tokens", types.len(), tokens.len())));
        }
        let of_type = |wanted: i64, special: bool| -> Vec<AddedToken> {
            let typed = tokens.iter().zip(&types).filter(|&(_, &found)| found == wanted);
            typed.map(|(token, _)| AddedToken::from(token.clone(), special).normalized(false)).collect()
        };
        inner.add_special_tokens(&of_type(CONTROL_TOKEN, true));
        inner.add_tokens(&of_type(USER_DEFINED_TOKEN, false));
        Ok(())
    }

    /// The start and end tokens put around a text.
    fn surroundings(&self, tokens: &[String], adds_bos: bool) -> Result<Option<TemplateProcessing>, TokenizerError> {
        let bos = self.added("add_bos_token", "bos_token_id", adds_bos, tokens)?;
        let eos = self.added("add_eos_token", "eos_token_id", false, tokens)?;
        if bos.is_none() && eos.is_none() {
            return Ok(None);
        }
        // Identified by number: a token's text could be mistaken for the template's own syntax.
        let piece = |token: &Option<(String, u32)>| token.as_ref().map(|(_, id)| format!("special{id}"));
        let template: Vec<_> = [piece(&bos), Some("$A".to_owned()), piece(&eos)].into_iter().flatten().collect();
        let mut special = Vec::new();
        for (token, id) in [bos, eos].into_iter().flatten() {
            let entry =
                tokenizers::processors::template::SpecialToken::new(format!("special{id}"), vec![id], vec![token]);
            special.push(entry.map_err(|error| self.invalid(error))?);
        }
        let processing = TemplateProcessing::builder()
            .try_single(template)
            .map_err(|error| self.invalid(error))?
            .special_tokens(special)
            .build();
        processing.map(Some).map_err(|error| self.invalid(error))
    }

    /// The token with the id at `id_key`, if the switch at `switch` (by default `default`) enables
    /// it.
    fn added(
        &self,
        switch: &str,
        id_key: &str,
        default: bool,
        tokens: &[String],
    ) -> Result<Option<(String, u32)>, TokenizerError> {
        let key = |name: &str| format!("tokenizer.ggml.{name}");
        let switched = self.metadata.bool(&key(switch)).map_err(|error| self.invalid(error.cause))?;
        if !switched.unwrap_or(default) {
            return Ok(None);
        }
        let id = self.metadata.unsigned(&key(id_key)).map_err(|error| self.invalid(error.cause))?;
        let id = id.ok_or_else(|| self.invalid(format!("metadata `{}` is missing", key(id_key))))?;
        let token = usize::try_from(id).ok().and_then(|at| tokens.get(at));
        let token = token.ok_or_else(|| self.invalid(format!("metadata `{}` is {id}, no token", key(id_key))))?;
        Ok(Some((token.clone(), id as u32)))
    }
}

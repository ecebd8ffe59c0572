//! Text to token ids and back.
//!
//! A [`Tokenizer`] comes from a `tokenizer.json` or from the vocabulary inside a GGUF file; both
//! run on the `tokenizers` crate. [`TokenStream`] decodes a growing sequence and returns only
//! complete characters.

mod bytes;
mod gguf;
mod gguf_writer;
mod pre_tokenizer;
mod sentence_piece;
mod stream;

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::IgnoredAny;

pub(crate) use gguf::CONTROL_TOKEN;
pub use stream::TokenStream;

/// Converts between text and the token ids of one model. Cloning is cheap: the vocabulary is
/// shared.
#[derive(Clone)]
pub struct Tokenizer {
    inner: Arc<tokenizers::Tokenizer>,
    /// Number of tokens: the library counts them in a copy of the vocabulary.
    tokens: usize,
    /// Rows of the model's embedding table, once known.
    vocab_size: Option<usize>,
}

/// A token that a file adds to a tokenizer.
pub(crate) struct NumberedToken {
    /// Its number, if the file gives one.
    pub(crate) id: Option<u32>,
    /// The token.
    pub(crate) token: tokenizers::AddedToken,
}

/// Whether to add the tokens that the tokenizer puts around every text, such as the start token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialTokens {
    /// Add them: for plain text.
    Add,
    /// Encodes the text as it is: for a rendered chat template, which contains them.
    AsWritten,
}

/// Text could not be converted.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// A tokenizer file that cannot be used.
    #[error("{}: {reason}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The defect.
        reason: String,
    },
    /// The text cannot be encoded.
    #[error("this text cannot be encoded: {0}")]
    Encode(String),
    /// Token ids cannot be decoded.
    #[error("these tokens cannot be decoded: {0}")]
    Decode(String),
    /// The tokenizer cannot be expressed in the requested file format.
    #[error("this tokenizer cannot be written: {0}")]
    Unwritten(String),
    /// The tokenizer has tokens for which the model has no embedding.
    #[error("the text contains token {token:?}, number {id}, but the model has only {vocab_size} embeddings")]
    OutsideVocabulary {
        /// The token's text.
        token: String,
        /// Its id.
        id: u32,
        /// Rows of the embedding table.
        vocab_size: usize,
    },
}

impl TokenizerError {
    fn invalid(path: &Path, reason: impl ToString) -> Self {
        Self::Invalid { path: path.to_owned(), reason: reason.to_string() }
    }
}

impl Tokenizer {
    /// Reads the text of a `tokenizer.json`; `path` is named in errors.
    ///
    /// # Errors
    /// [`TokenizerError::Invalid`].
    pub fn from_json(path: &Path, text: &[u8]) -> Result<Self, TokenizerError> {
        // The library is less careful with text that is not JSON at all than with JSON.
        serde_json::from_slice::<IgnoredAny>(text).map_err(|error| TokenizerError::invalid(path, error))?;
        let inner = guarded(|| tokenizers::Tokenizer::from_bytes(text));
        inner.map(Self::new).map_err(|reason| TokenizerError::invalid(path, reason))
    }

    /// The text of a `tokenizer.json`.
    ///
    /// # Errors
    /// [`TokenizerError::Unwritten`] if it has a part that cannot be written.
    pub fn to_json(&self) -> Result<String, TokenizerError> {
        guarded(|| self.inner.to_string(false)).map_err(TokenizerError::Unwritten)
    }

    fn new(mut inner: tokenizers::Tokenizer) -> Self {
        // A file may carry the padding and truncation of its training; neither belongs to a prompt.
        inner.with_padding(None);
        let removed = inner.with_truncation(None);
        debug_assert!(removed.is_ok(), "removing truncation has no parameters to be wrong");
        Self { tokens: inner.get_vocab_size(true), inner: Arc::new(inner), vocab_size: None }
    }

    /// Adds the tokens that it lacks; `path` is named in errors.
    ///
    /// # Errors
    /// [`TokenizerError::Invalid`] if one would get another number than its own.
    pub(crate) fn add(&mut self, path: &Path, tokens: &[NumberedToken]) -> Result<(), TokenizerError> {
        let known: HashSet<_> =
            self.inner.get_added_tokens_decoder().into_values().map(|token| token.content).collect();
        let new: Vec<_> = tokens.iter().filter(|new| !known.contains(&new.token.content)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let inner = Arc::make_mut(&mut self.inner);
        let list: Vec<_> = new.iter().map(|new| new.token.clone()).collect();
        guarded(|| Ok(inner.add_tokens(&list))).map_err(|reason| TokenizerError::invalid(path, reason))?;
        self.tokens = self.inner.get_vocab_size(true);
        for NumberedToken { id, token } in new {
            let found = self.id(&token.content);
            if let (Some(id), Some(found)) = (*id, found)
                && id != found
            {
                let reason = format!("token {:?} is number {id}, but {found} after tokenizer.json", token.content);
                return Err(TokenizerError::invalid(path, reason));
            }
        }
        Ok(())
    }

    /// Refuses to encode tokens from `vocab_size` up, for which the model has no embedding, and
    /// counts them no longer.
    pub fn limit_to_vocabulary(&mut self, vocab_size: usize) {
        self.vocab_size = Some(vocab_size);
    }

    /// The token ids of `text`.
    ///
    /// # Errors
    /// [`TokenizerError::Encode`], or [`TokenizerError::OutsideVocabulary`] after
    /// [`Self::limit_to_vocabulary`].
    pub fn encode(&self, text: &str, special_tokens: SpecialTokens) -> Result<Vec<u32>, TokenizerError> {
        let add = special_tokens == SpecialTokens::Add;
        let encoding = guarded(|| self.inner.encode_fast(text, add)).map_err(TokenizerError::Encode)?;
        let ids = encoding.get_ids();
        if let Some(vocab_size) = self.vocab_size
            && let Some(&id) = ids.iter().find(|&&id| id as usize >= vocab_size)
        {
            let token = self.token(id).unwrap_or_default();
            return Err(TokenizerError::OutsideVocabulary { token, id, vocab_size });
        }
        Ok(ids.to_vec())
    }

    /// The text of `ids` without special tokens; unknown ids are skipped. Bytes that are not UTF-8
    /// become U+FFFD.
    ///
    /// # Errors
    /// [`TokenizerError::Decode`].
    pub fn decode(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        self.text(ids, false)
    }

    /// The text of `ids`, special tokens as the vocabulary writes them.
    ///
    /// # Errors
    /// The decoder fails.
    pub fn decode_with_special(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        self.text(ids, true)
    }

    /// The text of `ids`, with special tokens or without.
    fn text(&self, ids: &[u32], special: bool) -> Result<String, TokenizerError> {
        guarded(|| self.inner.decode(ids, !special)).map_err(TokenizerError::Decode)
    }

    /// Whether decoding takes this token, which is special or not.
    fn has_text(&self, id: u32, special: bool) -> bool {
        let is_special = |token: &str| self.inner.get_added_vocabulary().is_special_token(token);
        self.inner.id_to_token(id).is_some_and(|token| special || !is_special(&token))
    }

    /// Decodes token after token.
    pub fn stream(&self) -> TokenStream<'_> {
        TokenStream::new(self)
    }

    /// The id of a token, special or not.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The token with this id as the vocabulary writes it, which for byte-level vocabularies is not
    /// its text.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// Whether every token has the same id in both.
    pub fn same_vocabulary(&self, other: &Self) -> bool {
        self.inner.get_vocab(true) == other.inner.get_vocab(true)
    }

    /// The tokens that have no text, such as the end-of-turn token.
    pub fn special_tokens(&self) -> Vec<u32> {
        let added = self.inner.get_added_tokens_decoder();
        added.into_iter().filter(|(_, token)| token.special).map(|(id, _)| id).collect()
    }

    /// Number of tokens, special ones included, without those from the number on to which
    /// [`Self::limit_to_vocabulary`] limits them.
    pub fn token_count(&self) -> usize {
        self.vocab_size.map_or(self.tokens, |vocab_size| self.tokens.min(vocab_size))
    }
}

/// Runs a call of the `tokenizers` library and returns its error's text. Files it does not expect
/// make the library panic in places (`DecoderWrapper` of 0.22 expects a known decoder), and a file
/// from anywhere must not end the program.
fn guarded<T>(call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err("the tokenizer's definition is not one the library expects".to_owned()),
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("tokens", &self.token_count()).field("vocab_size", &self.vocab_size).finish()
    }
}

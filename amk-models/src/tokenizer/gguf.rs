//! Builds a tokenizer from the vocabulary inside a GGUF file (ggml, `docs/gguf.md`, "Tokenizer").
//!
//! Byte-level BPE (`tokenizer.ggml.model` = `gpt2`) and SentencePiece (`llama`) are supported; for
//! other kinds a `tokenizer.json` next to the file is used.

use std::path::Path;

use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::normalizers::unicode::NFC;
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{AddedToken, NormalizerWrapper};

use crate::import::Gguf;
use crate::weights::gguf::Metadata;

use super::pre_tokenizer::{PreTokenizer, pre_tokenizer};
use super::{Tokenizer, TokenizerError, sentence_piece};

const TOKENS: &str = "tokenizer.ggml.tokens";

/// Token types (`llama_token_type`): control tokens and the unknown token are special; user-defined
/// tokens are matched whole but printed.
pub(super) const NORMAL_TOKEN: i64 = 1;
const UNKNOWN_TOKEN: i64 = 2;
pub(crate) const CONTROL_TOKEN: i64 = 3;
pub(super) const USER_DEFINED_TOKEN: i64 = 4;
pub(super) const UNUSED_TOKEN: i64 = 5;

impl Tokenizer {
    /// Builds the tokenizer that the metadata of the GGUF file at `path` describes, a file of this
    /// kind.
    ///
    /// # Errors
    /// [`TokenizerError::Invalid`].
    pub(crate) fn from_gguf(path: &Path, metadata: &Metadata, gguf: &Gguf) -> Result<Self, TokenizerError> {
        let parts = Parts { path, metadata };
        let inner = match parts.kind()? {
            Kind::Bytes => parts.bytes()?,
            Kind::Pieces => parts.pieces(gguf.spaced)?,
        };
        Ok(Self::new(inner))
    }
}

/// The kinds of vocabularies.
enum Kind {
    /// Byte-level BPE, with a list of merges.
    Bytes,
    /// SentencePiece, with scores.
    Pieces,
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

    fn kind(&self) -> Result<Kind, TokenizerError> {
        const KEY: &str = "tokenizer.ggml.model";
        match self.metadata.get(KEY) {
            Some(_) if self.metadata.is_text(KEY, "gpt2") => Ok(Kind::Bytes),
            Some(_) if self.metadata.is_text(KEY, "llama") => Ok(Kind::Pieces),
            Some(other) => Err(self.invalid(format!(
                "the embedded tokenizer {other} is not supported, only \"gpt2\" and \"llama\"; put the model's \
                tokenizer.json into the \
                 same folder"
            ))),
            None => Err(self.invalid("there is no embedded tokenizer")),
        }
    }

    fn bytes(&self) -> Result<tokenizers::Tokenizer, TokenizerError> {
        let (tokens, method) = (self.texts(TOKENS)?, self.method()?);
        let model = BPE::builder().vocab_and_merges(self.vocabulary(tokens)?, self.merges()?);
        let model = model.ignore_merges(method.ignore_merges).build().map_err(|error| self.invalid(error))?;
        let mut inner = tokenizers::Tokenizer::new(model);
        inner.with_pre_tokenizer(Some(method.cut));
        inner.with_normalizer(method.nfc.then_some(NormalizerWrapper::NFC(NFC)));
        inner.with_decoder(Some(ByteLevel::new(false, true, true)));
        self.add_special_tokens(&mut inner, tokens, None)?;
        inner.with_post_processor(self.surroundings(tokens, method.adds_bos)?);
        Ok(inner)
    }

    /// White space behind special tokens is part of them, unless they are among `spaced`, if there
    /// is such a list.
    fn pieces(&self, spaced: Option<&[&str]>) -> Result<tokenizers::Tokenizer, TokenizerError> {
        const SCORES: &str = "tokenizer.ggml.scores";
        let tokens = self.texts(TOKENS)?;
        let scores = self.metadata.floats(SCORES).map_err(|error| self.invalid(error.cause))?.unwrap_or_default();
        if scores.len() != tokens.len() {
            return Err(self.invalid(format!("{} scores for {} tokens", scores.len(), tokens.len())));
        }
        let types = self.types(tokens)?;
        let joins = |id: usize| types.get(id).is_none_or(|kind| *kind == NORMAL_TOKEN);
        let merges = sentence_piece::merges(tokens, scores, joins);
        let mut model = BPE::builder().vocab_and_merges(self.vocabulary(tokens)?, merges);
        if let Some((unknown, _)) = self.token("unknown_token_id", tokens)? {
            model = model.unk_token(unknown);
        }
        let model = model.byte_fallback(true).fuse_unk(true).build().map_err(|error| self.invalid(error))?;
        let mut inner = tokenizers::Tokenizer::new(model);
        let space_in_front = self.switch("add_space_prefix")?.unwrap_or(true);
        let library = |error| self.invalid(error);
        inner.with_normalizer(Some(sentence_piece::normalizer(space_in_front).map_err(library)?));
        inner.with_decoder(Some(sentence_piece::decoder(space_in_front).map_err(library)?));
        self.add_special_tokens(&mut inner, tokens, spaced)?;
        inner.with_post_processor(self.surroundings(tokens, true)?);
        Ok(inner)
    }

    fn texts(&self, key: &str) -> Result<&'a [String], TokenizerError> {
        let texts = self.metadata.texts(key).map_err(|error| self.invalid(error.cause))?;
        texts.ok_or_else(|| self.invalid(format!("metadata `{key}` is missing")))
    }

    fn method(&self) -> Result<PreTokenizer, TokenizerError> {
        const KEY: &str = "tokenizer.ggml.pre";
        let name = self.metadata.text(KEY).map_err(|error| self.invalid(error.cause))?;
        let name = name.ok_or_else(|| {
            self.invalid(format!("metadata `{KEY}` is missing; put the model's tokenizer.json into the same folder"))
        })?;
        pre_tokenizer(name).ok_or_else(|| {
            self.invalid(format!(
                "the embedded tokenizer cuts text by {name:?}, which is not known; put the \
                model's tokenizer.json into the \
                 same folder"
            ))
        })
    }

    fn vocabulary(&self, tokens: &[String]) -> Result<Vocab, TokenizerError> {
        let mut vocabulary = Vocab::default();
        for (token, id) in tokens.iter().zip(0_u32..) {
            if let Some(first) = vocabulary.insert(token.clone(), id) {
                return Err(self.invalid(format!("tokens {first} and {id} are both {token:?}")));
            }
        }
        Ok(vocabulary)
    }

    fn merges(&self) -> Result<Merges, TokenizerError> {
        let merges = self.texts("tokenizer.ggml.merges")?.iter().map(|merge| {
            // The first part may itself start with a space.
            let (at, _) = merge.char_indices().skip(1).find(|&(_, c)| c == ' ')?;
            Some((merge[..at].to_owned(), merge[at + 1..].to_owned()))
        });
        merges.collect::<Option<Vec<_>>>().ok_or_else(|| self.invalid("a merge is not two pieces"))
    }

    fn add_special_tokens(
        &self,
        inner: &mut tokenizers::Tokenizer,
        tokens: &[String],
        spaced: Option<&[&str]>,
    ) -> Result<(), TokenizerError> {
        let types = self.types(tokens)?;
        let added = |token: &String, special: bool| {
            let strips = spaced.is_some_and(|spaced| !spaced.contains(&token.as_str()));
            AddedToken::from(token.clone(), special).normalized(false).rstrip(strips)
        };
        let of_types = |wanted: &[i64], special: bool| -> Vec<AddedToken> {
            let typed = tokens.iter().zip(&types).filter(|(_, found)| wanted.contains(found));
            typed.map(|(token, _)| added(token, special)).collect()
        };
        inner.add_special_tokens(&of_types(&[CONTROL_TOKEN, UNKNOWN_TOKEN], true));
        inner.add_tokens(&of_types(&[USER_DEFINED_TOKEN], false));
        Ok(())
    }

    /// The type of each token; empty if the file has none.
    fn types(&self, tokens: &[String]) -> Result<Vec<i64>, TokenizerError> {
        const KEY: &str = "tokenizer.ggml.token_type";
        let types = self.metadata.integers(KEY).map_err(|error| self.invalid(error.cause))?.unwrap_or_default();
        if !types.is_empty() && types.len() != tokens.len() {
            return Err(self.invalid(format!("{} token types for {} tokens", types.len(), tokens.len())));
        }
        Ok(types)
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
        if !self.switch(switch)?.unwrap_or(default) {
            return Ok(None);
        }
        let token = self.token(id_key, tokens)?;
        token.map(Some).ok_or_else(|| self.invalid(format!("metadata `tokenizer.ggml.{id_key}` is missing")))
    }

    fn switch(&self, name: &str) -> Result<Option<bool>, TokenizerError> {
        self.metadata.bool(&format!("tokenizer.ggml.{name}")).map_err(|error| self.invalid(error.cause))
    }

    /// The token with the id at a key, if there is such a key.
    fn token(&self, key: &str, tokens: &[String]) -> Result<Option<(String, u32)>, TokenizerError> {
        let key = format!("tokenizer.ggml.{key}");
        let Some(id) = self.metadata.unsigned(&key).map_err(|error| self.invalid(error.cause))? else {
            return Ok(None);
        };
        let token = usize::try_from(id).ok().and_then(|at| tokens.get(at));
        let token = token.ok_or_else(|| self.invalid(format!("metadata `{key}` is {id}, no token")))?;
        Ok(Some((token.clone(), id as u32)))
    }
}

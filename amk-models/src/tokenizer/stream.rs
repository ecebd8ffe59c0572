//! Text from a growing sequence of tokens.

use super::{Tokenizer, TokenizerError};

/// The decoder's replacement for bytes that are not UTF-8, in particular for an incomplete
/// character.
const REPLACEMENT: char = '\u{FFFD}';
/// Tokens that are held back at most. A character has at most four bytes, so four tokens; a token
/// may end one and begin another.
const MAX_HELD_BACK: usize = 8;
/// Tokens at the end of a prompt at most that are searched for text.
const MAX_BEFORE: usize = 16;

/// Decodes token after token and returns text as soon as its characters are complete.
///
/// Where the tokens' bytes are valid UTF-8, the pieces joined are the text of [`Tokenizer::decode`]
/// on all tokens.
pub struct TokenStream<'a> {
    tokenizer: &'a Tokenizer,
    /// The last tokens returned, which decide whether the next ones start with a space, then those
    /// held back.
    window: Vec<u32>,
    /// Number of tokens of the window that have been returned.
    given_out: usize,
    /// Whether special tokens have text.
    special: bool,
}

impl<'a> TokenStream<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, window: Vec::new(), given_out: 0, special: false }
    }

    /// The same with the text of special tokens.
    #[must_use]
    pub fn with_special(self) -> Self {
        Self { special: true, ..self }
    }

    /// The same for a text that continues the text of these tokens: a space at its beginning
    /// counts.
    ///
    /// # Errors
    /// [`TokenizerError::Decode`].
    pub fn after(mut self, prompt: &[u32]) -> Result<Self, TokenizerError> {
        // Decoders leave out a space at the beginning of a text, and special tokens may have none.
        for start in (0..prompt.len()).rev().take(MAX_BEFORE) {
            if !self.tokenizer.text(&prompt[start..], self.special)?.is_empty() {
                self.window = prompt[start..].to_vec();
                self.given_out = self.window.len();
                break;
            }
        }
        Ok(self)
    }

    /// Takes the next token; returns the text that is complete now, often none.
    ///
    /// # Errors
    /// [`TokenizerError::Decode`].
    pub fn push(&mut self, id: u32) -> Result<String, TokenizerError> {
        if !self.tokenizer.has_text(id, self.special) {
            return Ok(String::new());
        }
        self.window.push(id);
        let text = self.held_back()?;
        let held_back = self.window.len() - self.given_out;
        // A run that remains incomplete is not a character: its bytes are invalid and stay
        // replaced.
        if held_back < MAX_HELD_BACK && (text.is_empty() || text.ends_with(REPLACEMENT)) {
            return Ok(String::new());
        }
        self.window.drain(..self.given_out);
        self.given_out = self.window.len();
        Ok(text)
    }

    /// Ends the sequence; returns the held-back text, with U+FFFD for an incomplete character.
    ///
    /// # Errors
    /// [`TokenizerError::Decode`].
    pub fn finish(self) -> Result<String, TokenizerError> {
        self.held_back()
    }

    /// The text of the tokens held back.
    fn held_back(&self) -> Result<String, TokenizerError> {
        let before = self.tokenizer.text(&self.window[..self.given_out], self.special)?;
        let all = self.tokenizer.text(&self.window, self.special)?;
        match all.strip_prefix(&before) {
            Some(text) => Ok(text.to_owned()),
            // Consecutive byte tokens are decoded together: one that is not UTF-8 also spoils those
            // that have been returned.
            None => self.tokenizer.text(&self.window[self.given_out..], self.special),
        }
    }
}

//! The bytes of single tokens. A token may be part of a character.

use super::{Tokenizer, TokenizerError};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use tokenizers::DecoderWrapper;

/// The bytes that the characters of a byte-level vocabulary stand for: printable ones for
/// themselves, the others, in order, from U+0100 (GPT-2's `bytes_to_unicode`).
static BYTE_LEVEL: LazyLock<BTreeMap<char, u8>> = LazyLock::new(|| {
    let printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..);
    let themselves = (0..=u8::MAX).filter(printable).map(|byte| (char::from(byte), byte));
    let others = ('\u{100}'..).zip((0..=u8::MAX).filter(|byte| !printable(byte)));
    themselves.chain(others).collect()
});

impl Tokenizer {
    /// Returns the bytes of a token inside a text, special or not; empty for an unknown one.
    /// Concatenating the bytes of a text's tokens gives the text, except for a space that the
    /// decoder omits at its beginning.
    ///
    /// # Errors
    /// [`TokenizerError::Decode`].
    pub fn bytes(&self, id: u32) -> Result<Vec<u8>, TokenizerError> {
        let Some(token) = self.token(id) else { return Ok(Vec::new()) };
        if self.has_decoder(|decoder| matches!(decoder, DecoderWrapper::ByteLevel(_))) {
            let bytes: Option<Vec<u8>> = token.chars().map(|c| BYTE_LEVEL.get(&c).copied()).collect();
            // Like the decoder: other tokens are used as they are written.
            return Ok(bytes.unwrap_or_else(|| token.into_bytes()));
        }
        if self.has_decoder(|decoder| matches!(decoder, DecoderWrapper::ByteFallback(_)))
            && let Some(byte) = fallback_byte(&token)
        {
            return Ok(vec![byte]);
        }
        // Twice, because decoders treat the beginning of a text differently.
        let (one, two) = (self.text(&[id], true)?, self.text(&[id, id], true)?);
        Ok(two.get(one.len()..).unwrap_or_default().as_bytes().to_vec())
    }

    fn has_decoder(&self, is: impl Fn(&DecoderWrapper) -> bool) -> bool {
        match self.inner.get_decoder() {
            Some(DecoderWrapper::Sequence(decoders)) => decoders.get_decoders().iter().any(is),
            decoder => decoder.is_some_and(is),
        }
    }
}

/// The byte of a token `<0xHH>`.
fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

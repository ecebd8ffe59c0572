//! Splitting of text before byte-pair merges, by the method's name in a GGUF file.
//!
//! GGUF stores a name (`tokenizer.ggml.pre`) where `tokenizer.json` stores the regular expression.
//! The expressions are copied from the models' own tokenizers.

use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{PreTokenizerWrapper, SplitDelimiterBehavior};

/// Qwen2: digits one by one.
const QWEN2: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
);
/// Llama 3: digits in groups of up to three.
const LLAMA3: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// A named method and the name's other settings of the tokenizer.
pub(super) struct PreTokenizer {
    pub(super) cut: PreTokenizerWrapper,
    /// Whether text is brought into Unicode normalization form C first.
    pub(super) nfc: bool,
    /// Whether a piece that is a token is taken whole, regardless of the merges.
    pub(super) ignore_merges: bool,
    /// Whether texts start with the start token where the file does not set it.
    pub(super) adds_bos: bool,
}

/// A name of each known method, as files are written.
pub(super) const NAMES: [&str; 4] = ["gpt-2", "smollm", "qwen2", "llama-bpe"];

/// The method of that name; `None` for one that is not known.
pub(super) fn pre_tokenizer(name: &str) -> Option<PreTokenizer> {
    let bytes = |regex| PreTokenizerWrapper::from(ByteLevel::new(false, true, regex));
    let split = |regex: &str| {
        // The expressions are constants, so a failure to compile one shows in the tests.
        let pattern = SplitPattern::Regex(regex.to_owned());
        let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false).ok()?;
        Some(PreTokenizerWrapper::from(Sequence::new(vec![split.into(), bytes(false)])))
    };
    let plain = |cut| PreTokenizer { cut, nfc: false, ignore_merges: false, adds_bos: false };
    Some(match name {
        "gpt-2" => plain(bytes(true)),
        "smollm" | "starcoder" | "refact" => plain(Sequence::new(vec![Digits::new(true).into(), bytes(true)]).into()),
        "qwen2" | "deepseek-r1-qwen" => PreTokenizer { nfc: true, ..plain(split(QWEN2)?) },
        "llama-bpe" | "llama3" | "llama-v3" => {
            PreTokenizer { ignore_merges: true, adds_bos: true, ..plain(split(LLAMA3)?) }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::pre_tokenizer;

    #[test]
    fn every_known_name_compiles() {
        assert!(super::NAMES.iter().all(|name| pre_tokenizer(name).is_some()));
        for name in ["gpt-2", "smollm", "starcoder", "refact", "qwen2", "deepseek-r1-qwen", "llama-bpe", "llama3"] {
            assert!(pre_tokenizer(name).is_some(), "{name}");
        }
        assert!(pre_tokenizer("gpt-17").is_none());
    }
}

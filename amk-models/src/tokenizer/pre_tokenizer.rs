//! Splitting of text before byte-pair merges, selected by the method's name in a GGUF file.
//!
//! GGUF stores a name (`tokenizer.ggml.pre`), whereas `tokenizer.json` stores the regular
//! expression. The expressions are copied from the models' own tokenizers.

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

/// Seed-Coder: digits one by one, and no line break after punctuation.
const SEED_CODER: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+",
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
);
/// Mistral's Tekken: words also end before a capital letter, digits one by one.
const TEKKEN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
/// GPT-4o: words end before a capital letter and have their contraction, digits in groups of up to
/// three.
const GPT_4O: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// DeepSeek-Coder: one split behind the other, of line breaks, letters, punctuation, ideographs and
/// Hangul, and digits one by one.
const DEEPSEEK_CODER: [&str; 5] = [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", IDEOGRAPHS, r"\p{N}"];
/// DeepSeek-LLM: likewise, with the letters of scripts that have two cases, spaces at the end of a
/// text, and digits together.
const DEEPSEEK_LLM: [&str; 6] = [r"[\r\n]", CASED_LETTERS, WIDE_PUNCTUATION, r"\s+$", IDEOGRAPHS, r"\p{N}+"];
const IDEOGRAPHS: &str = r"[\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+";
const WIDE_PUNCTUATION: &str = r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+";
const CASED_LETTERS: &str = concat!(
    r"\s?[",
    r"A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ",
    r"Ὗ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗ",
    r"Ａ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃",
    r"]+"
);

/// A named method and the name's other settings of the tokenizer.
pub(super) struct PreTokenizer {
    pub(super) cut: PreTokenizerWrapper,
    /// Whether text is first converted to Unicode normalization form C.
    pub(super) nfc: bool,
    /// Whether a piece that is a token is used whole, regardless of the merges.
    pub(super) ignore_merges: bool,
    /// Whether texts start with the start token if the file does not set it.
    pub(super) adds_bos: bool,
}

/// A name of each known method, as files are written.
pub(super) const NAMES: [&str; 12] = [
    "gpt-2",
    "smollm",
    "qwen2",
    "llama-bpe",
    "dbrx",
    "stablelm2",
    "command-r",
    "tekken",
    "gpt-4o",
    "seed-coder",
    "deepseek-coder",
    "deepseek-llm",
];

/// The method of that name; `None` for one that is not known.
pub(super) fn pre_tokenizer(name: &str) -> Option<PreTokenizer> {
    let bytes = |regex| PreTokenizerWrapper::from(ByteLevel::new(false, true, regex));
    let digits = || PreTokenizerWrapper::from(Sequence::new(vec![Digits::new(true).into(), bytes(true)]));
    // The expressions are constants, so a failure to compile one shows in the tests.
    let splits = |regexes: &[&str]| {
        let split = |regex: &&str| {
            let pattern = SplitPattern::Regex((*regex).to_owned());
            Split::new(pattern, SplitDelimiterBehavior::Isolated, false).ok().map(PreTokenizerWrapper::from)
        };
        let splits: Option<Vec<_>> = regexes.iter().map(split).chain([Some(bytes(false))]).collect();
        Some(PreTokenizerWrapper::from(Sequence::new(splits?)))
    };
    let split = |regex: &str| splits(&[regex]);
    let plain = |cut| PreTokenizer { cut, nfc: false, ignore_merges: false, adds_bos: false };
    let whole = |cut| PreTokenizer { ignore_merges: true, ..plain(cut) };
    Some(match name {
        "gpt-2" | "phi-2" | "exaone4" | "olmo" => plain(bytes(true)),
        "smollm" | "starcoder" | "refact" => plain(digits()),
        "command-r" => PreTokenizer { nfc: true, ..plain(digits()) },
        "qwen2" | "deepseek-r1-qwen" | "megrez" => PreTokenizer { nfc: true, ..plain(split(QWEN2)?) },
        "stablelm2" => plain(split(QWEN2)?),
        "llama-bpe" | "llama3" | "llama-v3" | "falcon3" | "lfm2" | "pixtral" => {
            PreTokenizer { adds_bos: true, ..whole(split(LLAMA3)?) }
        }
        "dbrx" | "chatglm-bpe" => plain(split(LLAMA3)?),
        "glm4" => whole(split(LLAMA3)?),
        "tekken" => PreTokenizer { adds_bos: true, ..whole(split(TEKKEN)?) },
        "gpt-4o" | "llama4" => plain(split(GPT_4O)?),
        "seed-coder" => plain(split(SEED_CODER)?),
        "deepseek-coder" => plain(splits(&DEEPSEEK_CODER)?),
        "deepseek-llm" => plain(splits(&DEEPSEEK_LLM)?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{NAMES, pre_tokenizer};
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _};

    /// The pieces of a text, in the letters of byte-level vocabularies.
    fn pieces(name: &str, text: &str) -> Vec<String> {
        let mut cut = PreTokenizedString::from(text);
        pre_tokenizer(name).unwrap().cut.pre_tokenize(&mut cut).unwrap();
        let splits = cut.get_splits(OffsetReferential::Original, OffsetType::Byte);
        splits.into_iter().map(|(piece, ..)| piece.to_owned()).collect()
    }

    #[test]
    fn every_name_cuts_text_as_its_models_do() {
        let cuts = |name: &str| pieces(name, "AnOther's 1234!\n").join("|");
        for name in ["llama-bpe", "llama3", "llama-v3", "falcon3", "lfm2", "pixtral", "dbrx", "chatglm-bpe", "glm4"] {
            assert_eq!(cuts(name), "AnOther|'s|Ġ|123|4|!Ċ", "{name}");
        }
        for name in ["qwen2", "deepseek-r1-qwen", "megrez", "stablelm2"] {
            assert_eq!(cuts(name), "AnOther|'s|Ġ|1|2|3|4|!Ċ", "{name}");
        }
        for name in ["smollm", "starcoder", "refact", "command-r"] {
            assert_eq!(cuts(name), "AnOther|'s|Ġ|1|2|3|4|!|Ċ", "{name}");
        }
        for name in ["gpt-2", "phi-2", "exaone4", "olmo"] {
            assert_eq!(cuts(name), "AnOther|'s|Ġ1234|!|Ċ", "{name}");
        }
        assert_eq!(cuts("seed-coder"), "AnOther|'s|Ġ|1|2|3|4|!|Ċ");
        assert_eq!(cuts("tekken"), "An|Other|'s|Ġ|1|2|3|4|!Ċ");
        for name in ["gpt-4o", "llama4"] {
            assert_eq!(cuts(name), "An|Other's|Ġ|123|4|!Ċ", "{name}");
        }
        assert_eq!(cuts("deepseek-coder"), "AnOther|'|s|Ġ|1|2|3|4|!|Ċ");
        assert_eq!(cuts("deepseek-llm"), "AnOther|'|s|Ġ|1234|!|Ċ");
        assert_eq!(pieces("deepseek-coder", "x + 一 ").join("|"), "x|Ġ+|Ġ|ä¸Ģ|Ġ");
        assert!(NAMES.iter().all(|name| pre_tokenizer(name).is_some()));
        assert!(pre_tokenizer("gpt-17").is_none());
    }

    #[test]
    fn names_that_cut_alike_differ_in_merges_and_the_start_token() {
        let of = |name: &str| pre_tokenizer(name).map(|method| (method.ignore_merges, method.adds_bos, method.nfc));
        for name in ["lfm2", "pixtral"] {
            assert_eq!(of(name), of("llama-bpe"), "{name}");
        }
        assert_eq!(of("glm4"), Some((true, false, false)));
        assert_eq!(of("dbrx"), Some((false, false, false)));
        assert_eq!(of("tekken"), Some((true, true, false)));
        assert_eq!(of("command-r"), Some((false, false, true)));
    }
}

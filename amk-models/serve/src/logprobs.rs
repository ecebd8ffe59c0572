//! Log-probabilities of tokens in the forms of OpenAI's API.

use crate::reply::Form;
use amk_models::tokenizer::Tokenizer;
use amk_run::sampler::Logprob;
use amk_run::text::PlacedLogprobs;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::sync::Arc;

/// Stands for less likely tokens too, as in OpenAI's API: JSON has no infinity.
const LOWEST: f64 = -9999.0;

/// Writes the log-probabilities of the texts of an answer.
#[derive(Clone, Debug)]
pub(crate) struct LogprobsForm {
    pub(crate) form: Form,
    pub(crate) tokenizer: Arc<Tokenizer>,
    /// Characters of each prompt.
    pub(crate) prompts: Vec<usize>,
    /// Texts of each prompt.
    pub(crate) choices: usize,
}

impl LogprobsForm {
    /// Those of some tokens of a text.
    pub(crate) fn json(&self, index: usize, tokens: &[PlacedLogprobs]) -> Value {
        match self.form {
            Form::Chat => {
                let content: Vec<Value> = tokens.iter().map(|token| self.of_chat(token)).collect();
                json!({ "content": content, "refusal": null })
            }
            Form::Completion => {
                let before = self.prompts.get(index / self.choices).copied().unwrap_or_default();
                let chosen = || tokens.iter().map(|token| token.logprobs.chosen);
                json!({
                    "tokens": chosen().map(|chosen| self.name(chosen)).collect::<Vec<_>>(),
                    "token_logprobs": chosen().map(value).collect::<Vec<_>>(),
                    "top_logprobs": tokens.iter().map(|token| self.by_name(token)).collect::<Vec<_>>(),
                    "text_offset": tokens.iter().map(|token| before + token.offset).collect::<Vec<_>>(),
                })
            }
        }
    }

    fn of_chat(&self, PlacedLogprobs { logprobs, .. }: &PlacedLogprobs) -> Value {
        let mut token = self.token(logprobs.chosen);
        token["top_logprobs"] = logprobs.top.iter().map(|&one| self.token(one)).collect();
        token
    }

    fn token(&self, one: Logprob) -> Value {
        let bytes = self.bytes(one);
        let text = bytes.as_deref().map(escaped).unwrap_or_default();
        json!({ "token": text, "logprob": value(one), "bytes": bytes })
    }

    /// The likeliest tokens of a completion and the chosen one, by their names.
    fn by_name(&self, PlacedLogprobs { logprobs, .. }: &PlacedLogprobs) -> Map<String, Value> {
        let mut names = Map::new();
        for &one in logprobs.top.iter().chain([&logprobs.chosen]) {
            // Of tokens with the same text the likeliest stays.
            names.entry(self.name(one)).or_insert_with(|| json!(value(one)));
        }
        names
    }

    /// The name of a token in a completion: its text, or its bytes if they are not text.
    fn name(&self, one: Logprob) -> String {
        let bytes = self.bytes(one).unwrap_or_default();
        if str::from_utf8(&bytes).is_ok() { escaped(&bytes) } else { format!("bytes:{}", escaped(&bytes)) }
    }

    /// The bytes of a token, if it has any that can be decoded.
    fn bytes(&self, one: Logprob) -> Option<Vec<u8>> {
        self.tokenizer.bytes(one.token).ok()
    }
}

fn value(one: Logprob) -> f64 {
    one.logprob.max(LOWEST)
}

/// The text of bytes, with `\xhh` for bytes of incomplete characters.
fn escaped(bytes: &[u8]) -> String {
    bytes.utf8_chunks().fold(String::new(), |mut text, chunk| {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use amk_run::sampler::Logprobs;
    use std::path::Path;

    /// Tokens of a space and the first byte of a euro sign, and of its other two bytes, as
    /// byte-level vocabularies write them.
    fn form(form: Form) -> LogprobsForm {
        let json = json!({
            "version": "1.0", "added_tokens": [],
            "decoder": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true },
            "model": { "type": "WordLevel", "vocab": { "\u{120}\u{e2}": 0, "\u{124}\u{ac}": 1 }, "unk_token": "" },
        });
        let tokenizer = Tokenizer::from_json(Path::new("tokenizer.json"), json.to_string().as_bytes()).unwrap();
        LogprobsForm { form, tokenizer: Arc::new(tokenizer), prompts: vec![3], choices: 1 }
    }

    fn tokens() -> [PlacedLogprobs; 2] {
        let placed = |token: u32, logprob| {
            let chosen = Logprob { token, logprob };
            PlacedLogprobs { offset: 0, logprobs: Logprobs { chosen, top: vec![chosen] } }
        };
        [placed(0, -1.5), placed(1, f64::NEG_INFINITY)]
    }

    #[test]
    fn parts_of_a_character_have_their_bytes() {
        let json = form(Form::Chat).json(0, &tokens());
        let content = json["content"].as_array().unwrap();
        let fields: Vec<_> = content.iter().map(|one| (&one["token"], &one["bytes"], &one["logprob"])).collect();
        assert_eq!(fields[0], (&json!(" \\xe2"), &json!([0x20, 0xe2]), &json!(-1.5)));
        assert_eq!(fields[1], (&json!("\\x82\\xac"), &json!([0x82, 0xac]), &json!(LOWEST)));
        assert_eq!(content[0]["top_logprobs"][0]["bytes"], json!([0x20, 0xe2]));
    }

    #[test]
    fn completions_name_parts_of_a_character_by_their_bytes() {
        let json = form(Form::Completion).json(0, &tokens());
        assert_eq!(json["tokens"], json!(["bytes: \\xe2", "bytes:\\x82\\xac"]));
        assert_eq!(json["top_logprobs"][1], json!({ "bytes:\\x82\\xac": LOWEST }));
        assert_eq!((&json["text_offset"], &json["token_logprobs"]), (&json!([3, 3]), &json!([-1.5, LOWEST])));
    }
}

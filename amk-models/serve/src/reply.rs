//! Answers in the forms of OpenAI's API.

use crate::logprobs::LogprobsForm;
use amk_run::text::{Ended, Generated, PlacedLogprobs};
use serde_json::{Value, json};

/// The form of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Completion,
    Chat,
}

/// What all parts of an answer have in common.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) form: Form,
    pub(crate) id: String,
    /// Seconds since 1970.
    pub(crate) created: u64,
    pub(crate) model: String,
    /// Where log-probabilities are asked for.
    pub(crate) logprobs: Option<LogprobsForm>,
}

/// A whole text of an answer.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) text: String,
    pub(crate) logprobs: Vec<PlacedLogprobs>,
    pub(crate) ended: Ended,
}

/// Tokens of all texts of an answer.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Usage {
    prompt: usize,
    written: usize,
}

impl Usage {
    /// A text has ended. Texts of one prompt count it once.
    pub(crate) fn add(&mut self, generated: &Generated, first: bool) {
        self.prompt += if first { generated.prompt_tokens } else { 0 };
        self.written += generated.tokens.len();
    }

    fn json(self) -> Value {
        let Self { prompt, written } = self;
        json!({ "prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written })
    }
}

/// Why a text ended.
fn finish(ended: Ended) -> &'static str {
    match ended {
        Ended::StopToken | Ended::StopString => "stop",
        Ended::MaxTokens | Ended::ContextFull => "length",
    }
}

impl Head {
    fn with(&self, chunk: bool, choices: Vec<Value>, usage: Option<Usage>) -> Value {
        let object = match (self.form, chunk) {
            (Form::Completion, _) => "text_completion",
            (Form::Chat, false) => "chat.completion",
            (Form::Chat, true) => "chat.completion.chunk",
        };
        let mut value = json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model,
            "system_fingerprint": concat!("amk-", env!("CARGO_PKG_VERSION")), "choices": choices,
        });
        if let Some(usage) = usage {
            value["usage"] = usage.json();
        }
        value
    }

    /// The whole answer.
    pub(crate) fn whole(&self, texts: Vec<Written>, usage: Usage) -> Value {
        let of_text = |(index, Written { text, logprobs, ended }): (usize, Written)| {
            let (name, text) = match self.form {
                Form::Completion => ("text", json!(text)),
                Form::Chat => ("message", json!({ "role": "assistant", "content": text, "refusal": null })),
            };
            self.with_logprobs(choice(index, name, text, Some(ended)), index, &logprobs)
        };
        self.with(false, texts.into_iter().enumerate().map(of_text).collect(), Some(usage))
    }

    /// The first chunk of a text in a chat, which names who speaks.
    pub(crate) fn role(&self, index: usize) -> Option<Value> {
        let choice = choice(index, "delta", json!({ "role": "assistant", "content": "" }), None);
        (self.form == Form::Chat).then(|| self.with(true, vec![choice], None))
    }

    /// A chunk with more of a text.
    pub(crate) fn text(&self, index: usize, text: &str, logprobs: &[PlacedLogprobs]) -> Value {
        let choice = match self.form {
            Form::Completion => choice(index, "text", json!(text), None),
            Form::Chat => choice(index, "delta", json!({ "content": text }), None),
        };
        self.with(true, vec![self.with_logprobs(choice, index, logprobs)], None)
    }

    /// The last chunk of a text.
    pub(crate) fn end(&self, index: usize, ended: Ended) -> Value {
        let choice = match self.form {
            Form::Completion => choice(index, "text", json!(""), Some(ended)),
            // It has no text, not an empty one.
            Form::Chat => choice(index, "delta", json!({}), Some(ended)),
        };
        self.with(true, vec![choice], None)
    }

    /// The last chunk of a stream whose client asked for the number of tokens.
    pub(crate) fn usage(&self, usage: Usage) -> Value {
        self.with(true, Vec::new(), Some(usage))
    }

    fn with_logprobs(&self, mut choice: Value, index: usize, tokens: &[PlacedLogprobs]) -> Value {
        if let Some(logprobs) = &self.logprobs {
            choice["logprobs"] = logprobs.json(index, tokens);
        }
        choice
    }
}

/// A text of an answer under its name in that form, and why it ended if it has.
fn choice(index: usize, name: &str, text: Value, ended: Option<Ended>) -> Value {
    json!({ "index": index, name: text, "logprobs": null, "finish_reason": ended.map(finish) })
}

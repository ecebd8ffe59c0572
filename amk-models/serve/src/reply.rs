//! Answers in the forms of OpenAI's API.

use amk_run::text::{Ended, Generated};
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
pub(crate) fn finish(ended: Ended) -> &'static str {
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

    /// The whole answer: each text and why it ended.
    pub(crate) fn whole(&self, texts: Vec<(String, Ended)>, usage: Usage) -> Value {
        let choice = |(index, (text, ended)): (usize, (String, Ended))| match self.form {
            Form::Completion => {
                json!({ "index": index, "text": text, "logprobs": null, "finish_reason": finish(ended) })
            }
            Form::Chat => json!({
                "index": index, "message": { "role": "assistant", "content": text, "refusal": null },
                "logprobs": null, "finish_reason": finish(ended),
            }),
        };
        self.with(false, texts.into_iter().enumerate().map(choice).collect(), Some(usage))
    }

    /// The first chunk of a text in a chat, which names who speaks.
    pub(crate) fn role(&self, index: usize) -> Option<Value> {
        (self.form == Form::Chat).then(|| self.chunk(index, json!({ "role": "assistant", "content": "" }), None))
    }

    /// A chunk with more of a text.
    pub(crate) fn text(&self, index: usize, text: &str) -> Value {
        match self.form {
            Form::Completion => self.with(
                true,
                vec![json!({ "index": index, "text": text, "logprobs": null, "finish_reason": null })],
                None,
            ),
            Form::Chat => self.chunk(index, json!({ "content": text }), None),
        }
    }

    /// The last chunk of a text.
    pub(crate) fn end(&self, index: usize, ended: Ended) -> Value {
        match self.form {
            Form::Completion => self.with(
                true,
                vec![json!({ "index": index, "text": "", "logprobs": null, "finish_reason": finish(ended) })],
                None,
            ),
            Form::Chat => self.chunk(index, json!({}), Some(finish(ended))),
        }
    }

    /// The last chunk of a stream whose client asked for the number of tokens.
    pub(crate) fn usage(&self, usage: Usage) -> Value {
        self.with(true, Vec::new(), Some(usage))
    }

    fn chunk(&self, index: usize, delta: Value, finish: Option<&str>) -> Value {
        let choice = json!({ "index": index, "delta": delta, "logprobs": null, "finish_reason": finish });
        self.with(true, vec![choice], None)
    }
}

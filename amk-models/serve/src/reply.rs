//! Answers in the forms of OpenAI's API.

use crate::engine::EngineError;
use crate::error::ApiError;
use crate::logprobs::LogprobsForm;
use crate::tools::{Call, Part, Tools};
use amk_run::text::{Ended, Generated, PlacedLogprobs};
use serde_json::{Value, json};

/// The form of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Completion,
    Chat,
}

/// The fields that all parts of an answer share.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) form: Form,
    pub(crate) id: String,
    /// Seconds since 1970.
    pub(crate) created: u64,
    pub(crate) model: String,
    /// Where log-probabilities are asked for.
    pub(crate) logprobs: Option<LogprobsForm>,
    /// Where the answer may call them.
    pub(crate) tools: Option<Tools>,
    /// Whether a stream ends with the number of tokens.
    pub(crate) sends_usage: bool,
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
    pub(crate) prompt: usize,
    /// Prompt tokens that were reused from other texts.
    pub(crate) shared: usize,
    pub(crate) written: usize,
}

impl Usage {
    /// A text has ended. Texts of one prompt count it once.
    pub(crate) fn add(&mut self, generated: &Generated, first: bool) {
        if first {
            self.prompt += generated.prompt_tokens;
            self.shared += generated.prompt_tokens.saturating_sub(generated.prompt_run);
        }
        self.written += generated.tokens.len();
    }

    fn json(self) -> Value {
        let Self { prompt, shared, written } = self;
        json!({
            "prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written,
            "prompt_tokens_details": { "cached_tokens": shared },
        })
    }
}

/// The finish reason of a text.
fn finish(ended: Ended, called: bool) -> &'static str {
    match ended {
        Ended::StopToken | Ended::StopString | Ended::Grammar if called => "tool_calls",
        Ended::StopToken | Ended::StopString | Ended::Grammar => "stop",
        Ended::MaxTokens | Ended::MaxTime | Ended::ContextFull => "length",
    }
}

impl Head {
    /// The error for a text that is not generated, with the field at fault.
    pub(crate) fn error(&self, error: EngineError) -> ApiError {
        let prompt = match self.form {
            Form::Completion => "prompt",
            Form::Chat => "messages",
        };
        ApiError::of_engine(error, prompt)
    }

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
        if chunk && self.sends_usage {
            value["usage"] = Value::Null;
        }
        if let Some(usage) = usage {
            value["usage"] = usage.json();
        }
        value
    }

    /// The whole answer.
    pub(crate) fn whole(&self, texts: Vec<Written>, usage: Usage) -> Value {
        let of_text = |(index, Written { text, logprobs, ended }): (usize, Written)| {
            let (name, text, called) = match self.form {
                Form::Completion => ("text", json!(text), false),
                Form::Chat => {
                    let (message, called) = self.message(index, text);
                    ("message", message, called)
                }
            };
            self.with_logprobs(choice(index, name, text, Some(finish(ended, called))), index, &logprobs)
        };
        self.with(false, texts.into_iter().enumerate().map(of_text).collect(), Some(usage))
    }

    /// The message of a whole answer in a chat, and whether it calls a tool.
    fn message(&self, index: usize, text: String) -> (Value, bool) {
        let mut message = json!({ "role": "assistant", "content": text, "refusal": null });
        let Some(mut reader) = self.tools.as_ref().map(Tools::reader) else { return (message, false) };
        let mut parts = reader.push(&text);
        parts.extend(reader.finish());
        let (mut text, mut calls) = (String::new(), Vec::new());
        for part in parts {
            match part {
                Part::Text(more) => text.push_str(&more),
                Part::Call(call) => calls.push(self.call(index, calls.len(), &call)),
            }
        }
        message["content"] = if text.is_empty() && !calls.is_empty() { Value::Null } else { text.into() };
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        (message, reader.called())
    }

    /// A tool call, number `number` of its text.
    fn call(&self, index: usize, number: usize, Call { name, arguments }: &Call) -> Value {
        let id = format!("call_{}_{index}_{number}", self.id);
        json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
    }

    /// A chunk with a call of a tool.
    pub(crate) fn called(&self, index: usize, number: usize, call: &Call) -> Value {
        let mut call = self.call(index, number, call);
        call["index"] = number.into();
        self.with(true, vec![choice(index, "delta", json!({ "tool_calls": [call] }), None)], None)
    }

    /// The first chunk of a text in a chat, which names the role.
    pub(crate) fn role(&self, index: usize) -> Option<Value> {
        let choice = choice(index, "delta", json!({ "role": "assistant", "content": "", "refusal": null }), None);
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
    pub(crate) fn end(&self, index: usize, ended: Ended, called: bool) -> Value {
        let why = Some(finish(ended, called));
        let choice = match self.form {
            Form::Completion => choice(index, "text", json!(""), why),
            // It has no text, not an empty one.
            Form::Chat => choice(index, "delta", json!({}), why),
        };
        self.with(true, vec![choice], None)
    }

    /// The last chunk of a stream whose client requested the number of tokens.
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
fn choice(index: usize, name: &str, text: Value, why: Option<&str>) -> Value {
    json!({ "index": index, name: text, "logprobs": null, "finish_reason": why })
}

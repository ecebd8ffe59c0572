//! A line of a `.jsonl` file of prompts: a prompt and options of its own.

use amk_models::chat::{ChatTemplate, Content, Message};
use amk_serve::parameter::{self, ParameterError};
use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Fields of a request in OpenAI's API or vLLM's that a line cannot have: refused, so that nobody
/// takes a text for another.
const UNSUPPORTED: [&str; 6] = ["system", "logit_bias", "n", "logprobs", "response_format", "tools"];

/// The text or the messages to write after.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Line {
    Text(String),
    Prompt { prompt: String },
    Messages { messages: Vec<Turn> },
}

impl Line {
    /// A line of JSON, and its options.
    pub(super) fn parse(line: &str) -> Result<(Self, LineOptions)> {
        let form = "expected a string, {\"prompt\": ..} or {\"messages\": [{\"role\": .., \"content\": ..}]}";
        let value: Value = serde_json::from_str(line).context(form)?;
        if let Some(field) = UNSUPPORTED.into_iter().find(|field| !value[field].is_null()) {
            bail!("a line cannot set `{field}`");
        }
        if !value["prompt"].is_null() && !value["messages"].is_null() {
            bail!("a prompt and messages; give one of them");
        }
        let options = LineOptions::of(&value)?;
        match serde_json::from_value(value) {
            Ok(Self::Messages { messages }) if messages.is_empty() => bail!("no messages"),
            Ok(line) => Ok((line, options)),
            // The error of a form says nothing about the others.
            Err(_) => bail!(form),
        }
    }
}

/// A message of a conversation, as in OpenAI's API.
#[derive(Deserialize)]
pub(super) struct Turn {
    role: String,
    content: Content,
}

impl Turn {
    pub(super) fn message(self, template: &ChatTemplate) -> Result<Message> {
        Ok(Message::new(template.role(self.role)?, self.content.text()?))
    }
}

/// Options of a line, which count before the command's.
#[derive(Default)]
pub(crate) struct LineOptions {
    pub(crate) max_tokens: Option<usize>,
    pub(crate) stop: Option<Vec<String>>,
    pub(crate) ignore_eos: Option<bool>,
    pub(crate) temperature: Option<f32>,
    pub(crate) top_k: Option<u32>,
    pub(crate) top_p: Option<f32>,
    pub(crate) min_p: Option<f32>,
    pub(crate) repetition_penalty: Option<f32>,
    pub(crate) presence_penalty: Option<f32>,
    pub(crate) frequency_penalty: Option<f32>,
    pub(crate) seed: Option<u64>,
}

impl LineOptions {
    fn of(line: &Value) -> Result<Self> {
        let max_tokens = parameter(line, "max_tokens", parameter::max_tokens)?;
        Ok(Self {
            max_tokens: parameter(line, "max_completion_tokens", parameter::max_tokens)?.or(max_tokens),
            stop: parameter(line, "stop", parameter::stop)?,
            ignore_eos: field(line, "ignore_eos")?,
            temperature: field(line, "temperature")?,
            top_k: parameter(line, "top_k", parameter::top_k)?,
            top_p: parameter(line, "top_p", parameter::top_p)?,
            min_p: field(line, "min_p")?,
            repetition_penalty: field(line, "repetition_penalty")?,
            presence_penalty: field(line, "presence_penalty")?,
            frequency_penalty: field(line, "frequency_penalty")?,
            seed: parameter(line, "seed", parameter::seed)?,
        })
    }
}

/// A field of a line that `amk serve` reads too, if the line has it and it is not null.
fn parameter<T>(
    line: &Value,
    name: &'static str,
    read: impl FnOnce(&'static str, &Value) -> Result<T, ParameterError>,
) -> Result<Option<T>> {
    match &line[name] {
        Value::Null => Ok(None),
        value => Ok(Some(read(name, value)?)),
    }
}

/// A field of a line, if the line has it and it is not null.
fn field<T: DeserializeOwned>(line: &Value, name: &str) -> Result<Option<T>> {
    Option::deserialize(&line[name]).with_context(|| format!("`{name}`"))
}

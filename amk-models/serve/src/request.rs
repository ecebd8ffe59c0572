//! Requests for completions, as clients of OpenAI's API write them.

use crate::error::ApiError;
use crate::reply::Form;
use amk_models::chat::Message;
use amk_run::sampler::{Sampler, SamplerConfig};
use amk_run::text::Request;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};

/// Tokens of a completion that asks for no number, as in OpenAI's API.
const COMPLETION_TOKENS: usize = 16;
/// Texts of one request at most.
const MOST_CHOICES: usize = 128;
/// Stop strings of one request at most.
const MOST_STOPS: usize = 16;
/// Likely tokens whose log-probabilities a completion has at most.
const MOST_LOGPROBS: u64 = 5;
/// Those that an answer in a chat has at most.
const MOST_CHAT_LOGPROBS: u64 = 20;

/// A request for a completion or for an answer in a chat. Fields that steer nothing here, such as
/// `user`, are left alone.
#[derive(Debug, Deserialize)]
pub(crate) struct Completion {
    pub(crate) model: Option<String>,
    pub(crate) prompt: Option<PromptField>,
    pub(crate) messages: Option<Vec<Turn>>,
    max_tokens: Option<usize>,
    max_completion_tokens: Option<usize>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<usize>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    /// What is added to the logits of tokens, by their ids.
    logit_bias: Option<BTreeMap<String, f32>>,
    seed: Option<i64>,
    n: Option<usize>,
    stop: Option<OneOrMore<String>>,
    #[serde(default)]
    pub(crate) stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    /// A number in a completion, a boolean in a chat.
    logprobs: Option<Value>,
    top_logprobs: Option<Value>,
    // What is not there yet is refused, so that nobody takes an answer for another.
    tools: Option<Value>,
    response_format: Option<Value>,
    suffix: Option<Value>,
    echo: Option<bool>,
    best_of: Option<usize>,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

/// The prompt of a completion.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum PromptField {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    TokensOfTexts(Vec<Vec<u32>>),
}

/// A message of a chat.
#[derive(Debug, Deserialize)]
pub(crate) struct Turn {
    role: String,
    content: Option<Content>,
}

/// The content of a message.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMore<T> {
    One(T),
    More(Vec<T>),
}

impl Completion {
    /// Reads a body.
    ///
    /// # Errors
    /// What is wrong with it, for the client.
    pub(crate) fn read(body: &[u8]) -> Result<Self, ApiError> {
        let of_json = |error: serde_json::Error| ApiError::invalid(None, format!("the body is not a request: {error}"));
        let request: Self = serde_json::from_slice(body).map_err(of_json)?;
        request.refuse_what_is_not_there()?;
        Ok(request)
    }

    fn refuse_what_is_not_there(&self) -> Result<(), ApiError> {
        let given = |field: &Option<Value>| {
            field.as_ref().is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false)))
        };
        let not_empty = |field: &Option<Value>| {
            let empty = |value: &Value| {
                value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(serde_json::Map::is_empty)
            };
            given(field) && !field.as_ref().is_some_and(empty)
        };
        let of_text = |format: &Value| format.get("type").and_then(Value::as_str) == Some("text");
        let fields = [
            ("tools", not_empty(&self.tools)),
            ("response_format", given(&self.response_format) && !self.response_format.as_ref().is_some_and(of_text)),
            ("suffix", given(&self.suffix)),
            ("echo", self.echo == Some(true)),
            ("best_of", self.best_of.is_some_and(|best| best > 1)),
        ];
        match fields.into_iter().find(|(_, given)| *given) {
            Some((field, _)) => Err(ApiError::invalid(field, format!("`{field}` is not supported"))),
            None => Ok(()),
        }
    }

    /// Texts for each prompt.
    ///
    /// # Errors
    /// When it is 0 or too many.
    pub(crate) fn choices(&self) -> Result<usize, ApiError> {
        let count = self.n.unwrap_or(1);
        if count == 0 || count > MOST_CHOICES {
            return Err(ApiError::invalid("n", format!("`n` is {count}, expected 1 to {MOST_CHOICES}")));
        }
        Ok(count)
    }

    /// Whether a stream ends with the number of tokens.
    pub(crate) fn streams_usage(&self) -> bool {
        self.stream_options.as_ref().and_then(|options| options.include_usage) == Some(true)
    }

    /// How many likely tokens have their log-probabilities beside each token's own, if any have.
    ///
    /// # Errors
    /// Too many, or what is of the other form.
    fn logprobs(&self, form: Form) -> Result<Option<usize>, ApiError> {
        match form {
            Form::Completion if self.top_logprobs.is_some() => {
                let message = format!("`top_logprobs` is for chats; a completion has `logprobs`, 0 to {MOST_LOGPROBS}");
                Err(ApiError::invalid("top_logprobs", message))
            }
            Form::Completion => {
                let top = self.logprobs.as_ref().filter(|top| **top != Value::Bool(false));
                top.map(|top| number("logprobs", top, MOST_LOGPROBS)).transpose()
            }
            Form::Chat => self.chat_logprobs(),
        }
    }

    fn chat_logprobs(&self) -> Result<Option<usize>, ApiError> {
        let asked = match &self.logprobs {
            None => false,
            Some(Value::Bool(asked)) => *asked,
            Some(other) => {
                return Err(ApiError::invalid("logprobs", format!("`logprobs` is {other}, expected true or false")));
            }
        };
        let top = self.top_logprobs.as_ref().map(|top| number("top_logprobs", top, MOST_CHAT_LOGPROBS)).transpose()?;
        match top.unwrap_or(0) {
            1.. if !asked => Err(ApiError::invalid("top_logprobs", "`top_logprobs` needs `logprobs` to be true")),
            top => Ok(asked.then_some(top)),
        }
    }

    /// The biases of tokens, of which there are so many.
    fn biases(&self, tokens: usize) -> Result<BTreeMap<u32, f32>, ApiError> {
        let parse = |(id, &bias): (&String, &f32)| {
            let token = id.parse().ok().filter(|&token: &u32| (token as usize) < tokens);
            let unknown = || format!("`logit_bias` has `{id}`, expected the id of one of {tokens} tokens");
            Ok((token.ok_or_else(|| ApiError::invalid("logit_bias", unknown()))?, bias))
        };
        self.logit_bias.iter().flatten().map(parse).collect()
    }

    /// How each text is written, over the model's own way, with so many tokens.
    ///
    /// # Errors
    /// Parameters out of range.
    pub(crate) fn request(&self, own: &Request, form: Form, tokens: usize) -> Result<Request, ApiError> {
        let stop_strings = self.stop_strings()?;
        let sampler = self.sampler(&own.sampler, tokens)?;
        let most = (form == Form::Completion).then_some(COMPLETION_TOKENS);
        let asked = self.max_completion_tokens.or(self.max_tokens).or(most);
        if asked == Some(0) {
            return Err(ApiError::invalid("max_tokens", "`max_tokens` is 0, expected at least 1"));
        }
        Ok(Request { sampler, max_tokens: asked, stop_strings, logprobs: self.logprobs(form)?, ..own.clone() })
    }

    fn stop_strings(&self) -> Result<Vec<String>, ApiError> {
        let stops = match &self.stop {
            None => Vec::new(),
            Some(OneOrMore::One(stop)) => vec![stop.clone()],
            Some(OneOrMore::More(stops)) => stops.clone(),
        };
        if stops.len() > MOST_STOPS || stops.iter().any(String::is_empty) {
            let message = format!("`stop` takes up to {MOST_STOPS} texts, none of them empty");
            return Err(ApiError::invalid("stop", message));
        }
        Ok(stops)
    }

    fn sampler(&self, own: &SamplerConfig, tokens: usize) -> Result<SamplerConfig, ApiError> {
        let temperature = self.temperature.unwrap_or(own.temperature);
        let base = if temperature == 0.0 { SamplerConfig::default() } else { own.clone() };
        let sampler = SamplerConfig {
            temperature,
            top_k: self.top_k.unwrap_or(base.top_k),
            top_p: self.top_p.unwrap_or(base.top_p),
            min_p: self.min_p.unwrap_or(base.min_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(own.repetition_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(own.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(own.frequency_penalty),
            logit_bias: if self.logit_bias.is_some() { self.biases(tokens)? } else { own.logit_bias.clone() },
            seed: self.seed.map_or_else(|| RandomState::new().build_hasher().finish(), i64::cast_unsigned),
        };
        Sampler::new(sampler.clone()).map_err(|error| ApiError::invalid(None, error.to_string()))?;
        Ok(sampler)
    }
}

/// A field that is a number up to `most`.
fn number(field: &'static str, value: &Value, most: u64) -> Result<usize, ApiError> {
    let number = value.as_u64().filter(|&number| number <= most).and_then(|number| usize::try_from(number).ok());
    number.ok_or_else(|| ApiError::invalid(field, format!("`{field}` is {value}, expected 0 to {most}")))
}

impl Turn {
    /// The message, as chat templates take it.
    ///
    /// # Errors
    /// Content that is not text.
    pub(crate) fn message(self) -> Result<Message, ApiError> {
        let content = match self.content {
            None => String::new(),
            Some(Content::Text(text)) => text,
            Some(Content::Parts(parts)) => {
                let text = |part: Part| match part {
                    Part { kind, text: Some(text) } if kind == "text" => Ok(text),
                    Part { kind, .. } => {
                        Err(ApiError::invalid("messages", format!("content of type `{kind}` is not supported")))
                    }
                };
                parts.into_iter().map(text).collect::<Result<_, _>>()?
            }
        };
        // OpenAI's newer name of the same role.
        let role = if self.role == "developer" { "system".to_owned() } else { self.role };
        Ok(Message { role, content })
    }
}

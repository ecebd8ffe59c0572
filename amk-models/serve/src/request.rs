//! Requests for completions, as clients of OpenAI's API write them.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::language::LanguageFields;
use crate::parameter::{max_tokens, seed, stop, top_k, top_p};
use crate::reply::Form;
use crate::tools::ToolFields;
use crate::turn::Turn;
use amk_run::sampler::{Sampler, SamplerConfig, SamplerError};
use amk_run::text::Request;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::ops::RangeInclusive;

/// Default number of tokens of a completion, as in OpenAI's API.
const COMPLETION_TOKENS: usize = 16;
/// Texts of one request at most.
const MOST_CHOICES: u64 = 128;
/// Maximum number of likely tokens whose log-probabilities a completion returns.
const MOST_LOGPROBS: u64 = 5;
/// Those that an answer in a chat has at most.
const MOST_CHAT_LOGPROBS: u64 = 20;

/// Unsupported fields: refused, so that no one mistakes the answer for another.
const NOT_THERE: [&str; 16] = [
    "suffix",
    "echo",
    "functions",
    "function_call",
    "audio",
    // Fields of vLLM, whose `guided_` fields are supported.
    "structured_outputs",
    "continue_final_message",
    "stop_token_ids",
    "allowed_token_ids",
    "bad_words",
    "include_stop_str_in_output",
    "truncate_prompt_tokens",
    "prompt_logprobs",
    "use_beam_search",
    "chat_template",
    "documents",
];
/// Fields of vLLM that are refused if false.
const ALWAYS: [&str; 2] = ["add_generation_prompt", "skip_special_tokens"];

/// A request for a completion or for an answer in a chat. Fields without an effect here, such as
/// `user`, are ignored.
#[derive(Debug)]
pub(crate) struct Completion {
    pub(crate) model: Option<String>,
    pub(crate) prompt: Option<PromptField>,
    pub(crate) messages: Option<Vec<Turn>>,
    pub(crate) language: LanguageFields,
    pub(crate) tools: ToolFields,
    /// Further variables of the chat template.
    pub(crate) variables: Option<Map<String, Value>>,
    max_tokens: Option<usize>,
    max_completion_tokens: Option<usize>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<u32>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    /// The values added to the logits of tokens, by their ids.
    logit_bias: Option<BTreeMap<String, f32>>,
    seed: Option<u64>,
    n: Option<Value>,
    stop: Vec<String>,
    /// Whether a text continues after the model's end-of-text token.
    ignore_eos: Option<bool>,
    pub(crate) stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    /// A number in a completion, a boolean in a chat.
    logprobs: Option<Value>,
    top_logprobs: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct StreamOptions {
    include_usage: Option<bool>,
}

/// The prompt of a completion.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a text, texts, or their token ids")]
pub(crate) enum PromptField {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    TokensOfTexts(Vec<Vec<u32>>),
}

impl Completion {
    /// Reads a body.
    ///
    /// # Errors
    /// The defect of the body, for the client.
    pub(crate) fn read(body: &[u8]) -> Result<Self, ApiError> {
        let fields = &mut Fields::read(body)?;
        if let Some(field) = NOT_THERE.into_iter().find(|field| fields.asks(field)) {
            return Err(ApiError::invalid(field, format!("`{field}` is not supported")));
        }
        for field in ALWAYS {
            if fields.take(field)? == Some(false) {
                return Err(ApiError::invalid(field, format!("`{field}` is not supported where it is false")));
            }
        }
        if fields.take("best_of")?.is_some_and(|best: usize| best > 1) {
            return Err(ApiError::invalid("best_of", "`best_of` is not supported"));
        }
        if fields.take("min_tokens")?.is_some_and(|least: usize| least > 0) {
            return Err(ApiError::invalid("min_tokens", "`min_tokens` is not supported"));
        }
        let modalities: Option<Vec<String>> = fields.take("modalities")?;
        if let Some(other) = modalities.iter().flatten().find(|modality| *modality != "text") {
            return Err(ApiError::invalid("modalities", format!("`modalities` has `{other}`, expected `text` alone")));
        }
        let stream = fields.take("stream")?;
        let stream_options = fields.take("stream_options")?;
        if stream != Some(true) && stream_options.is_some() {
            return Err(ApiError::invalid("stream_options", "`stream_options` needs `stream` to be true"));
        }
        Ok(Self {
            model: fields.take("model")?,
            prompt: fields.take("prompt")?,
            messages: fields.take("messages")?,
            language: LanguageFields::read(fields)?,
            tools: ToolFields::read(fields)?,
            variables: fields.take("chat_template_kwargs")?,
            max_tokens: fields.parameter("max_tokens", max_tokens)?,
            max_completion_tokens: fields.parameter("max_completion_tokens", max_tokens)?,
            temperature: fields.take("temperature")?,
            top_p: fields.parameter("top_p", top_p)?,
            top_k: fields.parameter("top_k", top_k)?,
            min_p: fields.take("min_p")?,
            repetition_penalty: fields.take("repetition_penalty")?,
            presence_penalty: fields.take("presence_penalty")?,
            frequency_penalty: fields.take("frequency_penalty")?,
            logit_bias: fields.take("logit_bias")?,
            seed: fields.parameter("seed", seed)?,
            n: fields.take("n")?,
            stop: fields.parameter("stop", stop)?.unwrap_or_default(),
            ignore_eos: fields.take("ignore_eos")?,
            stream,
            stream_options,
            logprobs: fields.take("logprobs")?,
            top_logprobs: fields.take("top_logprobs")?,
        })
    }

    /// Texts for each prompt.
    ///
    /// # Errors
    /// If it is 0 or too many.
    pub(crate) fn choices(&self) -> Result<usize, ApiError> {
        self.n.as_ref().map_or(Ok(1), |count| number("n", count, 1..=MOST_CHOICES))
    }

    /// Whether a stream ends with the number of tokens.
    pub(crate) fn streams_usage(&self) -> bool {
        self.stream_options.as_ref().and_then(|options| options.include_usage) == Some(true)
    }

    /// The number of likely tokens whose log-probabilities accompany each token's own, if
    /// requested.
    ///
    /// # Errors
    /// Too many, or fields of the other form.
    fn logprobs(&self, form: Form) -> Result<Option<usize>, ApiError> {
        match form {
            Form::Completion if self.top_logprobs.is_some() => {
                let message = format!("`top_logprobs` is for chats; a completion has `logprobs`, 0 to {MOST_LOGPROBS}");
                Err(ApiError::invalid("top_logprobs", message))
            }
            Form::Completion => {
                let top = self.logprobs.as_ref().filter(|top| **top != Value::Bool(false));
                top.map(|top| number("logprobs", top, 0..=MOST_LOGPROBS)).transpose()
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
        let top = self.top_logprobs.as_ref().map(|top| number("top_logprobs", top, 0..=MOST_CHAT_LOGPROBS));
        let top = top.transpose()?;
        match top.unwrap_or(0) {
            1.. if !asked => Err(ApiError::invalid("top_logprobs", "`top_logprobs` needs `logprobs` to be true")),
            top => Ok(asked.then_some(top)),
        }
    }

    /// The biases of tokens, in a vocabulary of this size.
    fn biases(&self, tokens: usize) -> Result<BTreeMap<u32, f32>, ApiError> {
        let parse = |(id, &bias): (&String, &f32)| {
            let token = id.parse().ok().filter(|&token: &u32| (token as usize) < tokens);
            let unknown = || format!("`logit_bias` has `{id}`, expected the id of one of {tokens} tokens");
            Ok((token.ok_or_else(|| ApiError::invalid("logit_bias", unknown()))?, bias))
        };
        self.logit_bias.iter().flatten().map(parse).collect()
    }

    /// Returns how each text is generated: the model's own settings, overridden by the request's,
    /// with `tokens` tokens.
    ///
    /// # Errors
    /// Parameters out of range.
    pub(crate) fn request(&self, own: &Request, form: Form, tokens: usize) -> Result<Request, ApiError> {
        let sampler = self.sampler(&own.sampler, tokens)?;
        let most = (form == Form::Completion).then_some(COMPLETION_TOKENS);
        let asked = self.max_completion_tokens.or(self.max_tokens).or(most);
        let max_tokens = asked.into_iter().chain(own.max_tokens).min();
        let (logprobs, continues) = (self.logprobs(form)?, form == Form::Completion);
        let stop_tokens = if self.ignore_eos == Some(true) { Vec::new() } else { own.stop_tokens.clone() };
        let stop_strings = self.stop.clone();
        Ok(Request { sampler, max_tokens, stop_strings, stop_tokens, logprobs, continues, ..own.clone() })
    }

    fn sampler(&self, own: &SamplerConfig, tokens: usize) -> Result<SamplerConfig, ApiError> {
        let temperature = self.temperature.unwrap_or(own.temperature);
        let base = if temperature == 0.0 { SamplerConfig::default() } else { own.clone() };
        let sampler = SamplerConfig {
            temperature,
            top_k: self.top_k.map_or(base.top_k, |top| top as usize),
            top_p: self.top_p.unwrap_or(base.top_p),
            min_p: self.min_p.unwrap_or(base.min_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(own.repetition_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(own.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(own.frequency_penalty),
            logit_bias: if self.logit_bias.is_some() { self.biases(tokens)? } else { own.logit_bias.clone() },
            seed: self.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish()),
        };
        Sampler::new(sampler.clone()).map_err(of_sampler)?;
        Ok(sampler)
    }
}

/// The error of a parameter, with the name of its field.
fn of_sampler(error: SamplerError) -> ApiError {
    const FIELDS: [(&str, &str); 7] = [
        ("temperature", "temperature"),
        ("top-p", "top_p"),
        ("min-p", "min_p"),
        ("repetition penalty", "repetition_penalty"),
        ("presence penalty", "presence_penalty"),
        ("frequency penalty", "frequency_penalty"),
        ("logit bias", "logit_bias"),
    ];
    let field = match error {
        SamplerError::Parameter { parameter, .. } => FIELDS.into_iter().find(|(name, _)| *name == parameter),
        _ => None,
    };
    ApiError::invalid(field.map(|(_, field)| field), error.to_string())
}

/// A field that is a number in a range.
fn number(field: &'static str, value: &Value, range: RangeInclusive<u64>) -> Result<usize, ApiError> {
    let number = value.as_u64().filter(|number| range.contains(number)).and_then(|number| usize::try_from(number).ok());
    let expected = || format!("`{field}` is {value}, expected {} to {}", range.start(), range.end());
    number.ok_or_else(|| ApiError::invalid(field, expected()))
}

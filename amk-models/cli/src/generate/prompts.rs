//! The prompts of `amk generate`.

use super::Generate;
use crate::options::read_prompt;
use amk_models::chat::{ChatOptions, ChatTemplate, Content, Message};
use amk_models::checkpoint::Checkpoint;
use amk_models::tokenizer::SpecialTokens;
use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;

/// Fields of a request that are options here, for all prompts: refused in a line, so that nobody
/// takes an answer for another.
const OPTIONS: [&str; 18] = [
    "system",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "seed",
    "n",
    "stop",
    "ignore_eos",
    "logprobs",
    "response_format",
    "tools",
];

/// A prompt, as written and as the model gets it.
pub(super) struct Prompt {
    pub(super) text: String,
    pub(super) tokens: Vec<u32>,
    place: Option<Place>,
}

impl Prompt {
    /// Has an error name the line of the prompt, if it is from a file.
    pub(super) fn placed<T>(&self, result: Result<T>) -> Result<T> {
        placed(self.place.as_ref(), result)
    }
}

/// Where a prompt is in the file of `--prompts`, in words.
type Place = String;

fn placed<T>(place: Option<&Place>, result: Result<T>) -> Result<T> {
    match place {
        Some(place) => result.with_context(|| place.clone()),
        None => result,
    }
}

/// A line of a `.jsonl` file.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Text(String),
    Prompt { prompt: String },
    Messages { messages: Vec<Turn> },
}

/// A message of a conversation, as in OpenAI's API.
#[derive(Deserialize)]
struct Turn {
    role: String,
    content: Content,
}

impl Turn {
    fn message(self, template: &ChatTemplate) -> Result<Message> {
        Ok(Message::new(template.role(self.role)?, self.content.text()?))
    }
}

impl Generate {
    /// All prompts, one at least.
    pub(super) fn all_prompts(&self, checkpoint: &Checkpoint) -> Result<Vec<Prompt>> {
        let alone = |text: String| vec![(None, Line::Text(text))];
        let lines = match (&self.prompts, &self.prompt, &self.file) {
            (Some(file), ..) => read(file)?,
            (None, Some(text), _) if text == "-" => alone(read_prompt(Path::new("-"))?),
            (None, Some(text), _) => alone(text.clone()),
            (None, None, Some(file)) => alone(read_prompt(file)?),
            (None, None, None) => Vec::new(),
        };
        if lines.is_empty() {
            bail!("there is no prompt in the file of --prompts");
        }
        let chat = self.template(checkpoint)?.is_some();
        if chat
            && !self.chat
            && self.system.is_none()
            && lines.iter().any(|(_, line)| !matches!(line, Line::Messages { .. }))
        {
            self.tell("the model answers the prompt by its chat template; --raw goes on from the prompt itself");
        }
        let encode = |(place, line): (Option<Place>, Line)| {
            let (text, tokens) = placed(place.as_ref(), self.encode(checkpoint, line))?;
            Ok(Prompt { text, tokens, place })
        };
        lines.into_iter().map(encode).collect()
    }

    /// The text of a prompt and its tokens.
    fn encode(&self, checkpoint: &Checkpoint, line: Line) -> Result<(String, Vec<u32>)> {
        let tokenizer = checkpoint.tokenizer()?;
        let system = self.system.iter().map(|system| Message::new("system", system));
        let (text, messages): (String, Vec<Message>) = match line {
            Line::Text(text) | Line::Prompt { prompt: text } => {
                (text.clone(), system.chain([Message::new("user", text)]).collect())
            }
            Line::Messages { messages } => {
                let Some(template) = self.template(checkpoint)? else {
                    bail!("{} has no chat template for messages, or --raw leaves it out", checkpoint.path.display());
                };
                let messages: Vec<Message> =
                    messages.into_iter().map(|turn| turn.message(template)).collect::<Result<_>>()?;
                let text = messages.last().map_or_else(String::new, |last| last.content.clone());
                (text, system.chain(messages).collect())
            }
        };
        let Some(template) = self.template(checkpoint)? else {
            let tokens = tokenizer.encode(&text, SpecialTokens::Add)?;
            return Ok((text, tokens));
        };
        let options = ChatOptions::answer();
        let rendered = template.render(&messages, &options).with_context(|| checkpoint.path.display().to_string())?;
        Ok((text, tokenizer.encode(&rendered, SpecialTokens::AsWritten)?))
    }
}

/// A text without the byte-order mark that some editors begin files with.
pub(super) fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// The prompts of a file; empty lines are none.
fn read(file: &Path) -> Result<Vec<(Option<Place>, Line)>> {
    let text = if file == Path::new("-") {
        std::io::read_to_string(std::io::stdin()).context("cannot read the prompts on standard input")?
    } else {
        std::fs::read_to_string(file).with_context(|| format!("cannot read the prompts {}", file.display()))?
    };
    let name = if file == Path::new("-") { "standard input".to_owned() } else { file.display().to_string() };
    let lines = without_mark(&text).lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
    let lines = lines.map(|(line, number): (&str, usize)| (format!("{name}, line {number}"), line));
    if file.extension().is_none_or(|extension| extension != "jsonl") {
        return Ok(lines.map(|(place, line)| (Some(place), Line::Text(line.to_owned()))).collect());
    }
    let parse = |(place, line): (Place, &str)| {
        let form = "a string, {\"prompt\": ..} or {\"messages\": [{\"role\": .., \"content\": ..}]}";
        let value: Value = serde_json::from_str(line).with_context(|| format!("{place} is not {form}"))?;
        if let Some(field) = OPTIONS.into_iter().find(|field| !value[field].is_null()) {
            bail!("{place} has `{field}`, which a line does not set; options are for all prompts");
        }
        if !value["prompt"].is_null() && !value["messages"].is_null() {
            bail!("{place} has a prompt and messages; give one of them");
        }
        match serde_json::from_value(value) {
            Ok(Line::Messages { messages }) if messages.is_empty() => bail!("{place} has no messages"),
            Ok(line) => Ok((Some(place), line)),
            // The error of a form says nothing about the others.
            Err(_) => bail!("{place} is not {form}"),
        }
    };
    lines.map(parse).collect()
}

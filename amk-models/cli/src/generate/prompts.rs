//! The prompts of `amk generate`.

use super::Generate;
use crate::options::read_prompt;
use amk_models::chat::{ChatOptions, Content, ContentError, Message};
use amk_models::checkpoint::Checkpoint;
use amk_models::tokenizer::SpecialTokens;
use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;

/// A prompt, as written and as the model gets it.
pub(super) struct Prompt {
    pub(super) text: String,
    pub(super) tokens: Vec<u32>,
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
    fn message(self) -> Result<Message, ContentError> {
        Ok(Message::new(self.role, self.content.text()?))
    }
}

impl Generate {
    /// All prompts, one at least.
    pub(super) fn all_prompts(&self, checkpoint: &Checkpoint) -> Result<Vec<Prompt>> {
        let lines = match (&self.prompts, &self.prompt) {
            (Some(file), _) => read(file)?,
            (None, Some(text)) if text == "-" => vec![Line::Text(read_prompt(Path::new("-"))?)],
            (None, Some(text)) => vec![Line::Text(text.clone())],
            (None, None) => self.file.iter().map(|file| read_prompt(file).map(Line::Text)).collect::<Result<_>>()?,
        };
        if lines.is_empty() {
            bail!("there is no prompt in the file of --prompts");
        }
        let chat = self.template(checkpoint)?.is_some();
        if chat
            && !self.chat
            && self.system.is_none()
            && lines.iter().any(|line| !matches!(line, Line::Messages { .. }))
        {
            self.tell("the model answers the prompt by its chat template; --raw goes on from the prompt itself");
        }
        lines.into_iter().map(|line| self.encode(checkpoint, line)).collect()
    }

    fn encode(&self, checkpoint: &Checkpoint, line: Line) -> Result<Prompt> {
        let tokenizer = checkpoint.tokenizer()?;
        let system = self.system.iter().map(|system| Message::new("system", system));
        let (text, messages): (String, Vec<Message>) = match line {
            Line::Text(text) | Line::Prompt { prompt: text } => {
                (text.clone(), system.chain([Message::new("user", text)]).collect())
            }
            Line::Messages { messages } => {
                let messages: Vec<Message> = messages.into_iter().map(Turn::message).collect::<Result<_, _>>()?;
                let text = messages.last().map_or_else(String::new, |last| last.content.clone());
                if self.template(checkpoint)?.is_none() {
                    bail!("{} has no chat template for messages, or --raw leaves it out", checkpoint.path.display());
                }
                (text, system.chain(messages).collect())
            }
        };
        let Some(template) = self.template(checkpoint)? else {
            return Ok(Prompt { tokens: tokenizer.encode(&text, SpecialTokens::Add)?, text });
        };
        let options = ChatOptions::answer();
        let rendered = template.render(&messages, &options).with_context(|| checkpoint.path.display().to_string())?;
        Ok(Prompt { tokens: tokenizer.encode(&rendered, SpecialTokens::AsWritten)?, text })
    }
}

/// A text without the byte-order mark that some editors begin files with.
pub(super) fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// The prompts of a file; empty lines are none.
fn read(file: &Path) -> Result<Vec<Line>> {
    let text = if file == Path::new("-") {
        std::io::read_to_string(std::io::stdin()).context("cannot read the prompts on standard input")?
    } else {
        std::fs::read_to_string(file).with_context(|| format!("cannot read the prompts {}", file.display()))?
    };
    let lines = without_mark(&text).lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    if file.extension().is_none_or(|extension| extension != "jsonl") {
        return Ok(lines.map(|(_, line)| Line::Text(line.to_owned())).collect());
    }
    let parse = |(number, line): (usize, &str)| {
        let place = format!("{}, line {}", file.display(), number + 1);
        let form = "a string, {\"prompt\": ..} or {\"messages\": [{\"role\": .., \"content\": ..}]}";
        let value: Value = serde_json::from_str(line).with_context(|| format!("{place} is not {form}"))?;
        match serde_json::from_value(value) {
            Ok(Line::Messages { messages }) if messages.is_empty() => bail!("{place} has no messages"),
            Ok(line) => Ok(line),
            // The error of a form says nothing about the others.
            Err(_) => bail!("{place} is not {form}"),
        }
    };
    lines.map(parse).collect()
}

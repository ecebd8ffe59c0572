//! The prompts of `amk generate`.

use super::Generate;
use super::line::{Line, LineOptions};
use crate::options::read_prompt;
use amk_models::chat::{ChatOptions, Message};
use amk_models::checkpoint::Checkpoint;
use amk_models::tokenizer::SpecialTokens;
use anyhow::{Context as _, Result, bail};
use std::path::Path;

/// A prompt, as written and as the model gets it.
pub(super) struct Prompt {
    pub(super) text: String,
    pub(super) tokens: Vec<u32>,
    pub(super) options: LineOptions,
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

/// A line of the file, where it is, or a prompt alone.
type Written = (Option<Place>, Line, LineOptions);

fn placed<T>(place: Option<&Place>, result: Result<T>) -> Result<T> {
    match place {
        Some(place) => result.with_context(|| place.clone()),
        None => result,
    }
}

impl Generate {
    /// All prompts, one at least.
    pub(super) fn all_prompts(&self, checkpoint: &Checkpoint) -> Result<Vec<Prompt>> {
        let alone = |text: String| vec![(None, Line::Text(text), LineOptions::default())];
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
            && lines.iter().any(|(_, line, _)| !matches!(line, Line::Messages { .. }))
        {
            self.tell("the model answers the prompt by its chat template; --raw goes on from the prompt itself");
        }
        let encode = |(place, line, options): Written| {
            let (text, tokens) = placed(place.as_ref(), self.encode(checkpoint, line))?;
            Ok(Prompt { text, tokens, options, place })
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
fn read(file: &Path) -> Result<Vec<Written>> {
    let text = if file == Path::new("-") {
        std::io::read_to_string(std::io::stdin()).context("cannot read the prompts on standard input")?
    } else {
        std::fs::read_to_string(file).with_context(|| format!("cannot read the prompts {}", file.display()))?
    };
    let name = if file == Path::new("-") { "standard input".to_owned() } else { file.display().to_string() };
    let lines = without_mark(&text).lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
    let lines = lines.map(|(line, number): (&str, usize)| (format!("{name}, line {number}"), line));
    if file.extension().is_none_or(|extension| extension != "jsonl") {
        let text = |(place, line): (Place, &str)| (Some(place), Line::Text(line.to_owned()), LineOptions::default());
        return Ok(lines.map(text).collect());
    }
    let parse = |(place, line): (Place, &str)| {
        let (line, options) = Line::parse(line).with_context(|| place.clone())?;
        Ok((Some(place), line, options))
    };
    lines.map(parse).collect()
}

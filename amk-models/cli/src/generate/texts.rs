//! What `amk generate` prints: the texts in the order of their prompts, each as soon as it comes.

use super::prompts::Prompt;
use crate::options::{DIM, paint, progress_bar, tell, write};
use amk::rows::PoolSize;
use amk_models::tokenizer::Tokenizer;
use amk_run::sampler::{Logprob, SamplerError};
use amk_run::text::{Ended, Generated, Piece, Request};
use indicatif::ProgressBar;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::io;

/// Texts on their way to standard output.
pub(super) struct Texts<'p> {
    prompts: &'p [Prompt],
    tokenizer: &'p Tokenizer,
    context: usize,
    json: bool,
    quiet: bool,
    /// The text that is shown now.
    shown: usize,
    /// Texts whose heading is there.
    headed: usize,
    /// Texts that are not shown yet, and what became of them if they have ended.
    kept: Vec<(String, Option<Result<Generated, SamplerError>>)>,
    /// The log-probabilities of the tokens of each text, where they are asked for.
    logprobs: Vec<Vec<Logprob>>,
    bar: Option<ProgressBar>,
}

impl<'p> Texts<'p> {
    pub(super) fn new(
        prompts: &'p [Prompt],
        tokenizer: &'p Tokenizer,
        context: usize,
        json: bool,
        quiet: bool,
    ) -> Self {
        let kept = prompts.iter().map(|_| (String::new(), None)).collect();
        let logprobs = vec![Vec::new(); prompts.len()];
        Self { prompts, tokenizer, context, json, quiet, shown: 0, headed: 0, kept, logprobs, bar: None }
    }

    pub(super) fn prompts(&self) -> &'p [Prompt] {
        self.prompts
    }

    /// Pages for this many of the longest texts at a time.
    pub(super) fn pages(&self, parallel: usize, requests: &[Request]) -> PoolSize {
        let len = |(prompt, request): (&Prompt, &Request)| {
            let tokens = request.max_tokens.map_or(self.context, |most| prompt.tokens.len().saturating_add(most));
            tokens.min(self.context)
        };
        let mut lens: Vec<usize> = self.prompts.iter().zip(requests).map(len).collect();
        lens.sort_unstable_by_key(|&len| Reverse(len));
        lens.truncate(parallel);
        PoolSize::Sequences(lens)
    }

    /// The prompt of a text goes on.
    pub(super) fn prompt(&mut self, number: usize, done: usize, of: usize) {
        if number == self.shown && !self.json {
            let bar = self.bar.get_or_insert_with(|| progress_bar("prompt", self.quiet));
            bar.set_position((100 * done / of.max(1)) as u64);
        }
    }

    /// There is more of a text.
    pub(super) fn text(&mut self, number: usize, Piece { text, logprobs }: Piece<'_>) -> io::Result<()> {
        self.logprobs[number].extend(logprobs.iter().map(|token| token.logprobs.chosen));
        if number == self.shown && !self.json {
            self.begin()?;
            return write(text);
        }
        self.kept[number].0.push_str(text);
        Ok(())
    }

    /// A text has ended, or failed.
    pub(super) fn ended(&mut self, number: usize, ended: Result<Generated, SamplerError>) -> io::Result<()> {
        self.kept[number].1 = Some(ended);
        while let Some((text, ended)) = self.kept.get_mut(self.shown)
            && let Some(ended) = ended.take()
        {
            let text = core::mem::take(text);
            if self.json {
                write(&format!("{}\n", self.line(self.shown, &text, ended.as_ref())))?;
            } else {
                self.begin()?;
                write(&text)?;
                write("\n")?;
                if let Ok(generated) = &ended {
                    self.tell(&summary(generated, self.context));
                }
            }
            self.shown += 1;
        }
        // The next one shows what it has so far.
        if let Some((text, _)) = self.kept.get_mut(self.shown).filter(|(text, _)| !text.is_empty() && !self.json) {
            let text = core::mem::take(text);
            self.begin()?;
            write(&text)?;
        }
        Ok(())
    }

    /// The heading of the text that is shown, once, where there are several.
    fn begin(&mut self) -> io::Result<()> {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        if self.prompts.len() > 1 && self.headed <= self.shown {
            self.headed = self.shown + 1;
            let prompt = self.prompts[self.shown].text.lines().next().unwrap_or_default();
            write(&format!("{}== {}: {prompt}\n", if self.shown > 0 { "\n" } else { "" }, self.shown + 1))?;
        }
        Ok(())
    }

    fn line(&self, number: usize, text: &str, ended: Result<&Generated, &SamplerError>) -> String {
        let Prompt { text: prompt, .. } = &self.prompts[number];
        let generated = match ended {
            Ok(generated) => generated,
            Err(error) => {
                let error = error.to_string();
                return json!({ "index": number, "prompt": prompt, "text": text, "error": error }).to_string();
            }
        };
        let ended = match generated.ended {
            Ended::StopToken | Ended::StopString | Ended::Grammar => "stop",
            Ended::MaxTokens | Ended::MaxTime | Ended::ContextFull => "length",
        };
        let usage = json!({ "prompt_tokens": generated.prompt_tokens, "completion_tokens": generated.tokens.len() });
        let timings = json!({
            "prompt_tokens": generated.prompt_run, "prompt_seconds": generated.prompt_time.as_secs_f64(),
            "tokens": generated.decoded, "seconds": generated.decode_time.as_secs_f64(),
        });
        let line = json!({
            "index": number, "prompt": prompt, "text": text, "finish_reason": ended, "usage": usage,
            "tokens": self.tokens(number, generated), "timings": timings,
        });
        line.to_string()
    }

    /// The tokens of a text, with their log-probabilities where they are asked for.
    fn tokens(&self, number: usize, generated: &Generated) -> Vec<Value> {
        let bytes = |token: u32| self.tokenizer.bytes(token).unwrap_or_default();
        let token = |id: u32| json!({ "id": id, "token": String::from_utf8_lossy(&bytes(id)) });
        match self.logprobs[number].as_slice() {
            [] => generated.tokens.iter().map(|&id| token(id)).collect(),
            chosen => chosen.iter().map(|one| with_logprob(token(one.token), one.logprob)).collect(),
        }
    }

    fn tell(&self, what: &str) {
        if !self.quiet {
            tell(&paint(&format!("[{what}]"), DIM));
        }
    }
}

fn with_logprob(mut token: Value, logprob: f64) -> Value {
    token["logprob"] = logprob.into();
    token
}

/// How much was written, how fast, and why it ended.
fn summary(generated: &Generated, context: usize) -> String {
    let tokens = |count: usize, rate: Option<f64>| {
        let plural = if count == 1 { "" } else { "s" };
        let rate = rate.map_or_else(String::new, |rate| format!(" at {rate:.1} a second"));
        format!("{count} token{plural}{rate}")
    };
    let ended = match generated.ended {
        Ended::StopToken => "the model ended the text".to_owned(),
        Ended::StopString => "stopped at a --stop text".to_owned(),
        Ended::Grammar => "the text of the grammar is complete".to_owned(),
        Ended::MaxTokens => format!("stopped at the limit of {}; -n raises it", tokens(generated.tokens.len(), None)),
        Ended::MaxTime => "stopped at the end of its time".to_owned(),
        Ended::ContextFull => format!("stopped at the end of the context of {context} positions; -c raises it"),
    };
    let guesses = match generated.drafted {
        0 => String::new(),
        drafted => format!(", {} of {drafted} guesses right", generated.accepted),
    };
    format!(
        "prompt: {}; text: {}{guesses}; {ended}",
        tokens(generated.prompt_tokens, generated.prompt_tokens_per_second()),
        tokens(generated.tokens.len(), generated.tokens_per_second()),
    )
}

//! A conversation and its answers.

use super::command::{Command, HELP};
use super::input::{Input, Said};
use super::interrupt::Interrupt;
use crate::options::{DIM, paint, print, progress_bar, tell, write};
use amk::rows::RowVm;
use amk_models::chat::{ChatOptions, ChatTemplate, Message};
use amk_models::tokenizer::{SpecialTokens, Tokenizer};
use amk_run::batch::{Batch, Event};
use amk_run::text::{Ended, Generated, Request};
use anyhow::{Context as _, Result, anyhow, bail};
use std::path::Path;

/// A conversation with a model.
pub(super) struct Talk {
    pub(super) template: ChatTemplate,
    pub(super) request: Request,
    pub(super) messages: Vec<Message>,
    pub(super) context: usize,
    pub(super) quiet: bool,
    /// The last answer, if it was not stopped.
    pub(super) last: Option<Generated>,
    /// Answers so far: each has a seed of its own.
    pub(super) answers: u64,
}

/// The messages of a file.
pub(super) fn load(file: &Path) -> Result<Vec<Message>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not a conversation", file.display()))
}

impl Talk {
    /// Talks until the user ends it.
    pub(super) fn run<V: RowVm>(mut self, vm: V, tokenizer: &Tokenizer) -> Result<()> {
        let mut batch = Batch::new(vm, tokenizer).keeping(1);
        let mut input = Input::new()?;
        // Who is not there to go on with the conversation wants it to end.
        let interrupt = if input.is_terminal() { Interrupt::listen()? } else { Interrupt::default() };
        loop {
            let said = match input.next()? {
                Said::End => return Ok(()),
                Said::Nothing => continue,
                Said::Message(text) => text,
            };
            let command = said.starts_with('/').then(|| said.parse::<Command>());
            let done = match command {
                Some(Ok(Command::Exit)) => return Ok(()),
                Some(Ok(Command::Retry)) => self.retry(&mut batch, tokenizer, &interrupt),
                Some(Ok(command)) => self.command(command),
                Some(Err(error)) => Err(anyhow!(error)),
                None => {
                    self.messages.push(Message::new("user", said));
                    self.answer(&mut batch, tokenizer, &interrupt)
                }
            };
            // A mistake does not end the conversation.
            if let Err(error) = done {
                tell(&format!("{error:#}"));
            }
        }
    }

    fn command(&mut self, command: Command) -> Result<()> {
        let system = self.messages.first().filter(|first| first.role == "system").cloned();
        match command {
            Command::System(text) => {
                self.messages.drain(..usize::from(system.is_some()));
                self.messages.splice(..0, text.map(|text| Message::new("system", text)));
            }
            Command::Clear => self.messages = system.into_iter().collect(),
            Command::Save(file) => {
                let text = serde_json::to_string_pretty(&self.messages)? + "\n";
                std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
            }
            Command::Load(file) => self.messages = load(&file)?,
            Command::Stats => print(&self.stats())?,
            Command::Help => print(HELP)?,
            Command::Retry | Command::Exit => {}
        }
        Ok(())
    }

    /// Another answer to the last message.
    fn retry<V: RowVm>(
        &mut self,
        batch: &mut Batch<'_, V>,
        tokenizer: &Tokenizer,
        interrupt: &Interrupt,
    ) -> Result<()> {
        if self.messages.last().is_some_and(|last| last.role == "assistant") {
            self.messages.pop();
        }
        if self.messages.last().is_none_or(|last| last.role != "user") {
            bail!("there is no message to answer");
        }
        self.answer(batch, tokenizer, interrupt)
    }

    /// Answers the last message, which goes where the model cannot.
    fn answer<V: RowVm>(
        &mut self,
        batch: &mut Batch<'_, V>,
        tokenizer: &Tokenizer,
        interrupt: &Interrupt,
    ) -> Result<()> {
        interrupt.begin();
        let answer = self.write(batch, tokenizer, interrupt);
        interrupt.end();
        match answer {
            Ok(text) => self.messages.push(Message::new("assistant", text)),
            Err(error) => {
                self.messages.pop();
                return Err(error);
            }
        }
        self.answers += 1;
        if !self.quiet
            && let Some(Generated { ended: Ended::ContextFull, .. }) = self.last
        {
            tell(&paint(&format!("[the context of {} positions is full; -c raises it]", self.context), DIM));
        }
        Ok(())
    }

    fn write<V: RowVm>(
        &mut self,
        batch: &mut Batch<'_, V>,
        tokenizer: &Tokenizer,
        interrupt: &Interrupt,
    ) -> Result<String> {
        let prompt = self.template.render(&self.messages, &ChatOptions::answer())?;
        let prompt = tokenizer.encode(&prompt, SpecialTokens::AsWritten)?;
        let id = batch.add(&prompt, &self.request.numbered(self.answers))?;
        let bar = progress_bar("prompt", self.quiet);
        let (mut text, mut failed, mut stepped) = (String::new(), None, Ok(true));
        self.last = None;
        while self.last.is_none() && failed.is_none() && stepped.is_ok() && !interrupt.stops() {
            stepped = batch.step(&mut |_, event| {
                match event {
                    Event::Prompt { done, of } => bar.set_position((100 * done / of.max(1)) as u64),
                    Event::Text(piece) => {
                        bar.finish_and_clear();
                        text.push_str(piece.text);
                        write(piece.text)?;
                    }
                    Event::Ended(generated) => self.last = Some(generated),
                    Event::Failed(error) => failed = Some(error),
                }
                Ok(())
            });
        }
        bar.finish_and_clear();
        batch.cancel(id);
        stepped?;
        print("\n")?;
        failed.map_or(Ok(text), |error| Err(error.into()))
    }

    fn stats(&self) -> String {
        let Some(last) = &self.last else { return "no answer has ended yet\n".to_owned() };
        let rate = |rate: Option<f64>| rate.map_or_else(String::new, |rate| format!(" at {rate:.1} a second"));
        let used = last.prompt_tokens + last.tokens.len();
        format!(
            "prompt: {} tokens, {} of them new{}\nanswer: {} tokens{}\ncontext: {used} of {} positions\n",
            last.prompt_tokens,
            last.prompt_run,
            rate(last.prompt_tokens_per_second()),
            last.tokens.len(),
            rate(last.tokens_per_second()),
            self.context,
        )
    }
}

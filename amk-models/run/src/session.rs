//! A session with a model: a conversation, or texts in one batch.

use crate::batch::{Batch, Event, TextId};
use crate::generate::GenerateError;
use crate::open::{OpenError, OpenModel};
use crate::text::{Generated, Request};
use amk::vm::cpu::Vm;
use amk_models::chat::Message;
use amk_models::tokenizer::SpecialTokens;
use std::io;

/// Generates texts with a model on this machine's cores. A conversation's KV cache is kept: only
/// new tokens are computed.
pub struct ModelSession<'m> {
    model: &'m OpenModel,
    batch: Batch<'m, Vm>,
    /// The settings of texts; text number n has the seed of the sampler plus n.
    pub request: Request,
    /// The conversation so far.
    pub messages: Vec<Message>,
    texts: u64,
}

/// A text of a session.
#[derive(Clone, Debug)]
pub struct Written {
    /// The text.
    pub text: String,
    /// Its tokens, the reason why it ended, and the speed.
    pub generated: Generated,
}

/// Receives new text of the text with this number. An error ends the generation.
pub type SeeText<'s> = dyn FnMut(usize, &str) -> io::Result<()> + 's;

impl<'m> ModelSession<'m> {
    pub(crate) fn new(model: &'m OpenModel, texts: usize) -> Result<Self, OpenError> {
        // The last page of a kept text is copied.
        let batch = Batch::new(model.vm(texts + 1)?, model.tokenizer()?).keeping(texts);
        Ok(Self { model, batch, request: model.request(), messages: Vec::new(), texts: 0 })
    }

    /// Returns the model's answer to a message; both are added to the conversation.
    ///
    /// # Errors
    /// [`OpenError::NoTemplate`]; a conversation that the template refuses or that exceeds the
    /// context, which is left unchanged.
    pub fn answer(&mut self, message: &str) -> Result<String, OpenError> {
        self.answer_to(message, &mut |_| Ok(()))
    }

    /// Like [`Self::answer`]; `see` is called with the answer piece by piece.
    ///
    /// # Errors
    /// As for [`Self::answer`], and errors of `see`.
    pub fn answer_to(
        &mut self,
        message: &str,
        see: &mut dyn FnMut(&str) -> io::Result<()>,
    ) -> Result<String, OpenError> {
        self.messages.push(Message::new("user", message));
        let prompt = self.model.prompt(&self.messages);
        match prompt.and_then(|prompt| self.write(&[prompt], &mut |_, text| see(text))) {
            Ok(written) => {
                let text: String = written.into_iter().map(|written| written.text).collect();
                self.messages.push(Message::new("assistant", text.clone()));
                Ok(text)
            }
            Err(error) => {
                self.messages.pop();
                Err(error)
            }
        }
    }

    /// Returns the model's continuation of a text.
    ///
    /// # Errors
    /// A text that cannot be encoded or is longer than the context.
    pub fn complete(&mut self, text: &str) -> Result<String, OpenError> {
        let prompt = self.model.tokenizer()?.encode(text, SpecialTokens::Add)?;
        let request = Request { continues: true, ..self.request.clone() };
        let written = self.write_by(&request, &[prompt], &mut |_, _| Ok(()))?;
        Ok(written.into_iter().map(|written| written.text).collect())
    }

    /// Generates a text after each prompt, in one batch: each is the same as if its prompt ran
    /// alone.
    ///
    /// # Errors
    /// A prompt that is empty or longer than the context, a failing VM, and errors of `see`.
    pub fn write(&mut self, prompts: &[Vec<u32>], see: &mut SeeText<'_>) -> Result<Vec<Written>, OpenError> {
        self.write_by(&self.request.clone(), prompts, see)
    }

    fn write_by(
        &mut self,
        request: &Request,
        prompts: &[Vec<u32>],
        see: &mut SeeText<'_>,
    ) -> Result<Vec<Written>, OpenError> {
        let mut ids: Vec<TextId> = Vec::new();
        for prompt in prompts {
            let added = self.batch.add(prompt, &request.numbered(self.texts));
            self.texts += 1;
            match added {
                Ok(id) => ids.push(id),
                Err(error) => return Err(self.cancel(ids, error)),
            }
        }
        let mut texts = vec![(String::new(), None); ids.len()];
        let mut failed = None;
        while texts.iter().any(|(_, generated)| generated.is_none()) && failed.is_none() {
            let step = self.batch.step(&mut |id, event| {
                let Some(number) = ids.iter().position(|&own| own == id) else { return Ok(()) };
                match event {
                    Event::Prompt { .. } => {}
                    Event::Text(piece) => {
                        texts[number].0.push_str(piece.text);
                        see(number, piece.text)?;
                    }
                    Event::Ended(generated) => texts[number].1 = Some(generated),
                    Event::Failed(error) => failed = Some(GenerateError::from(error)),
                }
                Ok(())
            });
            failed = failed.or(step.err());
        }
        match failed {
            Some(error) => Err(self.cancel(ids, error)),
            None => Ok(texts
                .into_iter()
                .filter_map(|(text, generated)| Some(Written { text, generated: generated? }))
                .collect()),
        }
    }

    /// Ends all texts because of an error.
    fn cancel(&mut self, ids: Vec<TextId>, error: GenerateError) -> OpenError {
        ids.into_iter().for_each(|id| self.batch.cancel(id));
        error.into()
    }
}

//! Guesses of the next tokens by a second, smaller model with the same vocabulary (the draft
//! model).
//!
//! Source: Leviathan et al., Fast Inference from Transformers via Speculative Decoding, 2023. When
//! tokens are sampled, the small model draws with the random numbers of the large one, so that the
//! two often agree; the large one's draw decides, so the text is the same as without guesses.

use crate::batch::TextId;
use crate::generate::GenerateError;
use crate::sampler::Sampler;
use amk::Token;
use amk::rows::{RowVm, RowsError, SequenceId};
use amk::session::{Session, SessionError};
use std::collections::BTreeMap;

/// A request for guesses.
pub(crate) struct Ask<'a> {
    pub(crate) id: TextId,
    /// The tokens so far.
    pub(crate) history: &'a [u32],
    /// Guesses at most.
    pub(crate) most: usize,
    /// Draws the next token.
    pub(crate) sampler: Sampler,
}

/// A source of guesses for several texts at once.
pub(crate) trait Draft {
    /// The guesses for each request.
    ///
    /// # Errors
    /// If the VM fails.
    fn guess(&mut self, asks: Vec<Ask<'_>>) -> Result<Vec<Vec<u32>>, GenerateError>;

    /// A text has ended.
    fn forget(&mut self, id: TextId);
}

/// A small model.
pub(crate) struct Drafter<V> {
    session: Session<V>,
    texts: BTreeMap<TextId, Draughts>,
}

/// A text in the small model.
struct Draughts {
    sequence: SequenceId,
    /// Tokens that it has been given.
    given: Vec<u32>,
}

impl<V: RowVm> Drafter<V> {
    pub(crate) fn new(vm: V) -> Self {
        Self { session: Session::new(vm), texts: BTreeMap::new() }
    }

    /// Brings a text up to its history. `false` if it does not fit.
    fn follow(&mut self, ask: &Ask<'_>) -> Result<bool, RowsError> {
        if ask.most == 0 || ask.history.len() + ask.most > self.session.limits().positions {
            return Ok(false);
        }
        let session = &mut self.session;
        let text = self.texts.entry(ask.id).or_insert_with(|| Draughts { sequence: session.add(), given: Vec::new() });
        let same = text.given.iter().zip(ask.history).take_while(|(a, b)| a == b).count();
        // If the last token has run, it runs again for its logits.
        let kept = same.min(ask.history.len() - 1).min(session.len(text.sequence)?);
        // If pages that it needs have been returned, it starts over.
        let kept = if session.can_keep(text.sequence, kept).is_ok() { kept } else { 0 };
        session.rollback(text.sequence, kept)?;
        session.push(text.sequence, &tokens(&ask.history[kept..]))?;
        text.given = ask.history.to_vec();
        Ok(true)
    }
}

impl<V: RowVm> Draft for Drafter<V> {
    fn guess(&mut self, mut asks: Vec<Ask<'_>>) -> Result<Vec<Vec<u32>>, GenerateError> {
        let mut guesses = vec![Vec::new(); asks.len()];
        let mut asking = BTreeMap::new();
        for (number, ask) in asks.iter().enumerate() {
            if self.follow(ask)? {
                asking.insert(self.texts[&ask.id].sequence, number);
            }
        }
        while !asking.is_empty() {
            let done = match self.session.step() {
                Ok(done) => done,
                // The small model has no free pages: no more guesses.
                Err(SessionError::Rows(RowsError::Pages { .. })) => break,
                Err(SessionError::Rows(error)) => return Err(error.into()),
                Err(SessionError::Vm(error)) => return Err(GenerateError::Step(Box::new(error))),
            };
            for sequence in done {
                let (Some(&number), Some(logits)) = (asking.get(&sequence), self.session.logits(sequence)) else {
                    continue;
                };
                let ask = &mut asks[number];
                let Some(text) = self.texts.get_mut(&ask.id) else { continue };
                // The text ends here, its grammar takes too long, or the logits are not numbers.
                let Ok(token) = ask.sampler.sample(logits, &text.given) else {
                    asking.remove(&sequence);
                    continue;
                };
                guesses[number].push(token);
                text.given.push(token);
                if guesses[number].len() == ask.most {
                    asking.remove(&sequence);
                } else {
                    self.session.push(sequence, &[Token(token)])?;
                }
            }
        }
        Ok(guesses)
    }

    fn forget(&mut self, id: TextId) {
        if let Some(text) = self.texts.remove(&id) {
            // It exists.
            let _ = self.session.drop(text.sequence);
        }
    }
}

fn tokens(ids: &[u32]) -> Vec<Token> {
    ids.iter().copied().map(Token).collect()
}

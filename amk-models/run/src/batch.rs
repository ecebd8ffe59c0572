//! Several texts at once: each goes on at its own pace, in the steps of one VM.
//!
//! A text has the same tokens as alone: a row's logits do not depend on the rows beside it, and each
//! text draws with a seed of its own. Guessed tokens ([`Speculate`]) change nothing either: the
//! sampler chooses every token from its logits, and a guess is kept where it is that choice.

use crate::generate::{GenerateError, checked};
use crate::lookup::Lookup;
use crate::sampler::Sampler;
use crate::text::{Ended, Generated, Request, Speculate, Text};
use amk::Token;
use amk::rows::{RowLimits, RowVm, RowsError, SequenceId};
use amk::session::{Session, SessionError};
use amk_models::tokenizer::Tokenizer;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::Instant;

/// A text of a [`Batch`], in the order of the requests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TextId(pub usize);

/// What happens to a text.
#[derive(Debug)]
pub enum Event<'e> {
    /// Its prompt goes on.
    Prompt {
        /// Tokens of the prompt that have run.
        done: usize,
        /// All.
        of: usize,
    },
    /// There is more of it.
    Text(&'e str),
    /// It has ended.
    Ended(Generated),
}

/// Sees the events of texts. An error ends the batch.
pub type Watch<'w> = dyn FnMut(TextId, Event<'_>) -> io::Result<()> + 'w;

/// Texts that are written side by side.
pub struct Batch<'t, V> {
    session: Session<V>,
    tokenizer: &'t Tokenizer,
    /// Texts that have no pages yet.
    waiting: VecDeque<(TextId, Writing<'t>)>,
    live: BTreeMap<SequenceId, (TextId, Writing<'t>)>,
    added: usize,
    /// Pages that the live texts can come to need.
    reserved: usize,
}

/// A text on its way.
struct Writing<'t> {
    sampler: Sampler,
    lookup: Option<Lookup>,
    /// The prompt and the new tokens.
    history: Vec<u32>,
    /// Guesses of the tokens after the history.
    draft: Vec<u32>,
    text: Text<'t>,
    /// New tokens at most.
    limit: usize,
    prompt: usize,
    /// Pages that it can come to need.
    pages: usize,
    start: Option<Instant>,
    /// When the prompt had run.
    decoding: Option<Instant>,
    drafted: usize,
    accepted: usize,
}

impl<'t, V: RowVm> Batch<'t, V> {
    /// A batch without texts.
    pub fn new(vm: V, tokenizer: &'t Tokenizer) -> Self {
        let session = Session::new(vm);
        Self { session, tokenizer, waiting: VecDeque::new(), live: BTreeMap::new(), added: 0, reserved: 0 }
    }

    /// Adds a text after a prompt. It starts when there are pages for all that it may become.
    ///
    /// # Errors
    /// An empty prompt, one longer than the context, or one that has more positions than there are
    /// pages for; a sampler out of range.
    pub fn add(&mut self, prompt: &[u32], request: &Request) -> Result<TextId, GenerateError> {
        let limits = self.session.limits();
        checked(prompt, limits.positions)?;
        let room = limits.positions - prompt.len() + 1;
        let limit = request.max_tokens.unwrap_or(usize::MAX).min(room);
        let pages = RowLimits::pages_of((prompt.len() + limit).min(limits.positions));
        if pages > limits.pages {
            return Err(RowsError::Pages { needed: pages, free: limits.pages, pages: limits.pages }.into());
        }
        let writing = Writing {
            sampler: Sampler::new(request.sampler.clone())?,
            lookup: (request.speculate == Speculate::Lookup).then(Lookup::new),
            history: prompt.to_vec(),
            draft: Vec::new(),
            text: Text::new(self.tokenizer, request, 0),
            limit: request.max_tokens.unwrap_or(usize::MAX),
            prompt: prompt.len(),
            pages,
            start: None,
            decoding: None,
            drafted: 0,
            accepted: 0,
        };
        let id = TextId(self.added);
        self.added += 1;
        self.waiting.push_back((id, writing));
        Ok(id)
    }

    /// Ends a text, at any time; there is no event of it any more.
    pub fn cancel(&mut self, id: TextId) {
        self.waiting.retain(|(waiting, _)| *waiting != id);
        let live = self.live.iter().find(|(_, (live, _))| *live == id).map(|(&sequence, _)| sequence);
        if let Some((_, writing)) = live.and_then(|sequence| self.live.remove(&sequence)) {
            self.reserved -= writing.pages;
        }
        if let Some(sequence) = live {
            // It is live.
            let _ = self.session.drop(sequence);
        }
    }

    /// The session, as it is between two steps.
    pub fn session(&self) -> &Session<V> {
        &self.session
    }

    /// Runs a step of all texts for which there is room. Returns whether texts are left.
    ///
    /// # Errors
    /// A failing VM; logits that are not numbers; what `watch` gives.
    pub fn step(&mut self, watch: &mut Watch<'_>) -> Result<bool, GenerateError> {
        self.admit()?;
        let done = self.session.step().map_err(|error| match error {
            SessionError::Rows(error) => GenerateError::Rows(error),
            SessionError::Vm(error) => GenerateError::Step(Box::new(error)),
        })?;
        for (&sequence, (id, writing)) in &self.live {
            if writing.decoding.is_none() {
                let event = Event::Prompt { done: self.session.len(sequence)?, of: writing.prompt };
                watch(*id, event).map_err(GenerateError::Write)?;
            }
        }
        for sequence in done {
            self.go_on(sequence, watch)?;
        }
        Ok(!(self.live.is_empty() && self.waiting.is_empty()))
    }

    /// Starts the texts for which there are pages, in order.
    fn admit(&mut self) -> Result<(), GenerateError> {
        let limits = self.session.limits();
        while let Some((_, next)) = self.waiting.front()
            && self.reserved + next.pages <= limits.pages
            && self.live.len() < limits.rows
        {
            let Some((id, mut writing)) = self.waiting.pop_front() else { break };
            let sequence = self.session.add();
            self.session.push(sequence, &tokens(&writing.history))?;
            self.reserved += writing.pages;
            writing.start = Some(Instant::now());
            self.live.insert(sequence, (id, writing));
        }
        Ok(())
    }

    /// All tokens of a sequence have run: chooses the next ones.
    fn go_on(&mut self, sequence: SequenceId, watch: &mut Watch<'_>) -> Result<(), GenerateError> {
        let positions = self.session.limits().positions;
        let Some((id, mut writing)) = self.live.remove(&sequence) else { return Ok(()) };
        writing.decoding.get_or_insert_with(Instant::now);
        let mut see = |text: &str| if text.is_empty() { Ok(()) } else { watch(id, Event::Text(text)) };
        let mut end = None;
        let draft = core::mem::take(&mut writing.draft);
        let mut accepted = 0;
        for logits in self.session.all_logits(sequence) {
            end = writing.end(positions);
            if end.is_some() {
                break;
            }
            let token = writing.sampler.sample(logits, &writing.history)?;
            writing.history.push(token);
            writing.text.push(token, &mut see)?;
            if draft.get(accepted) != Some(&token) {
                break;
            }
            accepted += 1;
        }
        writing.learn(draft.len(), accepted);
        match end.or_else(|| writing.end(positions)) {
            Some(end) => {
                self.session.drop(sequence)?;
                self.reserved -= writing.pages;
                let generated = writing.finish(end, &mut see)?;
                watch(id, Event::Ended(generated)).map_err(GenerateError::Write)
            }
            None => {
                self.push(sequence, &mut writing)?;
                self.live.insert(sequence, (id, writing));
                Ok(())
            }
        }
    }

    /// Gives the session the last token and guesses of those after it.
    fn push(&mut self, sequence: SequenceId, writing: &mut Writing<'_>) -> Result<(), GenerateError> {
        let limits = self.session.limits();
        let ran = writing.history.len() - 1;
        if self.session.len(sequence)? > ran {
            self.session.rollback(sequence, ran)?;
        }
        // Guesses take rows that no text needs, and end before the text has to.
        let spare = (limits.rows / (self.live.len() + 1)).saturating_sub(1);
        let left = writing.limit - writing.text.tokens.len();
        let most = spare.min(limits.positions - writing.history.len()).min(left.saturating_sub(1));
        writing.guess(most);
        self.session.push_draft(sequence, &tokens(&[&writing.history[ran..], &writing.draft].concat()))?;
        Ok(())
    }
}

impl Writing<'_> {
    /// Why it has ended, if it has.
    fn end(&self, positions: usize) -> Option<Ended> {
        if let Some(ended) = self.text.ended {
            return Some(ended);
        }
        if self.text.tokens.len() >= self.limit {
            return Some(Ended::MaxTokens);
        }
        (self.history.len() > positions).then_some(Ended::ContextFull)
    }

    fn guess(&mut self, most: usize) {
        if let Some(lookup) = &mut self.lookup {
            self.draft = lookup.guess(&self.history, most).to_vec();
        }
    }

    fn learn(&mut self, drafted: usize, accepted: usize) {
        self.drafted += drafted;
        self.accepted += accepted;
        if let Some(lookup) = &mut self.lookup {
            lookup.learn(drafted, accepted);
        }
    }

    fn finish(self, end: Ended, see: &mut crate::text::See<'_>) -> Result<Generated, GenerateError> {
        let now = Instant::now();
        let (start, decoding) = (self.start.unwrap_or(now), self.decoding.unwrap_or(now));
        let (drafted, accepted) = (self.drafted, self.accepted);
        let (tokens, ended) = self.text.finish(see)?;
        Ok(Generated {
            ended: ended.unwrap_or(end),
            prompt_tokens: self.prompt,
            prompt_run: self.prompt,
            prompt_time: decoding - start,
            decoded: tokens.len().saturating_sub(1),
            decode_time: now - decoding,
            tokens,
            drafted,
            accepted,
        })
    }
}

fn tokens(ids: &[u32]) -> Vec<Token> {
    ids.iter().copied().map(Token).collect()
}

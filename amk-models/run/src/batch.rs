//! Several texts at once: each progresses at its own pace, in the steps of one VM.
//!
//! A text has the same tokens as alone: a row's logits do not depend on the rows beside it, apart
//! from differences in rounding between steps of one row and of several, and each text draws with
//! its own seed. Guessed tokens ([`Speculate`]) change nothing either: the sampler chooses every
//! token from its logits, and a guess is kept only if it is that choice. Nor do shared prefixes
//! ([`Batch::keeping`]): the reused keys and values are those that the prompt's own rows would
//! write.

use crate::drafter::{Ask, Draft, Drafter};
use crate::generate::{GenerateError, checked};
use crate::guesses::Guesses;
use crate::kept::{Kept, common};
use crate::lookup::Lookup;
use crate::sampler::{Sampler, SamplerError};
use crate::text::{Ended, Generated, Piece, Request, Speculate, Text};
use amk::Token;
use amk::rows::{Choice, Outcome, PAGE, PageGroup, RowLimits, RowVm, RowsError, SequenceId};
use amk::session::{Session, SessionError};
use amk_models::tokenizer::Tokenizer;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::{Duration, Instant};

/// Tokens of a beginning at least that is worth sharing.
const LEAST_SHARED: usize = 8;

/// A text of a [`Batch`], in the order of the requests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TextId(pub usize);

/// An event of a text.
#[derive(Debug)]
pub enum Event<'e> {
    /// Its prompt has progressed.
    Prompt {
        /// Tokens of the prompt that have run.
        done: usize,
        /// All.
        of: usize,
    },
    /// There is more of it.
    Text(Piece<'e>),
    /// It has ended.
    Ended(Generated),
    /// No token can follow it: its grammar allows none, or its logits are not numbers. Other texts
    /// are unaffected.
    Failed(SamplerError),
}

/// Receives the events of texts. An error ends the batch.
pub type Watch<'w> = dyn FnMut(TextId, Event<'_>) -> io::Result<()> + 'w;

/// Texts that are written side by side.
pub struct Batch<'t, V> {
    session: Session<V>,
    tokenizer: &'t Tokenizer,
    /// A small model that guesses.
    drafter: Option<Box<dyn Draft + 't>>,
    /// Texts that have no pages yet.
    waiting: VecDeque<(TextId, Writing<'t>)>,
    live: BTreeMap<SequenceId, (TextId, Writing<'t>)>,
    /// Of these at most.
    most: usize,
    kept: Kept,
    added: usize,
    /// Tokens that were chosen.
    chosen: u64,
}

/// The number of texts in a [`Batch`], and its counts so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// Texts that are being written.
    pub live: usize,
    /// Texts that wait for pages or rows.
    pub waiting: usize,
    /// Texts that have ended and are kept.
    pub kept: usize,
    /// Tokens that were chosen since the start.
    pub chosen: u64,
}

/// A text on its way.
struct Writing<'t> {
    /// Whose text it is.
    owner: u64,
    sampler: Sampler,
    speculate: Speculate,
    lookup: Lookup,
    guesses: Guesses,
    /// The prompt and the new tokens.
    history: Vec<u32>,
    /// Guesses of the tokens after the history.
    draft: Vec<u32>,
    text: Text<'t>,
    /// New tokens at most.
    limit: usize,
    /// Time from its start at most.
    max_time: Option<Duration>,
    prompt: usize,
    /// Tokens of the prompt that were reused from another text.
    shared: usize,
    /// Pages that it can come to need.
    pages: Vec<usize>,
    start: Option<Instant>,
    /// The time at which the prompt had run.
    decoding: Option<Instant>,
}

impl<'t, V: RowVm> Batch<'t, V> {
    /// A batch without texts.
    pub fn new(vm: V, tokenizer: &'t Tokenizer) -> Self {
        let session = Session::new(vm);
        let (waiting, live) = (VecDeque::new(), BTreeMap::new());
        let kept = Kept::default();
        Self { session, tokenizer, drafter: None, waiting, live, most: usize::MAX, kept, added: 0, chosen: 0 }
    }

    /// Limits the number of texts in progress. Others wait.
    #[must_use]
    pub fn writing_at_most(self, texts: usize) -> Self {
        Self { most: texts.max(1), ..self }
    }

    /// Keeps the keys and values of up to this many ended texts. A prompt continues from the text,
    /// ended or not, that it shares a prefix with. The oldest are evicted first, also if another
    /// text needs their pages.
    #[must_use]
    pub fn keeping(self, texts: usize) -> Self {
        Self { kept: Kept::new(texts), ..self }
    }

    /// Limits the rows of steps that both decode texts and run prompts ([`Session::bound_mixed`]).
    #[must_use]
    pub fn bounding_mixed(mut self, rows: usize) -> Self {
        self.session.bound_mixed(rows);
        self
    }

    /// Adds a small model with the same vocabulary, which guesses for texts that request it
    /// ([`Speculate::Model`]).
    #[must_use]
    pub fn with_drafter<D: RowVm + 't>(self, vm: D) -> Self {
        Self { drafter: Some(Box::new(Drafter::new(vm))), ..self }
    }

    /// Adds a text after a prompt. It starts when there are enough pages for its maximum length.
    ///
    /// # Errors
    /// An empty prompt, one longer than the context, or one that needs more pages than there are; a
    /// sampler out of range.
    pub fn add(&mut self, prompt: &[u32], request: &Request) -> Result<TextId, GenerateError> {
        self.add_of(0, prompt, request)
    }

    /// Like [`Self::add`], for one of several owners. Among the waiting texts, the next is one
    /// whose owner has the fewest in progress, so that one owner's many texts do not hold up
    /// another's few.
    ///
    /// # Errors
    /// As for [`Self::add`].
    pub fn add_of(&mut self, owner: u64, prompt: &[u32], request: &Request) -> Result<TextId, GenerateError> {
        let limits = self.session.limits();
        checked(prompt, limits.positions)?;
        let room = limits.positions - prompt.len() + 1;
        let limit = request.max_tokens.unwrap_or(usize::MAX).min(room);
        let pages = limits.pages_at_once((prompt.len() + limit).min(limits.positions));
        for (number, (&needed, group)) in pages.iter().zip(&limits.groups).enumerate() {
            let (group, pages) = (limits.name(number), group.pages);
            if needed > pages {
                return Err(RowsError::Pages { group, needed, free: pages, pages }.into());
            }
        }
        let writing = Writing {
            owner,
            sampler: request.sampler()?,
            speculate: request.speculate,
            lookup: Lookup::new(),
            guesses: Guesses::new(),
            history: prompt.to_vec(),
            draft: Vec::new(),
            text: Text::new(self.tokenizer, request, prompt, 0)?,
            limit: request.max_tokens.unwrap_or(usize::MAX),
            max_time: request.max_time,
            prompt: prompt.len(),
            shared: 0,
            pages,
            start: None,
            decoding: None,
        };
        let id = TextId(self.added);
        self.added += 1;
        self.waiting.push_back((id, writing));
        Ok(id)
    }

    /// Ends a text at any time; it has no further events.
    pub fn cancel(&mut self, id: TextId) {
        self.waiting.retain(|(waiting, _)| *waiting != id);
        let live = self.live.iter().find(|(_, (live, _))| *live == id).map(|(&sequence, _)| sequence);
        if let Some(sequence) = live
            && let Some((_, writing)) = self.live.remove(&sequence)
        {
            // It is live.
            let _ = self.leave(sequence, writing.history);
        }
        self.forget(id);
    }

    /// A text is written no more: keeps its sequence, or drops it.
    fn leave(&mut self, sequence: SequenceId, mut history: Vec<u32>) -> Result<(), RowsError> {
        // The last token has not run; everything after it was guesses.
        let ran = self.session.len(sequence)?.min(history.len().saturating_sub(1));
        if !self.kept.keeps() || ran < LEAST_SHARED {
            return self.session.drop(sequence);
        }
        self.session.rollback(sequence, ran)?;
        history.truncate(ran);
        self.kept.push(sequence, history).into_iter().try_for_each(|gone| self.session.drop(gone))
    }

    fn forget(&mut self, id: TextId) {
        if let Some(drafter) = &mut self.drafter {
            drafter.forget(id);
        }
    }

    /// The session, in its state between two steps.
    pub fn session(&self) -> &Session<V> {
        &self.session
    }

    /// The number of texts, between two steps.
    pub fn state(&self) -> State {
        let Self { live, waiting, kept, chosen, .. } = self;
        State { live: live.len(), waiting: waiting.len(), kept: kept.len(), chosen: *chosen }
    }

    /// Runs a step of all texts that fit. Returns whether texts are left.
    ///
    /// # Errors
    /// A failing VM, and errors of `watch`.
    pub fn step(&mut self, watch: &mut Watch<'_>) -> Result<bool, GenerateError> {
        let left = self.step_overlapped(watch, &mut || {})?;
        write(&mut self.live, watch)?;
        Ok(left)
    }

    /// Like [`Self::step`], but text that can wait is written while the next step runs, and then
    /// `host_work` is called ([`Session::step_overlapped`]).
    ///
    /// # Errors
    /// As for [`Self::step`].
    pub fn step_overlapped(
        &mut self,
        watch: &mut Watch<'_>,
        host_work: &mut dyn FnMut(),
    ) -> Result<bool, GenerateError> {
        self.admit()?;
        let guesses = self.live.values().any(|(_, writing)| writing.speculate != Speculate::Never);
        self.session.keep_alike(guesses);
        let mut written = Ok(());
        let mut overlapped = || {
            written = write(&mut self.live, watch);
            host_work();
        };
        let done = self.session.step_overlapped(&mut overlapped).map_err(|error| match error {
            SessionError::Rows(error) => GenerateError::Rows(error),
            SessionError::Vm(error) => GenerateError::Step(Box::new(error)),
        })?;
        written?;
        for (&sequence, (id, writing)) in &self.live {
            if writing.decoding.is_none() {
                let event = Event::Prompt { done: self.session.len(sequence)?, of: writing.prompt };
                watch(*id, event).map_err(GenerateError::Write)?;
            }
        }
        let mut going = Vec::new();
        for sequence in done {
            if self.choose(sequence, watch)? {
                going.push(sequence);
            }
        }
        self.guess(&going)?;
        going.into_iter().try_for_each(|sequence| self.push(sequence))?;
        Ok(!(self.live.is_empty() && self.waiting.is_empty()))
    }

    /// The queue position of the text that is next.
    fn next(&self) -> Option<usize> {
        let written = |owner: u64| self.live.values().filter(|(_, writing)| writing.owner == owner).count();
        (0..self.waiting.len()).min_by_key(|&at| written(self.waiting[at].1.owner))
    }

    /// Starts the texts for which there are pages, in order.
    fn admit(&mut self) -> Result<(), RowsError> {
        while self.live.len() < self.session.limits().rows.min(self.most) {
            let Some(at) = self.next() else { break };
            let Some((id, mut writing)) = self.waiting.remove(at) else { break };
            let Some((sequence, shared)) = self.place(&writing.history, &writing.pages)? else {
                self.waiting.insert(at, (id, writing));
                break;
            };
            let choices = writing.choices(self.session.chooses()).unwrap_or_default();
            self.session.push_choosing(sequence, &tokens(&writing.history[shared..]), &choices)?;
            writing.shared = shared;
            writing.start = Some(Instant::now());
            self.live.insert(sequence, (id, writing));
        }
        Ok(())
    }

    /// Returns a sequence for a prompt that may need this many pages of each group, and the number
    /// of the prompt's tokens that it already has; `None` if there are not enough pages.
    fn place(&mut self, prompt: &[u32], pages: &[usize]) -> Result<Option<(SequenceId, usize)>, RowsError> {
        if let Some((source, shared)) = self.beginning(prompt)? {
            let sequence = self.session.fork(source, shared)?;
            self.kept.use_again(source);
            if self.make_room(pages, Some((sequence, shared)))? {
                return Ok(Some((sequence, shared)));
            }
            self.session.drop(sequence)?;
        }
        Ok(self.make_room(pages, None)?.then(|| (self.session.add(), 0)))
    }

    /// Returns the sequence with the longest common prefix with a prompt, and its length. The
    /// prompt's last token must run in any case, because its logits are wanted. A sequence that has
    /// returned pages that the next rows would read cannot be used.
    fn beginning(&self, prompt: &[u32]) -> Result<Option<(SequenceId, usize)>, RowsError> {
        if !self.kept.keeps() {
            return Ok(None);
        }
        let before = &prompt[..prompt.len() - 1];
        let mut found: Vec<(SequenceId, usize)> =
            self.kept.iter().map(|(sequence, tokens)| (sequence, common(tokens, before))).collect();
        for (&sequence, (_, Writing { history, .. })) in &self.live {
            let ran = self.session.len(sequence)?.min(history.len());
            // Whole pages, because it is still writing its last one.
            found.push((sequence, common(&history[..ran], before) / PAGE * PAGE));
        }
        let usable = |&(sequence, shared): &(SequenceId, usize)| self.session.can_keep(sequence, shared).is_ok();
        let longest = found.into_iter().filter(usable).max_by_key(|&(_, shared)| shared);
        Ok(longest.filter(|&(_, shared)| shared >= LEAST_SHARED))
    }

    /// Frees pages until there are enough for the live texts and for another, which may need this
    /// many pages of each group and has begun as a fork with some tokens, or not at all. Returns
    /// whether it succeeded.
    fn make_room(&mut self, pages: &[usize], begun: Option<(SequenceId, usize)>) -> Result<bool, RowsError> {
        loop {
            // What a fork shares with a text becomes its own when that text is dropped.
            let needed = self.needed(pages, begun)?;
            let free = self.session.free_pages();
            if free.iter().zip(&needed).all(|(free, needed)| free >= needed) {
                return Ok(true);
            }
            let Some(oldest) = self.kept.pop() else { return Ok(false) };
            self.session.drop(oldest)?;
        }
    }

    /// The number of free pages of each group that the live texts and another can come to need.
    fn needed(&self, pages: &[usize], begun: Option<(SequenceId, usize)>) -> Result<Vec<usize>, RowsError> {
        let mut needed = vec![0; pages.len()];
        let mut add = |more: Vec<usize>| needed.iter_mut().zip(more).for_each(|(needed, more)| *needed += more);
        for (&sequence, (_, Writing { pages, shared, .. })) in &self.live {
            add(self.to_come(sequence, *shared, pages)?);
        }
        add(match begun {
            Some((sequence, shared)) => self.to_come(sequence, shared, pages)?,
            None => pages.to_vec(),
        });
        Ok(needed)
    }

    /// The number of these pages of each group that a sequence, which began as a fork with `shared`
    /// tokens, does not have yet.
    fn to_come(&self, sequence: SequenceId, shared: usize, pages: &[usize]) -> Result<Vec<usize>, RowsError> {
        let len = self.session.len(sequence)?;
        // Pages that others share are not freed by moving past them.
        let own = self.session.own_pages(sequence)?;
        let has = |(group, own): (&PageGroup, usize)| match group.reach {
            Some(_) => own,
            // A shared page is copied before it is written.
            None if len > shared => RowLimits::pages_of(len),
            None => shared / PAGE,
        };
        let has = self.session.limits().groups.iter().zip(own).map(has);
        Ok(pages.iter().zip(has).map(|(pages, has)| pages.saturating_sub(has)).collect())
    }

    /// Chooses the next tokens of a sequence whose tokens have all run. Returns whether it
    /// continues.
    fn choose(&mut self, sequence: SequenceId, watch: &mut Watch<'_>) -> Result<bool, GenerateError> {
        let positions = self.session.limits().positions;
        let Some((id, writing)) = self.live.get_mut(&sequence) else { return Ok(false) };
        let id = *id;
        writing.decoding.get_or_insert_with(Instant::now);
        let mut see = |piece: Piece<'_>| see_text(id, piece, watch);
        let draft = core::mem::take(&mut writing.draft);
        let (mut accepted, mut failed) = (0, None);
        for outcome in self.session.outcomes(sequence) {
            if writing.end(positions).is_some() {
                break;
            }
            let (token, logits) = match writing.choose(outcome) {
                Ok(chosen) => chosen,
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            };
            self.chosen += 1;
            writing.history.push(token);
            writing.text.take(token, logits);
            if !writing.text.can_wait() {
                writing.text.write(&mut see)?;
            }
            if draft.get(accepted) != Some(&token) {
                break;
            }
            accepted += 1;
        }
        if let Some(error) = failed {
            writing.text.write(&mut see)?;
            self.cancel(id);
            watch(id, Event::Failed(error)).map_err(GenerateError::Write)?;
            return Ok(false);
        }
        writing.guesses.learn(draft.len(), accepted);
        let Some(end) = writing.end(positions) else { return Ok(true) };
        self.forget(id);
        if let Some((_, mut writing)) = self.live.remove(&sequence) {
            self.leave(sequence, core::mem::take(&mut writing.history))?;
            let generated = writing.finish(end, &mut see)?;
            watch(id, Event::Ended(generated)).map_err(GenerateError::Write)?;
        }
        Ok(false)
    }

    /// Guesses the tokens after those that were chosen. Guesses use rows that no text needs, and
    /// stop where the text must end. With few texts they do not change the bits of the logits.
    fn guess(&mut self, going: &[SequenceId]) -> Result<(), GenerateError> {
        let limits = self.session.limits();
        let (texts, alike) = (self.live.len().max(1), self.session.alike_rows());
        let rows = if texts <= alike { alike } else { limits.rows };
        let spare = (rows / texts).saturating_sub(1);
        let (mut asks, mut asking) = (Vec::new(), Vec::new());
        for (sequence, (id, writing)) in self.live.iter_mut().filter(|(sequence, _)| going.contains(sequence)) {
            let left = writing.limit - writing.text.tokens.len();
            let most = spare.min(limits.positions - writing.history.len()).min(left.saturating_sub(1));
            match writing.speculate {
                Speculate::Never => {}
                Speculate::Lookup => {
                    let most = writing.guesses.number().min(most);
                    writing.draft = writing.lookup.guess(&writing.history, most).to_vec();
                }
                Speculate::Model => {
                    let most = writing.guesses.number().min(most);
                    asks.push(Ask { id: *id, history: &writing.history, most, sampler: writing.sampler.clone() });
                    asking.push(*sequence);
                }
            }
        }
        let tokens = self.tokenizer.token_count();
        let Some(drafter) = self.drafter.as_mut().filter(|_| !asks.is_empty()) else { return Ok(()) };
        for (sequence, draft) in asking.into_iter().zip(drafter.guess(asks)?) {
            if let Some((_, writing)) = self.live.get_mut(&sequence) {
                // A padded vocabulary has ids that this model does not have.
                let known = draft.iter().take_while(|&&token| (token as usize) < tokens);
                writing.draft = known.copied().collect();
            }
        }
        Ok(())
    }

    /// Gives the session the last token and the guesses of those after it.
    fn push(&mut self, sequence: SequenceId) -> Result<(), GenerateError> {
        let Some((_, writing)) = self.live.get_mut(&sequence) else { return Ok(()) };
        let ran = writing.history.len() - 1;
        if self.session.len(sequence)? > ran {
            self.session.rollback(sequence, ran)?;
        }
        let given = tokens(&[&writing.history[ran..], &writing.draft].concat());
        match writing.choices(self.session.chooses()) {
            Some(choices) => self.session.push_choosing(sequence, &given, &choices)?,
            None => self.session.push_draft(sequence, &given)?,
        }
        Ok(())
    }
}

impl Writing<'_> {
    /// How the next token, and those after each guess, are chosen, if the VM `chooses` them.
    fn choices(&mut self, chooses: bool) -> Option<Vec<Choice>> {
        let chooses = chooses && !self.text.reads_logits();
        chooses.then(|| self.sampler.choices(&self.history, &self.draft)).flatten()
    }

    /// The next token, and the logits by which it was chosen, unless a VM chose.
    fn choose<'v>(&mut self, outcome: Outcome<'v>) -> Result<(u32, &'v [f32]), SamplerError> {
        match outcome {
            Outcome::Token(token) => Ok((self.sampler.take(token), &[])),
            Outcome::Logits(logits) => Ok((self.sampler.sample(logits, &self.history)?, logits)),
        }
    }

    /// The reason why it has ended, if it has.
    fn end(&self, positions: usize) -> Option<Ended> {
        if let Some(ended) = self.text.ended {
            return Some(ended);
        }
        if self.text.tokens.len() >= self.limit {
            return Some(Ended::MaxTokens);
        }
        if self.sampler.ended() {
            return Some(Ended::Grammar);
        }
        if self.start.is_some_and(|start| Request::is_over(self.max_time, start)) {
            return Some(Ended::MaxTime);
        }
        (self.history.len() > positions).then_some(Ended::ContextFull)
    }

    fn finish(self, end: Ended, see: &mut crate::text::See<'_>) -> Result<Generated, GenerateError> {
        let now = Instant::now();
        let (start, decoding) = (self.start.unwrap_or(now), self.decoding.unwrap_or(now));
        let Guesses { drafted, accepted, .. } = self.guesses;
        let (tokens, ended) = self.text.finish(see)?;
        Ok(Generated {
            ended: ended.unwrap_or(end),
            prompt_tokens: self.prompt,
            prompt_run: self.prompt - self.shared,
            prompt_time: decoding - start,
            decoded: tokens.len().saturating_sub(1),
            decode_time: now - decoding,
            tokens,
            drafted,
            accepted,
        })
    }
}

/// Writes the text that was deferred.
fn write(live: &mut BTreeMap<SequenceId, (TextId, Writing<'_>)>, watch: &mut Watch<'_>) -> Result<(), GenerateError> {
    live.values_mut().try_for_each(|(id, writing)| writing.text.write(&mut |piece| see_text(*id, piece, watch)))
}

fn see_text(id: TextId, piece: Piece<'_>, watch: &mut Watch<'_>) -> io::Result<()> {
    match piece {
        Piece { text: "", logprobs: [] } => Ok(()),
        piece => watch(id, Event::Text(piece)),
    }
}

fn tokens(ids: &[u32]) -> Vec<Token> {
    ids.iter().copied().map(Token).collect()
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;

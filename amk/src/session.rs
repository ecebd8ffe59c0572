//! Sessions: sequences that share a VM, each progressing at its own pace.
//!
//! ```text
//! add, push, fork, rollback, drop ─► Session ─ rows ─► RowVm ─► logits of each wanted row
//! ```
//!
//! A [`Session`] keeps the pending tokens of each sequence and packs them into steps: first the
//! sequences that decode, then those with a prompt, which share the remaining rows. Prefill and
//! decoding are mixed in one step.
//!
//! ```
//! # use amk::{rows::{PageEdit, PlacedRow, RowLimits, RowVm}, session::Session, Token};
//! # struct Count(Vec<f32>);
//! # impl RowVm for Count {
//! #     type Error = std::convert::Infallible;
//! #     fn limits(&self) -> RowLimits { RowLimits::new(4, 128, 4) }
//! #     fn edit_page(&mut self, _: PageEdit) -> Result<(), Self::Error> { Ok(()) }
//! #     fn step_rows(&mut self, rows: Vec<PlacedRow>) -> Result<(), Self::Error> {
//! #         self.0 = rows.iter().map(|row| row.pos.0 as f32).collect();
//! #         Ok(())
//! #     }
//! #     fn logits(&self, row: usize) -> &[f32] { &self.0[row..row + 1] }
//! # }
//! # let vm = Count(Vec::new());
//! let mut session = Session::new(vm);
//! let first = session.add();
//! session.push(first, &[Token(3), Token(1), Token(4), Token(1), Token(5)])?;
//! while session.pending(first)? > 0 {
//!     session.step()?;
//! }
//! // The second sequence continues after the same five tokens without recomputing them.
//! let second = session.fork(first, 5)?;
//! assert_eq!(session.logits(first), Some(&[4.0][..]));
//! session.push(first, &[Token(9)])?;
//! session.push(second, &[Token(2)])?;
//! assert_eq!(session.step()?.len(), 2, "both have run their token");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::rows::{Choice, Outcome, PlacedRow, Row, RowLimits, RowVm, RowsError, SequenceId, Sequences};
use crate::tensor::{Pos, Token};
use core::ops::Range;
use std::collections::BTreeMap;
use std::time::Duration;

/// Sequences on a VM.
#[derive(Debug)]
pub struct Session<V> {
    vm: V,
    sequences: Sequences,
    waiting: BTreeMap<SequenceId, Waiting>,
    /// The rows of each sequence in the last step, by its number of rows.
    stepped: BTreeMap<SequenceId, Stepped>,
    /// The last sequence that decoded.
    last: Option<SequenceId>,
    /// Maximum number of rows in a step in which some sequences decode and others run their
    /// prompts.
    mixed: usize,
}

/// The pending tokens of a sequence.
#[derive(Clone, Default, Debug)]
struct Waiting {
    tokens: Vec<Token>,
    /// The first of them whose logits are wanted.
    wanted: usize,
    /// How the tokens after the wanted ones are chosen; empty: the caller chooses.
    choices: Vec<Choice>,
}

/// The rows of a sequence in the last step.
#[derive(Clone, Debug)]
struct Stepped {
    rows: Range<usize>,
    /// The first of them whose logits were wanted.
    wanted: usize,
}

/// The initial bound on the rows of steps that mix decoding and prompts.
const MIXED_ROWS: usize = 512;

/// Reasons why a session refuses an operation.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SessionError<E> {
    /// The sequences do not allow it; nothing has changed.
    #[error(transparent)]
    Rows(#[from] RowsError),
    /// The VM failed and can no longer be used.
    #[error("the step failed")]
    Vm(#[source] E),
}

impl<V: RowVm> Session<V> {
    /// Returns a session without sequences.
    pub fn new(vm: V) -> Self {
        let sequences = Sequences::new(vm.limits());
        let mixed = sequences.limits().rows.min(MIXED_ROWS);
        Self { vm, sequences, waiting: BTreeMap::new(), stepped: BTreeMap::new(), last: None, mixed }
    }

    /// The VM.
    pub fn vm(&self) -> &V {
        &self.vm
    }

    /// The sizes of the VM.
    pub fn limits(&self) -> &RowLimits {
        self.sequences.limits()
    }

    /// The time that the last step took on the device, if the VM has one.
    pub fn device_time(&self) -> Option<Duration> {
        self.vm.device_time()
    }

    /// The number of rows up to which steps give a row bit-identical logits. A row that has a step
    /// to itself may differ, unless [`Self::keep_alike`] forbids it.
    pub fn alike_rows(&self) -> usize {
        self.vm.alike_rows()
    }

    /// Sets whether a row that has a step to itself must have the same bits as in steps of
    /// [`Self::alike_rows`], even where different bits would be faster: for texts whose tokens must
    /// not depend on guesses or on other texts. Initially false.
    pub fn keep_alike(&mut self, keep: bool) {
        self.vm.keep_alike(keep);
    }

    /// Bounds the rows of steps in which some sequences decode and others run their prompts,
    /// because a decoding sequence waits for the prompts' rows. Prompts always get at least an
    /// eighth of `rows`, whatever the number of decoding rows. The initial bound is 512, or the
    /// VM's rows if they are fewer.
    pub fn bound_mixed(&mut self, rows: usize) {
        self.mixed = rows.min(self.limits().rows);
    }

    /// Whether the VM can choose the tokens that [`Self::push_choosing`] asks for.
    pub fn chooses(&self) -> bool {
        self.vm.chooses()
    }

    /// The free pages of each group.
    pub fn free_pages(&self) -> Vec<usize> {
        self.sequences.free_pages()
    }

    /// The sequences, in the order of their ids.
    pub fn ids(&self) -> impl Iterator<Item = SequenceId> {
        self.sequences.ids()
    }

    /// Adds an empty sequence.
    pub fn add(&mut self) -> SequenceId {
        let id = self.sequences.add();
        self.waiting.insert(id, Waiting::default());
        id
    }

    /// Queues tokens of a sequence; the logits after the last one are wanted.
    ///
    /// # Errors
    /// [`RowsError::Unknown`], and [`RowsError::Context`] if they do not fit in the context.
    pub fn push(&mut self, id: SequenceId, tokens: &[Token]) -> Result<(), RowsError> {
        self.give(id, tokens, 1, &[])
    }

    /// Like [`Self::push`], but the logits after each of these tokens are wanted, so that guesses
    /// can be checked.
    ///
    /// # Errors
    /// As for [`Self::push`], and [`RowsError::Rows`] if they are more than the rows of a step.
    pub fn push_draft(&mut self, id: SequenceId, tokens: &[Token]) -> Result<(), RowsError> {
        let most = self.limits().rows;
        if tokens.len() > most {
            return Err(RowsError::Rows { found: tokens.len(), most });
        }
        self.give(id, tokens, tokens.len(), &[])
    }

    /// Like [`Self::push`], but the tokens after the last of these tokens are chosen in the step
    /// that runs them, each by its choice. [`Self::outcomes`] returns the chosen tokens if the VM
    /// chooses, otherwise the logits to choose from. Choices beyond the number of tokens are
    /// ignored.
    ///
    /// # Errors
    /// As for [`Self::push`], and [`RowsError::Rows`] if they are more than the rows of a step.
    pub fn push_choosing(&mut self, id: SequenceId, tokens: &[Token], choices: &[Choice]) -> Result<(), RowsError> {
        let (found, most) = (choices.len().min(tokens.len()), self.limits().rows);
        if found > most {
            return Err(RowsError::Rows { found, most });
        }
        self.give(id, tokens, found.max(1), &choices[..found])
    }

    /// Appends tokens; the logits after the last `wanted` ones, or the tokens that these choices
    /// select, are wanted. Without tokens, nothing changes.
    fn give(&mut self, id: SequenceId, tokens: &[Token], wanted: usize, choices: &[Choice]) -> Result<(), RowsError> {
        let len = self.sequences.len(id)? + self.pending(id)? + tokens.len();
        let positions = self.limits().positions;
        if len > positions {
            return Err(RowsError::Context { sequence: id, len, positions });
        }
        if !tokens.is_empty() {
            let waiting = self.waiting.entry(id).or_default();
            waiting.tokens.extend_from_slice(tokens);
            waiting.wanted = waiting.tokens.len() - wanted;
            waiting.choices = choices.to_vec();
        }
        Ok(())
    }

    /// The number of tokens that a sequence has run.
    ///
    /// # Errors
    /// [`RowsError::Unknown`], as for all functions that take a sequence.
    pub fn len(&self, id: SequenceId) -> Result<usize, RowsError> {
        self.sequences.len(id)
    }

    /// Whether there are no sequences.
    pub fn is_empty(&self) -> bool {
        self.sequences.is_empty()
    }

    /// The number of pending tokens of a sequence.
    ///
    /// # Errors
    /// [`RowsError::Unknown`].
    pub fn pending(&self, id: SequenceId) -> Result<usize, RowsError> {
        self.waiting.get(&id).map(|waiting| waiting.tokens.len()).ok_or(RowsError::Unknown(id))
    }

    /// Adds a sequence that continues after the first `len` tokens of another and shares their
    /// pages. It has no pending tokens.
    ///
    /// # Errors
    /// As for [`Self::can_keep`].
    pub fn fork(&mut self, id: SequenceId, len: usize) -> Result<SequenceId, RowsError> {
        let fork = self.sequences.fork(id, len)?;
        self.waiting.insert(fork, Waiting::default());
        Ok(fork)
    }

    /// Checks that a sequence can continue after its first `len` tokens, that is, that no page that
    /// the following rows read has been returned to the pool. This always holds after the tokens
    /// before its last step, and up to [`ROLLBACK`](crate::rows::ROLLBACK) tokens before the step
    /// that began furthest.
    ///
    /// # Errors
    /// [`RowsError::Unknown`], [`RowsError::Truncate`] if it has run fewer tokens, and
    /// [`RowsError::GivenBack`].
    pub fn can_keep(&self, id: SequenceId, len: usize) -> Result<(), RowsError> {
        self.sequences.can_keep(id, len)
    }

    /// The number of pages of each group that a sequence shares with no other.
    ///
    /// # Errors
    /// [`RowsError::Unknown`].
    pub fn own_pages(&self, id: SequenceId) -> Result<Vec<usize>, RowsError> {
        self.sequences.own_pages(id)
    }

    /// Discards all but the first `len` tokens of a sequence, and its pending tokens.
    ///
    /// # Errors
    /// As for [`Self::can_keep`].
    pub fn rollback(&mut self, id: SequenceId, len: usize) -> Result<(), RowsError> {
        self.sequences.truncate(id, len)?;
        self.waiting.insert(id, Waiting::default());
        Ok(())
    }

    /// Ends a sequence, at any time, and frees its pages.
    ///
    /// # Errors
    /// [`RowsError::Unknown`].
    pub fn drop(&mut self, id: SequenceId) -> Result<(), RowsError> {
        self.sequences.drop(id)?;
        self.waiting.remove(&id);
        self.stepped.remove(&id);
        Ok(())
    }

    /// Runs a step with as many pending tokens as there are rows and pages for. Returns the
    /// sequences whose tokens have now all run; their logits are available until the next step.
    /// Without pending tokens, nothing happens.
    ///
    /// # Errors
    /// [`RowsError::Pages`] if no sequence with pending tokens can continue: drop or roll back
    /// some. [`SessionError::Vm`] if the VM fails.
    pub fn step(&mut self) -> Result<Vec<SequenceId>, SessionError<V::Error>> {
        self.step_overlapped(&mut || {})
    }

    /// Like [`Self::step`], but calls `host_work` as [`RowVm::step_rows_overlapped`] does, if there
    /// are pending tokens.
    ///
    /// # Errors
    /// As for [`Self::step`].
    pub fn step_overlapped(&mut self, host_work: &mut dyn FnMut()) -> Result<Vec<SequenceId>, SessionError<V::Error>> {
        let mut chunks = self.chunks(|_| true);
        if chunks.is_empty() {
            return Ok(Vec::new());
        }
        let placed = match self.sequences.place(&self.rows(&chunks)?) {
            Err(error @ RowsError::Pages { .. }) => {
                chunks = self.chunks(|chunks| self.sequences.check_room(chunks).is_ok());
                if chunks.is_empty() {
                    return Err(error.into());
                }
                self.sequences.place(&self.rows(&chunks)?)?
            }
            placed => placed?,
        };
        self.stepped.clear();
        for edit in placed.edits {
            self.vm.edit_page(edit).map_err(SessionError::Vm)?;
        }
        let rows = self.with_choices(placed.rows, &chunks);
        self.vm.step_rows_overlapped(rows, host_work).map_err(SessionError::Vm)?;
        let mut done = Vec::new();
        let mut first = 0;
        for (id, count) in chunks {
            let waiting = self.waiting.entry(id).or_default();
            let wanted = first + waiting.wanted.min(count);
            if waiting.wanted == 0 {
                self.last = Some(id);
            }
            self.stepped.insert(id, Stepped { rows: first..first + count, wanted });
            waiting.tokens.drain(..count);
            waiting.wanted = waiting.wanted.saturating_sub(count);
            if waiting.tokens.is_empty() {
                done.push(id);
            }
            first += count;
        }
        Ok(done)
    }

    /// Selects the sequences of a step that fits, and the number of tokens that each runs, as many
    /// as possible. Tokens whose logits are wanted run in one step.
    fn chunks(&self, fits: impl Fn(&[(SequenceId, usize)]) -> bool) -> Vec<(SequenceId, usize)> {
        let pending = self.waiting.iter().filter(|(_, waiting)| !waiting.tokens.is_empty());
        let (mut decoding, prompts): (Vec<_>, Vec<_>) = pending.partition(|(_, waiting)| waiting.wanted == 0);
        // If there is not enough room for all, those that have waited go first.
        let served = decoding.partition_point(|(id, _)| Some(**id) <= self.last);
        let first = served % decoding.len().max(1);
        decoding.rotate_left(first);
        let (most, mut chunks) = (self.limits().rows, Vec::new());
        let prompt_rows: usize = prompts.iter().map(|(_, waiting)| waiting.tokens.len()).sum();
        let least = prompt_rows.min((self.mixed / 8).max(1));
        let rows = fill(&mut chunks, &decoding, most - least..most, &fits);
        let beside = match rows {
            0 => self.vm.best_rows(prompt_rows),
            rows => self.mixed.saturating_sub(rows).max(least),
        };
        fill(&mut chunks, &prompts, beside.max(1)..most - rows, &fits);
        chunks
    }

    fn rows(&self, chunks: &[(SequenceId, usize)]) -> Result<Vec<Row>, RowsError> {
        let mut rows = Vec::new();
        for &(sequence, count) in chunks {
            let first = self.sequences.len(sequence)?;
            let Waiting { tokens, wanted, .. } = self.waiting.get(&sequence).ok_or(RowsError::Unknown(sequence))?;
            rows.extend(tokens.iter().take(count).enumerate().map(|(number, &token)| Row {
                token,
                pos: Pos(u32::try_from(first + number).unwrap_or(u32::MAX)),
                sequence,
                wanted: number >= *wanted,
            }));
        }
        Ok(rows)
    }

    /// The rows of a step with the choices of the tokens after them.
    fn with_choices(&self, mut rows: Vec<PlacedRow>, chunks: &[(SequenceId, usize)]) -> Vec<PlacedRow> {
        let mut left = &mut rows[..];
        for (id, count) in chunks {
            let (own, others) = left.split_at_mut(*count);
            left = others;
            let choices = self.waiting.get(id).map_or(&[][..], |waiting| &waiting.choices);
            let wanted = own.iter_mut().filter(|row| row.wanted);
            wanted.zip(choices).for_each(|(row, choice)| row.choice = Some(choice.clone()));
        }
        rows
    }

    /// The logits `[VOCAB]` after the last token that a sequence ran in the last step; `None` if it
    /// ran none in that step, or the logits were not wanted.
    pub fn logits(&self, id: SequenceId) -> Option<&[f32]> {
        self.all_logits(id).last()
    }

    /// The logits `[VOCAB]` of each wanted row of a sequence in the last step, in order.
    pub fn all_logits(&self, id: SequenceId) -> impl Iterator<Item = &[f32]> {
        self.wanted(id).map(|row| self.vm.logits(row))
    }

    /// The token or the logits of each wanted row of a sequence in the last step, in order: tokens
    /// if [`Self::push_choosing`] asked for them and the VM chose.
    pub fn outcomes(&self, id: SequenceId) -> impl Iterator<Item = Outcome<'_>> {
        self.wanted(id).map(|row| self.vm.outcome(row))
    }

    /// The wanted rows of a sequence in the last step.
    fn wanted(&self, id: SequenceId) -> impl Iterator<Item = usize> {
        self.stepped.get(&id).map(|stepped| stepped.wanted..stepped.rows.end).into_iter().flatten()
    }
}

/// Adds sequences to a step, each with as many of its tokens as fit: `room.start` rows in total, or
/// up to `room.end` if the wanted tokens of a sequence, which must run in one step, need more.
/// Returns the rows that they take.
fn fill(
    chunks: &mut Vec<(SequenceId, usize)>,
    pending: &[(&SequenceId, &Waiting)],
    room: Range<usize>,
    fits: &impl Fn(&[(SequenceId, usize)]) -> bool,
) -> usize {
    let mut rows = 0;
    for &(&id, Waiting { tokens, wanted, .. }) in pending {
        let most = if tokens.len() - wanted > room.start { room.end } else { room.start.min(room.end) };
        let parts = (1..=tokens.len().min(most.saturating_sub(rows))).rev();
        for part in parts.filter(|&part| part == tokens.len() || part <= *wanted) {
            chunks.push((id, part));
            if fits(chunks) {
                rows += part;
                break;
            }
            chunks.pop();
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{Draw, PageChange, PageEdit};

    /// Records the rows of each step.
    #[derive(Default)]
    struct Recorder {
        steps: Vec<Vec<PlacedRow>>,
        edits: Vec<PageEdit>,
        logits: Vec<f32>,
        /// A chosen token is the number of its draw.
        chooses: bool,
        /// The best number of rows, if it is less than a step can have.
        best: Option<usize>,
    }

    impl RowVm for Recorder {
        type Error = core::convert::Infallible;

        fn limits(&self) -> RowLimits {
            RowLimits::new(8, 200, 4)
        }

        fn best_rows(&self, pending: usize) -> usize {
            pending.min(self.best.unwrap_or(8))
        }

        fn edit_page(&mut self, edit: PageEdit) -> Result<(), Self::Error> {
            self.edits.push(edit);
            Ok(())
        }

        fn step_rows(&mut self, rows: Vec<PlacedRow>) -> Result<(), Self::Error> {
            self.logits = rows.iter().map(|row| row.token.0 as f32).collect();
            self.steps.push(rows);
            Ok(())
        }

        fn chooses(&self) -> bool {
            self.chooses
        }

        fn token(&self, row: usize) -> Option<Token> {
            let choice = self.steps.last().and_then(|rows| rows[row].choice.as_ref());
            choice.filter(|_| self.chooses).map(|choice| Token(choice.draw.draw))
        }

        fn logits(&self, row: usize) -> &[f32] {
            &self.logits[row..=row]
        }
    }

    fn tokens(count: u32) -> Vec<Token> {
        (0..count).map(Token).collect()
    }

    #[test]
    fn decoding_rows_go_before_prompts_which_share_the_rest() {
        let mut session = Session::new(Recorder::default());
        let (prompt, other) = (session.add(), session.add());
        session.push(prompt, &tokens(11)).unwrap();
        session.push(other, &[Token(77)]).unwrap();
        assert_eq!(session.step().unwrap(), [other]);
        let rows = &session.vm().steps[0];
        assert_eq!(rows.iter().map(|row| row.token.0).collect::<Vec<_>>(), [77, 0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(rows.iter().filter(|row| row.wanted).count(), 1);
        assert_eq!((session.logits(other), session.logits(prompt)), (Some(&[77.0][..]), None));
        assert_eq!((session.pending(prompt).unwrap(), session.len(prompt).unwrap()), (4, 7));
        assert_eq!(session.step().unwrap(), [prompt]);
        assert_eq!(session.logits(prompt), Some(&[10.0][..]));
        assert_eq!(session.step().unwrap(), [], "nothing is pending");
    }

    #[test]
    fn prompts_beside_decoding_rows_are_bounded() {
        let mut session = Session::new(Recorder::default());
        session.bound_mixed(4);
        let ids: Vec<SequenceId> = (0..3).map(|_| session.add()).collect();
        session.push(ids[0], &tokens(6)).unwrap();
        session.push(ids[1], &tokens(9)).unwrap();
        session.push_draft(ids[2], &tokens(2)).unwrap();
        session.step().unwrap();
        assert_eq!(session.vm().steps[0].len(), 4, "two rows of the draft and two of a prompt");
        session.step().unwrap();
        assert_eq!(session.vm().steps[1].len(), 8, "nobody decodes");
        session.push_draft(ids[2], &tokens(6)).unwrap();
        session.step().unwrap();
        assert_eq!(session.vm().steps[2].len(), 7, "decoding rows are not bounded, and prompts go on");
    }

    #[test]
    fn prompts_alone_run_in_steps_that_suit_the_vm() {
        let mut session = Session::new(Recorder { best: Some(5), ..Recorder::default() });
        let [prompt, other] = [(); 2].map(|()| session.add());
        session.push(prompt, &tokens(4)).unwrap();
        session.push(other, &tokens(5)).unwrap();
        while !session.step().unwrap().is_empty() {}
        assert_eq!(session.vm().steps.iter().map(Vec::len).collect::<Vec<_>>(), [5, 4]);
    }

    #[test]
    fn rows_that_are_wanted_together_may_exceed_the_bound() {
        let mut session = Session::new(Recorder::default());
        session.bound_mixed(3);
        let (prompt, other) = (session.add(), session.add());
        session.push(prompt, &tokens(2)).unwrap();
        session.push_draft(prompt, &tokens(4)).unwrap();
        session.push(other, &[Token(7)]).unwrap();
        assert_eq!(session.step().unwrap(), [other, prompt]);
    }

    #[test]
    fn the_logits_of_a_draft_are_all_there() {
        let mut session = Session::new(Recorder::default());
        let id = session.add();
        session.push(id, &tokens(3)).unwrap();
        session.push_draft(id, &[Token(8), Token(9)]).unwrap();
        session.step().unwrap();
        assert_eq!(session.all_logits(id).collect::<Vec<_>>(), [[8.0], [9.0]]);
        session.rollback(id, 4).unwrap();
        assert_eq!((session.len(id).unwrap(), session.pending(id).unwrap()), (4, 0));
    }

    #[test]
    fn choices_go_with_the_rows_whose_tokens_are_asked_for() {
        let mut session = Session::new(Recorder { chooses: true, ..Recorder::default() });
        let (prompt, other) = (session.add(), session.add());
        let choice = |draw| Choice { draw: Draw { draw, ..Draw::default() }, ..Choice::default() };
        session.push_choosing(prompt, &tokens(9), &[choice(5)]).unwrap();
        session.push_choosing(other, &tokens(2), &[choice(6), choice(7)]).unwrap();
        assert_eq!(session.step().unwrap(), [other]);
        assert_eq!(session.outcomes(other).collect::<Vec<_>>(), [Outcome::Token(Token(6)), Outcome::Token(Token(7))]);
        assert_eq!(session.step().unwrap(), [prompt]);
        assert_eq!(session.outcomes(prompt).collect::<Vec<_>>(), [Outcome::Token(Token(5))]);
        let draws: Vec<Vec<u32>> = session.vm().steps.iter().map(|rows| draws(rows)).collect();
        assert_eq!(draws, [vec![6, 7], vec![5]]);
        session.push(prompt, &[Token(4)]).unwrap();
        session.step().unwrap();
        assert_eq!(session.outcomes(prompt).collect::<Vec<_>>(), [Outcome::Logits(&[4.0])]);
        let many = vec![choice(0); 9];
        let refused = session.push_choosing(prompt, &tokens(9), &many);
        assert_eq!(refused, Err(RowsError::Rows { found: 9, most: 8 }));
    }

    /// The draws of the rows that have a choice.
    fn draws(rows: &[PlacedRow]) -> Vec<u32> {
        rows.iter().filter_map(|row| row.choice.as_ref()).map(|choice| choice.draw.draw).collect()
    }

    #[test]
    fn wanted_tokens_run_in_one_step_and_all_sequences_get_their_turn() {
        let mut session = Session::new(Recorder::default());
        let ids: Vec<SequenceId> = (0..3).map(|_| session.add()).collect();
        let mut ran = Vec::new();
        for _ in 0..3 {
            for &id in &ids {
                if session.pending(id).unwrap() == 0 {
                    session.push_draft(id, &tokens(4)).unwrap();
                }
            }
            ran.push(session.step().unwrap());
        }
        assert_eq!(ran, [vec![ids[0], ids[1]], vec![ids[2], ids[0]], vec![ids[1], ids[2]]]);
        assert_eq!(session.all_logits(ids[2]).count(), 4);
        assert_eq!(session.push_draft(ids[0], &tokens(9)), Err(RowsError::Rows { found: 9, most: 8 }));
    }

    #[test]
    fn sequences_that_decode_take_turns_beside_prompts_and_leave_them_rows() {
        let mut session = Session::new(Recorder::default());
        let ids: Vec<SequenceId> = (0..4).map(|_| session.add()).collect();
        let mut run = |drafts: &[SequenceId], rows: u32, prompt: u32| {
            for &id in drafts {
                if session.pending(id) == Ok(0) {
                    session.push_draft(id, &tokens(rows)).unwrap();
                }
            }
            session.push(ids[3], &tokens(prompt)).unwrap();
            session.step().unwrap()
        };
        let [a, b, c, prompt] = ids[..] else { unreachable!() };
        let ran = [(); 3].map(|()| run(&[a, b, c], 3, 2));
        assert_eq!(ran, [vec![a, b, prompt], vec![c, a, prompt], vec![b, c, prompt]]);
        let mut ran = [(); 3].map(|()| run(&[a, b], 4, 0));
        assert_eq!(ran, [vec![a, b], vec![a, b], vec![a, b]], "no prompt needs rows");
        ran = [(); 3].map(|()| run(&[a, b], 4, 2));
        assert_eq!(ran, [vec![a, prompt], vec![b, prompt], vec![a, prompt]]);
    }

    #[test]
    fn a_sequence_waits_where_there_is_no_page_for_it() {
        let mut session = Session::new(Recorder::default());
        let ids: Vec<SequenceId> = (0..5).map(|_| session.add()).collect();
        ids.iter().for_each(|&id| session.push(id, &[Token(id.to_string().len() as u32)]).unwrap());
        assert_eq!(session.step().unwrap(), ids[..4]);
        assert_eq!(session.free_pages(), [0]);
        let refused = session.step().unwrap_err().to_string();
        assert_eq!(refused, "out of pages: the step needs 1 of 64 positions, 0 of 4 are free");
        session.drop(ids[1]).unwrap();
        assert_eq!(session.step().unwrap(), ids[4..]);
        assert_eq!(session.pending(ids[1]), Err(RowsError::Unknown(ids[1])));
    }

    #[test]
    fn forks_share_pages_until_one_appends() {
        let mut session = Session::new(Recorder::default());
        let first = session.add();
        session.push(first, &tokens(70)).unwrap();
        while session.pending(first).unwrap() > 0 {
            session.step().unwrap();
        }
        let second = session.fork(first, 66).unwrap();
        assert_eq!(session.free_pages(), [2]);
        session.push(second, &[Token(5)]).unwrap();
        session.step().unwrap();
        let changes = [PageChange::Copy { from: 1, to: 2 }, PageChange::Clear { page: 2, first: 2 }];
        let edits = changes.map(|change| PageEdit { group: 0, change });
        assert_eq!((session.free_pages(), session.vm().edits.as_slice()), (vec![1], &edits[..]));
        let error = session.push(second, &tokens(134)).unwrap_err();
        assert_eq!(error, RowsError::Context { sequence: second, len: 201, positions: 200 });
    }
}

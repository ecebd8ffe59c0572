//! The state of a worker between the records of a step.

use super::call::{Refusal, region};
use crate::extensions::Extensions;
use crate::tape::Piece;
use amk_ir::{BufferId, Region};
use std::collections::HashMap;
use std::ops::Range;

/// Alignment of the arguments of records and calls in words: the device reads four at a time.
pub(super) const ARGUMENT_WORDS: u32 = 4;

/// The value in a place: elements of a buffer.
pub(super) type Held = Option<(BufferId, Region)>;

/// The state of a worker between the records of a step.
pub struct WorkerState {
    /// Index of the worker.
    pub worker: u32,
    /// State kept by the kinds of records.
    pub own: Extensions,
    /// Values in the worker's memory, by place.
    pub(super) kept: HashMap<&'static str, (BufferId, Region)>,
    /// Pieces and bytes of the tape consumed so far.
    pub(super) pieces: usize,
    pub(super) tape: u64,
    /// Argument words consumed so far, by all previous workers too.
    pub(super) arguments: u32,
    /// Logits that the worker has computed.
    logits: Vec<Range<u32>>,
}

impl WorkerState {
    pub(super) fn new(worker: u32, arguments: u32) -> Self {
        let (own, kept, logits) = (Extensions::default(), HashMap::new(), Vec::new());
        Self { worker, own, kept, pieces: 0, tape: 0, arguments, logits }
    }

    /// Returns the worker's own row of a buffer with one row per worker.
    pub fn row(&self) -> Range<u32> {
        self.worker..self.worker + 1
    }

    /// Takes the next piece of the worker's tape.
    ///
    /// # Errors
    /// If there is none.
    pub fn take<'p>(&mut self, pieces: &'p [Vec<Piece>]) -> Result<&'p Piece, Refusal> {
        let piece = pieces.get(self.worker as usize).and_then(|pieces| pieces.get(self.pieces));
        let piece = piece.ok_or_else(|| Refusal::new("tape", "has no more pieces"))?;
        self.pieces += 1;
        self.tape += piece.bytes();
        Ok(piece)
    }

    /// Takes the next argument words of the image, which must begin at word `at`.
    ///
    /// # Errors
    /// If they begin elsewhere, are fewer than `count`, or are followed by others of the same task.
    pub fn arguments<'p>(&mut self, words: &'p [u32], at: u32, count: u32) -> Result<&'p [u32], Refusal> {
        let end = at.checked_add(count).and_then(|end| end.checked_next_multiple_of(ARGUMENT_WORDS));
        let next = end.filter(|_| at == self.arguments);
        let found = next.and_then(|end| Some((end, words.get(at as usize..end as usize)?)));
        let (end, found) = found.ok_or_else(|| {
            Refusal::new("aux, partial", format!("are not the argument words from {} on", self.arguments))
        })?;
        let (own, rest) = found.split_at(count as usize);
        if rest.iter().any(|&word| word != 0) {
            return Err(Refusal::new("aux, partial", "name arguments with a word behind them that is not 0"));
        }
        self.arguments = end;
        Ok(own)
    }

    /// Records that a task has computed some logits.
    pub fn computed(&mut self, logits: Range<u32>) {
        match self.logits.last_mut() {
            Some(last) if last.end == logits.start => last.end = logits.end,
            _ => self.logits.push(logits),
        }
    }

    /// Checks that a record that reads logits covers all that the worker computed.
    ///
    /// # Errors
    /// If it covers others.
    pub fn check_logits(&self, rows: &Range<u32>) -> Result<(), Refusal> {
        let same = match &self.logits[..] {
            [] => rows.is_empty() && rows.start == 0,
            [computed] => computed == rows,
            _ => false,
        };
        let what =
            || format!("give the logits {}, the worker has {:?}", region(std::slice::from_ref(rows)), self.logits);
        if same { Ok(()) } else { Err(Refusal::new("units, row", what())) }
    }
}

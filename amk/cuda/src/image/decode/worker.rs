//! What a worker holds from record to record of a step.

use super::call::{Refusal, region};
use crate::image::abi::{OP_BEST, OP_PROBE, ROUNDS, Record};
use crate::tape::Piece;
use amk_ir::{BufferId, Region};
use std::ops::Range;

/// The value that a place holds: some elements of a buffer.
pub(super) type Held = Option<(BufferId, Region)>;

/// What a worker holds from record to record of a step.
pub(super) struct WorkerState {
    pub(super) worker: u32,
    /// The residual in shared memory.
    pub(super) residual: Held,
    /// The search for a token in shared memory.
    pub(super) search: Held,
    /// Pieces of the tape taken so far, and their bytes.
    pub(super) pieces: usize,
    pub(super) tape: u64,
    /// Words of the arguments read so far, by all workers before this one too.
    pub(super) arguments: u32,
    /// Logits that the worker has computed, of which it knows the best.
    logits: Vec<Range<u32>>,
    /// Probes since the best logit was published; `None` before that.
    pub(super) probes: Option<u32>,
}

impl WorkerState {
    pub(super) fn new(worker: u32, arguments: u32) -> Self {
        Self { worker, residual: None, search: None, pieces: 0, tape: 0, arguments, logits: Vec::new(), probes: None }
    }

    /// The worker's own row of a buffer that has one for each.
    pub(super) fn own(&self) -> Range<u32> {
        self.worker..self.worker + 1
    }

    /// Takes the next piece of the tape.
    pub(super) fn take<'p>(&mut self, pieces: &'p [Piece]) -> Result<&'p Piece, Refusal> {
        let piece = pieces.get(self.pieces).ok_or_else(|| Refusal::new("tape", "has no more pieces"))?;
        self.pieces += 1;
        self.tape += piece.bytes();
        Ok(piece)
    }

    /// A projection or a generic task has computed some logits.
    pub(super) fn computed(&mut self, logits: Range<u32>) {
        match self.logits.last_mut() {
            Some(last) if last.end == logits.start => last.end = logits.end,
            _ => self.logits.push(logits),
        }
    }

    /// Checks that a record that looks at logits has all that the worker computed.
    pub(super) fn check_logits(&self, rows: &Range<u32>) -> Result<(), Refusal> {
        let same = match &self.logits[..] {
            [] => rows.is_empty() && rows.start == 0,
            [computed] => computed == rows,
            _ => false,
        };
        let what =
            || format!("give the logits {}, the worker has {:?}", region(std::slice::from_ref(rows)), self.logits);
        if same { Ok(()) } else { Err(Refusal::new("units, row", what())) }
    }

    /// Checks that probes follow the best logit at once, all of them: an unfiltered step skips
    /// so many records.
    pub(super) fn check_order(&mut self, record: &Record) -> Result<(), Refusal> {
        let op = u32::from(record.op);
        let due = self.probes.is_some_and(|probes| probes < ROUNDS);
        if due != (op == OP_PROBE) {
            return Err(Refusal::new("op", format!("is {op}: {ROUNDS} probes follow the best logit")));
        }
        if op == OP_BEST && self.probes.replace(0).is_some() {
            return Err(Refusal::new("op", "is another best logit of a step"));
        }
        Ok(())
    }

    /// Checks that the queue ends where a step may end.
    pub(super) fn check_end(&self) -> Result<(), Refusal> {
        match self.probes {
            Some(ROUNDS) => Ok(()),
            _ => Err(Refusal::new("op", "the queue ends before a token is chosen")),
        }
    }
}

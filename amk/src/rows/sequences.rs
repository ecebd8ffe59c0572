//! Sequences, their page tables, and the contract of a step.

use super::pool::Pool;
use super::{HOLE, PAGE, PlacedRow, ROLLBACK, Row, RowLimits};
use core::ops::Range;
use core::{fmt, mem};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A sequence of a [`Sequences`]. The id of one that was dropped is never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SequenceId {
    slot: u32,
    /// Sequences that had the slot before.
    generation: u32,
}

impl fmt::Display for SequenceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sequence {}.{}", self.slot, self.generation)
    }
}

/// Why rows cannot be a step, or a sequence cannot be what is asked. Nothing has changed then.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RowsError {
    /// A sequence was dropped, or never added.
    #[error("{0} does not exist; it may have been dropped")]
    Unknown(SequenceId),
    /// A step without rows, or with too many.
    #[error("a step of {found} rows; this program takes 1 to {most}")]
    Rows {
        /// The number.
        found: usize,
        /// The most.
        most: usize,
    },
    /// A row is not at the next position of its sequence.
    #[error(
        "row {row} is at position {pos} of {sequence}, whose next position is {next}; roll the sequence back to \
         write a position again"
    )]
    Position {
        /// The row.
        row: usize,
        /// Its sequence.
        sequence: SequenceId,
        /// Its position.
        pos: u32,
        /// The position that it could have.
        next: usize,
    },
    /// Rows of a sequence are not neighbours.
    #[error("rows {first} and {second} are of {sequence}, and others are between them; put its rows side by side")]
    Apart {
        /// The sequence.
        sequence: SequenceId,
        /// A row.
        first: usize,
        /// A later row.
        second: usize,
    },
    /// A sequence would become longer than the context.
    #[error("{sequence} would have {len} positions; the context has {positions}")]
    Context {
        /// The sequence.
        sequence: SequenceId,
        /// Positions that it would have.
        len: usize,
        /// Positions of the context.
        positions: usize,
    },
    /// There are not enough free pages.
    #[error("out of pages: the step needs {needed} of {PAGE} positions, {free} of {pages} are free")]
    Pages {
        /// Pages that the step needs.
        needed: usize,
        /// Free ones.
        free: usize,
        /// All.
        pages: usize,
    },
    /// A sequence is shorter than what should be kept of it.
    #[error("{sequence} has {len} positions, {kept} cannot be kept")]
    Truncate {
        /// The sequence.
        sequence: SequenceId,
        /// Positions that it has.
        len: usize,
        /// Positions to keep.
        kept: usize,
    },
    /// Rows after the positions to keep would read pages that were given back.
    #[error(
        "{sequence} cannot go on after {kept} positions: rows there read pages before position {first}, which were \
         given back"
    )]
    GivenBack {
        /// The sequence.
        sequence: SequenceId,
        /// Positions to keep.
        kept: usize,
        /// The first position that still has a page.
        first: usize,
    },
}

/// The rows of a step with their pages, and what to do before it.
#[derive(Clone, PartialEq, Debug)]
pub struct Placed {
    /// What to do to pages before the step, in this order.
    pub edits: Vec<PageEdit>,
    /// The rows.
    pub rows: Vec<PlacedRow>,
}

/// A change of a page, of every state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageEdit {
    /// Copies a shared page: a sequence goes on in the copy.
    Copy {
        /// The page.
        from: u32,
        /// Its copy.
        to: u32,
    },
    /// Sets the positions of a page from `first` on to 0, as in a state that nobody has written.
    Clear {
        /// The page.
        page: u32,
        /// A position in the page, below [`PAGE`].
        first: u32,
    },
}

/// A sequence's page table.
#[derive(Clone, Debug, Default)]
struct Sequence {
    /// The page of each block of positions.
    pages: Vec<u32>,
    /// Blocks whose pages were given back, the first ones: [`HOLE`]s.
    holes: usize,
    /// Positions that have been written.
    len: usize,
    /// Whether its last page may hold something behind them: of what was rolled back, or of the
    /// sequence that it was forked from.
    stale: bool,
}

/// The sequences of a VM.
#[derive(Clone, Debug)]
pub struct Sequences {
    limits: RowLimits,
    pool: Pool,
    slots: Vec<(u32, Option<Sequence>)>,
}

/// Consecutive rows of one sequence.
struct Chunk {
    sequence: SequenceId,
    first: usize,
    len: usize,
}

impl Sequences {
    /// No sequences.
    pub fn new(limits: RowLimits) -> Self {
        let pages = u32::try_from(limits.pages).unwrap_or(u32::MAX);
        Self { limits, pool: Pool::new(pages), slots: Vec::new() }
    }

    /// The sizes.
    pub fn limits(&self) -> RowLimits {
        self.limits
    }

    /// Free pages.
    pub fn free_pages(&self) -> usize {
        self.pool.free()
    }

    /// The sequences that exist.
    pub fn ids(&self) -> impl Iterator<Item = SequenceId> {
        let living = self.slots.iter().zip(0..).filter(|((_, sequence), _)| sequence.is_some());
        living.map(|(&(generation, _), slot)| SequenceId { slot, generation })
    }

    /// Adds an empty sequence. It takes no page before its first row.
    pub fn add(&mut self) -> SequenceId {
        self.insert(Sequence::default())
    }

    fn insert(&mut self, sequence: Sequence) -> SequenceId {
        let slot = self.slots.iter().position(|(_, sequence)| sequence.is_none()).unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() - 1
        });
        self.slots[slot].1 = Some(sequence);
        SequenceId { slot: slot as u32, generation: self.slots[slot].0 }
    }

    fn get(&self, id: SequenceId) -> Result<&Sequence, RowsError> {
        let slot = self.slots.get(id.slot as usize).filter(|(generation, _)| *generation == id.generation);
        slot.and_then(|(_, sequence)| sequence.as_ref()).ok_or(RowsError::Unknown(id))
    }

    fn get_mut(&mut self, id: SequenceId) -> Result<&mut Sequence, RowsError> {
        let slot = self.slots.get_mut(id.slot as usize).filter(|(generation, _)| *generation == id.generation);
        slot.and_then(|(_, sequence)| sequence.as_mut()).ok_or(RowsError::Unknown(id))
    }

    /// Positions of a sequence.
    ///
    /// # Errors
    /// [`RowsError::Unknown`].
    pub fn len(&self, id: SequenceId) -> Result<usize, RowsError> {
        self.get(id).map(|sequence| sequence.len)
    }

    /// Whether there are no sequences.
    pub fn is_empty(&self) -> bool {
        self.ids().next().is_none()
    }

    /// Pages that a sequence has and shares with no other.
    ///
    /// # Errors
    /// [`RowsError::Unknown`].
    pub fn own_pages(&self, id: SequenceId) -> Result<usize, RowsError> {
        let Sequence { pages, holes, .. } = self.get(id)?;
        Ok(pages[*holes..].iter().filter(|&&page| self.pool.users(page) == 1).count())
    }

    /// Checks that a sequence can go on after its first `len` positions: it has these, and all that
    /// the rows after them read.
    ///
    /// # Errors
    /// [`RowsError::Unknown`], [`RowsError::Truncate`] and [`RowsError::GivenBack`].
    pub fn can_keep(&self, id: SequenceId, len: usize) -> Result<(), RowsError> {
        let sequence = self.get(id)?;
        if len > sequence.len {
            return Err(RowsError::Truncate { sequence: id, len: sequence.len, kept: len });
        }
        let holes = sequence.holes.min(RowLimits::pages_of(len));
        if holes > self.limits.first_read(len) / PAGE {
            return Err(RowsError::GivenBack { sequence: id, kept: len, first: sequence.holes * PAGE });
        }
        Ok(())
    }

    /// Adds a sequence with the first `len` positions of another. The two share their pages; who
    /// appends to a shared page first goes on in a copy of it.
    ///
    /// # Errors
    /// As [`Self::can_keep`].
    pub fn fork(&mut self, id: SequenceId, len: usize) -> Result<SequenceId, RowsError> {
        self.can_keep(id, len)?;
        let original = self.get(id)?;
        let pages = original.pages[..RowLimits::pages_of(len)].to_vec();
        let holes = original.holes.min(pages.len());
        let stale = original.stale || len < original.len;
        pages[holes..].iter().for_each(|&page| self.pool.share(page));
        Ok(self.insert(Sequence { pages, holes, len, stale }))
    }

    /// Keeps the first `len` positions of a sequence; the others can be written again. What its
    /// last step appended can be taken back in any case, and [`ROLLBACK`] positions before the step
    /// that began furthest.
    ///
    /// # Errors
    /// As [`Self::can_keep`].
    pub fn truncate(&mut self, id: SequenceId, len: usize) -> Result<(), RowsError> {
        self.can_keep(id, len)?;
        let sequence = self.get_mut(id)?;
        sequence.stale |= len < sequence.len;
        sequence.len = len;
        let left = sequence.pages.split_off(RowLimits::pages_of(len));
        sequence.holes = sequence.holes.min(sequence.pages.len());
        left.into_iter().filter(|&page| page != HOLE).for_each(|page| self.pool.release(page));
        Ok(())
    }

    /// Drops a sequence.
    ///
    /// # Errors
    /// [`RowsError::Unknown`].
    pub fn drop(&mut self, id: SequenceId) -> Result<(), RowsError> {
        self.truncate(id, 0)?;
        let (generation, sequence) = &mut self.slots[id.slot as usize];
        (*generation, *sequence) = (generation.wrapping_add(1), None);
        Ok(())
    }

    /// Checks the contract of a step and gives its rows their pages. The sequences have the new
    /// positions from then on.
    ///
    /// # Errors
    /// Any [`RowsError`] but [`RowsError::Truncate`] and [`RowsError::GivenBack`]; nothing has
    /// changed then.
    pub fn place(&mut self, rows: &[Row]) -> Result<Placed, RowsError> {
        let chunks = self.chunks(rows)?;
        let counts: Vec<_> = chunks.iter().map(|chunk| (chunk.sequence, chunk.len)).collect();
        let needed = self.pages_for(&counts)?;
        let (free, pages) = (self.pool.free(), self.pool.pages());
        if needed > free {
            return Err(RowsError::Pages { needed, free, pages });
        }
        let mut placed = Placed { edits: Vec::new(), rows: Vec::with_capacity(rows.len()) };
        for chunk in &chunks {
            self.give_back(chunk.sequence)?;
        }
        for chunk in &chunks {
            let table = self.extend(chunk, &mut placed.edits)?;
            let rows = rows[chunk.first..chunk.first + chunk.len].iter();
            placed.rows.extend(rows.map(|&Row { token, pos, wanted, .. }| PlacedRow {
                token,
                pos,
                pages: Arc::clone(&table),
                wanted,
                choice: None,
            }));
        }
        Ok(placed)
    }

    /// The rows by sequence: neighbours, at the next positions, in the context.
    fn chunks(&self, rows: &[Row]) -> Result<Vec<Chunk>, RowsError> {
        let most = self.limits.rows;
        if rows.is_empty() || rows.len() > most {
            return Err(RowsError::Rows { found: rows.len(), most });
        }
        let mut chunks: Vec<Chunk> = Vec::new();
        for (row, &Row { sequence, pos, .. }) in rows.iter().enumerate() {
            match chunks.last_mut().filter(|chunk| chunk.sequence == sequence) {
                Some(chunk) => chunk.len += 1,
                None => {
                    if let Some(before) = chunks.iter().find(|chunk| chunk.sequence == sequence) {
                        return Err(RowsError::Apart { sequence, first: before.first, second: row });
                    }
                    chunks.push(Chunk { sequence, first: row, len: 1 });
                }
            }
            let next = self.get(sequence)?.len + row - chunks.last().map_or(row, |chunk| chunk.first);
            if pos.index() != next {
                return Err(RowsError::Position { row, sequence, pos: pos.0, next });
            }
            if next >= self.limits.positions {
                return Err(RowsError::Context { sequence, len: next + 1, positions: self.limits.positions });
            }
        }
        Ok(chunks)
    }

    /// The page to which a sequence appends next, if it is there.
    fn open_page(sequence: &Sequence) -> Option<u32> {
        (!sequence.len.is_multiple_of(PAGE)).then(|| sequence.pages[sequence.len / PAGE])
    }

    /// The blocks of a sequence whose pages its next row leaves behind.
    fn left_behind(&self, sequence: &Sequence) -> Range<usize> {
        let kept = self.limits.first_read(sequence.len.saturating_sub(ROLLBACK)) / PAGE;
        sequence.holes..kept.max(sequence.holes)
    }

    /// Gives back the pages that neither the next rows of a sequence read nor those that it can be
    /// rolled back to.
    fn give_back(&mut self, id: SequenceId) -> Result<(), RowsError> {
        let left = self.left_behind(self.get(id)?);
        let sequence = self.get_mut(id)?;
        sequence.holes = left.end;
        let pages: Vec<u32> = sequence.pages[left].iter_mut().map(|page| mem::replace(page, HOLE)).collect();
        pages.into_iter().for_each(|page| self.pool.release(page));
        Ok(())
    }

    /// Free pages that a step needs for so many rows of each sequence: new ones, and copies of
    /// shared ones, less those that the step gives back. The last sequence that appends to a page
    /// keeps it.
    ///
    /// # Errors
    /// [`RowsError::Unknown`].
    pub fn pages_for(&self, counts: &[(SequenceId, usize)]) -> Result<usize, RowsError> {
        let (mut new, mut open, mut left) = (0, BTreeMap::<u32, u32>::new(), BTreeMap::<u32, u32>::new());
        for &(id, rows) in counts {
            let sequence = self.get(id)?;
            new += RowLimits::pages_of(sequence.len + rows) - sequence.pages.len();
            if let Some(page) = Self::open_page(sequence) {
                *open.entry(page).or_default() += 1;
            }
            for &page in &sequence.pages[self.left_behind(sequence)] {
                *left.entry(page).or_default() += 1;
            }
        }
        let users = |page: &u32| self.pool.users(*page) - left.get(page).copied().unwrap_or(0);
        let copies: usize = open.iter().map(|(page, &appending)| appending.min(users(page) - 1) as usize).sum();
        let free = left.keys().filter(|page| users(page) == 0).count();
        Ok((new + copies).saturating_sub(free))
    }

    /// Gives a sequence the pages for its rows.
    fn extend(&mut self, chunk: &Chunk, edits: &mut Vec<PageEdit>) -> Result<Arc<[u32]>, RowsError> {
        let Sequence { mut pages, holes, len, stale } = self.get(chunk.sequence)?.clone();
        let out = || RowsError::Pages { needed: 1, free: 0, pages: self.limits.pages };
        if let Some(open) = pages.get_mut(len / PAGE) {
            if self.pool.users(*open) > 1 {
                let (copy, _) = self.pool.take().ok_or_else(out)?;
                self.pool.release(*open);
                edits.push(PageEdit::Copy { from: *open, to: copy });
                *open = copy;
            }
            if stale {
                edits.push(PageEdit::Clear { page: *open, first: (len % PAGE) as u32 });
            }
        }
        let len = len + chunk.len;
        while pages.len() < RowLimits::pages_of(len) {
            let (page, used) = self.pool.take().ok_or_else(out)?;
            if used {
                edits.push(PageEdit::Clear { page, first: 0 });
            }
            pages.push(page);
        }
        let table = Arc::from(pages.as_slice());
        *self.get_mut(chunk.sequence)? = Sequence { pages, holes, len, stale: false };
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{Pos, Token};

    const LIMITS: RowLimits = RowLimits { rows: 100, positions: 200, pages: 6, reach: None };

    fn rows(sequence: SequenceId, positions: core::ops::Range<u32>) -> Vec<Row> {
        positions.map(|pos| Row { token: Token(pos), pos: Pos(pos), sequence, wanted: false }).collect()
    }

    #[test]
    fn a_fork_shares_pages_until_one_appends() {
        let mut sequences = Sequences::new(LIMITS);
        let a = sequences.add();
        let first = sequences.place(&rows(a, 0..70)).unwrap();
        assert_eq!((first.edits.len(), &*first.rows[69].pages), (0, &[0, 1][..]));
        let b = sequences.fork(a, 66).unwrap();
        assert_eq!((sequences.len(b), sequences.free_pages()), (Ok(66), 4));
        let placed = sequences.place(&[rows(a, 70..71), rows(b, 66..68)].concat()).unwrap();
        let edits = [PageEdit::Copy { from: 1, to: 2 }, PageEdit::Clear { page: 1, first: 2 }];
        assert_eq!(placed.edits, edits, "who appends first gets a copy, the other keeps the page");
        assert_eq!((&*placed.rows[0].pages, &*placed.rows[1].pages), (&[0, 2][..], &[0, 1][..]));
        sequences.drop(a).unwrap();
        assert_eq!((sequences.free_pages(), sequences.len(a)), (4, Err(RowsError::Unknown(a))));
        assert_ne!(sequences.add(), a);
    }

    #[test]
    fn a_fork_at_a_page_shares_it_for_good() {
        let mut sequences = Sequences::new(LIMITS);
        let a = sequences.add();
        sequences.place(&rows(a, 0..64)).unwrap();
        let b = sequences.fork(a, 64).unwrap();
        let placed = sequences.place(&[rows(a, 64..65), rows(b, 64..65)].concat()).unwrap();
        assert_eq!((placed.edits.len(), sequences.free_pages()), (0, 3));
    }

    #[test]
    fn positions_are_written_again_after_a_rollback() {
        let mut sequences = Sequences::new(LIMITS);
        let a = sequences.add();
        sequences.place(&rows(a, 0..80)).unwrap();
        sequences.truncate(a, 10).unwrap();
        assert_eq!((sequences.len(a), sequences.free_pages()), (Ok(10), 5));
        let placed = sequences.place(&rows(a, 10..12)).unwrap();
        assert_eq!(placed.edits, [PageEdit::Clear { page: 0, first: 10 }]);
        assert_eq!(sequences.place(&rows(a, 12..13)).unwrap().edits, []);
        assert_eq!(sequences.truncate(a, 20), Err(RowsError::Truncate { sequence: a, len: 13, kept: 20 }));
    }

    #[test]
    fn a_page_that_another_sequence_had_is_cleared() {
        let mut sequences = Sequences::new(LIMITS);
        let a = sequences.add();
        sequences.place(&rows(a, 0..10)).unwrap();
        sequences.drop(a).unwrap();
        let b = sequences.add();
        let placed = sequences.place(&rows(b, 0..70)).unwrap();
        assert_eq!((placed.edits, &*placed.rows[0].pages), (vec![PageEdit::Clear { page: 0, first: 0 }], &[0, 1][..]));
    }

    #[test]
    fn pages_behind_a_window_are_given_back() {
        let limits = RowLimits { positions: 1000, pages: 4, reach: Some(70), ..LIMITS };
        let mut sequences = Sequences::new(limits);
        let a = sequences.add();
        for first in (0..940).step_by(20) {
            let placed = sequences.place(&rows(a, first..first + 20)).unwrap();
            let kept = (first as usize + 1).saturating_sub(70 + ROLLBACK) / PAGE;
            let table = &placed.rows[0].pages;
            assert_eq!(table.iter().position(|&page| page != HOLE), Some(kept), "{first}: {table:?}");
            assert!(limits.pages - sequences.free_pages() <= limits.pages_at_once(940));
        }
        assert_eq!(sequences.free_pages(), 1);
        // The step at 920 gave back what rows before 856 read.
        let cannot = RowsError::GivenBack { sequence: a, kept: 832, first: 12 * PAGE };
        assert_eq!(sequences.truncate(a, 832), Err(cannot.clone()));
        assert!(sequences.fork(a, 832).is_err() && cannot.to_string().contains("before position 768"));
        sequences.truncate(a, 940 - ROLLBACK).unwrap();
        sequences.truncate(a, 837).unwrap();
        assert_eq!(sequences.truncate(a, 836), Err(RowsError::GivenBack { sequence: a, kept: 836, first: 12 * PAGE }));
        // From the start everything is written again.
        sequences.truncate(a, 0).unwrap();
        assert_eq!((sequences.free_pages(), sequences.place(&rows(a, 0..5)).unwrap().rows[0].pages.len()), (4, 1));
    }

    #[test]
    fn a_page_goes_back_when_the_last_that_shares_it_leaves_it_behind() {
        let limits = RowLimits { positions: 1000, pages: 9, reach: Some(1), ..LIMITS };
        let mut sequences = Sequences::new(limits);
        let a = sequences.add();
        (0..3).for_each(|at| _ = sequences.place(&rows(a, 64 * at..64 * (at + 1))).unwrap());
        let b = sequences.fork(a, 192).unwrap();
        assert_eq!((sequences.free_pages(), sequences.own_pages(a), sequences.own_pages(b)), (7, Ok(0), Ok(0)));
        // Both leave the page before the last behind: where one does, it is not free.
        assert_eq!(sequences.pages_for(&[(a, 1)]), Ok(1));
        assert_eq!(sequences.pages_for(&[(a, 1), (b, 1)]), Ok(1));
        sequences.place(&rows(a, 192..193)).unwrap();
        assert_eq!((sequences.free_pages(), sequences.own_pages(a)), (6, Ok(1)));
        sequences.place(&rows(b, 192..193)).unwrap();
        assert_eq!(sequences.free_pages(), 6);
    }

    #[test]
    fn steps_that_break_the_contract_change_nothing() {
        let mut sequences = Sequences::new(LIMITS);
        let (a, b) = (sequences.add(), sequences.add());
        let refused = |sequences: &mut Sequences, rows: &[Row]| {
            let before = (sequences.free_pages(), sequences.len(a), sequences.len(b));
            let error = sequences.place(rows).unwrap_err();
            assert_eq!(before, (sequences.free_pages(), sequences.len(a), sequences.len(b)));
            error.to_string()
        };
        assert_eq!(refused(&mut sequences, &[]), "a step of 0 rows; this program takes 1 to 100");
        let apart = [rows(a, 0..1), rows(b, 0..1), rows(a, 1..2)].concat();
        assert!(refused(&mut sequences, &apart).starts_with("rows 0 and 2 are of sequence 0.0"));
        assert!(refused(&mut sequences, &rows(a, 1..2)).contains("whose next position is 0"));
        let twice = [rows(a, 0..1), rows(a, 0..1)].concat();
        assert!(refused(&mut sequences, &twice).starts_with("row 1 is at position 0"));
        sequences.place(&rows(a, 0..100)).unwrap();
        sequences.place(&rows(a, 100..190)).unwrap();
        assert_eq!(
            refused(&mut sequences, &rows(a, 190..201)),
            "sequence 0.0 would have 201 positions; the context has 200"
        );
        sequences.place(&rows(b, 0..64)).unwrap();
        let pages = [rows(b, 64..160), rows(a, 190..194)].concat();
        assert_eq!(refused(&mut sequences, &pages), "out of pages: the step needs 3 of 64 positions, 2 of 6 are free");
    }
}

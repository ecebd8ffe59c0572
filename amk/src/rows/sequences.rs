//! Sequences, their page tables, and the contract of a step.

use super::pool::Pool;
use super::{GroupName, HOLE, PAGE, PageGroup, PageTables, PlacedRow, ROLLBACK, Row, RowLimits};
use core::ops::Range;
use core::{fmt, mem};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A sequence in a [`Sequences`]. The id of a dropped sequence is never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SequenceId {
    slot: u32,
    /// The number of sequences that used the slot before.
    generation: u32,
}

impl fmt::Display for SequenceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sequence {}.{}", self.slot, self.generation)
    }
}

/// The reasons why rows cannot form a step, or an operation on a sequence is refused. Nothing has
/// changed in either case.
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
    /// The rows of a sequence are not adjacent.
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
    /// A group does not have enough free pages.
    #[error("out of pages{group}: the step needs {needed} of {PAGE} positions, {free} of {pages} are free")]
    Pages {
        /// The group.
        group: GroupName,
        /// Pages that the step needs.
        needed: usize,
        /// Free ones.
        free: usize,
        /// All.
        pages: usize,
    },
    /// A sequence is shorter than the part of it to keep.
    #[error("{sequence} has {len} positions, {kept} cannot be kept")]
    Truncate {
        /// The sequence.
        sequence: SequenceId,
        /// Positions that it has.
        len: usize,
        /// Positions to keep.
        kept: usize,
    },
    /// Rows after the positions to keep would read pages that were returned to the pool.
    #[error(
        "{sequence} cannot go on after {kept} positions: rows there read pages{group} before position {first}, which \
         were given back"
    )]
    GivenBack {
        /// The group.
        group: GroupName,
        /// The sequence.
        sequence: SequenceId,
        /// Positions to keep.
        kept: usize,
        /// The first position that still has a page.
        first: usize,
    },
}

/// The rows of a step with their pages, and the page edits before it.
#[derive(Clone, PartialEq, Debug)]
pub struct Placed {
    /// The page edits before the step, in this order.
    pub edits: Vec<PageEdit>,
    /// The rows.
    pub rows: Vec<PlacedRow>,
}

/// A change to a page, in every state of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageEdit {
    /// The group.
    pub group: usize,
    /// The change of one of its pages.
    pub change: PageChange,
}

/// A change to a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageChange {
    /// Copies a shared page; a sequence continues in the copy.
    Copy {
        /// The page.
        from: u32,
        /// Its copy.
        to: u32,
    },
    /// Sets the positions of a page from `first` on to 0, as in a newly created state.
    Clear {
        /// The page.
        page: u32,
        /// A position in the page, below [`PAGE`].
        first: u32,
    },
}

impl PageChange {
    /// The pages that it touches.
    pub fn pages(self) -> impl Iterator<Item = u32> {
        let (from, to) = match self {
            Self::Copy { from, to } => (Some(from), to),
            Self::Clear { page, .. } => (None, page),
        };
        from.into_iter().chain([to])
    }
}

/// A sequence, with its page table for each group.
#[derive(Clone, Debug)]
struct Sequence {
    tables: Vec<Table>,
    /// Positions that have been written.
    len: usize,
    /// Whether its last pages may hold data beyond its end, from a rollback or from the sequence
    /// that it was forked from.
    stale: bool,
}

/// A sequence's page table of a group.
#[derive(Clone, Debug, Default)]
struct Table {
    /// The page of each block of positions.
    pages: Vec<u32>,
    /// The number of leading blocks whose pages were returned: [`HOLE`]s.
    holes: usize,
}

impl Table {
    /// The pages that were not returned.
    fn kept(&self) -> &[u32] {
        &self.pages[self.holes..]
    }

    /// Removes the blocks after the first `len` positions. Returns their pages.
    fn cut(&mut self, len: usize) -> impl Iterator<Item = u32> + use<> {
        let left = self.pages.split_off(RowLimits::pages_of(len));
        self.holes = self.holes.min(self.pages.len());
        left.into_iter().filter(|&page| page != HOLE)
    }

    /// The page to which a sequence of `len` positions appends next, if it exists.
    fn open_page(&self, len: usize) -> Option<u32> {
        (!len.is_multiple_of(PAGE)).then(|| self.pages[len / PAGE])
    }

    /// Takes pages for new positions from the pool, which must have them. If there may be `stale`
    /// data after the last position, it is cleared.
    fn extend(&mut self, new: &Range<usize>, stale: bool, pool: &mut Pool, change: &mut dyn FnMut(PageChange)) {
        if let Some(open) = self.pages.get_mut(new.start / PAGE) {
            if pool.users(*open) > 1
                && let Some((copy, _)) = pool.take()
            {
                pool.release(*open);
                change(PageChange::Copy { from: mem::replace(open, copy), to: copy });
            }
            if stale {
                change(PageChange::Clear { page: *open, first: (new.start % PAGE) as u32 });
            }
        }
        while self.pages.len() < RowLimits::pages_of(new.end)
            && let Some((page, used)) = pool.take()
        {
            if used {
                change(PageChange::Clear { page, first: 0 });
            }
            self.pages.push(page);
        }
    }

    /// The blocks whose pages the next row of a sequence of `len` positions no longer needs.
    fn left_behind(&self, group: &PageGroup, len: usize) -> Range<usize> {
        let kept = group.first_read(len.saturating_sub(ROLLBACK)) / PAGE;
        self.holes..kept.max(self.holes)
    }
}

/// The sequences of a VM.
#[derive(Clone, Debug)]
pub struct Sequences {
    limits: RowLimits,
    /// The pages of each group.
    pools: Vec<Pool>,
    slots: Vec<(u32, Option<Sequence>)>,
}

/// Consecutive rows of one sequence.
struct Chunk {
    sequence: SequenceId,
    first: usize,
    len: usize,
}

impl Sequences {
    /// Returns no sequences.
    pub fn new(limits: RowLimits) -> Self {
        let pages = |group: &PageGroup| u32::try_from(group.pages).unwrap_or(u32::MAX);
        let pools = limits.groups.iter().map(|group| Pool::new(pages(group))).collect();
        Self { limits, pools, slots: Vec::new() }
    }

    /// The sizes.
    pub fn limits(&self) -> &RowLimits {
        &self.limits
    }

    /// Free pages of each group.
    pub fn free_pages(&self) -> Vec<usize> {
        self.pools.iter().map(Pool::free).collect()
    }

    /// The sequences that exist.
    pub fn ids(&self) -> impl Iterator<Item = SequenceId> {
        let living = self.slots.iter().zip(0..).filter(|((_, sequence), _)| sequence.is_some());
        living.map(|(&(generation, _), slot)| SequenceId { slot, generation })
    }

    /// Adds an empty sequence. It takes no page before its first row.
    pub fn add(&mut self) -> SequenceId {
        let tables = vec![Table::default(); self.pools.len()];
        self.insert(Sequence { tables, len: 0, stale: false })
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

    /// Returns a sequence, with the sizes and the pages of each group.
    fn get_mut(&mut self, id: SequenceId) -> Result<(&mut Sequence, &[PageGroup], &mut [Pool]), RowsError> {
        let slot = self.slots.get_mut(id.slot as usize).filter(|(generation, _)| *generation == id.generation);
        let sequence = slot.and_then(|(_, sequence)| sequence.as_mut()).ok_or(RowsError::Unknown(id))?;
        Ok((sequence, &self.limits.groups, &mut self.pools))
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

    /// The number of pages of each group that a sequence has and shares with no other.
    ///
    /// # Errors
    /// [`RowsError::Unknown`].
    pub fn own_pages(&self, id: SequenceId) -> Result<Vec<usize>, RowsError> {
        let own = |(table, pool): (&Table, &Pool)| table.kept().iter().filter(|&&page| pool.users(page) == 1).count();
        Ok(self.get(id)?.tables.iter().zip(&self.pools).map(own).collect())
    }

    /// Checks that a sequence can continue after its first `len` positions: that it has these, and
    /// everything that the following rows read.
    ///
    /// # Errors
    /// [`RowsError::Unknown`], [`RowsError::Truncate`] and [`RowsError::GivenBack`].
    pub fn can_keep(&self, id: SequenceId, len: usize) -> Result<(), RowsError> {
        let sequence = self.get(id)?;
        if len > sequence.len {
            return Err(RowsError::Truncate { sequence: id, len: sequence.len, kept: len });
        }
        for (number, (table, group)) in sequence.tables.iter().zip(&self.limits.groups).enumerate() {
            if table.holes.min(RowLimits::pages_of(len)) > group.first_read(len) / PAGE {
                let (group, first) = (self.limits.name(number), table.holes * PAGE);
                return Err(RowsError::GivenBack { group, sequence: id, kept: len, first });
            }
        }
        Ok(())
    }

    /// Adds a sequence with the first `len` positions of another. The two share their pages; the
    /// first to append to a shared page continues in a copy of it.
    ///
    /// # Errors
    /// As for [`Self::can_keep`].
    pub fn fork(&mut self, id: SequenceId, len: usize) -> Result<SequenceId, RowsError> {
        self.can_keep(id, len)?;
        let original = self.get(id)?;
        let mut fork = Sequence { len, stale: original.stale || len < original.len, ..original.clone() };
        for (table, pool) in fork.tables.iter_mut().zip(&mut self.pools) {
            let _ = table.cut(len);
            table.kept().iter().for_each(|&page| pool.share(page));
        }
        Ok(self.insert(fork))
    }

    /// Keeps the first `len` positions of a sequence; the others can be written again. The
    /// positions that its last step appended can always be removed, and so can [`ROLLBACK`]
    /// positions before the step that began furthest.
    ///
    /// # Errors
    /// As for [`Self::can_keep`].
    pub fn truncate(&mut self, id: SequenceId, len: usize) -> Result<(), RowsError> {
        self.can_keep(id, len)?;
        let (sequence, _, pools) = self.get_mut(id)?;
        sequence.stale |= len < sequence.len;
        sequence.len = len;
        for (table, pool) in sequence.tables.iter_mut().zip(pools) {
            table.cut(len).for_each(|page| pool.release(page));
        }
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

    /// Checks the contract of a step and assigns pages to its rows. From then on the sequences
    /// include the new positions.
    ///
    /// # Errors
    /// Any [`RowsError`] except [`RowsError::Truncate`] and [`RowsError::GivenBack`]; nothing has
    /// changed in that case.
    pub fn place(&mut self, rows: &[Row]) -> Result<Placed, RowsError> {
        let chunks = self.chunks(rows)?;
        let counts: Vec<_> = chunks.iter().map(|chunk| (chunk.sequence, chunk.len)).collect();
        self.check_room(&counts)?;
        let mut placed = Placed { edits: Vec::new(), rows: Vec::with_capacity(rows.len()) };
        for chunk in &chunks {
            self.give_back(chunk.sequence)?;
        }
        for chunk in &chunks {
            let tables = self.extend(chunk, &mut placed.edits)?;
            let rows = rows[chunk.first..chunk.first + chunk.len].iter();
            placed.rows.extend(rows.map(|&Row { token, pos, wanted, .. }| PlacedRow {
                token,
                pos,
                pages: tables.clone(),
                wanted,
                choice: None,
            }));
        }
        Ok(placed)
    }

    /// Groups the rows by sequence: adjacent, at the next positions, within the context.
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

    /// Returns to the pool the pages that neither the next rows of a sequence read nor those to
    /// which it can be rolled back.
    fn give_back(&mut self, id: SequenceId) -> Result<(), RowsError> {
        let (Sequence { tables, len, .. }, groups, pools) = self.get_mut(id)?;
        for ((table, group), pool) in tables.iter_mut().zip(groups).zip(pools) {
            let left = table.left_behind(group, *len);
            table.holes = left.end;
            table.pages[left].iter_mut().for_each(|page| pool.release(mem::replace(page, HOLE)));
        }
        Ok(())
    }

    /// The number of free pages of each group that a step needs for these numbers of rows of each
    /// sequence: new pages and copies of shared ones, minus those that the step returns. The last
    /// sequence that appends to a page keeps it.
    ///
    /// # Errors
    /// [`RowsError::Unknown`].
    pub fn pages_for(&self, counts: &[(SequenceId, usize)]) -> Result<Vec<usize>, RowsError> {
        let with_rows = |&(id, rows): &(SequenceId, usize)| Ok((self.get(id)?, rows));
        let counts: Vec<(&Sequence, usize)> = counts.iter().map(with_rows).collect::<Result<_, RowsError>>()?;
        Ok((0..self.pools.len()).map(|group| self.pages_of_group(group, &counts)).collect())
    }

    fn pages_of_group(&self, group: usize, counts: &[(&Sequence, usize)]) -> usize {
        let (pool, limits) = (&self.pools[group], &self.limits.groups[group]);
        let (mut new, mut open, mut left) = (0, BTreeMap::<u32, u32>::new(), BTreeMap::<u32, u32>::new());
        for &(&Sequence { ref tables, len, .. }, rows) in counts {
            let table = &tables[group];
            new += RowLimits::pages_of(len + rows) - table.pages.len();
            if let Some(page) = table.open_page(len) {
                *open.entry(page).or_default() += 1;
            }
            for &page in &table.pages[table.left_behind(limits, len)] {
                *left.entry(page).or_default() += 1;
            }
        }
        let users = |page: &u32| pool.users(*page) - left.get(page).copied().unwrap_or(0);
        let copies: usize = open.iter().map(|(page, &appending)| appending.min(users(page) - 1) as usize).sum();
        let free = left.keys().filter(|page| users(page) == 0).count();
        (new + copies).saturating_sub(free)
    }

    /// Checks that each group has the pages for a step with these numbers of rows of each sequence.
    ///
    /// # Errors
    /// [`RowsError::Unknown`], and [`RowsError::Pages`] for the first group with too few.
    pub fn check_room(&self, counts: &[(SequenceId, usize)]) -> Result<(), RowsError> {
        for (number, (needed, pool)) in self.pages_for(counts)?.into_iter().zip(&self.pools).enumerate() {
            let (free, pages) = (pool.free(), pool.pages());
            if needed > free {
                return Err(RowsError::Pages { group: self.limits.name(number), needed, free, pages });
            }
        }
        Ok(())
    }

    /// Gives a sequence the pages for its rows, which must be available.
    fn extend(&mut self, chunk: &Chunk, edits: &mut Vec<PageEdit>) -> Result<PageTables, RowsError> {
        let (sequence, _, pools) = self.get_mut(chunk.sequence)?;
        let new = sequence.len..sequence.len + chunk.len;
        for (group, (table, pool)) in sequence.tables.iter_mut().zip(pools).enumerate() {
            let mut change = |change| edits.push(PageEdit { group, change });
            table.extend(&new, sequence.stale, pool, &mut change);
        }
        (sequence.len, sequence.stale) = (new.end, false);
        Ok(sequence.tables.iter().map(|table| Arc::from(table.pages.as_slice())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{Pos, Token};

    fn limits() -> RowLimits {
        RowLimits::new(100, 200, 6)
    }

    /// With groups of so many pages each, of which so many positions are read.
    fn grouped(groups: &[(usize, Option<usize>)]) -> RowLimits {
        let groups = groups.iter().map(|&(pages, reach)| PageGroup { pages, reach }).collect();
        RowLimits { positions: 1000, groups, ..limits() }
    }

    /// A change of the first group.
    fn of_first(change: PageChange) -> PageEdit {
        PageEdit { group: 0, change }
    }

    fn rows(sequence: SequenceId, positions: core::ops::Range<u32>) -> Vec<Row> {
        positions.map(|pos| Row { token: Token(pos), pos: Pos(pos), sequence, wanted: false }).collect()
    }

    #[test]
    fn a_fork_shares_pages_until_one_appends() {
        let mut sequences = Sequences::new(limits());
        let a = sequences.add();
        let first = sequences.place(&rows(a, 0..70)).unwrap();
        assert_eq!((first.edits.len(), first.rows[69].pages.of(0)), (0, &[0, 1][..]));
        let b = sequences.fork(a, 66).unwrap();
        assert_eq!((sequences.len(b), sequences.free_pages()[0]), (Ok(66), 4));
        let placed = sequences.place(&[rows(a, 70..71), rows(b, 66..68)].concat()).unwrap();
        let edits = [of_first(PageChange::Copy { from: 1, to: 2 }), of_first(PageChange::Clear { page: 1, first: 2 })];
        assert_eq!(placed.edits, edits, "who appends first gets a copy, the other keeps the page");
        assert_eq!((placed.rows[0].pages.of(0), placed.rows[1].pages.of(0)), (&[0, 2][..], &[0, 1][..]));
        sequences.drop(a).unwrap();
        assert_eq!((sequences.free_pages()[0], sequences.len(a)), (4, Err(RowsError::Unknown(a))));
        assert_ne!(sequences.add(), a);
    }

    #[test]
    fn a_fork_at_a_page_shares_it_for_good() {
        let mut sequences = Sequences::new(limits());
        let a = sequences.add();
        sequences.place(&rows(a, 0..64)).unwrap();
        let b = sequences.fork(a, 64).unwrap();
        let placed = sequences.place(&[rows(a, 64..65), rows(b, 64..65)].concat()).unwrap();
        assert_eq!((placed.edits.len(), sequences.free_pages()[0]), (0, 3));
    }

    #[test]
    fn positions_are_written_again_after_a_rollback() {
        let mut sequences = Sequences::new(limits());
        let a = sequences.add();
        sequences.place(&rows(a, 0..80)).unwrap();
        sequences.truncate(a, 10).unwrap();
        assert_eq!((sequences.len(a), sequences.free_pages()[0]), (Ok(10), 5));
        let placed = sequences.place(&rows(a, 10..12)).unwrap();
        assert_eq!(placed.edits, [of_first(PageChange::Clear { page: 0, first: 10 })]);
        assert_eq!(sequences.place(&rows(a, 12..13)).unwrap().edits, []);
        assert_eq!(sequences.truncate(a, 20), Err(RowsError::Truncate { sequence: a, len: 13, kept: 20 }));
    }

    #[test]
    fn a_page_that_another_sequence_had_is_cleared() {
        let mut sequences = Sequences::new(limits());
        let a = sequences.add();
        sequences.place(&rows(a, 0..10)).unwrap();
        sequences.drop(a).unwrap();
        let b = sequences.add();
        let placed = sequences.place(&rows(b, 0..70)).unwrap();
        assert_eq!(
            (placed.edits, placed.rows[0].pages.of(0)),
            (vec![of_first(PageChange::Clear { page: 0, first: 0 })], &[0, 1][..])
        );
    }

    #[test]
    fn pages_behind_a_window_are_given_back() {
        let limits = grouped(&[(4, Some(70))]);
        let mut sequences = Sequences::new(limits.clone());
        let a = sequences.add();
        for first in (0..940).step_by(20) {
            let placed = sequences.place(&rows(a, first..first + 20)).unwrap();
            let kept = (first as usize + 1).saturating_sub(70 + ROLLBACK) / PAGE;
            let table = placed.rows[0].pages.of(0);
            assert_eq!(table.iter().position(|&page| page != HOLE), Some(kept), "{first}: {table:?}");
            assert!(4 - sequences.free_pages()[0] <= limits.pages_at_once(940)[0]);
        }
        assert_eq!(sequences.free_pages()[0], 1);
        let group = limits.name(0);
        // The step at 920 gave back what rows before 856 read.
        let cannot = RowsError::GivenBack { group, sequence: a, kept: 832, first: 12 * PAGE };
        assert_eq!(sequences.truncate(a, 832), Err(cannot.clone()));
        assert!(sequences.fork(a, 832).is_err() && cannot.to_string().contains("before position 768"));
        sequences.truncate(a, 940 - ROLLBACK).unwrap();
        sequences.truncate(a, 837).unwrap();
        assert_eq!(
            sequences.truncate(a, 836),
            Err(RowsError::GivenBack { group, sequence: a, kept: 836, first: 12 * PAGE })
        );
        // From the start everything is written again.
        sequences.truncate(a, 0).unwrap();
        assert_eq!(
            (sequences.free_pages()[0], sequences.place(&rows(a, 0..5)).unwrap().rows[0].pages.of(0).len()),
            (4, 1)
        );
    }

    #[test]
    fn a_page_goes_back_when_the_last_that_shares_it_leaves_it_behind() {
        let limits = grouped(&[(9, Some(1))]);
        let mut sequences = Sequences::new(limits.clone());
        let a = sequences.add();
        (0..3).for_each(|at| _ = sequences.place(&rows(a, 64 * at..64 * (at + 1))).unwrap());
        let b = sequences.fork(a, 192).unwrap();
        assert_eq!(
            (sequences.free_pages()[0], sequences.own_pages(a), sequences.own_pages(b)),
            (7, Ok(vec![0]), Ok(vec![0]))
        );
        // Both leave the page before the last behind: where one does, it is not free.
        assert_eq!(sequences.pages_for(&[(a, 1)]), Ok(vec![1]));
        assert_eq!(sequences.pages_for(&[(a, 1), (b, 1)]), Ok(vec![1]));
        sequences.place(&rows(a, 192..193)).unwrap();
        assert_eq!((sequences.free_pages()[0], sequences.own_pages(a)), (6, Ok(vec![1])));
        sequences.place(&rows(b, 192..193)).unwrap();
        assert_eq!(sequences.free_pages()[0], 6);
    }

    /// Of two groups, one of which rows read 70 positions.
    #[test]
    fn each_group_has_pages_and_tables_of_its_own() {
        let mut sequences = Sequences::new(grouped(&[(16, None), (5, Some(70))]));
        let a = sequences.add();
        for first in (0..640).step_by(20) {
            let placed = sequences.place(&rows(a, first..first + 20)).unwrap();
            let [all, last] = [0, 1].map(|group| placed.rows[0].pages.of(group));
            assert_eq!((all.len(), last.len()), (all.len(), all.len()));
            let kept = (first as usize + 1).saturating_sub(70 + ROLLBACK) / PAGE;
            assert!(all.iter().all(|&page| page != HOLE));
            assert_eq!(last.iter().position(|&page| page != HOLE), Some(kept), "{first}: {last:?}");
        }
        assert_eq!((sequences.free_pages(), sequences.own_pages(a)), (vec![6, 2], Ok(vec![10, 3])));
        // The step at 620 left the positions before 448 behind, in one group.
        let group = GroupName { group: Some(1), reach: Some(70) };
        let gone = RowsError::GivenBack { group, sequence: a, kept: 500, first: 7 * PAGE };
        assert_eq!((sequences.can_keep(a, 500), sequences.fork(a, 500)), (Err(gone.clone()), Err(gone)));
        let b = sequences.fork(a, 630).unwrap();
        assert_eq!((sequences.free_pages(), sequences.own_pages(a)), (vec![6, 2], Ok(vec![0, 0])));
        let placed = sequences.place(&rows(b, 630..631)).unwrap();
        let edits: Vec<(usize, bool)> =
            placed.edits.iter().map(|edit| (edit.group, matches!(edit.change, PageChange::Copy { .. }))).collect();
        assert_eq!(edits, [(0, true), (0, false), (1, true), (1, false)], "copied, and cleared behind the fork");
        assert_eq!(sequences.free_pages(), [5, 1]);
        sequences.truncate(b, 0).unwrap();
        assert_eq!(sequences.free_pages(), [6, 2]);
    }

    #[test]
    fn a_group_without_pages_is_named() {
        for (groups, expected) in [
            (
                [(2, None), (9, Some(70))],
                "out of pages of group 0 (all positions): the step needs 1 of 64 positions, 0 of 2",
            ),
            ([(9, None), (1, Some(70))], "out of pages of group 1 (the last 70 positions): the step needs 1 of 64"),
        ] {
            let mut sequences = Sequences::new(grouped(&groups));
            let a = sequences.add();
            sequences.place(&rows(a, 0..64)).unwrap();
            let mut place = || sequences.place(&rows(a, 64..128)).and_then(|_| sequences.place(&rows(a, 128..130)));
            let error = place().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn steps_that_break_the_contract_change_nothing() {
        let mut sequences = Sequences::new(limits());
        let (a, b) = (sequences.add(), sequences.add());
        let refused = |sequences: &mut Sequences, rows: &[Row]| {
            let before = (sequences.free_pages()[0], sequences.len(a), sequences.len(b));
            let error = sequences.place(rows).unwrap_err();
            assert_eq!(before, (sequences.free_pages()[0], sequences.len(a), sequences.len(b)));
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

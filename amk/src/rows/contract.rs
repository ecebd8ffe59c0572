//! The contract of a step, checked by every VM before it runs: in each group of states, no page
//! that a row writes is visible to a row of another sequence, and every position that a row reads
//! has a page.

use super::{GroupName, HOLE, PAGE, PlacedRow, RowLimits};
use core::ops::Range;
use std::collections::HashMap;

/// The ways in which the rows of a step break its contract.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Breach {
    /// A step without rows, or with too many.
    #[error("a step of {found} rows; this program takes 1 to {most}")]
    Rows {
        /// The number.
        found: usize,
        /// The most.
        most: usize,
    },
    /// A position outside the context.
    #[error("row {row} is at position {pos}; the context has {positions}")]
    Context {
        /// The row.
        row: usize,
        /// Its position.
        pos: u32,
        /// Positions of the context.
        positions: usize,
    },
    /// A row has more or fewer page tables than there are groups.
    #[error("row {row} has {found} page tables, and the states are {groups} groups")]
    Tables {
        /// The row.
        row: usize,
        /// Its page tables.
        found: usize,
        /// The groups.
        groups: usize,
    },
    /// A page table has no page for a position.
    #[error("row {row} is at position {pos}, and its page table{group} has {pages} pages of {PAGE} positions")]
    Short {
        /// The group.
        group: GroupName,
        /// The row.
        row: usize,
        /// Its position.
        pos: u32,
        /// Pages of its table.
        pages: usize,
    },
    /// A page table names a page that does not exist.
    #[error("the page table{group} of row {row} names page {page}; there are {pages}")]
    Unknown {
        /// The group.
        group: GroupName,
        /// The row.
        row: usize,
        /// The page.
        page: u32,
        /// Pages that exist.
        pages: usize,
    },
    /// A row reads a page that was returned to the pool.
    #[error(
        "row {row} is at position {pos} and reads from {first} on, and its page table{group} has a hole before {end}"
    )]
    Hole {
        /// The group.
        group: GroupName,
        /// The row.
        row: usize,
        /// Its position.
        pos: u32,
        /// The first position that it reads.
        first: usize,
        /// One past the last position of the hole.
        end: usize,
    },
    /// Rows with one page table are not at consecutive positions.
    #[error("rows {row} and {} have one page table, but not consecutive positions", row + 1)]
    Order {
        /// The first of the two.
        row: usize,
    },
    /// A row's changes to logits are not in the order of their tokens, or a token has several. VMs
    /// look them up by bisection.
    #[error("the changes to logits of row {row} are not in the order of their tokens, one a token")]
    Changes {
        /// The row.
        row: usize,
    },
    /// A page that is written also occurs elsewhere, in the same table or in another sequence's.
    #[error("row {writer} writes page {page}{group}, which row {other} has too")]
    Shared {
        /// The group.
        group: GroupName,
        /// The row that writes.
        writer: usize,
        /// The page.
        page: u32,
        /// The other row; the same one if its table has the page twice.
        other: usize,
    },
}

/// Checks the contract.
///
/// # Errors
/// The first [`Breach`].
pub fn check(limits: &RowLimits, rows: &[PlacedRow]) -> Result<(), Breach> {
    let most = limits.rows;
    if rows.is_empty() || rows.len() > most {
        return Err(Breach::Rows { found: rows.len(), most });
    }
    rows.iter().enumerate().try_for_each(|(number, row)| fits(limits, number, row))?;
    let chunks = chunks(rows)?;
    (0..limits.groups.len()).try_for_each(|group| alone(limits, group, rows, &chunks))
}

/// Checks that each page of a group that a chunk writes occurs nowhere else.
fn alone(limits: &RowLimits, number: usize, rows: &[PlacedRow], chunks: &[Range<usize>]) -> Result<(), Breach> {
    let group = limits.name(number);
    let mut writers = Writers { written: vec![0; limits.groups[number].pages.div_ceil(64)], first: HashMap::new() };
    for chunk in chunks {
        let last = &rows[chunk.end - 1];
        for &page in &last.pages.of(number)[rows[chunk.start].pos.index() / PAGE..=last.pos.index() / PAGE] {
            if let Some(writer) = writers.insert(page, chunk.start) {
                return Err(Breach::Shared { group, writer, page, other: chunk.start });
            }
        }
    }
    for chunk in chunks {
        let last = &rows[chunk.end - 1];
        let (blocks, first) = (last.pos.index() / PAGE + 1, rows[chunk.start].pos.index() / PAGE);
        let pages = last.pages.of(number)[..blocks].iter().enumerate();
        for (block, &page) in pages.filter(|(_, page)| **page != HOLE) {
            match writers.get(page) {
                Some(writer) if writer != chunk.start || block < first => {
                    return Err(Breach::Shared { group, writer, page, other: chunk.start });
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// The first row of the chunk that writes each page. Most pages of long sequences are only read, so
/// a bit per page records whether it is written.
struct Writers {
    /// A bit a page.
    written: Vec<u64>,
    first: HashMap<u32, usize>,
}

impl Writers {
    /// Adds a page that is in bounds; returns its writer so far.
    fn insert(&mut self, page: u32, writer: usize) -> Option<usize> {
        self.written[page as usize / 64] |= 1 << (page % 64);
        self.first.insert(page, writer)
    }

    fn get(&self, page: u32) -> Option<usize> {
        let written = self.written[page as usize / 64] >> (page % 64) & 1;
        (written != 0).then(|| self.first.get(&page).copied()).flatten()
    }
}

fn fits(limits: &RowLimits, row: usize, placed: &PlacedRow) -> Result<(), Breach> {
    let PlacedRow { pos, pages: tables, choice, .. } = placed;
    let changes = choice.iter().flat_map(|choice| choice.changes.iter());
    if !changes.is_sorted_by(|one, next| one.token < next.token) {
        return Err(Breach::Changes { row });
    }
    let positions = limits.positions;
    if pos.index() >= positions {
        return Err(Breach::Context { row, pos: pos.0, positions });
    }
    let (found, groups) = (tables.iter().len(), limits.groups.len());
    if found != groups {
        return Err(Breach::Tables { row, found, groups });
    }
    tables.iter().enumerate().try_for_each(|(group, table)| has_pages(limits, group, (row, pos.index()), table))
}

/// Checks that a table of a group has a page for each position that a row touches.
fn has_pages(limits: &RowLimits, number: usize, (row, at): (usize, usize), table: &[u32]) -> Result<(), Breach> {
    let (group, of, pos) = (limits.name(number), &limits.groups[number], at as u32);
    let Some(own) = table.get(..at / PAGE + 1) else {
        return Err(Breach::Short { group, row, pos, pages: table.len() });
    };
    // A row's own page is never one that it has moved past.
    let first = of.first_read(at).min(at);
    if let Some(hole) = own[first / PAGE..].iter().rposition(|&page| page == HOLE) {
        return Err(Breach::Hole { group, row, pos, first, end: (first / PAGE + hole + 1) * PAGE });
    }
    match own.iter().find(|&&page| page != HOLE && page as usize >= of.pages) {
        Some(&page) => Err(Breach::Unknown { group, row, page, pages: of.pages }),
        None => Ok(()),
    }
}

/// Groups the rows by sequence: adjacent rows with the same tables.
fn chunks(rows: &[PlacedRow]) -> Result<Vec<Range<usize>>, Breach> {
    let mut chunks: Vec<Range<usize>> = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let before = number.checked_sub(1).map(|before| &rows[before]);
        match (before.filter(|before| before.pages == row.pages), chunks.last_mut()) {
            (Some(before), Some(_)) if before.pos.0 + 1 != row.pos.0 => return Err(Breach::Order { row: number - 1 }),
            (Some(_), Some(chunk)) => chunk.end = number + 1,
            _ => chunks.push(number..number + 1),
        }
    }
    Ok(chunks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{Choice, LogitChange, PageGroup, PageTables};
    use crate::tensor::{Pos, Token};
    use std::sync::Arc;

    fn limits() -> RowLimits {
        RowLimits::new(6, 300, 8)
    }

    fn row(pos: u32, pages: &[u32]) -> PlacedRow {
        PlacedRow { token: Token(0), pos: Pos(pos), pages: pages.into(), wanted: false, choice: None }
    }

    fn breach(rows: &[PlacedRow]) -> String {
        check(&limits(), rows).expect_err("a breach").to_string()
    }

    #[test]
    fn sequences_may_share_what_they_read() {
        let forks = [row(128, &[1, 2, 3]), row(129, &[1, 2, 3]), row(128, &[1, 2, 4]), row(5, &[0])];
        assert_eq!(check(&limits(), &forks), Ok(()));
        let prompt: Vec<PlacedRow> = (62..67).map(|pos| row(pos, &[5, 6])).collect();
        assert_eq!(check(&limits(), &prompt), Ok(()));
    }

    #[test]
    fn a_hole_is_where_no_row_reads() {
        let window = RowLimits { groups: vec![PageGroup { pages: 8, reach: Some(10) }], ..limits() };
        let hole = |rows: &[PlacedRow]| check(&window, rows).map_err(|breach| breach.to_string());
        assert_eq!(hole(&[row(73, &[HOLE, 1])]), Ok(()));
        let reads = "row 0 is at position 72 and reads from 63 on, and its page table has a hole before 64";
        assert_eq!(hole(&[row(72, &[HOLE, 1]), row(73, &[HOLE, 1])]), Err(reads.to_owned()));
        assert!(hole(&[row(130, &[0, HOLE, 1])]).is_err());
        assert_eq!(hole(&[row(140, &[0, HOLE, 1]), row(140, &[HOLE, HOLE, 2])]), Ok(()));
        assert!(hole(&[row(140, &[0, 1, HOLE])]).is_err(), "its own page");
        assert!(check(&limits(), &[row(140, &[HOLE, 1, 2])]).is_err(), "it reads all positions");
    }

    #[test]
    fn each_breach_is_named() {
        assert_eq!(breach(&[]), "a step of 0 rows; this program takes 1 to 6");
        assert_eq!(breach(&[row(300, &[0, 1, 2, 3, 4])]), "row 0 is at position 300; the context has 300");
        let short = "row 1 is at position 64, and its page table has 1 pages of 64 positions";
        assert_eq!(breach(&[row(1, &[1]), row(64, &[0])]), short);
        assert_eq!(breach(&[row(1, &[8])]), "the page table of row 0 names page 8; there are 8");
        assert_eq!(
            breach(&[row(1, &[1]), row(3, &[1])]),
            "rows 0 and 1 have one page table, but not consecutive positions"
        );
        let two = [row(1, &[1]), row(2, &[3]), row(70, &[1, 2])];
        assert_eq!(breach(&two), "row 0 writes page 1, which row 2 has too");
        let later = [row(70, &[1, 2]), row(1, &[1])];
        assert_eq!(breach(&later), "row 1 writes page 1, which row 0 has too");
        assert_eq!(breach(&[row(70, &[2, 2])]), "row 0 writes page 2, which row 0 has too");
        let apart = [row(1, &[1]), row(1, &[2]), row(2, &[1])];
        assert_eq!(breach(&apart), "row 0 writes page 1, which row 2 has too");
        let changes = |tokens: &[u32]| {
            let changes = tokens.iter().map(|&token| LogitChange::none(Token(token))).collect();
            [PlacedRow { choice: Some(Choice { changes, ..Choice::default() }), ..row(1, &[1]) }]
        };
        assert_eq!(check(&limits(), &changes(&[2, 5])), Ok(()));
        let unsorted = "the changes to logits of row 0 are not in the order of their tokens, one a token";
        assert_eq!([breach(&changes(&[5, 2])), breach(&changes(&[2, 2]))], [unsorted, unsorted]);
    }

    /// Of three pages of which all positions are read, and two of which the last ten are.
    #[test]
    fn each_group_is_checked_and_named() {
        let groups = vec![PageGroup { pages: 3, reach: None }, PageGroup { pages: 2, reach: Some(10) }];
        let limits = RowLimits { groups, ..limits() };
        let row = |pos, tables: [&[u32]; 2]| {
            let pages: PageTables = tables.into_iter().map(Arc::from).collect();
            PlacedRow { pages, ..row(pos, &[]) }
        };
        let found = |rows: &[PlacedRow]| check(&limits, rows).map_err(|breach| breach.to_string());
        assert_eq!(found(&[row(140, [&[0, 1, 2], &[HOLE, 0, 1]])]), Ok(()));
        assert_eq!(found(&[row(74, [&[0, 1], &[HOLE, 0]]), row(5, [&[2], &[1]])]), Ok(()));
        for (rows, expected) in [
            (
                vec![row(140, [&[HOLE, 1, 2], &[HOLE, 0, 1]])],
                "reads from 0 on, and its page table of group 0 (all positions) has a hole before 64",
            ),
            (
                vec![row(72, [&[0, 1], &[HOLE, 0]])],
                "from 63 on, and its page table of group 1 (the last 10 positions) has a hole",
            ),
            (
                vec![row(5, [&[2], &[2]])],
                "the page table of group 1 (the last 10 positions) of row 0 names page 2; there are 2",
            ),
            (vec![row(70, [&[0, 1], &[0]])], "its page table of group 1 (the last 10 positions) has 1 pages"),
            (
                vec![row(5, [&[0], &[0]]), row(5, [&[1], &[0]])],
                "row 0 writes page 0 of group 1 (the last 10 positions), which row 1",
            ),
            (
                vec![row(5, [&[0], &[0]]), row(5, [&[0], &[1]])],
                "row 0 writes page 0 of group 0 (all positions), which row 1",
            ),
            (vec![self::row(5, &[0])], "row 0 has 1 page tables, and the states are 2 groups"),
        ] {
            let breach = found(&rows).expect_err("a breach");
            assert!(breach.contains(expected), "{breach}");
        }
    }
}

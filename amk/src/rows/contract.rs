//! The contract of a step, checked by every VM before it runs: no page that a row writes is one
//! that a row of another sequence can see, and what a row reads has a page.

use super::{HOLE, PAGE, PlacedRow, RowLimits};
use std::collections::HashMap;

/// How the rows of a step break its contract.
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
    /// A page table has no page for a position.
    #[error("row {row} is at position {pos}, and its page table has {pages} pages of {PAGE} positions")]
    Short {
        /// The row.
        row: usize,
        /// Its position.
        pos: u32,
        /// Pages of its table.
        pages: usize,
    },
    /// A page table names a page that does not exist.
    #[error("the page table of row {row} names page {page}; there are {pages}")]
    Unknown {
        /// The row.
        row: usize,
        /// The page.
        page: u32,
        /// Pages that exist.
        pages: usize,
    },
    /// A page that a row reads was given back.
    #[error("row {row} is at position {pos} and reads from {first} on, and its page table has a hole before {end}")]
    Hole {
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
    /// A page that is written is also in another place, of the same table or of another sequence's.
    #[error("row {writer} writes page {page}, which row {other} has too")]
    Shared {
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
pub fn check(limits: RowLimits, rows: &[PlacedRow]) -> Result<(), Breach> {
    let most = limits.rows;
    if rows.is_empty() || rows.len() > most {
        return Err(Breach::Rows { found: rows.len(), most });
    }
    rows.iter().enumerate().try_for_each(|(number, row)| fits(limits, number, row))?;
    let chunks = chunks(rows)?;
    let mut writers = Writers { written: vec![0; limits.pages.div_ceil(64)], first: HashMap::new() };
    for chunk in &chunks {
        let last = &rows[chunk.end - 1];
        for &page in &last.pages[rows[chunk.start].pos.index() / PAGE..=last.pos.index() / PAGE] {
            if let Some(writer) = writers.insert(page, chunk.start) {
                return Err(Breach::Shared { writer, page, other: chunk.start });
            }
        }
    }
    for chunk in &chunks {
        let last = &rows[chunk.end - 1];
        let (blocks, first) = (last.pos.index() / PAGE + 1, rows[chunk.start].pos.index() / PAGE);
        for (block, &page) in last.pages[..blocks].iter().enumerate().filter(|(_, page)| **page != HOLE) {
            match writers.get(page) {
                Some(writer) if writer != chunk.start || block < first => {
                    return Err(Breach::Shared { writer, page, other: chunk.start });
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// The first row of the chunk that writes each page. Most pages of long sequences are only read,
/// which a bit tells.
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

fn fits(limits: RowLimits, row: usize, placed: &PlacedRow) -> Result<(), Breach> {
    let PlacedRow { pos, pages: table, .. } = placed;
    let RowLimits { positions, pages, .. } = limits;
    if pos.index() >= positions {
        return Err(Breach::Context { row, pos: pos.0, positions });
    }
    let blocks = pos.index() / PAGE + 1;
    let Some(own) = table.get(..blocks) else { return Err(Breach::Short { row, pos: pos.0, pages: table.len() }) };
    // A row's own page is none that it may leave behind.
    let first = limits.first_read(pos.index()).min(pos.index());
    if let Some(hole) = own[first / PAGE..].iter().rposition(|&page| page == HOLE) {
        return Err(Breach::Hole { row, pos: pos.0, first, end: (first / PAGE + hole + 1) * PAGE });
    }
    match own.iter().find(|&&page| page != HOLE && page as usize >= pages) {
        Some(&page) => Err(Breach::Unknown { row, page, pages }),
        None => Ok(()),
    }
}

/// The rows by sequence: neighbours with one table.
fn chunks(rows: &[PlacedRow]) -> Result<Vec<core::ops::Range<usize>>, Breach> {
    let mut chunks: Vec<core::ops::Range<usize>> = Vec::new();
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
    use crate::tensor::{Pos, Token};
    use std::sync::Arc;

    const LIMITS: RowLimits = RowLimits { rows: 6, positions: 300, pages: 8, reach: None };

    fn row(pos: u32, pages: &[u32]) -> PlacedRow {
        PlacedRow { token: Token(0), pos: Pos(pos), pages: Arc::from(pages), wanted: false, choice: None }
    }

    fn breach(rows: &[PlacedRow]) -> String {
        check(LIMITS, rows).expect_err("a breach").to_string()
    }

    #[test]
    fn sequences_may_share_what_they_read() {
        let forks = [row(128, &[1, 2, 3]), row(129, &[1, 2, 3]), row(128, &[1, 2, 4]), row(5, &[0])];
        assert_eq!(check(LIMITS, &forks), Ok(()));
        let prompt: Vec<PlacedRow> = (62..67).map(|pos| row(pos, &[5, 6])).collect();
        assert_eq!(check(LIMITS, &prompt), Ok(()));
    }

    #[test]
    fn a_hole_is_where_no_row_reads() {
        let limits = RowLimits { reach: Some(10), ..LIMITS };
        let hole = |rows: &[PlacedRow]| check(limits, rows).map_err(|breach| breach.to_string());
        assert_eq!(hole(&[row(73, &[HOLE, 1])]), Ok(()));
        let reads = "row 0 is at position 72 and reads from 63 on, and its page table has a hole before 64";
        assert_eq!(hole(&[row(72, &[HOLE, 1]), row(73, &[HOLE, 1])]), Err(reads.to_owned()));
        assert!(hole(&[row(130, &[0, HOLE, 1])]).is_err());
        assert_eq!(hole(&[row(140, &[0, HOLE, 1]), row(140, &[HOLE, HOLE, 2])]), Ok(()));
        assert!(hole(&[row(140, &[0, 1, HOLE])]).is_err(), "its own page");
        assert!(check(LIMITS, &[row(140, &[HOLE, 1, 2])]).is_err(), "it reads all positions");
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
    }
}

//! Tables: integers that a step computes and that determine counts, counters and tiles of later
//! tasks.
//!
//! A mixture of experts routes tokens while it runs, so dependencies between tasks are only known
//! at run time. A program declares its assumptions, the *contract* of a table, and the verifier
//! proves the program for every table that keeps it. The VM asserts that a table keeps it once a
//! task has written the table.

use crate::{Buffer, BufferId, EventId, Program, TableId};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Maximum number of rows and of values of a table: integers up to this are exact in f32.
pub const MOST_ROWS: u32 = 1 << 24;

/// A table: a buffer with a contract. Each of its rows is written whole by one task of the step.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// The name.
    pub name: String,
    /// The activation that holds it: `[N]` or `[rows, N]`, of u32 or of integers in f32.
    pub buffer: BufferId,
    /// Its contract.
    pub holds: Holds,
}

/// The contract of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum Holds {
    /// Each entry is a number below `values`, such as the expert of a token. Sorted stably by
    /// number, the entries are the rows of the buffers that the table tiles.
    Routes {
        /// One more than the largest number.
        values: u32,
        /// The entries of a row of the table differ.
        distinct: bool,
    },
    /// Entries are non-decreasing from 0 to `total` (CSR's `indptr`): entry `n` is the start of the
    /// rows of group `n`.
    Splits {
        /// The last entry.
        total: u32,
    },
}

impl Table {
    /// Its buffer, if there is one.
    pub fn buffer<'a>(&self, program: &'a Program) -> Option<&'a Buffer> {
        program.buffers.get(self.buffer.index())
    }

    /// Number of entries, saturating.
    pub fn entries(&self, program: &Program) -> u32 {
        self.buffer(program).map_or(0, |buffer| u32::try_from(buffer.len()).unwrap_or(u32::MAX))
    }

    /// Entries of a row of the table.
    pub fn row_len(&self, program: &Program) -> u32 {
        match self.buffer(program).map(|buffer| buffer.shape.as_slice()) {
            Some(&[_, columns]) => columns,
            _ => 1,
        }
    }

    /// Groups of rows: experts, or intervals between two splits.
    pub fn groups(&self, program: &Program) -> u32 {
        match self.holds {
            Holds::Routes { values, .. } => values,
            Holds::Splits { .. } => self.entries(program).saturating_sub(1),
        }
    }

    /// Rows of the buffers that it tiles.
    pub fn rows(&self, program: &Program) -> u32 {
        match self.holds {
            Holds::Routes { .. } => self.entries(program),
            Holds::Splits { total } => total,
        }
    }
}

impl Holds {
    /// Number of entries equal to `value`.
    pub fn count(entries: &[u32], value: u32) -> u32 {
        entries.iter().filter(|&&entry| entry == value).count() as u32
    }

    /// The rows of a group in a table with these entries.
    pub fn group(self, entries: &[u32], group: u32) -> Range<u32> {
        match self {
            Self::Routes { .. } => {
                let start = entries.iter().filter(|&&entry| entry < group).count() as u32;
                start..start + Self::count(entries, group)
            }
            Self::Splits { .. } => {
                let at = |n: usize| entries.get(n).copied().unwrap_or(0);
                at(group as usize)..at(group as usize + 1)
            }
        }
    }

    /// The row of an entry of routes.
    pub fn row(entries: &[u32], entry: u32) -> u32 {
        let value = entries.get(entry as usize).copied().unwrap_or(0);
        let before = |(n, &other): (usize, &u32)| other < value || other == value && n < entry as usize;
        entries.iter().enumerate().filter(|&pair| before(pair)).count() as u32
    }
}

/// The part of a buffer's first dimension that an operand covers if a table selects it. The
/// operand's region spans that whole dimension.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum Routed {
    /// `r0[1, 0]`: the element that an entry of routes names; read only.
    Pick {
        /// The table.
        table: TableId,
        /// The entry, in row-major order.
        entry: u32,
    },
    /// `row r0[1, 0]`: the row of an entry of routes.
    Row {
        /// The table.
        table: TableId,
        /// The entry, in row-major order.
        entry: u32,
    },
    /// `rows r0[2]`: the rows of a group.
    Group {
        /// The table.
        table: TableId,
        /// The group.
        group: u32,
    },
}

impl Routed {
    /// The table that decides.
    pub const fn table(self) -> TableId {
        match self {
            Self::Pick { table, .. } | Self::Row { table, .. } | Self::Group { table, .. } => table,
        }
    }
}

/// A wait that depends on a table; a task checks it after its other waits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum RoutedWait {
    /// `e1[2] >= count r0`: all signals of the entries equal to 2; satisfied immediately if there
    /// are none.
    Count {
        /// The event tensor.
        event: EventId,
        /// Its element, and the number that is counted.
        value: u32,
        /// The table.
        table: TableId,
    },
    /// `e2[r0[1, 0]] >= 3`: signals on the element that an entry names.
    Pick {
        /// The event tensor.
        event: EventId,
        /// The table.
        table: TableId,
        /// The entry, in row-major order.
        entry: u32,
        /// Signals to wait for.
        threshold: u32,
    },
}

impl RoutedWait {
    /// The event tensor.
    pub const fn event(self) -> EventId {
        match self {
            Self::Count { event, .. } | Self::Pick { event, .. } => event,
        }
    }

    /// The event tensor and the threshold of a wait for the element that an entry names.
    pub fn pick(&self) -> Option<(EventId, u32)> {
        match *self {
            Self::Pick { event, threshold, .. } => Some((event, threshold)),
            Self::Count { .. } => None,
        }
    }

    /// The table.
    pub const fn table(self) -> TableId {
        match self {
            Self::Count { table, .. } | Self::Pick { table, .. } => table,
        }
    }
}

/// `e1[r0[1, 0]]`: a signal on the element that an entry of routes names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutedSignal {
    /// The event tensor.
    pub event: EventId,
    /// The table.
    pub table: TableId,
    /// The entry, in row-major order.
    pub entry: u32,
}

#[cfg(test)]
mod tests {
    use super::Holds;

    #[test]
    fn rows_are_sorted_by_value_and_keep_their_order() {
        // Four tokens, two experts each: the routing of the Event Tensor paper's figure 5.
        let entries = [0, 2, 0, 1, 2, 0, 2, 3];
        let routes = Holds::Routes { values: 4, distinct: true };
        let groups: Vec<_> = (0..4).map(|group| routes.group(&entries, group)).collect();
        assert_eq!(groups, [0..3, 3..4, 4..7, 7..8]);
        let rows: Vec<_> = (0..8).map(|entry| Holds::row(&entries, entry)).collect();
        assert_eq!(rows, [0, 4, 1, 3, 5, 2, 6, 7]);
        for (entry, row) in rows.into_iter().enumerate() {
            assert!(routes.group(&entries, entries[entry]).contains(&row));
        }
    }

    #[test]
    fn splits_are_where_groups_start() {
        let splits = Holds::Splits { total: 6 };
        assert_eq!([0, 1, 2].map(|group| splits.group(&[0, 2, 2, 6], group)), [0..2, 2..2, 2..6]);
    }
}

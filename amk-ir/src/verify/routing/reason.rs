//! Reasons to refuse a table or its uses.

use crate::verify::Site;
use crate::{TableId, TaskId};

/// An entry of a table has a certain value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Given {
    /// The table, of routes.
    pub table: TableId,
    /// The entry, in row-major order.
    pub entry: u32,
    /// Its value.
    pub value: u32,
}

/// The reasons why a table is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoTable {
    /// There is no such buffer.
    Missing,
    /// Its buffer is not an activation with separate memory that counters synchronise.
    Buffer,
    /// Its elements are neither u32 nor f32.
    Type,
    /// Its shape is not `[N]` or `[rows, N]`, or for splits `[groups + 1]`.
    Shape,
    /// It has no group or no row, or more than 2^24 of them.
    Size,
    /// A row has more entries than there are values, so they cannot all differ.
    Distinct,
    /// Another table has the buffer.
    Shared {
        /// The other table.
        other: TableId,
    },
    /// A write to part of a row, or for splits to part of the table; or a write that moves with the
    /// position.
    Part {
        /// The write.
        site: Site,
    },
    /// A row is written twice.
    Twice {
        /// The first write.
        first: Site,
        /// The second write.
        second: Site,
    },
}

/// The reasons why a table cannot decide a tile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoTile {
    /// The table has no such entry or group.
    Absent {
        /// The entry or the group.
        number: u32,
        /// How many there are.
        count: u32,
    },
    /// The first dimension of the buffer differs from the table's length.
    Rows {
        /// Rows, or values of the table.
        expected: u32,
        /// The actual number.
        found: u32,
    },
    /// The kind of the buffer, packets, or a place in the arena: what a table decides is not known
    /// beforehand.
    Buffer,
    /// The buffer has too many dimensions to follow.
    Rank,
    /// The read is early: before the table is known.
    Early,
    /// A picked element is written: two entries may name the same.
    Written,
    /// Another operand has a fixed part of the first dimension, or a part that another table
    /// decides.
    Mixed {
        /// The other operand.
        other: Site,
    },
}

/// The reasons why the signals of an event tensor are not those that a table counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Uncounted {
    /// The event tensor is not one counter for each value.
    Extent {
        /// Values of the table.
        expected: u32,
    },
    /// The table has no such entry or value.
    Absent {
        /// The task.
        task: TaskId,
        /// The entry or the value.
        number: u32,
        /// How many there are.
        count: u32,
    },
    /// An entry that no task signals: a task that waits for the count may wait forever.
    Never {
        /// The entry.
        entry: u32,
    },
    /// An entry that is signalled twice: a wait may be satisfied before its entry's work is done.
    Twice {
        /// The entry.
        entry: u32,
        /// A task that signals it.
        first: TaskId,
        /// Another, or the same.
        second: TaskId,
    },
    /// A signal that no table decides, mixed with signals that a table decides.
    Fixed {
        /// The task.
        task: TaskId,
    },
    /// A wait for a fixed number of signals, although a table decides how many arrive.
    FixedWait {
        /// The task.
        task: TaskId,
    },
    /// A wait for a count, although no table decides the signals.
    NoSignals {
        /// The task.
        task: TaskId,
    },
    /// Signals or counts by two tables.
    TwoTables {
        /// The task.
        task: TaskId,
        /// The other table.
        other: TableId,
    },
}

//! Tables in the text format: their lines, and tiles, waits and signals that depend on them.

use super::cursor::{Cursor, Parsed};
use super::parse::{Parser, next_id, row_major};
use super::print::{EVENT, name, write_index};
use crate::{BufferId, EventId, Holds, Interval, Operand, Program, Routed, RoutedSignal, RoutedWait, Table, TableId};
use core::fmt::{self, Write};

/// Whether a table's choice comes next: `r0[1]`, `row r0[1]` or `rows r0[1]`.
pub(super) fn at_routed(cursor: &Cursor<'_>) -> bool {
    let word = cursor.peek_word();
    matches!(word, "row" | "rows") || is_table(word)
}

fn is_table(word: &str) -> bool {
    word.strip_prefix(TableId::PREFIX).is_some_and(super::cursor::is_digits)
}

fn table_id(cursor: &mut Cursor<'_>) -> Parsed<TableId> {
    cursor.id(TableId::PREFIX, "the id of a table, as `r0`").map(TableId)
}

impl Parser {
    pub(super) fn table(&mut self, cursor: &mut Cursor<'_>, line: u32) -> Parsed<()> {
        next_id(cursor, TableId::PREFIX, self.program.tables.len(), "the id of a table, as `r0`")?;
        let name = cursor.name(true)?;
        let buffer = BufferId(cursor.id(BufferId::PREFIX, "the id of a buffer, as `b0`")?);
        let holds = if cursor.eat_word("routes") {
            let values = cursor.u32("a number of values")?;
            Holds::Routes { values, distinct: cursor.eat_word("distinct") }
        } else if cursor.eat_word("splits") {
            Holds::Splits { total: cursor.u32("a number of rows")? }
        } else {
            return cursor.expected("`routes` or `splits`");
        };
        self.program.tables.push(Table { name, buffer, holds });
        self.lines.tables.push(line);
        Ok(())
    }

    /// Parses the part of a tile that a table decides.
    pub(super) fn routed(&self, cursor: &mut Cursor<'_>) -> Parsed<Routed> {
        if cursor.eat_word("rows") {
            let table = table_id(cursor)?;
            cursor.expect("[", "`[`")?;
            let group = cursor.u32("the number of a group")?;
            cursor.expect("]", "`]`")?;
            return Ok(Routed::Group { table, group });
        }
        let row = cursor.eat_word("row");
        let (table, entry) = self.entry(cursor)?;
        Ok(if row { Routed::Row { table, entry } } else { Routed::Pick { table, entry } })
    }

    /// An entry of a table: `r0[1, 0]`.
    fn entry(&self, cursor: &mut Cursor<'_>) -> Parsed<(TableId, u32)> {
        let table = table_id(cursor)?;
        let start = cursor.clone();
        cursor.expect("[", "`[`")?;
        let mut indices = vec![cursor.u32("an index")?];
        while cursor.eat(",") {
            indices.push(cursor.u32("an index")?);
        }
        cursor.expect("]", "`,` or `]`")?;
        let shape = shape(&self.program, table).unwrap_or(&[]);
        match *indices.as_slice() {
            [index] => Ok((table, index)),
            _ => row_major(&start, shape, &indices).map(|index| (table, index)),
        }
    }

    /// Parses `e0[r0[1, 0]]` if it comes next.
    fn picked(&self, cursor: &mut Cursor<'_>) -> Parsed<Option<RoutedSignal>> {
        let mut ahead = cursor.clone();
        let event = EventId(ahead.id(EVENT, "the id of an event tensor, as `e0`")?);
        if !ahead.eat("[") || !is_table(ahead.peek_word()) {
            return Ok(None);
        }
        let (table, entry) = self.entry(&mut ahead)?;
        ahead.expect("]", "`]`")?;
        *cursor = ahead;
        Ok(Some(RoutedSignal { event, table, entry }))
    }

    /// Parses the next signal, if it depends on a table.
    pub(super) fn routed_signal(&self, cursor: &mut Cursor<'_>) -> Parsed<Option<RoutedSignal>> {
        self.picked(cursor)
    }

    /// Parses the next wait, if it depends on a table.
    pub(super) fn routed_wait(&self, cursor: &mut Cursor<'_>) -> Parsed<Option<RoutedWait>> {
        if let Some(RoutedSignal { event, table, entry }) = self.picked(cursor)? {
            cursor.expect(">=", "`>=`")?;
            let threshold = cursor.u32("a threshold")?;
            return Ok(Some(RoutedWait::Pick { event, table, entry, threshold }));
        }
        // Other forms are of the waits that depend on no table.
        let mut ahead = cursor.clone();
        let event = EventId(ahead.id(EVENT, "the id of an event tensor, as `e0`")?);
        if !ahead.eat("[") || !ahead.at_digit() {
            return Ok(None);
        }
        let value = ahead.u32("an index")?;
        if !(ahead.eat("]") && ahead.eat(">=") && ahead.eat_word("count")) {
            return Ok(None);
        }
        let table = table_id(&mut ahead)?;
        *cursor = ahead;
        Ok(Some(RoutedWait::Count { event, value, table }))
    }
}

fn shape(program: &Program, table: TableId) -> Option<&[u32]> {
    Some(&program.tables.get(table.index())?.buffer(program)?.shape)
}

pub(super) fn write_table(out: &mut String, n: usize, table: &Table) -> fmt::Result {
    write!(out, "table {} @{} {} ", TableId::from(n), name(&table.name, true), table.buffer)?;
    match table.holds {
        Holds::Routes { values, distinct } => {
            writeln!(out, "routes {values}{}", if distinct { " distinct" } else { "" })
        }
        Holds::Splits { total } => writeln!(out, "splits {total}"),
    }
}

/// Whether the printer can leave out the first interval of a tile that a table decides.
pub(super) fn is_plain(program: &Program, operand: &Operand) -> bool {
    let extent = program.buffers.get(operand.buffer.index()).and_then(|buffer| buffer.shape.first());
    extent.is_some_and(|&extent| operand.region.intervals().first() == Some(&Interval::fixed(0, extent)))
}

pub(super) fn write_routed(out: &mut String, program: &Program, routed: Routed) -> fmt::Result {
    match routed {
        Routed::Pick { table, entry } => write_entry(out, program, table, entry),
        Routed::Row { table, entry } => {
            write!(out, "row ")?;
            write_entry(out, program, table, entry)
        }
        Routed::Group { table, group } => write!(out, "rows {table}[{group}]"),
    }
}

fn write_entry(out: &mut String, program: &Program, table: TableId, entry: u32) -> fmt::Result {
    write!(out, "{table}")?;
    write_index(out, shape(program, table).unwrap_or(&[]), entry)
}

pub(super) fn write_routed_wait(out: &mut String, program: &Program, wait: RoutedWait) -> fmt::Result {
    match wait {
        RoutedWait::Count { event, value, table } => write!(out, "{event}[{value}] >= count {table}"),
        RoutedWait::Pick { event, table, entry, threshold } => {
            write_routed_signal(out, program, RoutedSignal { event, table, entry })?;
            write!(out, " >= {threshold}")
        }
    }
}

pub(super) fn write_routed_signal(out: &mut String, program: &Program, signal: RoutedSignal) -> fmt::Result {
    write!(out, "{}[", signal.event)?;
    write_entry(out, program, signal.table, signal.entry)?;
    write!(out, "]")
}

//! Violations of tables in words.

use super::reason::{NoTable, NoTile, Uncounted};
use crate::table::MOST_ROWS;
use crate::verify::names::Names;
use crate::verify::{Site, Violation};
use crate::{EventId, Holds, TableId};

/// Headline, notes and help.
type Words = (String, Vec<String>, String);

/// The words of a violation of AMK063x.
pub(in crate::verify) fn words(violation: &Violation, names: Names<'_>) -> Words {
    match violation {
        Violation::Table { table, why } => self::table(*table, *why, names),
        Violation::RoutedTile { site, why } => tile(*site, *why, names),
        Violation::RoutedCounter { event, table, why } => counter(*event, *table, *why, names),
        Violation::TableNotRead { task, table, entry } => {
            let what = entry.map_or_else(|| names.table(*table), |entry| names.entry(*table, entry));
            let headline = format!("{} depends on {what} and does not read it", names.task(*task));
            let note = "the read orders the task after the one that writes the table; its own waits cannot".into();
            (headline, vec![note], format!("give `{task}` an operand that reads {what}"))
        }
        Violation::RoutedSteps { table } => {
            let headline = format!("table {} in steps that are pipelined", names.table(*table));
            let note = "how many signals earlier steps gave is known when all of them have ended".into();
            (headline, vec![note], "use `steps barrier`".into())
        }
        _ => (String::new(), Vec::new(), String::new()),
    }
}

fn table(id: TableId, why: NoTable, names: Names<'_>) -> Words {
    let table = names.table(id);
    let declared = names.program.tables.get(id.index());
    let holds = declared.map(|table| table.holds);
    let (defect, note, help) = match why {
        NoTable::Missing => ("has no buffer", String::new(), "declare its buffer".into()),
        NoTable::Buffer => (
            "is not in a separate activation",
            "a table is written in each step, and its readers wait for a counter".into(),
            "use an `activation` without packets and without a place".into(),
        ),
        NoTable::Type => ("has elements that are not numbers", String::new(), "use `u32`, or whole `f32`".into()),
        NoTable::Shape => (
            "has a shape that its contract does not allow",
            match holds {
                Some(Holds::Splits { .. }) => "splits are `[groups + 1]`".into(),
                _ => "routes are `[entries]` or `[rows, entries]`".into(),
            },
            "reshape the buffer".into(),
        ),
        NoTable::Size => (
            "has nothing to choose from, or too much",
            format!("1 to {MOST_ROWS} groups and rows are possible"),
            "choose other sizes".into(),
        ),
        NoTable::Distinct => {
            let values = declared.map_or(0, |table| table.groups(names.program));
            let columns = declared.map_or(0, |table| table.row_len(names.program));
            (
                "cannot have distinct entries",
                format!("a row has {columns} entries, and there are {values} values"),
                "drop `distinct`, or shorten the rows".into(),
            )
        }
        NoTable::Shared { other } => {
            ("has the buffer of another table", format!("{} has it too", names.table(other)), "keep one of them".into())
        }
        NoTable::Part { site } => (
            "is written in parts of a row",
            format!("the write is {}", names.tile_of(site)),
            "write whole rows, so that what was written can be checked; of splits the whole table".into(),
        ),
        NoTable::Twice { first, second } => (
            "is written twice",
            format!("(1) is {}, (2) is {}", names.tile_of(first), names.tile_of(second)),
            "write each row once a step".into(),
        ),
    };
    let notes = if note.is_empty() { Vec::new() } else { vec![note] };
    (format!("table {table} {defect}"), notes, help)
}

fn tile(site: Site, why: NoTile, names: Names<'_>) -> Words {
    let (tile, call) = (names.site(site), names.call(site));
    let wrong = |defect: &str| format!("tile {tile} of {call} {defect}");
    match why {
        NoTile::Absent { number, count } => {
            let note = format!("there is no {number}, the last is {}", i64::from(count) - 1);
            let note = if count == 0 { "splits have no entries that name one".into() } else { note };
            (wrong("is of no entry or group of its table"), vec![note], "name one that the table has".into())
        }
        NoTile::Rows { expected, found } => {
            let note = format!("dimension 0 is {found}, the table has {expected}");
            (wrong("has other rows than its table"), vec![note], format!("make dimension 0 {expected} long"))
        }
        NoTile::Buffer => {
            let note = format!("{} is {}", names.site_buffer(site), names.shape_of(site));
            let help = "use an `activation`, `output`, `input` or `weight` without packets or a place".into();
            (wrong("cannot be decided by a table"), vec![note], help)
        }
        NoTile::Rank => (wrong("has too many dimensions"), vec!["at most 3 are followed".into()], "merge two".into()),
        NoTile::Early => {
            (wrong("is read early"), vec!["the table is not known before the waits".into()], "drop `early`".into())
        }
        NoTile::Written => {
            let note = "two entries may name the same element".into();
            (wrong("is picked and written"), vec![note], "write the entry's row, `row r0[..]`".into())
        }
        NoTile::Mixed { other } => {
            let note = format!("{} is another cut of it", names.tile_of(other));
            let help = "cut the buffer by one table, or take all its rows".into();
            (wrong("cuts what a table cuts"), vec![note], help)
        }
    }
}

fn counter(event: EventId, table: TableId, why: Uncounted, names: Names<'_>) -> Words {
    let (name, of) = (names.event(event), names.table(table));
    let counts = |defect: String| format!("signals on {name} are not those that {of} counts: {defect}");
    match why {
        Uncounted::Extent { expected } => {
            let note = format!("{of} has {expected} values, {name} has {} counters", names.counters(event));
            (counts("other extents".into()), vec![note], format!("declare {name} with {expected} counters"))
        }
        Uncounted::Absent { task, number, count } => {
            let note = format!("{} names {number}, there are {count}", names.task(task));
            (counts("no such entry or value".into()), vec![note], "name one that the table has".into())
        }
        Uncounted::Never { entry } => {
            let entry = names.entry(table, entry);
            let note = format!("no task signals {entry}: who waits for its count waits for ever");
            (counts("one is missing".into()), vec![note], format!("let the task of {entry} signal it"))
        }
        Uncounted::Twice { entry, first, second } => {
            let entry = names.entry(table, entry);
            let note = format!("(1) {} and (2) {} signal {entry}", names.task(first), names.task(second));
            (counts("one comes twice".into()), vec![note], format!("signal {entry} once"))
        }
        Uncounted::Fixed { task } => {
            let note = format!("{} signals it whatever the routing", names.task(task));
            (counts("one more comes".into()), vec![note], "signal another event tensor".into())
        }
        Uncounted::FixedWait { task } => {
            let headline = format!("{} waits on {name} for a fixed number of signals", names.task(task));
            let note = format!("how many come is up to {of}, and may be none");
            (headline, vec![note], format!("wait for the count: `{event}[..] >= count {table}`"))
        }
        Uncounted::NoSignals { task } => {
            let headline = format!("{} waits for a count on {name}, which {of} does not signal", names.task(task));
            let help = format!("signal by entries: `{event}[{table}[..]]`; or wait for a number");
            (headline, vec!["all signals on it are fixed".into()], help)
        }
        Uncounted::TwoTables { task, other } => {
            let headline = format!("{name} is counted by {of} and {}", names.table(other));
            let note = format!("{} is the first to name another", names.task(task));
            (headline, vec![note], "use an event tensor for each table".into())
        }
    }
}

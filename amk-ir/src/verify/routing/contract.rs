//! AMK063x: tables, and whether their uses agree with their contracts.
//!
//! Runs after the structure is checked, so that everything except tables, entries and events of
//! routed waits can be indexed.

use super::reason::{NoTable, NoTile, Uncounted};
use crate::table::MOST_ROWS;
use crate::verify::found::Found;
use crate::verify::{Reference, Site, Violation};
use crate::{
    Buffer, BufferId, BufferKind, DType, EventId, Exchange, Holds, Interval, MAX_RANK, Operand, Program, Routed,
    RoutedWait, Steps, Table, TableId, TaskId, Wait,
};
use std::collections::BTreeMap;

/// The tables of a program by their buffers; of several with one buffer, the first.
type Tables = BTreeMap<BufferId, TableId>;

pub(super) fn check(program: &Program, found: &mut Found) {
    if !program.tables.is_empty() && program.steps == Steps::Pipelined {
        found.push(Violation::RoutedSteps { table: TableId(0) });
    }
    let mut tables = Tables::new();
    for (n, table) in program.tables.iter().enumerate() {
        let id = TableId::from(n);
        let first = *tables.entry(table.buffer).or_insert(id);
        if let Err(why) = self::table(program, table, Some(first).filter(|&first| first != id)) {
            found.push(Violation::Table { table: id, why });
        }
    }
    if !found.is_empty() {
        return;
    }
    writes(program, &tables, found);
    for (site, operand) in operands(program) {
        if let Some(Err(why)) = operand.routed.map(|routed| tile(program, &tables, operand, routed)) {
            found.push(Violation::RoutedTile { site, why });
        }
    }
    mixed(program, found);
    counters(program, found);
    if found.is_empty() {
        (0..program.tasks.len()).for_each(|n| reads(program, TaskId::from(n), found));
    }
}

/// All operands with their places.
pub(super) fn operands(program: &Program) -> impl Iterator<Item = (Site, &Operand)> {
    (0..).zip(&program.tasks).flat_map(|(task, t)| {
        (0..).zip(&t.calls).flat_map(move |(call, c)| {
            (0..).zip(&c.operands).map(move |(operand, o)| (Site { task: TaskId(task), call, operand }, o))
        })
    })
}

/// References of a task to tables and their event tensors.
pub(in crate::verify) fn references(program: &Program, id: TaskId, found: &mut Found) {
    let task = &program.tasks[id.index()];
    let waits = task.routed_waits.iter().map(|wait| (wait.event(), wait.table()));
    let signals = task.routed_signals.iter().map(|signal| (signal.event, signal.table));
    for (event, table) in waits.chain(signals) {
        self::reference(program, id, table, found);
        if event.index() >= program.events.len() {
            let element = crate::Element { event, index: 0 };
            found.push(Violation::Missing { from: Some(id), what: Reference::Counter(element) });
        }
    }
}

pub(in crate::verify) fn reference(program: &Program, from: TaskId, table: TableId, found: &mut Found) {
    if table.index() >= program.tables.len() {
        found.push(Violation::Missing { from: Some(from), what: Reference::Table(table) });
    }
}

/// Checks a table. `other`: one before it with the same buffer.
fn table(program: &Program, table: &Table, other: Option<TableId>) -> Result<(), NoTable> {
    let buffer = table.buffer(program).ok_or(NoTable::Missing)?;
    if buffer.kind != BufferKind::Activation || buffer.exchange != Exchange::Counter || buffer.place.is_some() {
        return Err(NoTable::Buffer);
    }
    if !matches!(buffer.dtype, DType::U32 | DType::F32) {
        return Err(NoTable::Type);
    }
    let ranks = if matches!(table.holds, Holds::Splits { .. }) { 1..=1 } else { 1..=2 };
    if !ranks.contains(&buffer.shape.len()) {
        return Err(NoTable::Shape);
    }
    let sizes = [u64::from(table.groups(program)), u64::from(table.rows(program)), buffer.len()];
    if sizes.iter().any(|&size| size == 0 || size > u64::from(MOST_ROWS)) {
        return Err(NoTable::Size);
    }
    if let Holds::Routes { values, distinct: true } = table.holds
        && table.row_len(program) > values
    {
        return Err(NoTable::Distinct);
    }
    other.map_or(Ok(()), |other| Err(NoTable::Shared { other }))
}

/// Rows of tables are written whole and once.
fn writes(program: &Program, tables: &Tables, found: &mut Found) {
    let mut written: BTreeMap<TableId, Vec<(u32, u32, Site)>> = BTreeMap::new();
    for (site, operand) in operands(program).filter(|(_, operand)| operand.access.writes()) {
        let Some(&id) = tables.get(&operand.buffer) else { continue };
        let (table, shape) = (&program.tables[id.index()], &program.buffers[operand.buffer.index()].shape);
        let intervals = operand.region.intervals();
        let whole = |dim: usize| intervals.get(dim) == Some(&Interval::fixed(0, shape[dim]));
        let whole_rows = match table.holds {
            Holds::Routes { .. } => shape.len() == 1 || whole(1),
            Holds::Splits { .. } => whole(0),
        };
        let Some(rows) = intervals.first().filter(|rows| whole_rows && !rows.lo.pos && !rows.hi.pos) else {
            found.push(Violation::Table { table: id, why: NoTable::Part { site } });
            continue;
        };
        written.entry(id).or_default().push((rows.lo.base, rows.hi.base, site));
    }
    for (table, mut rows) in written {
        rows.sort_unstable_by_key(|&(lo, hi, site)| (lo, hi, site.task, site.call, site.operand));
        for pair in rows.windows(2).filter(|pair| pair[1].0 < pair[0].1) {
            let why = NoTable::Twice { first: pair[0].2, second: pair[1].2 };
            found.push(Violation::Table { table, why });
        }
    }
}

fn tile(program: &Program, tables: &Tables, operand: &Operand, routed: Routed) -> Result<(), NoTile> {
    let table = &program.tables[routed.table().index()];
    let buffer = &program.buffers[operand.buffer.index()];
    let routes = matches!(table.holds, Holds::Routes { .. });
    let entries = if routes { table.entries(program) } else { 0 };
    let (number, count, expected) = match routed {
        Routed::Pick { entry, .. } => (entry, entries, table.groups(program)),
        Routed::Row { entry, .. } => (entry, entries, table.rows(program)),
        Routed::Group { group, .. } => (group, table.groups(program), table.rows(program)),
    };
    if number >= count {
        return Err(NoTile::Absent { number, count });
    }
    let first = operand.region.intervals().first().copied();
    match (buffer.shape.first().copied(), first) {
        (Some(extent), Some(first)) if extent == expected && first == Interval::fixed(0, extent) => {}
        (extent, _) => return Err(NoTile::Rows { expected, found: extent.unwrap_or(0) }),
    }
    if !may_be_routed(tables, operand, buffer) {
        return Err(NoTile::Buffer);
    }
    // Rows of routes are followed by entry and by value.
    if routes && !matches!(routed, Routed::Pick { .. }) && buffer.shape.len() >= MAX_RANK {
        return Err(NoTile::Rank);
    }
    if operand.early {
        return Err(NoTile::Early);
    }
    if matches!(routed, Routed::Pick { .. }) && operand.access.writes() {
        return Err(NoTile::Written);
    }
    Ok(())
}

fn may_be_routed(tables: &Tables, operand: &Operand, buffer: &Buffer) -> bool {
    let is_table = tables.contains_key(&operand.buffer);
    let kind = !matches!(buffer.kind, BufferKind::State | BufferKind::Local);
    kind && buffer.exchange == Exchange::Counter && buffer.place.is_none() && !is_table
}

/// Refuses other tilings of a dimension that a table tiles.
fn mixed(program: &Program, found: &mut Found) {
    let mut tiled: BTreeMap<u32, (TableId, Site)> = BTreeMap::new();
    for (site, operand) in operands(program) {
        if let Some(Routed::Row { table, .. } | Routed::Group { table, .. }) = operand.routed {
            tiled.entry(operand.buffer.0).or_insert((table, site));
        }
    }
    for (site, operand) in operands(program) {
        let Some(&(table, other)) = tiled.get(&operand.buffer.0) else { continue };
        let extent = program.buffers[operand.buffer.index()].shape.first().copied().unwrap_or(0);
        let fits = match operand.routed {
            Some(Routed::Row { table: own, .. } | Routed::Group { table: own, .. }) => own == table,
            Some(Routed::Pick { .. }) => false,
            None => operand.region.intervals().first() == Some(&Interval::fixed(0, extent)),
        };
        if !fits {
            found.push(Violation::RoutedTile { site, why: NoTile::Mixed { other } });
        }
    }
}

/// The uses of an event tensor by routed waits and signals.
#[derive(Default)]
struct Use {
    /// The table, and a task that uses it.
    table: Option<(TableId, TaskId)>,
    /// Entries and the tasks that signal them.
    signals: Vec<(u32, TaskId)>,
    counts: Vec<TaskId>,
    picks: Vec<(TaskId, u32)>,
    /// The fixed signals of each element, of a picked one.
    fan_in: BTreeMap<u32, u32>,
}

fn counters(program: &Program, found: &mut Found) {
    let mut uses: BTreeMap<EventId, Use> = BTreeMap::new();
    for (n, task) in program.tasks.iter().enumerate() {
        let id = TaskId::from(n);
        for wait in &task.routed_waits {
            let used = uses.entry(wait.event()).or_default();
            let number = match *wait {
                RoutedWait::Count { value, .. } => {
                    used.counts.push(id);
                    Err(value)
                }
                RoutedWait::Pick { entry, threshold, .. } => {
                    used.picks.push((id, threshold));
                    Ok(entry)
                }
            };
            claim(program, (wait.event(), wait.table()), id, number, used, found);
        }
        for signal in &task.routed_signals {
            let used = uses.entry(signal.event).or_default();
            used.signals.push((signal.entry, id));
            claim(program, (signal.event, signal.table), id, Ok(signal.entry), used, found);
        }
    }
    if !found.is_empty() {
        return;
    }
    fixed(program, &uses, found);
    for signal in program.tasks.iter().flat_map(|task| &task.signals) {
        if let Some(used) = uses.get_mut(&signal.event) {
            *used.fan_in.entry(signal.index).or_default() += 1;
        }
    }
    for (event, used) in &uses {
        match used.signals.is_empty() {
            false => counted(program, *event, used, found),
            true => picked(program, *event, used, found),
        }
    }
}

/// One table an event tensor, one counter a value; entries and values that exist.
fn claim(
    program: &Program,
    (event, table): (EventId, TableId),
    task: TaskId,
    number: Result<u32, u32>,
    used: &mut Use,
    found: &mut Found,
) {
    let mut wrong = |why| found.push(Violation::RoutedCounter { event, table, why });
    let &mut (other, _) = used.table.get_or_insert((table, task));
    if other != table {
        wrong(Uncounted::TwoTables { task, other });
    }
    let declared = &program.tables[table.index()];
    let Holds::Routes { values, .. } = declared.holds else {
        return wrong(Uncounted::Absent { task, number: number.unwrap_or_else(|value| value), count: 0 });
    };
    if program.events[event.index()].shape != [values] {
        wrong(Uncounted::Extent { expected: values });
    }
    let (number, count) = match number {
        Ok(entry) => (entry, declared.entries(program)),
        Err(value) => (value, values),
    };
    if number >= count {
        wrong(Uncounted::Absent { task, number, count });
    }
}

/// Refuses other signals, and waits for a fixed number, on events that entries signal.
fn fixed(program: &Program, uses: &BTreeMap<EventId, Use>, found: &mut Found) {
    let counted = |event: EventId| {
        let used = uses.get(&event).filter(|used| !used.signals.is_empty())?;
        Some((event, used.table?.0))
    };
    for (task, t) in (0..).map(TaskId).zip(&program.tasks) {
        let mut wrong = |(event, table), why| found.push(Violation::RoutedCounter { event, table, why });
        if let Some(counted) = t.signals.iter().find_map(|signal| counted(signal.event)) {
            wrong(counted, Uncounted::Fixed { task });
        }
        if let Some(counted) = t.waits.iter().find_map(|wait| counted(wait.on.event)) {
            wrong(counted, Uncounted::FixedWait { task });
        }
    }
}

/// Each entry is signalled once and nothing else is: then for every routing an element has as many
/// signals as there are entries that name it, which is the number that its waiters count.
fn counted(program: &Program, event: EventId, used: &Use, found: &mut Found) {
    let Some((table, _)) = used.table else { return };
    let mut wrong = |why| found.push(Violation::RoutedCounter { event, table, why });
    let mut signals = used.signals.clone();
    signals.sort_unstable();
    for pair in signals.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
        wrong(Uncounted::Twice { entry: pair[0].0, first: pair[0].1, second: pair[1].1 });
    }
    let entries = program.tables[table.index()].entries(program);
    let mut signalled = signals.iter().map(|&(entry, _)| entry).peekable();
    for entry in 0..entries {
        let mut times = 0;
        while signalled.next_if_eq(&entry).is_some() {
            times += 1;
        }
        if times == 0 {
            wrong(Uncounted::Never { entry });
            break;
        }
    }
    for &(task, _) in &used.picks {
        wrong(Uncounted::FixedWait { task });
    }
}

/// Signals are fixed: enough of them come on whichever element the entry names.
fn picked(program: &Program, event: EventId, used: &Use, found: &mut Found) {
    let Some((table, _)) = used.table else { return };
    for &task in &used.counts {
        found.push(Violation::RoutedCounter { event, table, why: Uncounted::NoSignals { task } });
    }
    let fan_in = &used.fan_in;
    // An element without signals, or the one with the fewest.
    let absent = (0..).zip(fan_in.keys()).find(|&(n, &index)| n != index).map_or(fan_in.len() as u32, |(n, _)| n);
    let absent = Some((0, absent)).filter(|_| (fan_in.len() as u64) < program.events[event.index()].len());
    let fewest = absent.or_else(|| fan_in.iter().map(|(&index, &signals)| (signals, index)).min());
    let Some((fan_in, index)) = fewest else { return };
    for &(task, threshold) in used.picks.iter().filter(|&&(_, threshold)| threshold == 0 || threshold > fan_in) {
        let on = crate::Element { event, index };
        found.push(Violation::Unsatisfiable { task, wait: Wait { on, threshold }, fan_in });
    }
}

/// A task must read the parts of a table that it uses.
fn reads(program: &Program, id: TaskId, found: &mut Found) {
    let task = &program.tasks[id.index()];
    let operands = || task.calls.iter().flat_map(|call| &call.operands);
    let tiles = operands().filter_map(|operand| match operand.routed? {
        Routed::Pick { table, entry } => Some((table, Some(entry))),
        Routed::Row { table, .. } | Routed::Group { table, .. } => Some((table, None)),
    });
    let waits = task.routed_waits.iter().map(|wait| match *wait {
        RoutedWait::Count { table, .. } => (table, None),
        RoutedWait::Pick { table, entry, .. } => (table, Some(entry)),
    });
    let signals = task.routed_signals.iter().map(|signal| (signal.table, Some(signal.entry)));
    let mut tables = BTreeMap::new();
    for (table, entry) in tiles.chain(waits).chain(signals) {
        let declared = &program.tables[table.index()];
        let of_table = operands().filter(|operand| operand.buffer == declared.buffer);
        let parts = tables.entry(table).or_insert_with(|| Parts::of(program, declared, of_table));
        // A task's own writes are known once its waits are over, and are checked when its calls
        // are.
        if parts.written || !parts.have(program, declared, entry) {
            found.push(Violation::TableNotRead { task: id, table, entry });
            return;
        }
    }
}

/// The parts of a table that the operands of a task cover.
struct Parts<'a> {
    written: bool,
    /// Whether one of them covers all.
    all: bool,
    /// Rows that are read whole, apart from each other and in order.
    rows: Vec<(u32, u32)>,
    /// Others that are read.
    others: Vec<&'a Operand>,
}

impl<'a> Parts<'a> {
    fn of(program: &Program, table: &Table, operands: impl Iterator<Item = &'a Operand>) -> Self {
        let shape = &program.buffers[table.buffer.index()].shape;
        let mut parts = Self { written: false, all: false, rows: Vec::new(), others: Vec::new() };
        let mut rows = Vec::new();
        for operand in operands {
            parts.written |= operand.access.writes();
            if !operand.access.reads() {
                continue;
            }
            parts.all |= covers(program, table, operand, None);
            match operand.region.intervals() {
                [first, rest @ ..] if !first.moves() && rest.iter().all(|dim| *dim == Interval::fixed(0, shape[1])) => {
                    rows.push((first.lo.base, first.hi.base));
                }
                _ => parts.others.push(operand),
            }
        }
        rows.sort_unstable();
        for (lo, hi) in rows {
            match parts.rows.last_mut().filter(|last| lo <= last.1) {
                Some(last) => last.1 = last.1.max(hi),
                None => parts.rows.push((lo, hi)),
            }
        }
        parts
    }

    /// Whether an entry is read, or all.
    fn have(&self, program: &Program, table: &Table, entry: Option<u32>) -> bool {
        let Some(entry) = entry else { return self.all };
        let [row, _] = place(program, table, entry);
        let after = self.rows.partition_point(|&(lo, _)| lo <= row);
        let whole = after.checked_sub(1).is_some_and(|at| row < self.rows[at].1);
        whole || self.others.iter().any(|operand| covers(program, table, operand, Some(entry)))
    }
}

/// The indices of an entry in a table of two dimensions; of one dimension, the first.
fn place(program: &Program, table: &Table, entry: u32) -> [u32; 2] {
    match program.buffers[table.buffer.index()].shape.len() {
        1 => [entry, 0],
        _ => {
            let columns = table.row_len(program).max(1);
            [entry / columns, entry % columns]
        }
    }
}

/// Whether an operand covers an entry of a table, or all entries.
fn covers(program: &Program, table: &Table, operand: &Operand, entry: Option<u32>) -> bool {
    let shape = &program.buffers[table.buffer.index()].shape;
    operand.region.intervals().iter().enumerate().all(|(dim, interval)| match entry {
        Some(entry) => {
            let at = place(program, table, entry)[dim];
            !interval.moves() && interval.lo.base <= at && at < interval.hi.base
        }
        None => *interval == Interval::fixed(0, shape[dim]),
    })
}

//! AMK08xx: programs with rows, decided as the ordinary program in which all rows belong to one
//! sequence. Lemmas R1 to R4 of `docs/src/internals/verifier.md` prove that it stands for all
//! steps.

use super::budget::Budget;
use super::found::Found;
use super::meet::Meet;
use super::names::Names;
use super::storage::bytes;
use super::structure::first_beyond;
use super::violation::{Party, Site, TooMuch, Violation};
use crate::{Bound, Buffer, BufferId, BufferKind, Call, CallRows, Interval, Operand, Program, Region, Steps, TaskId};
use std::collections::BTreeMap;

/// The reasons why a program cannot have rows, or a call not these rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoRows {
    /// Steps have no row.
    Zero,
    /// There are tables.
    Tables,
    /// Steps are pipelined.
    Pipelined,
    /// Packets move with the position.
    Packets(BufferId),
    /// A state, or a buffer whose tiles move with the position, shares bytes with another buffer.
    SharedBytes(BufferId),
    /// A call does not name its rows.
    Missing(TaskId, u32),
    /// A call is for no rows, or for a row that no step has.
    Range(TaskId, u32),
    /// A call has rows, and the program has none.
    NotDeclared(TaskId, u32),
}

/// The reasons why a call restricted to wanted rows is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unwanted {
    /// It writes a state, which later steps read.
    State,
    /// A call for all rows reads its result.
    Read,
}

/// Calls of a program with their places.
fn calls(program: &Program) -> impl Iterator<Item = (TaskId, u32, &Call)> {
    let tasks = program.tasks.iter().enumerate();
    tasks.flat_map(|(task, t)| t.calls.iter().zip(0..).map(move |(call, n)| (TaskId::from(task), n, call)))
}

/// The operands of a call with their places.
fn operands(task: TaskId, n: u32, call: &Call) -> impl Iterator<Item = (Site, &Operand)> {
    call.operands.iter().zip(0..).map(move |(operand, k)| (Site { task, call: n, operand: k }, operand))
}

fn kind(program: &Program, operand: &Operand) -> Option<BufferKind> {
    program.buffers.get(operand.buffer.index()).map(|buffer| buffer.kind)
}

/// The dimensions of states that some tile moves in, by buffer.
fn moving_dims(program: &Program) -> BTreeMap<BufferId, Vec<usize>> {
    let mut found: BTreeMap<BufferId, Vec<usize>> = BTreeMap::new();
    for operand in calls(program).flat_map(|(_, _, call)| &call.operands) {
        if kind(program, operand) == Some(BufferKind::State) {
            let dims = found.entry(operand.buffer).or_default();
            let moving = operand.region.intervals().iter().enumerate().filter(|(_, interval)| interval.moves());
            dims.extend(moving.map(|(dim, _)| dim));
            dims.sort_unstable();
            dims.dedup();
        }
    }
    found
}

/// Returns the ordinary program that stands in for a program with rows: its states are extended for
/// all rows after the last position, and have no place, since the program's own states share bytes
/// with no other buffer. `None` if there are no rows.
pub(super) fn stand_in(program: &Program) -> Option<Program> {
    let beyond = program.rows?.saturating_sub(1);
    let mut stand_in = Program { rows: None, ..program.clone() };
    let moving = moving_dims(program);
    for operand in stand_in.tasks.iter_mut().flat_map(|task| &mut task.calls).flat_map(|call| &mut call.operands) {
        let extents = program.buffers.get(operand.buffer.index()).map_or(&[][..], |buffer| &buffer.shape);
        for &dim in moving.get(&operand.buffer).map_or(&[][..], Vec::as_slice) {
            if let Some(Interval { hi, .. }) = operand.region.intervals_mut().get_mut(dim)
                && !hi.pos
                && Some(&hi.base) == extents.get(dim)
            {
                hi.base = hi.base.saturating_add(beyond);
            }
        }
    }
    for (buffer, dims) in moving {
        let Some(Buffer { shape, place, .. }) = stand_in.buffers.get_mut(buffer.index()) else { continue };
        *place = None;
        for dim in dims {
            shape.get_mut(dim).into_iter().for_each(|extent| *extent = extent.saturating_add(beyond));
        }
    }
    Some(stand_in)
}

/// Returns a stand-in whose reads of states that begin at a distance before the row begin at
/// position 0. If it is safe, so is the stand-in (R7); it takes less time to decide, as few of its
/// bounds pass each other. `None` if no read begins so.
pub(super) fn without_windows(stand_in: &Program) -> Option<Program> {
    let begins_behind = |operand: &Operand| {
        let of_state = kind(stand_in, operand) == Some(BufferKind::State);
        of_state && !operand.access.writes() && operand.region.intervals().iter().any(|interval| interval.lo.pos)
    };
    if !calls(stand_in).flat_map(|(_, _, call)| &call.operands).any(begins_behind) {
        return None;
    }
    let mut wider = stand_in.clone();
    let operands = wider.tasks.iter_mut().flat_map(|task| &mut task.calls).flat_map(|call| &mut call.operands);
    for operand in operands.filter(|operand| begins_behind(operand)) {
        let intervals = operand.region.intervals_mut().iter_mut();
        intervals.filter(|interval| interval.lo.pos).for_each(|interval| interval.lo = Bound::fixed(0));
    }
    Some(wider)
}

/// Returns a stand-in whose packets are only those that every step has: of row 0, if calls for all
/// rows write and read them. Others order nothing in steps without their rows (R2). `None` if there
/// are no packets, and in ordinary programs.
pub(super) fn of_every_step(stand_in: &Program) -> Option<Program> {
    if !stand_in.has_packets() || calls(stand_in).any(|(_, _, call)| call.rows.is_none()) {
        return None;
    }
    let mut every = stand_in.clone();
    for call in every.tasks.iter_mut().flat_map(|task| &mut task.calls) {
        let all = call.rows.is_some_and(|rows| rows.first == 0 && !rows.wanted);
        let rows = Interval::fixed(0, u32::from(all));
        for operand in &mut call.operands {
            let packet = every.buffers.get(operand.buffer.index()).is_some_and(Buffer::is_packet);
            operand.region.intervals_mut().first_mut().filter(|_| packet).into_iter().for_each(|first| *first = rows);
        }
    }
    Some(every)
}

/// A packet buffer with a tile that moves.
fn moving_packets(program: &Program) -> Option<BufferId> {
    let mut operands = calls(program).flat_map(|(_, _, call)| &call.operands);
    let packet = |buffer: BufferId| program.buffers.get(buffer.index()).is_some_and(Buffer::is_packet);
    let moving =
        operands.find(|operand| packet(operand.buffer) && operand.region.intervals().iter().any(Interval::moves));
    moving.map(|operand| operand.buffer)
}

/// Checks the rules that only programs with rows can break; the structure has been checked.
pub(super) fn check(program: &Program, found: &mut Found) {
    let Some(rows) = program.rows else {
        let with_rows = calls(program).find(|(_, _, call)| call.rows.is_some());
        if let Some((task, call, _)) = with_rows {
            found.push(Violation::Rows(NoRows::NotDeclared(task, call)));
        }
        return;
    };
    declared(program, rows, found);
    if !found.is_empty() {
        return;
    }
    for (task, n, call) in calls(program) {
        let Some(of) = call.rows else { continue };
        operands(task, n, call).for_each(|(site, operand)| self::operand(program, site, operand, of, found));
    }
    locals(program, found);
    let moving = moving_dims(program);
    own_positions(program, &moving, found);
    bounds(program, &moving, found);
    wanted(program, found);
    if found.is_empty() {
        order(program, found);
    }
}

fn declared(program: &Program, rows: u32, found: &mut Found) {
    let mut refuse = |why| found.push(Violation::Rows(why));
    if rows == 0 {
        refuse(NoRows::Zero);
    }
    if !program.tables.is_empty() {
        refuse(NoRows::Tables);
    }
    if program.steps == Steps::Pipelined {
        refuse(NoRows::Pipelined);
    }
    if let Some(packets) = moving_packets(program) {
        refuse(NoRows::Packets(packets));
    }
    if let Some(buffer) = shared_bytes(program) {
        refuse(NoRows::SharedBytes(buffer));
    }
    for (task, n, call) in calls(program) {
        match call.rows {
            None => refuse(NoRows::Missing(task, n)),
            Some(of) if of.is_empty() || of.end > rows => refuse(NoRows::Range(task, n)),
            Some(_) => {}
        }
    }
}

/// Returns a state that shares bytes with another buffer, or such a buffer whose tiles move: the
/// accesses to these bytes would depend on the rows of a step, and on their positions.
fn shared_bytes(program: &Program) -> Option<BufferId> {
    let mut own: Vec<bool> = program.buffers.iter().map(|buffer| buffer.kind == BufferKind::State).collect();
    for operand in calls(program).flat_map(|(_, _, call)| &call.operands) {
        if operand.region.intervals().iter().any(Interval::moves)
            && let Some(own) = own.get_mut(operand.buffer.index())
        {
            *own = true;
        }
    }
    let placed = program.buffers.iter().enumerate().filter(|(_, buffer)| buffer.place.is_some());
    let mut placed: Vec<_> = placed.map(|(index, buffer)| (bytes(buffer), index)).collect();
    placed.sort_by_key(|(bytes, index)| (bytes.start, *index));
    // The ends of the preceding buffers: of all, and of those that share with none.
    let (mut all, mut owned) = ((0, 0), (0, 0));
    for (bytes, index) in placed.into_iter().filter(|(bytes, _)| !bytes.is_empty()) {
        if owned.0 > bytes.start {
            return Some(BufferId::from(owned.1));
        }
        if own[index] && all.0 > bytes.start {
            return Some(BufferId::from(index));
        }
        all = all.max((bytes.end, index));
        if own[index] {
            owned = owned.max((bytes.end, index));
        }
    }
    None
}

/// A call has the tiles of its own rows, and no other's.
fn operand(program: &Program, site: Site, operand: &Operand, of: CallRows, found: &mut Found) {
    let Some(buffer) = program.buffers.get(operand.buffer.index()) else { return };
    let wanted = match buffer.kind {
        BufferKind::Weight => return,
        BufferKind::State => {
            let row = of.region(&operand.region).filter(|row| !crosses(row, program.positions));
            match row.filter(|row| !is_empty(row, program.positions)) {
                Some(row) => inside(program, site, &row, &buffer.shape, found),
                None => found.push(Violation::MixedRows { site }),
            }
            return;
        }
        BufferKind::Local => (of.len(), Interval::fixed(0, of.len())),
        _ => (program.rows.unwrap_or(0), Interval::fixed(of.first, of.end)),
    };
    let first = (buffer.shape.first().copied().unwrap_or(0), operand.region.intervals().first().copied());
    if (wanted.0, Some(wanted.1)) != first {
        found.push(Violation::MixedRows { site });
    }
}

/// Whether a tile is empty at every position.
fn is_empty(region: &Region, positions: u32) -> bool {
    Meet::of(region, region, positions).within(0, 0).is_none()
}

/// A row must write a state only at its own position, if tiles move: the contract of a step is
/// about the pages of these positions.
fn own_positions(program: &Program, moving: &BTreeMap<BufferId, Vec<usize>>, found: &mut Found) {
    let own = Interval { lo: Bound::at_pos(0), hi: Bound::at_pos(1) };
    for (task, n, call) in calls(program) {
        for (site, operand) in operands(task, n, call).filter(|(_, operand)| operand.access.writes()) {
            let dims = moving.get(&operand.buffer).map_or(&[][..], Vec::as_slice);
            let Some(row) = call.rows.and_then(|rows| rows.region(&operand.region)) else { continue };
            if dims.iter().any(|&dim| row.intervals().get(dim).is_some_and(|interval| *interval != own)) {
                found.push(Violation::OtherPositions { site });
            }
        }
    }
}

/// A local is handed from call to call for the same rows.
fn locals(program: &Program, found: &mut Found) {
    let mut rows: BTreeMap<BufferId, CallRows> = BTreeMap::new();
    for (task, n, call) in calls(program) {
        for (site, operand) in operands(task, n, call) {
            let Some(of) = call.rows.filter(|_| kind(program, operand) == Some(BufferKind::Local)) else { continue };
            if rows.entry(operand.buffer).or_insert(of).range() != of.range() {
                found.push(Violation::MixedRows { site });
            }
        }
    }
}

/// The tile of a row must lie in its state at every position of that row.
fn inside(program: &Program, site: Site, row: &Region, shape: &[u32], found: &mut Found) {
    let last = u64::from(program.positions) - 1;
    for ((interval, &extent), dim) in row.intervals().iter().zip(shape).zip(0..) {
        let extent = u64::from(extent);
        if interval.hi.at(last) > extent {
            found.push(Violation::OutOfBounds { site, dim: Some(dim), position: first_beyond(interval.hi, extent) });
        }
    }
}

/// Whether the bounds of a tile cross at some position.
fn crosses(region: &Region, positions: u32) -> bool {
    let ends = [0, u64::from(positions) - 1];
    region.intervals().iter().any(|interval| ends.iter().any(|&pos| interval.lo.at(pos) > interval.hi.at(pos)))
}

/// Where tiles of a state move, those that do not span the whole dimension: so a conflict of two
/// rows depends only on the distance of their positions.
fn bounds(program: &Program, moving: &BTreeMap<BufferId, Vec<usize>>, found: &mut Found) {
    for (task, n, call) in calls(program) {
        for (site, operand) in operands(task, n, call) {
            let extents = program.buffers.get(operand.buffer.index()).map_or(&[][..], |buffer| &buffer.shape);
            for &dim in moving.get(&operand.buffer).map_or(&[][..], Vec::as_slice) {
                let Some(interval) = operand.region.intervals().get(dim) else { continue };
                let starts = interval.lo.pos || interval.lo.base == 0;
                let ends = interval.hi.pos || Some(&interval.hi.base) == extents.get(dim);
                if !(starts && ends) {
                    found.push(Violation::RowBound { site, dim: dim as u32 });
                }
            }
        }
    }
}

/// Rows that are not wanted may be omitted only if nothing depends on them.
fn wanted(program: &Program, found: &mut Found) {
    let mut partial = vec![false; program.buffers.len()];
    for (task, n, call) in calls(program) {
        let only = call.rows.is_some_and(|rows| rows.wanted);
        for (site, operand) in operands(task, n, call) {
            if only && operand.access.writes() {
                partial[operand.buffer.index()] = true;
                if kind(program, operand) == Some(BufferKind::State) {
                    found.push(Violation::UnwantedRows { site, why: Unwanted::State });
                }
            }
        }
    }
    for (task, n, call) in calls(program).filter(|(_, _, call)| call.rows.is_some_and(|rows| !rows.wanted)) {
        for (site, operand) in operands(task, n, call) {
            if operand.access.reads() && partial[operand.buffer.index()] {
                found.push(Violation::UnwantedRows { site, why: Unwanted::Read });
            }
        }
    }
}

/// An access of a state by any row of a call, relative to the position of that row.
struct RowAccess<'a> {
    site: Site,
    operand: &'a Operand,
    rows: CallRows,
    row: Region,
}

/// Accesses of two rows of a sequence to a state must be listed in the order of the rows, so that
/// the listed order computes what the function does, called row by row.
fn order(program: &Program, found: &mut Found) {
    let mut states: BTreeMap<BufferId, Vec<RowAccess<'_>>> = BTreeMap::new();
    for (task, n, call) in calls(program) {
        for (site, operand) in operands(task, n, call) {
            if let (Some(BufferKind::State), Some(rows)) = (kind(program, operand), call.rows)
                && let Some(row) = rows.region(&operand.region)
            {
                states.entry(operand.buffer).or_default().push(RowAccess { site, operand, rows, row });
            }
        }
    }
    let mut budget = Budget::of(program);
    for (&buffer, accesses) in &states {
        let is_write = |n: &usize| accesses[*n].operand.access.writes();
        let writes: Vec<usize> = (0..accesses.len()).filter(is_write).collect();
        const PER_PAIR: u64 = 4;
        let pairs = (writes.len() as u64).saturating_mul(accesses.len() as u64).saturating_mul(2 * PER_PAIR);
        if !budget.spend(pairs, TooMuch::Pairs { buffer }) {
            return budget.report(found);
        }
        for (n, later) in accesses.iter().enumerate() {
            // A read conflicts only with writes.
            let reversed_with = |first: &RowAccess<'_>, found: &mut Found| {
                if let Some((position, distance)) = reversed(first, later, program.positions) {
                    let (first, second) = (party(first), party(later));
                    found.push(Violation::RowOrder { first, second, position, distance });
                }
            };
            if is_write(&n) {
                accesses[..n].iter().for_each(|first| reversed_with(first, found));
            } else {
                let before = writes.iter().take_while(|&&write| write < n);
                before.for_each(|&write| reversed_with(&accesses[write], found));
            }
        }
    }
}

/// Returns a position of a row of the access that is listed later, and how many rows after it a row
/// of the other access touches the same element.
fn reversed(first: &RowAccess<'_>, later: &RowAccess<'_>, positions: u32) -> Option<(u32, u32)> {
    if (first.site.task, first.site.call) == (later.site.task, later.site.call) {
        return None;
    }
    let (least, most) = (
        i64::from(first.rows.first) - (i64::from(later.rows.end) - 1),
        i64::from(first.rows.end) - 1 - i64::from(later.rows.first),
    );
    if most < 1 {
        return None; // no row of the first is after one of the other
    }
    // In the stand-in, rows of a step may lie beyond the last position.
    let reach = positions.saturating_add(first.rows.end.max(later.rows.end));
    let (position, other) = Meet::of(&later.row, &first.row, reach).within(least.max(1), most)?;
    Some((position, other - position))
}

fn party(access: &RowAccess<'_>) -> Party {
    let Operand { access: how, buffer, region, .. } = *access.operand;
    Party { site: access.site, access: how, buffer, region, step: 0 }
}

/// Headline, notes and help.
type Words = (String, Vec<String>, String);

/// The words of a violation of AMK08xx.
pub(super) fn words(violation: &Violation, names: Names<'_>) -> Words {
    match violation {
        Violation::Rows(why) => no_rows(*why, names),
        Violation::MixedRows { site } => {
            let call = names.program.tasks.get(site.task.index()).and_then(|task| task.calls.get(site.call as usize));
            let rows = call.and_then(|call| call.rows).map_or_else(String::new, |rows| rows.to_string());
            let headline = format!("tile {} of {} is not the tile of its rows", names.site(*site), names.call(*site));
            let note = "a call reads and writes the rows that it is for: their part of the first dimension, \
                        of a local all of it, of a state what each row has at its own position";
            (headline, vec![format!("the call is for {rows}"), note.into()], "give the operand the call's rows".into())
        }
        Violation::OtherPositions { site } => {
            let headline =
                format!("{} writes {} at other positions than its row's", names.call(*site), names.site(*site));
            let note = "pages before a row's position may be shared with other sequences, and a page after it may \
                        not be there";
            let help = "write `pos..pos+1` of each row: `pos..pos+N` for rows 0..N";
            (headline, vec![note.into()], help.into())
        }
        Violation::RowOrder { first, second, position, distance } => {
            let tile = names.common(first, second);
            let headline = format!(
                "{tile} in the wrong order of rows: (1) {} before (2) {}",
                names.doing(first),
                names.doing(second)
            );
            let rows = if *distance == 1 { "1 row".to_owned() } else { format!("{distance} rows") };
            let note = format!("(2) for a row at position {position} comes before (1) for one {rows} later");
            let help = format!("list `{}` before `{}`", second.site.task, first.site.task);
            (headline, vec![format!("(1) is {}, (2) is {}", names.place(first), names.place(second)), note], help)
        }
        Violation::UnwantedRows { site, why: Unwanted::State } => {
            let headline = format!("{} writes state {} for wanted rows alone", names.call(*site), names.site(*site));
            let note = "later steps read what all rows have written".into();
            (headline, vec![note], "drop `wanted`".into())
        }
        Violation::UnwantedRows { site, why: Unwanted::Read } => {
            let headline = format!("{} reads {} of rows that are not wanted", names.call(*site), names.site(*site));
            let note = "a call for wanted rows alone writes it".into();
            (headline, vec![note], "make this call for wanted rows too, or drop `wanted` where it is written".into())
        }
        Violation::RowBound { site, dim } => {
            let headline = format!("tile {} of {} cuts a dimension that moves", names.site(*site), names.call(*site));
            let note = format!(
                "other tiles move with the position in dimension {dim}: with rows a bound there is `pos + N`, \
                 `max(0, pos - N)`, 0 or the extent"
            );
            (headline, vec![note], "cut another dimension".into())
        }
        _ => (String::new(), Vec::new(), String::new()),
    }
}

fn no_rows(why: NoRows, names: Names<'_>) -> Words {
    let call = |task, call| names.call(Site { task, call, operand: 0 });
    match why {
        NoRows::Zero => ("a program with steps of no rows".into(), Vec::new(), "use `rows 1` or more".into()),
        NoRows::Tables => ("a program with rows and tables".into(), Vec::new(), "drop the rows, or the tables".into()),
        NoRows::Pipelined => {
            let note = "sequences join and leave between steps".into();
            ("rows in steps that are pipelined".into(), vec![note], "use `steps barrier`".into())
        }
        NoRows::Packets(buffer) => {
            let headline = format!("packets of {} move with the position in a program with rows", names.buffer(buffer));
            let note = "rows are at positions of their own";
            (headline, vec![note.into()], "use counters".into())
        }
        NoRows::SharedBytes(buffer) => {
            let headline = format!("{} shares bytes with another buffer in a program with rows", names.buffer(buffer));
            let note = "a state outlives a step, and tiles that move are elsewhere for each row: who else uses the \
                        bytes depends on the rows of the step";
            (headline, vec![note.into()], "give it bytes of its own".into())
        }
        NoRows::Missing(task, n) => {
            let headline = format!("{} does not say which rows it is for", call(task, n));
            (headline, Vec::new(), "add `rows 0..N` behind the call".into())
        }
        NoRows::Range(task, n) => {
            let note = format!("steps have rows 0..{}", names.program.rows.unwrap_or(0));
            (format!("{} is for rows that no step has", call(task, n)), vec![note], "give it some of these".into())
        }
        NoRows::NotDeclared(task, n) => {
            let headline = format!("{} has rows in a program without", call(task, n));
            (headline, Vec::new(), "declare `rows N` at the start of the program".into())
        }
    }
}

impl NoRows {
    /// The task that it is about.
    pub(super) fn task(self) -> Option<TaskId> {
        match self {
            Self::Missing(task, _) | Self::Range(task, _) | Self::NotDeclared(task, _) => Some(task),
            Self::Zero | Self::Tables | Self::Pipelined | Self::Packets(_) | Self::SharedBytes(_) => None,
        }
    }
}

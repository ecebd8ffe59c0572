//! Schedules and instances, in the syntax of `#[megakernel(..)]`.

use super::super::cursor::{Cursor, Parsed, is_digits, is_plain_name, list};
use super::super::error::ParseCause;
use super::super::parse::dtype;
use super::super::print::{param_text, quoted, word, write_list};
use crate::Param;
use crate::graph::Instance;
use crate::program::{Limits, Steps};
use crate::schedule::{
    Assign, ExchangeBy, FuseInto, Fusion, PartialRing, PartialSchedule, QueuePolicy, RowSchedule, Tile,
};
use core::fmt::{self, Write};
use std::collections::BTreeSet;

const QUEUES: [(QueuePolicy, &str); 2] = [(QueuePolicy::Static, "static"), (QueuePolicy::Ticket, "ticket")];
const ASSIGNS: [(Assign, &str); 2] = [(Assign::RoundRobin, "round_robin"), (Assign::Balanced, "balanced")];
const STEPS: [(Steps, &str); 2] = [(Steps::Barrier, "barrier"), (Steps::Pipelined, "pipelined")];
const FUSED: [(FuseInto, &str); 2] = [(FuseInto::Producer, "producer"), (FuseInto::Consumers, "consumers")];

const EXCHANGES: [(ExchangeBy, &str); 3] =
    [(ExchangeBy::Packets, "packets"), (ExchangeBy::Counters, "counters"), (ExchangeBy::Barrier, "barrier")];
const BOOLS: [(bool, &str); 2] = [(true, "true"), (false, "false")];

fn name_of<T: PartialEq + Copy>(choices: &[(T, &'static str)], choice: T) -> &'static str {
    choices.iter().find(|(known, _)| *known == choice).map_or("", |(_, name)| name)
}

/// Writes `schedule(..)` with the fields that are set.
pub(super) fn write_schedule(out: &mut String, schedule: &PartialSchedule) -> fmt::Result {
    let mut parts = Vec::new();
    parts.extend(schedule.workers.map(|workers| format!("workers = {workers}")));
    if !schedule.tiles.is_empty() {
        let tiles: Vec<String> =
            schedule.tiles.iter().map(|(name, tile)| format!("{} = {}", word(name), tile_text(*tile))).collect();
        parts.push(format!("tile({})", tiles.join(", ")));
    }
    parts.extend(schedule.queue.map(|queue| format!("queue = {}", name_of(&QUEUES, queue))));
    parts.extend(schedule.assign.map(|assign| format!("assign = {}", name_of(&ASSIGNS, assign))));
    parts.extend(schedule.steps.map(|steps| format!("steps = {}", name_of(&STEPS, steps))));
    parts.extend(schedule.rows.map(rows_text));
    parts.extend(schedule.weights.map(|weights| format!("weights = {weights}")));
    parts.extend(schedule.cache.map(|cache| format!("cache = {cache}")));
    parts.extend(schedule.fusion.map(|fusion| format!("fusion = {fusion}")));
    if !schedule.fuse.is_empty() {
        let fused =
            schedule.fuse.iter().map(|fusion| format!("{} = {}", word(&fusion.op), name_of(&FUSED, fusion.into)));
        parts.push(format!("fuse({})", fused.collect::<Vec<_>>().join(", ")));
    }
    parts.extend(schedule.splits.map(|splits| format!("splits = {splits}")));
    parts.extend(schedule.run.map(|run| format!("run = {run}")));
    parts.extend(schedule.late.map(|late| format!("late = {late}")));
    parts.extend(schedule.split_k.map(|split_k| format!("split_k = {split_k}")));
    parts.extend(ring_text(schedule.ring));
    parts.extend(schedule.exchange.map(|exchange| format!("exchange = {}", exchange.name())));
    parts.extend(schedule.limits.as_ref().map(limits_text));
    write!(out, "schedule({})", parts.join(", "))
}

fn rows_text(rows: RowSchedule) -> String {
    let block = rows.block.map_or_else(String::new, |block| format!(", block = {block}"));
    format!("rows(most = {}{block})", rows.most)
}

fn ring_text(ring: PartialRing) -> Option<String> {
    let PartialRing { slots, in_flight, pace, lookahead } = ring;
    let fields = [("slots", slots), ("in_flight", in_flight), ("pace", pace), ("lookahead", lookahead)];
    let set = fields.into_iter().filter_map(|(name, value)| value.map(|value| format!("{name} = {value}")));
    (!ring.is_empty()).then(|| format!("ring({})", set.collect::<Vec<_>>().join(", ")))
}

fn tile_text(tile: Tile) -> String {
    match tile {
        Tile::Size(size) => size.to_string(),
        Tile::PerWorker => "per_worker".to_owned(),
        Tile::Whole => "whole".to_owned(),
    }
}

fn limits_text(limits: &Limits) -> String {
    let none = Limits::default();
    let mut parts = Vec::new();
    if limits.workers != none.workers {
        parts.push(format!("workers = {}", limits.workers));
    }
    if limits.local_bytes != none.local_bytes {
        parts.push(format!("local = {}", limits.local_bytes));
    }
    if limits.memory_bytes != none.memory_bytes {
        parts.push(format!("memory = {}", limits.memory_bytes));
    }
    format!("limits({})", parts.join(", "))
}

pub(super) fn write_instance(out: &mut String, instance: &Instance) -> fmt::Result {
    let key = |name: &str| if is_plain_name(name, true) { name.to_owned() } else { quoted(name) };
    let dims = instance.dims.iter().map(|(dim, value)| format!("{} = {value}", key(dim)));
    let flags = instance.flags.iter().map(|(flag, value)| format!("{} = {value}", key(flag)));
    let floats =
        instance.floats.iter().map(|(name, value)| format!("{} = {}", key(name), param_text(&Param::F32(*value))));
    let mut parts: Vec<String> = dims.chain(flags).chain(floats).collect();
    if let Some(schedule) = &instance.schedule {
        let mut text = String::new();
        write_schedule(&mut text, schedule)?;
        parts.push(text);
    }
    write!(out, "instance {}(", word(&instance.name))?;
    write_list(out, &parts, |out, part| write!(out, "{part}"))?;
    writeln!(out, ")")
}

/// Reads a schedule from behind its first word.
pub(super) fn schedule(cursor: &mut Cursor<'_>) -> Parsed<PartialSchedule> {
    const EXPECTED: &str = "`workers`, `tile`, `queue`, `assign`, `steps`, `rows`, `weights`, `cache`, `fusion`, \
                            `fuse`, `splits`, `run`, `late`, `split_k`, `ring`, `exchange` or `limits`";
    let mut schedule = PartialSchedule::default();
    fields(cursor, EXPECTED, |cursor, name| {
        match name {
            "workers" => schedule.workers = Some(cursor.u32("a number of workers")?),
            "tile" => list(cursor, "(", ")", |cursor| tile(cursor, &mut schedule))?,
            "queue" => schedule.queue = Some(choice(cursor, &QUEUES, "`static` or `ticket`")?),
            "assign" => schedule.assign = Some(choice(cursor, &ASSIGNS, "`round_robin` or `balanced`")?),
            "steps" => schedule.steps = Some(choice(cursor, &STEPS, "`barrier` or `pipelined`")?),
            "rows" => schedule.rows = Some(rows(cursor)?),
            "weights" => schedule.weights = Some(dtype(cursor)?),
            "cache" => schedule.cache = Some(dtype(cursor)?),
            "fusion" => schedule.fusion = Some(choice(cursor, &BOOLS, "`true` or `false`")?),
            "fuse" => list(cursor, "(", ")", |cursor| fuse(cursor, &mut schedule))?,
            "splits" => schedule.splits = Some(cursor.u32("a number of splits")?),
            "run" => schedule.run = Some(cursor.u32("a number of blocks")?),
            "late" => schedule.late = Some(cursor.u32("KiB")?),
            "split_k" => schedule.split_k = Some(cursor.u32("KiB")?),
            "ring" => ring(cursor, &mut schedule.ring)?,
            "exchange" => {
                schedule.exchange = Some(choice(cursor, &EXCHANGES, "`packets`, `counters` or `barrier`")?);
            }
            "limits" => schedule.limits = Some(limits(cursor)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(schedule)
}

/// Reads fields `name = ..` and `name(..)` in parentheses, each at most once. `field` reads the one
/// of a name from behind the `=`, if there is such a field.
fn fields(
    cursor: &mut Cursor<'_>,
    expected: &'static str,
    mut field: impl FnMut(&mut Cursor<'_>, &str) -> Parsed<bool>,
) -> Parsed<()> {
    let mut seen = BTreeSet::new();
    list(cursor, "(", ")", |cursor| {
        let start = cursor.clone();
        let name = cursor.word_or_quoted(expected)?;
        if !cursor.at_symbol("(") {
            cursor.expect("=", "`=`")?;
        }
        if !field(cursor, &name)? {
            return start.expected(expected);
        }
        repeated(&start, name.clone(), seen.replace(name))
    })
}

/// A name and the `=` after it.
fn equals(cursor: &mut Cursor<'_>, expected: &'static str) -> Parsed<String> {
    let name = cursor.word_or_quoted(expected)?;
    cursor.expect("=", "`=`")?;
    Ok(name)
}

fn choice<T: Copy>(cursor: &mut Cursor<'_>, choices: &[(T, &'static str)], expected: &'static str) -> Parsed<T> {
    match choices.iter().find(|(_, name)| *name == cursor.peek_word()) {
        Some((choice, name)) => {
            cursor.eat_word(name);
            Ok(*choice)
        }
        None => cursor.expected(expected),
    }
}

fn tile(cursor: &mut Cursor<'_>, schedule: &mut PartialSchedule) -> Parsed<()> {
    let start = cursor.clone();
    let name = equals(cursor, "the name of an instruction")?;
    let tile = if cursor.at_digit() {
        Tile::Size(cursor.u32("elements of a tile")?)
    } else {
        choice(
            cursor,
            &[(Tile::Whole, "whole"), (Tile::PerWorker, "per_worker")],
            "elements of a tile, `whole` or `per_worker`",
        )?
    };
    repeated(&start, name.clone(), schedule.tiles.insert(name, tile))
}

/// Refuses a name that has had a value.
fn repeated<T>(start: &Cursor<'_>, what: String, before: Option<T>) -> Parsed<()> {
    if before.is_none() { Ok(()) } else { Err(start.error(ParseCause::Repeated { what })) }
}

fn fuse(cursor: &mut Cursor<'_>, schedule: &mut PartialSchedule) -> Parsed<()> {
    let op = equals(cursor, "the name of an instruction")?;
    schedule.fuse.push(Fusion { op, into: choice(cursor, &FUSED, "`producer` or `consumers`")? });
    Ok(())
}

fn rows(cursor: &mut Cursor<'_>) -> Parsed<RowSchedule> {
    let mut rows = RowSchedule { most: 1, block: None };
    fields(cursor, "`most` or `block`", |cursor, name| {
        match name {
            "most" => rows.most = cursor.u32("a number of rows")?,
            "block" => rows.block = Some(cursor.u32("a number of rows")?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(rows)
}

fn ring(cursor: &mut Cursor<'_>, ring: &mut PartialRing) -> Parsed<()> {
    fields(cursor, "`slots`, `in_flight`, `pace` or `lookahead`", |cursor, name| {
        let field = match name {
            "slots" => &mut ring.slots,
            "in_flight" => &mut ring.in_flight,
            "pace" => &mut ring.pace,
            "lookahead" => &mut ring.lookahead,
            _ => return Ok(false),
        };
        *field = Some(cursor.u32("a number")?);
        Ok(true)
    })
}

fn limits(cursor: &mut Cursor<'_>) -> Parsed<Limits> {
    let mut limits = Limits::default();
    fields(cursor, "`workers`, `local` or `memory`", |cursor, name| {
        match name {
            "workers" => limits.workers = cursor.u32("a number of workers")?,
            "local" => limits.local_bytes = cursor.number(u64::MAX, "a number of bytes")?,
            "memory" => limits.memory_bytes = cursor.number(u64::MAX, "a number of bytes")?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(limits)
}

/// Reads an instance from behind its first word.
pub(super) fn instance(cursor: &mut Cursor<'_>) -> Parsed<Instance> {
    let name = cursor.word_or_quoted("the name of the instance")?;
    let mut instance = Instance { name, ..Instance::default() };
    list(cursor, "(", ")", |cursor| {
        let start = cursor.clone();
        let key = cursor.bare_name(true)?;
        if key == "schedule" && cursor.at_symbol("(") {
            let before = instance.schedule.replace(schedule(cursor)?);
            return repeated(&start, key, before);
        }
        cursor.expect("=", "`=`")?;
        value(cursor, &start, key, &mut instance)
    })?;
    Ok(instance)
}

/// The value of a dim, a flag or a float.
fn value(cursor: &mut Cursor<'_>, start: &Cursor<'_>, key: String, instance: &mut Instance) -> Parsed<()> {
    let what = key.clone();
    let here = cursor.clone();
    match cursor.scalar()? {
        "true" => repeated(start, what, instance.flags.insert(key, true)),
        "false" => repeated(start, what, instance.flags.insert(key, false)),
        digits if is_digits(digits) => {
            let value = here.clone().u32("the value of a dim")?;
            repeated(start, what, instance.dims.insert(key, value))
        }
        float => match float.parse() {
            Ok(float) => repeated(start, what, instance.floats.insert(key, float)),
            Err(_) => here.expected("an integer, `true`, `false` or a float"),
        },
    }
}

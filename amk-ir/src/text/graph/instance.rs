//! Schedules and instances, in the syntax of `#[megakernel(..)]`.

use super::super::cursor::{Cursor, Parsed, is_digits, is_plain_name, list};
use super::super::error::ParseCause;
use super::super::parse::dtype;
use super::super::print::{param_text, quoted, word, write_list};
use crate::Param;
use crate::graph::Instance;
use crate::program::{Limits, Steps};
use crate::schedule::{Assign, FuseInto, Fusion, QueuePolicy, Schedule, Tile};
use core::fmt::{self, Write};

const QUEUES: [(QueuePolicy, &str); 2] = [(QueuePolicy::Static, "static"), (QueuePolicy::Ticket, "ticket")];
const ASSIGNS: [(Assign, &str); 2] = [(Assign::RoundRobin, "round_robin"), (Assign::Balanced, "balanced")];
const STEPS: [(Steps, &str); 2] = [(Steps::Barrier, "barrier"), (Steps::Pipelined, "pipelined")];
const FUSED: [(FuseInto, &str); 2] = [(FuseInto::Producer, "producer"), (FuseInto::Consumers, "consumers")];

fn name_of<T: PartialEq + Copy>(choices: &[(T, &'static str)], choice: T) -> &'static str {
    choices.iter().find(|(known, _)| *known == choice).map_or("", |(_, name)| name)
}

/// Writes `schedule(..)` with the fields that differ from the default.
pub(super) fn write_schedule(out: &mut String, schedule: &Schedule) -> fmt::Result {
    let default = Schedule::default();
    let mut parts = Vec::new();
    if schedule.workers != default.workers {
        parts.push(format!("workers = {}", schedule.workers));
    }
    if !schedule.tiles.is_empty() {
        let tiles: Vec<String> =
            schedule.tiles.iter().map(|(name, tile)| format!("{} = {}", word(name), tile_text(*tile))).collect();
        parts.push(format!("tile({})", tiles.join(", ")));
    }
    if schedule.queue != default.queue {
        parts.push(format!("queue = {}", name_of(&QUEUES, schedule.queue)));
    }
    if schedule.assign != default.assign {
        parts.push(format!("assign = {}", name_of(&ASSIGNS, schedule.assign)));
    }
    if schedule.steps != default.steps {
        parts.push(format!("steps = {}", name_of(&STEPS, schedule.steps)));
    }
    if schedule.weights != default.weights {
        parts.push(format!("weights = {}", schedule.weights));
    }
    if !schedule.fuse.is_empty() {
        let fused =
            schedule.fuse.iter().map(|fusion| format!("{} = {}", word(&fusion.op), name_of(&FUSED, fusion.into)));
        parts.push(format!("fuse({})", fused.collect::<Vec<_>>().join(", ")));
    }
    parts.extend(limits_text(&schedule.limits));
    write!(out, "schedule({})", parts.join(", "))
}

fn tile_text(tile: Tile) -> String {
    match tile {
        Tile::Size(size) => size.to_string(),
        Tile::PerWorker => "per_worker".to_owned(),
        Tile::Whole => "whole".to_owned(),
    }
}

fn limits_text(limits: &Limits) -> Option<String> {
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
    (!parts.is_empty()).then(|| format!("limits({})", parts.join(", ")))
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
pub(super) fn schedule(cursor: &mut Cursor<'_>) -> Parsed<Schedule> {
    let mut schedule = Schedule::default();
    list(cursor, "(", ")", |cursor| {
        if cursor.eat_word("tile") {
            return list(cursor, "(", ")", |cursor| tile(cursor, &mut schedule));
        }
        if cursor.eat_word("fuse") {
            return list(cursor, "(", ")", |cursor| {
                let op = equals(cursor, "the name of an instruction")?;
                schedule.fuse.push(Fusion { op, into: choice(cursor, &FUSED, "`producer` or `consumers`")? });
                Ok(())
            });
        }
        if cursor.eat_word("limits") {
            return list(cursor, "(", ")", |cursor| limit(cursor, &mut schedule.limits));
        }
        const EXPECTED: &str = "`workers`, `tile`, `queue`, `assign`, `steps`, `weights`, `fuse` or `limits`";
        let start = cursor.clone();
        match equals(cursor, EXPECTED)?.as_str() {
            "workers" => schedule.workers = cursor.u32("a number of workers")?,
            "queue" => schedule.queue = choice(cursor, &QUEUES, "`static` or `ticket`")?,
            "assign" => schedule.assign = choice(cursor, &ASSIGNS, "`round_robin` or `balanced`")?,
            "steps" => schedule.steps = choice(cursor, &STEPS, "`barrier` or `pipelined`")?,
            "weights" => schedule.weights = dtype(cursor)?,
            _ => return start.expected(EXPECTED),
        }
        Ok(())
    })?;
    Ok(schedule)
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

fn tile(cursor: &mut Cursor<'_>, schedule: &mut Schedule) -> Parsed<()> {
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

fn limit(cursor: &mut Cursor<'_>, limits: &mut Limits) -> Parsed<()> {
    const EXPECTED: &str = "`workers`, `local` or `memory`";
    let start = cursor.clone();
    match equals(cursor, EXPECTED)?.as_str() {
        "workers" => limits.workers = cursor.u32("a number of workers")?,
        "local" => limits.local_bytes = cursor.number(u64::MAX, "a number of bytes")?,
        "memory" => limits.memory_bytes = cursor.number(u64::MAX, "a number of bytes")?,
        _ => return start.expected(EXPECTED),
    }
    Ok(())
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

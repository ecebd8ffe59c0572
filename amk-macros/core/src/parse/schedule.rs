//! `schedule(workers = 8, tile(linear = 16), ..)`.

use crate::diag::{Diagnostic, Diagnostics};
use crate::names::list;
use crate::parse::attribute::{Setting, settings};
use amk_ir::Steps;
use amk_ir::schedule::{
    Assign, CACHES, ExchangeBy, FuseInto, Fusion, PartialSchedule, QueuePolicy, RowSchedule, Tile, range,
};
use proc_macro2::{Ident, TokenStream};
use quote::ToTokens;

const KEYS: [&str; 16] = [
    "workers", "tile", "queue", "steps", "rows", "assign", "cache", "fusion", "fuse", "splits", "run", "late",
    "split_k", "ring", "exchange", "limits",
];

/// A schedule, and the clauses in it to point at.
#[derive(Default)]
pub(crate) struct ScheduleArgument {
    /// The fields that are set.
    pub(crate) schedule: PartialSchedule,
    /// The clauses about instructions, which must be called in the function.
    pub(crate) clauses: Vec<Clause>,
    /// The whole, to point at.
    pub(crate) tokens: TokenStream,
}

/// `linear = 16` of an instruction.
pub(crate) struct Clause {
    /// The instruction.
    pub(crate) instruction: Ident,
    /// The whole, to point at.
    pub(crate) tokens: TokenStream,
}

impl Clause {
    fn of(entry: Setting) -> Self {
        let tokens = entry.to_token_stream();
        Self { instruction: entry.key, tokens }
    }
}

/// Parses a schedule; an invalid setting is reported and left open.
pub(crate) fn parse(setting: &Setting, diagnostics: &mut Diagnostics) -> ScheduleArgument {
    let mut argument = ScheduleArgument { tokens: setting.key.to_token_stream(), ..ScheduleArgument::default() };
    let Some(tokens) = diagnostics.keep(setting.list("schedule(workers = 8)")) else { return argument };
    match settings(tokens.clone(), &KEYS) {
        Err(wrong) => wrong.into_iter().for_each(|one| diagnostics.push(one)),
        Ok(all) => {
            for one in &all {
                let result = argument.set(one);
                diagnostics.keep(result);
            }
            for_no_vm(&argument.schedule, &all).into_iter().for_each(|one| diagnostics.push(one));
        }
    }
    argument
}

/// The finding where settings exclude one another, at the one that a device alone honours.
fn for_no_vm(schedule: &PartialSchedule, settings: &[Setting]) -> Option<Diagnostic> {
    let (on_a_cpu, on_a_device) = schedule.for_no_vm()?;
    let of = |field: &str| settings.iter().find(|setting| field.starts_with(&setting.key.to_string()));
    let (cpu, device) = (of(on_a_cpu)?, of(on_a_device)?);
    let headline = format!("no VM honours both `{cpu}` and `{device}`", cpu = cpu.key, device = device.key);
    let help = format!("leave out `{}`, or give it to an instance of its own", device.key);
    let note = format!("`{}` is for the CPU VM, `{}` for GPUs", cpu.key, device.key);
    Some(Diagnostic::new("AMK0932", &device.key, headline, help).note(&note))
}

impl ScheduleArgument {
    fn set(&mut self, setting: &Setting) -> Result<(), Diagnostic> {
        let schedule = &mut self.schedule;
        match setting.key.to_string().as_str() {
            "workers" => schedule.workers = Some(number(setting)?),
            "queue" => {
                let queues = [("static", QueuePolicy::Static), ("ticket", QueuePolicy::Ticket)];
                schedule.queue = Some(choice(setting, &queues)?);
            }
            "steps" => {
                let steps = [("barrier", Steps::Barrier), ("pipelined", Steps::Pipelined)];
                schedule.steps = Some(choice(setting, &steps)?);
            }
            "assign" => {
                let assigns = [("round_robin", Assign::RoundRobin), ("balanced", Assign::Balanced)];
                schedule.assign = Some(choice(setting, &assigns)?);
            }
            "cache" => schedule.cache = Some(choice(setting, &CACHES.map(|cache| (cache.name(), cache)))?),
            "fusion" => schedule.fusion = Some(choice(setting, &[("true", true), ("false", false)])?),
            "splits" => schedule.splits = Some(in_range(setting, "splits")?),
            "late" => schedule.late = Some(in_range(setting, "late")?),
            "split_k" => schedule.split_k = Some(in_range(setting, "split_k")?),
            "run" => {
                schedule.run = Some(in_range(setting, "run")?);
                if schedule.run.is_some_and(|run| run % 2 == 1) {
                    let headline = "`run` of the schedule is odd".to_owned();
                    let help = "write an even number: a slot of the ring is two blocks";
                    return Err(Diagnostic::new("AMK0932", setting.to_token_stream(), headline, help));
                }
            }
            "exchange" => {
                let ways = [ExchangeBy::Packets, ExchangeBy::Counters, ExchangeBy::Barrier];
                schedule.exchange = Some(choice(setting, &ways.map(|way| (way.name(), way)))?);
            }
            "rows" => self.rows(setting)?,
            "ring" => self.ring(setting)?,
            "tile" => {
                for entry in entries(setting, "tile(linear = 16, silu_mul = whole)")? {
                    let tile = tile(&entry)?;
                    self.schedule.tiles.insert(entry.key.to_string(), tile);
                    self.clauses.push(Clause::of(entry));
                }
            }
            "fuse" => {
                for entry in entries(setting, "fuse(silu_mul = producer, rms_norm = consumers)")? {
                    let into = choice(&entry, &[("producer", FuseInto::Producer), ("consumers", FuseInto::Consumers)])?;
                    self.schedule.fuse.push(Fusion { op: entry.key.to_string(), into });
                    self.clauses.push(Clause::of(entry));
                }
            }
            _ => self.limits(setting)?,
        }
        Ok(())
    }

    fn rows(&mut self, setting: &Setting) -> Result<(), Diagnostic> {
        let rows = self.schedule.rows.get_or_insert(RowSchedule { most: 1, block: None });
        for entry in entries(setting, "rows(most = 64, block = 16)")? {
            match entry.key.to_string().as_str() {
                "most" => rows.most = number(&entry)?,
                "block" => rows.block = Some(number(&entry)?),
                _ => {
                    let headline = format!("unknown field `{}` of the rows", entry.key);
                    return Err(Diagnostic::new("AMK0932", entry.key, headline, "use one of `most`, `block`"));
                }
            }
        }
        Ok(())
    }

    fn ring(&mut self, setting: &Setting) -> Result<(), Diagnostic> {
        let ring = &mut self.schedule.ring;
        let entries = entries(setting, "ring(slots = 6, in_flight = 2, pace = 205, lookahead = 0)")?;
        for entry in &entries {
            let field = match entry.key.to_string().as_str() {
                "slots" => &mut ring.slots,
                "in_flight" => &mut ring.in_flight,
                "pace" => &mut ring.pace,
                "lookahead" => &mut ring.lookahead,
                _ => {
                    let headline = format!("unknown field `{}` of the ring", entry.key);
                    let help = "use one of `slots`, `in_flight`, `pace`, `lookahead`";
                    return Err(Diagnostic::new("AMK0932", &entry.key, headline, help));
                }
            };
            *field = Some(in_range(entry, &format!("ring.{}", entry.key))?);
        }
        if let (Some(slots), Some(in_flight)) = (ring.slots, ring.in_flight)
            && in_flight > slots
        {
            let headline = format!("the ring has {in_flight} slots in flight, and {slots} in all");
            let help = format!("write `in_flight = {slots}` at most");
            let entry = entries.iter().find(|entry| entry.key == "in_flight").unwrap_or(setting);
            return Err(Diagnostic::new("AMK0932", entry, headline, help));
        }
        Ok(())
    }

    fn limits(&mut self, setting: &Setting) -> Result<(), Diagnostic> {
        let limits = self.schedule.limits.get_or_insert_default();
        for entry in entries(setting, "limits(workers = 132, local = 232448, memory = 141_000_000_000)")? {
            match entry.key.to_string().as_str() {
                "workers" => limits.workers = number(&entry)?,
                "local" => limits.local_bytes = number(&entry)?,
                "memory" => limits.memory_bytes = number(&entry)?,
                _ => {
                    let headline = format!("unknown limit `{}`", entry.key);
                    return Err(Diagnostic::new(
                        "AMK0932",
                        entry.key,
                        headline,
                        "use one of `workers`, `local`, `memory`",
                    ));
                }
            }
        }
        Ok(())
    }
}

fn entries(setting: &Setting, form: &str) -> Result<Vec<Setting>, Diagnostic> {
    let parser = syn::punctuated::Punctuated::<Setting, syn::Token![,]>::parse_terminated;
    let entries: Vec<Setting> = syn::parse::Parser::parse2(parser, setting.list(form)?.clone())
        .map_err(|error| Diagnostic::syntax("AMK0932", &error, format!("write `{form}`")))?
        .into_iter()
        .collect();
    let again = entries.iter().enumerate().find(|(at, entry)| entries[..*at].iter().any(|one| one.key == entry.key));
    match again {
        None => Ok(entries),
        Some((_, entry)) => {
            let headline = format!("`{}` has `{}` twice", setting.key, entry.key);
            Err(Diagnostic::new("AMK0932", &entry.key, headline, format!("keep one `{}`", entry.key)))
        }
    }
}

/// A number from 0 to the largest of its type.
fn number<T: TryFrom<u128>>(setting: &Setting) -> Result<T, Diagnostic> {
    let literal: syn::LitInt = setting.value(&format!("{} = 8", setting.key))?;
    let number = literal.base10_parse::<u128>().ok().and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| {
        let headline = format!("`{}` of the schedule is {literal}", setting.key);
        let help = format!("write a number of {} bits, from 0 on", 8 * size_of::<T>());
        Diagnostic::new("AMK0932", &literal, headline, help)
    })
}

/// A number that some device takes.
fn in_range(setting: &Setting, field: &str) -> Result<u32, Diagnostic> {
    let found = number(setting)?;
    match range(field) {
        Some(range) if !range.contains(&found) => {
            let headline = format!("`{field}` of the schedule is {found}");
            let help = format!("write a number in {}..={}", range.start(), range.end());
            Err(Diagnostic::new("AMK0932", setting.to_token_stream(), headline, help))
        }
        _ => Ok(found),
    }
}

fn choice<T: Copy>(setting: &Setting, choices: &[(&str, T)]) -> Result<T, Diagnostic> {
    let word: TokenStream = setting.value(&format!("{} = {}", setting.key, choices[0].0))?;
    let text = word.to_string();
    choices.iter().find(|(name, _)| *name == text).map(|(_, choice)| *choice).ok_or_else(|| {
        let headline = format!("`{text}` is not a valid value of `{}`", setting.key);
        let help = format!("use one of {}", list(choices.iter().map(|(name, _)| *name)));
        Diagnostic::new("AMK0932", &word, headline, help)
    })
}

fn tile(setting: &Setting) -> Result<Tile, Diagnostic> {
    let value: TokenStream = setting.value(&format!("{} = 16", setting.key))?;
    match value.to_string().as_str() {
        "whole" => Ok(Tile::Whole),
        "per_worker" => Ok(Tile::PerWorker),
        _ => {
            let size =
                syn::parse2::<syn::LitInt>(value.clone()).ok().and_then(|literal| literal.base10_parse::<u32>().ok());
            size.filter(|size| *size > 0).map(Tile::Size).ok_or_else(|| {
                let headline = format!("`{value}` is not a tile size of `{}`", setting.key);
                Diagnostic::new("AMK0932", &value, headline, "write elements a tile (`16`), `whole` or `per_worker`")
            })
        }
    }
}

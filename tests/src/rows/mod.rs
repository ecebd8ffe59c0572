//! Programs with rows: the verifier's one proof against all steps, each judged by the oracle as an
//! ordinary program.
//!
//! This is a second definition of rows that shares no code with the verifier: [`form`] says which
//! programs have a meaning, [`step`] which steps there are, [`mod@instance`] what a step does. A
//! program is good if in every step that keeps the contract
//!
//! * no interleaving races or gets stuck, and the listed order finds what it reads ([`oracle`]),
//! * what two rows of a sequence do to an element of a state is listed in the order of the rows if
//!   one of them writes it,
//! * no row writes a page that another sequence has,
//! * what a call writes for one row is apart from all that it touches for others, as an instruction
//!   may compute all rows at once, and
//! * states and wanted outputs are the function's, of which no call is left out ([`values`]).

pub mod draw;
pub mod form;
pub mod instance;
pub mod longer;
pub mod lower;
pub mod mutate;
pub mod step;
pub mod tally;
pub mod values;

use crate::oracle::{self, Horizon, Reason, cells, read, source::Kind, source::Operand, source::Source, withhold};
use amk_ir::{Program, text};
use core::fmt;
use instance::{Instance, Made, instance};
use std::collections::BTreeMap;
use step::{Extent, Step, steps};

/// Steps of several sequences in which a program is judged by default; over that many, random ones.
pub const STEPS: usize = 32;

/// The verdict on a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Every step computes what the function computes row by row.
    Safe,
    /// The program has no meaning.
    Form(String),
    /// A step goes wrong.
    Unsafe(Step, Fault),
    /// A step is too large to be explored.
    TooLarge,
}

/// Why a step is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// As an ordinary program it is unsafe.
    Step(Reason),
    /// A later row's access of a state is listed before an earlier row's, and one of them writes.
    Order {
        /// The task and the row of the first in the list.
        listed: (usize, usize),
        /// The task and the row of the other.
        then: (usize, usize),
    },
    /// A row writes a page of several sequences.
    Shared {
        /// The task.
        task: usize,
        /// The row.
        row: usize,
    },
    /// A call writes for one row where it reads or writes for another.
    Together {
        /// The task.
        task: usize,
        /// The row.
        row: usize,
    },
    /// The listed order does not leave in a buffer what the function does.
    Value {
        /// The buffer.
        buffer: usize,
    },
}

/// Judges a program, in at most so many steps of several sequences.
pub fn judge(program: &Program, most: usize) -> Verdict {
    judge_text(&text::print(program), most)
}

/// Judges the program of a text.
pub fn judge_text(text: &str, most: usize) -> Verdict {
    let source = match read::read(text) {
        Ok(source) => source,
        Err(why) => return Verdict::Form(why),
    };
    let rows = match form::check(&source) {
        Ok(rows) => rows,
        Err(why) => return Verdict::Form(why),
    };
    for step in steps(extent(&source, rows), most) {
        match judge_step(&source, &step) {
            Ok(()) => {}
            Err(None) => return Verdict::TooLarge,
            Err(Some(fault)) => return Verdict::Unsafe(step, fault),
        }
    }
    Verdict::Safe
}

fn extent(source: &Source, rows: u64) -> Extent {
    let calls = || source.tasks.iter().flat_map(|task| &task.calls);
    let tiles = || calls().flat_map(|call| &call.operands).flat_map(|operand| operand.tile.iter().flatten());
    Extent {
        rows,
        positions: source.positions,
        moves: tiles().any(|(lo, hi)| lo.pos || hi.pos),
        wanted: calls().any(|call| call.rows.is_some_and(|rows| rows.wanted)),
    }
}

/// Judges one step of a program whose form has been checked.
///
/// # Errors
/// The fault; `None` where the step is too large.
pub fn judge_step(source: &Source, step: &Step) -> Result<(), Option<Fault>> {
    let instance = instance(source, step);
    order(&instance).map_err(Some)?;
    together(source, &instance).map_err(Some)?;
    match explore(&instance) {
        oracle::Verdict::Safe => {}
        oracle::Verdict::Unsafe(reason) => return Err(Some(Fault::Step(reason))),
        oracle::Verdict::TooLarge => return Err(None),
    }
    // With all rows wanted, the two orders run the same calls, and nothing but states is touched by
    // several rows.
    if step.rows.iter().all(|row| row.wanted) {
        return Ok(());
    }
    match values::difference(source, step, &instance) {
        Some(buffer) => Err(Some(Fault::Value { buffer })),
        None => Ok(()),
    }
}

/// Judges a step as an ordinary program.
pub fn explore(instance: &Instance) -> oracle::Verdict {
    withhold::judge(&instance.source, Horizon { steps: 1 })
}

/// The rows of a call without states, which may be computed at once, are apart; through aliases
/// they might not be.
fn together(source: &Source, instance: &Instance) -> Result<(), Fault> {
    let step = &instance.source;
    let aliases = step.buffers.iter().any(|buffer| buffer.place.is_some());
    let Some(cells) = cells::Cells::new(step).filter(|_| aliases) else { return Ok(()) };
    for (task, made) in instance.made.iter().enumerate() {
        let calls = &step.tasks[task].calls;
        let touched = |n: usize, writes: bool| {
            let chosen = calls[n].operands.iter().filter(move |operand| operand.access.writes() || !writes);
            chosen.flat_map(|operand| cells::footprint(step, &cells, operand, 0, 0)).collect::<Vec<_>>()
        };
        for (n, &Made { call, row }) in made.iter().enumerate() {
            let state = |operand: &Operand| source.buffers[operand.buffer].kind == Kind::State;
            if source.tasks[task].calls[call].operands.iter().any(state) {
                continue;
            }
            let written = touched(n, true);
            let others = (0..made.len()).filter(|&other| made[other].call == call && other != n);
            if others.flat_map(|other| touched(other, false)).any(|cell| written.contains(&cell)) {
                return Err(Fault::Together { task, row });
            }
        }
    }
    Ok(())
}

/// An access of an element: the task, the row, whether it writes.
type Seen = (usize, usize, bool);

/// Rows of a sequence touch its states in their order, and pages of several sequences are read
/// alone.
fn order(instance: &Instance) -> Result<(), Fault> {
    let mut seen: BTreeMap<(usize, u64), Vec<Seen>> = BTreeMap::new();
    let source = &instance.source;
    for (task, (body, made)) in source.tasks.iter().zip(&instance.made).enumerate() {
        for (call, &Made { row, .. }) in body.calls.iter().zip(made) {
            for operand in &call.operands {
                let (id, writes) = (operand.buffer, operand.access.writes());
                if source.buffers[id].kind != Kind::State {
                    continue;
                }
                if writes && instance.shared.contains(&id) {
                    return Err(Fault::Shared { task, row });
                }
                for element in cells::elements(&source.buffers[id], operand, 0) {
                    let seen = seen.entry((id, element)).or_default();
                    let wrong = seen.iter().find(|&&(_, other, wrote)| other > row && (wrote || writes));
                    if let Some(&(other, later, _)) = wrong {
                        return Err(Fault::Order { listed: (other, later), then: (task, row) });
                    }
                    seen.push((task, row, writes));
                }
            }
        }
    }
    Ok(())
}

impl Verdict {
    /// Whether the program is safe.
    pub fn is_safe(&self) -> bool {
        *self == Self::Safe
    }

    /// A word for the verdict.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::Form(_) => "form",
            Self::Unsafe(_, Fault::Step(reason)) => reason.kind(),
            Self::Unsafe(_, Fault::Order { .. }) => "order of rows",
            Self::Unsafe(_, Fault::Shared { .. }) => "shared page",
            Self::Unsafe(_, Fault::Together { .. }) => "rows of a call",
            Self::Unsafe(_, Fault::Value { .. }) => "value",
            Self::TooLarge => "too large",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Safe | Self::TooLarge => f.write_str(self.kind()),
            Self::Form(why) => write!(f, "form: {why}"),
            Self::Unsafe(step, fault) => write!(f, "{fault} in a {step}"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(reason) => write!(f, "{reason}"),
            Self::Order { listed, then } => {
                write!(f, "order of rows: row {} in t{} before row {} in t{}", listed.1, listed.0, then.1, then.0)
            }
            Self::Shared { task, row } => write!(f, "shared page: row {row} writes it in t{task}"),
            Self::Together { task, row } => write!(f, "rows of a call: t{task} writes for row {row} what others touch"),
            Self::Value { buffer } => write!(f, "value: not the function's in b{buffer}"),
        }
    }
}

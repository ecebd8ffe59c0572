//! The report on a program that is refused.

use super::violation::{Code, Violation};
use crate::text::{Shown, task_text};
use crate::{Program, TaskId};
use core::fmt;

/// At most this many of a code are printed.
const PRINTED_PER_CODE: usize = 5;
/// At most this many task lines are printed for a violation.
const MOST_LINES: usize = 6;

/// Writes each violation with the lines of its tasks.
pub(super) fn write(f: &mut fmt::Formatter<'_>, program: &Program, violations: &[Violation]) -> fmt::Result {
    let mut codes: Vec<Code> = violations.iter().map(Violation::code).collect();
    codes.sort_unstable();
    codes.dedup();
    for code in codes {
        let of_code = || violations.iter().filter(|violation| violation.code() == code);
        for violation in of_code().take(PRINTED_PER_CODE) {
            write_one(f, program, violation)?;
        }
        let more = of_code().count().saturating_sub(PRINTED_PER_CODE);
        if more > 0 {
            writeln!(f, "error: {code}: and {more} more\n")?;
        }
    }
    let plural = if violations.len() == 1 { "" } else { "s" };
    write!(f, "{} violation{plural} in `{}`; `amk explain CODE` tells more", violations.len(), Shown(&program.name))
}

fn write_one(f: &mut fmt::Formatter<'_>, program: &Program, violation: &Violation) -> fmt::Result {
    let message = violation.message(program);
    writeln!(f, "error: {}: {}", message.code, message.headline)?;
    let parties = violation.parties();
    for (n, &task) in parties.iter().take(MOST_LINES).enumerate() {
        let mark = if parties.len() == 2 { format!("({}) ", n + 1) } else { String::new() };
        writeln!(f, "    {mark}{}", line(program, task))?;
    }
    for note in &message.notes {
        writeln!(f, "  note: {note}")?;
    }
    writeln!(f, "  help: {}\n", message.help)
}

fn line(program: &Program, id: TaskId) -> String {
    program.tasks.get(id.index()).map_or_else(|| format!("task {id}"), |task| task_text(program, id, task))
}

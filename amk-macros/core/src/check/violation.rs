//! Violations of the verifier at the user's calls.
//!
//! Maps violations to calls. The verifier reports tasks, and a call has many: a violation between
//! two calls is reported once, at the later call, for the first pair of tasks.

use crate::diag::{Diagnostic, Diagnostics};
use crate::lower::{LoweredFunction, Site};
use amk_ir::lower::Lowered;
use amk_ir::verify::{self, Code, Link, Unordered, Violation, WaitsOn};
use amk_ir::{TaskId, Wait};
use proc_macro2::TokenStream;
use std::collections::HashMap;

/// Reports the verifier's findings on an instance's program. `elsewhere` is the location of
/// findings about no call.
pub(super) fn check(
    lowered: &Lowered,
    function: &LoweredFunction,
    elsewhere: &TokenStream,
    note: &str,
    diagnostics: &mut Diagnostics,
) {
    let violations = verify::check(&lowered.program);
    let mut alike: HashMap<Place, usize> = HashMap::new();
    for violation in &violations {
        *alike.entry(Place::of(violation, lowered)).or_default() += 1;
    }
    for violation in &violations {
        let place = Place::of(violation, lowered);
        let Some(count) = alike.remove(&place) else { continue };
        let site = place.sites.first().and_then(|site| function.sites.get(*site as usize));
        let written = site.zip(wait(violation)).and_then(|(site, wait)| attribute(site, wait, lowered));
        let tokens = written.or(site.map(|site| &site.callee)).unwrap_or(elsewhere).clone();
        let help =
            site.filter(|site| site.events.iter().any(|event| event.wait)).and_then(|site| help(violation, site));
        let mut diagnostic = diagnostic(violation, lowered, tokens, count, note);
        if let Some(help) = help {
            diagnostic = diagnostic.help(help);
        }
        diagnostics.push(diagnostic);
    }
}

/// The wait that is wrong.
fn wait(violation: &Violation) -> Option<Wait> {
    let on = |link: &Link| match link.on {
        WaitsOn::Counter(wait) => Some(wait),
        WaitsOn::Packet(_) | WaitsOn::Queue => None,
    };
    match violation {
        Violation::Unsatisfiable { wait, .. } => Some(*wait),
        Violation::Deadlock { cycle, .. } => cycle.first().and_then(on),
        Violation::TicketOrder { link, .. } => on(link),
        Violation::Race(race) => match race.because {
            Unordered::Partial { wait, .. } | Unordered::RunsAhead { wait, .. } => Some(wait),
            Unordered::NoPath | Unordered::Reversed | Unordered::QueueReversed => None,
        },
        _ => None,
    }
}

/// Returns help for a call whose waits are written by hand: the derived ones would do.
fn help(violation: &Violation, site: &Site) -> Option<String> {
    let unordered = match violation {
        Violation::Deadlock { .. } | Violation::TicketOrder { .. } => true,
        Violation::Race(race) => matches!(race.because, Unordered::NoPath | Unordered::Reversed),
        _ => false,
    };
    unordered.then(|| format!("remove the `#[wait(..)]` of this `{}`: its waits are then derived", site.callee))
}

/// The attribute of the call that makes it wait so, where it was written by hand.
fn attribute<'f>(site: &'f Site, wait: Wait, lowered: &Lowered) -> Option<&'f TokenStream> {
    let event = lowered.program.events.get(wait.on.event.index())?;
    site.events.iter().find(|written| written.wait && written.name == event.name).map(|written| &written.tokens)
}

/// The source location of a violation, as precisely as the source can distinguish it.
#[derive(PartialEq, Eq, Hash)]
struct Place {
    code: Code,
    /// The calls, the one to point at first.
    sites: Vec<u32>,
}

impl Place {
    fn of(violation: &Violation, lowered: &Lowered) -> Self {
        let mut tasks = violation.parties();
        // The waiting call comes first already; of two accesses the later one is to be fixed.
        if !matches!(violation, Violation::Deadlock { .. } | Violation::TicketOrder { .. } | Violation::Early { .. }) {
            tasks.reverse();
        }
        let sites = tasks.into_iter().filter_map(|task| site(task, lowered)).collect();
        Self { code: violation.code(), sites }
    }
}

/// The call that a task comes from.
fn site(task: TaskId, lowered: &Lowered) -> Option<u32> {
    let op = lowered.program.tasks.get(task.index())?.op?;
    lowered.op_sites.get(op.index()).copied()
}

/// The verifier's words, and how many more there are of the same calls.
fn diagnostic(violation: &Violation, lowered: &Lowered, tokens: TokenStream, count: usize, note: &str) -> Diagnostic {
    let mut message = violation.message(&lowered.program);
    // The attribute's spelling, not the text format's.
    message.help = message.help.replace("`steps barrier`", "`steps = barrier`");
    let more = (count > 1).then(|| format!("and {} more between tiles of the same calls", count - 1));
    let notes = message.notes.into_iter().chain(more).chain([note.to_owned()]);
    notes.fold(Diagnostic::new(message.code.to_string(), tokens, message.headline, message.help), Diagnostic::note)
}

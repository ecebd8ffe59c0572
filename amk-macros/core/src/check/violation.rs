//! Violations of the verifier at the user's calls.
//!
//! The verifier speaks of tasks; a call has many. What it finds between two calls is said once, at the later call, for the
//! first pair of tasks.

use crate::diag::{Diagnostic, Diagnostics};
use crate::lower::LoweredFunction;
use amk_ir::TaskId;
use amk_ir::lower::Lowered;
use amk_ir::verify::{self, Code, Violation};
use proc_macro2::TokenStream;
use std::collections::HashMap;

/// Reports what the verifier finds in an instance's program. `elsewhere` is pointed at where it is about no call.
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
        let tokens = site.map_or_else(|| elsewhere.clone(), |site| site.callee.clone());
        diagnostics.push(diagnostic(violation, lowered, tokens, count, note));
    }
}

/// What a violation is about, as far as the source can tell it apart.
#[derive(PartialEq, Eq, Hash)]
struct Place {
    code: Code,
    /// The calls, the one to point at first.
    sites: Vec<u32>,
}

impl Place {
    fn of(violation: &Violation, lowered: &Lowered) -> Self {
        let mut tasks = violation.parties();
        // Who waits comes first already; of two accesses the later one is what is to be mended.
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
    let message = violation.message(&lowered.program);
    let more = (count > 1).then(|| format!("and {} more between tiles of the same calls", count - 1));
    let notes = message.notes.into_iter().chain(more).chain([note.to_owned()]);
    notes.fold(Diagnostic::new(message.code.to_string(), tokens, message.headline, message.help), Diagnostic::note)
}

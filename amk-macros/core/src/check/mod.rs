//! The checks of a lowered function: shapes for all dims, then each instance's program.

mod violation;

use crate::diag::{Diagnostic, Diagnostics};
use crate::lower::{EventSite, LoweredFunction};
use crate::parse::instance::{InstanceArgument, describe};
use crate::parse::kernel::KernelAttribute;
use amk_ir::graph_error::GraphError;
use amk_ir::lower::lower_with;
use amk_ir::schedule::Schedule;
use amk_ir::shapes;
use proc_macro2::TokenStream;
use quote::ToTokens;
use std::collections::HashSet;

/// Fills in the shapes, and reports defects of the graph and of the instances' programs.
pub(crate) fn check(attribute: &KernelAttribute, lowered: &mut LoweredFunction, diagnostics: &mut Diagnostics) {
    for error in shapes::check(&mut lowered.graph) {
        diagnostics.push(Diagnostic::of(&error, tokens_of(&error, attribute, None, lowered)));
    }
    if !diagnostics.is_empty() {
        return;
    }
    // A defect of several instances is reported for the first.
    let mut reported = HashSet::new();
    for argument in &attribute.instances {
        let note = format!("in instance `{}` ({})", argument.name, describe(&argument.instance.dims, &attribute.dims));
        // What a device alone honours is checked when one is there.
        let fields = argument.instance.schedule_in(&lowered.graph).without_device_fields();
        match lower_with(&lowered.graph, &argument.instance, &fields.over(Schedule::default())) {
            Err(errors) => {
                for error in errors {
                    if reported.insert((error.code.to_owned(), error.site, error.headline.clone())) {
                        let tokens = tokens_of(&error, attribute, Some(argument), lowered);
                        diagnostics.push(Diagnostic::of(&error, tokens).note(&note));
                    }
                }
            }
            Ok(program) => violation::check(&program, lowered, &argument.name.to_token_stream(), &note, diagnostics),
        }
    }
}

/// The user's tokens that a finding is about: an assignment, an argument, a signal or wait, a call,
/// a clause of the schedule, or the instance.
fn tokens_of(
    error: &GraphError,
    attribute: &KernelAttribute,
    instance: Option<&InstanceArgument>,
    lowered: &LoweredFunction,
) -> TokenStream {
    if let Some(site) = error.site.and_then(|site| lowered.sites.get(site as usize)) {
        if let Some(assignment) = site.assignment.as_ref().filter(|_| error.code == "AMK0605") {
            return assignment.clone();
        }
        let arg = error.arg.and_then(|arg| site.args.get(arg as usize));
        let named = |event: &&EventSite| error.headline.contains(&format!("`{}`", event.name));
        let event = site.events.iter().find(named).or(site.events.first());
        let event = event.filter(|_| matches!(error.code, "AMK0609" | "AMK0610")).map(|event| &event.tokens);
        return arg.or(event).unwrap_or(&site.callee).clone();
    }
    let schedule = instance.and_then(|instance| instance.schedule.as_ref()).unwrap_or(&attribute.schedule);
    let named = schedule.clauses.iter().find(|clause| error.headline.contains(&format!("`{}`", clause.instruction)));
    match (named, instance) {
        (Some(clause), _) => clause.tokens.clone(),
        (None, Some(instance)) => instance.name.to_token_stream(),
        (None, None) => schedule.tokens.clone(),
    }
}

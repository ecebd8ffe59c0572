//! `#[megakernel(..)]`: dims, declared facts, instances, the schedule, events and inputs.

use crate::diag::{Diagnostic, Diagnostics};
use crate::names::suggestion;
use crate::parse::attribute::{Setting, crate_path, settings};
use crate::parse::event::{EventArgument, events};
use crate::parse::fact::{Equality, facts};
use crate::parse::instance::{InstanceArgument, instances};
use crate::parse::layout::Shape;
use crate::parse::schedule::{self, ScheduleArgument};
use amk_ir::expr::Expr;
use proc_macro2::{Ident, TokenStream};
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Path, Token};

/// The keys of the arguments.
pub(crate) const KEYS: [&str; 7] = ["dims", "where", "instances", "schedule", "events", "inputs", "crate"];

/// The attribute's arguments.
pub(crate) struct KernelAttribute {
    /// The declared dims.
    pub(crate) dims: Vec<Ident>,
    /// Declared multiples.
    pub(crate) multiples: Vec<(Expr, Expr)>,
    /// Declared equalities: a dim and its value.
    pub(crate) equalities: Vec<Equality>,
    /// The instances.
    pub(crate) instances: Vec<InstanceArgument>,
    /// The schedule of instances without one.
    pub(crate) schedule: ScheduleArgument,
    /// Hand-written event tensors.
    pub(crate) events: Vec<EventArgument>,
    /// Shapes of input tensors by parameter name.
    pub(crate) inputs: Vec<(Ident, Vec<Expr>)>,
    /// The amk crate.
    pub(crate) krate: Path,
}

/// Reads the attribute; `None` where something was reported that leaves nothing to go on with.
pub(crate) fn parse(
    attribute: TokenStream,
    function: &Ident,
    diagnostics: &mut Diagnostics,
) -> Option<KernelAttribute> {
    let settings = match settings(attribute, &KEYS) {
        Ok(settings) => settings,
        Err(wrong) => {
            wrong.into_iter().for_each(|one| diagnostics.push(one));
            return None;
        }
    };
    let find = |key: &str| settings.iter().find(|setting| setting.key == key);
    let dims = diagnostics.keep(find("dims").map_or_else(|| Ok(Vec::new()), dims))?;
    duplicates(&dims, "dim", diagnostics);
    for dim in dims.iter().filter(|dim| *dim == "pos") {
        let headline = "`pos` is the position of the step, not a dim";
        diagnostics.push(Diagnostic::new("AMK0930", dim, headline, "choose another name, as in `dims(POSITIONS)`"));
    }
    let (multiples, equalities) =
        find("where").map_or_else(Default::default, |setting| facts(setting, &dims, diagnostics));
    let schedule = find("schedule").map_or_else(Default::default, |setting| schedule::parse(setting, diagnostics));
    let instances = find("instances").map_or_else(Vec::new, |setting| instances(setting, &dims, diagnostics));
    let events = find("events").map_or_else(Vec::new, |setting| events(setting, diagnostics));
    let inputs = find("inputs").map_or_else(|| Ok(Vec::new()), inputs);
    let inputs = diagnostics.keep(inputs)?;
    let names: Vec<Ident> = inputs.iter().map(|(name, _)| name.clone()).collect();
    duplicates(&names, "input", diagnostics);
    if find("dims").is_none() && !instances.is_empty() {
        let headline = format!("`{function}` has instances but no dims");
        diagnostics.push(Diagnostic::new("AMK0930", function, headline, "add `dims(..)` with the names of its sizes"));
    }
    let krate = diagnostics.keep(crate_path(&settings))?;
    Some(KernelAttribute { dims, multiples, equalities, instances, schedule, events, inputs, krate })
}

fn dims(setting: &Setting) -> Result<Vec<Ident>, Diagnostic> {
    let form = "dims(HIDDEN, VOCAB)";
    let parser = Punctuated::<Ident, Token![,]>::parse_terminated;
    let tokens = setting.list(form)?;
    parser
        .parse2(tokens.clone())
        .map(|dims| dims.into_iter().collect())
        .map_err(|error| Diagnostic::syntax("AMK0930", &error, format!("list the names of the sizes: `{form}`")))
}

/// Reports names that are there twice.
pub(crate) fn duplicates(names: &[Ident], what: &str, diagnostics: &mut Diagnostics) {
    for (at, name) in names.iter().enumerate() {
        if names[..at].contains(name) {
            let help = format!("keep one `{name}`");
            diagnostics.push(Diagnostic::new("AMK0930", name, format!("{what} `{name}` is declared twice"), help));
        }
    }
}

/// Reports the first name in the expression that is not a declared dim.
pub(crate) fn known_dims(expr: &Expr, dims: &[Ident], tokens: &TokenStream) -> Result<(), Diagnostic> {
    let dims: Vec<String> = dims.iter().map(ToString::to_string).collect();
    let mut unknown = None;
    expr.names(&mut |name| {
        if !dims.iter().any(|dim| dim == name) {
            unknown.get_or_insert_with(|| name.to_owned());
        }
    });
    unknown.map_or(Ok(()), |name| {
        let help = suggestion(&name, dims.iter().map(String::as_str));
        Err(Diagnostic::new("AMK0930", tokens, format!("`{name}` is not in `dims(..)`"), help))
    })
}

/// `inputs(x: [HIDDEN])`
fn inputs(setting: &Setting) -> Result<Vec<(Ident, Vec<Expr>)>, Diagnostic> {
    let form = "inputs(x: [HIDDEN])";
    let parse = |input: ParseStream| {
        let name: Ident = input.parse()?;
        input.parse::<Token![:]>()?;
        Ok((name, input.parse::<Shape>()?.0))
    };
    let parser = |input: ParseStream| input.parse_terminated(parse, Token![,]);
    let tokens = setting.list(form)?;
    let help = format!("give each input tensor its shape: `{form}`");
    parser
        .parse2(tokens.clone())
        .map(|all| all.into_iter().collect())
        .map_err(|error| Diagnostic::syntax("AMK0902", &error, help))
}

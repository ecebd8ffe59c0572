//! `#[megakernel(..)]`: dims, declared facts, instances, the schedule, events and inputs.

use crate::diag::{Diagnostic, Diagnostics};
use crate::names::{list, suggestion};
use crate::parse::attribute::{Setting, crate_path, settings, up_to_comma};
use crate::parse::event::{EventArgument, events};
use crate::parse::layout::{Shape, expr, expr_text};
use crate::parse::schedule::{self, ScheduleArgument};
use amk_ir::expr::{Expr, Op};
use amk_ir::graph::Instance;
use proc_macro2::{Ident, TokenStream};
use std::collections::BTreeMap;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Path, Token};

const KEYS: [&str; 7] = ["dims", "where", "instances", "schedule", "events", "inputs", "crate"];

/// The attribute's arguments.
pub(crate) struct KernelAttribute {
    /// The declared dims.
    pub(crate) dims: Vec<Ident>,
    /// Declared multiples.
    pub(crate) multiples: Vec<(Expr, Expr)>,
    /// Declared equalities: a dim and what it equals.
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

/// `KV == KV_HEADS * HEAD_DIM`
pub(crate) struct Equality {
    /// The dim.
    pub(crate) dim: String,
    /// What it equals.
    pub(crate) value: Expr,
    /// The tokens, to point at.
    pub(crate) tokens: TokenStream,
}

/// `tiny(HIDDEN = 64, w.tied = true, schedule(..))`
pub(crate) struct InstanceArgument {
    /// The name.
    pub(crate) name: Ident,
    /// Its values.
    pub(crate) instance: Instance,
    /// Its schedule, to point at.
    pub(crate) schedule: Option<ScheduleArgument>,
}

/// Reads the attribute; `None` where something was reported that leaves nothing to go on with.
pub(crate) fn parse(
    attribute: TokenStream,
    function: &Ident,
    diagnostics: &mut Diagnostics,
) -> Option<KernelAttribute> {
    let settings = match settings(attribute, &KEYS, &[]) {
        Ok(settings) => settings,
        Err(wrong) => {
            wrong.into_iter().for_each(|one| diagnostics.push(one));
            return None;
        }
    };
    let find = |key: &str| settings.iter().find(|setting| setting.key == key);
    let dims = diagnostics.keep(find("dims").map_or_else(|| Ok(Vec::new()), dims))?;
    duplicates(&dims, "dim", diagnostics);
    let (multiples, equalities) =
        find("where").map_or_else(Default::default, |setting| facts(setting, &dims, diagnostics));
    let schedule = find("schedule").map_or_else(Default::default, |setting| schedule::parse(setting, diagnostics));
    let instances =
        find("instances").map_or_else(Vec::new, |setting| instances(setting, &dims, &equalities, diagnostics));
    let events = find("events").map_or_else(Vec::new, |setting| events(setting, diagnostics));
    let inputs = find("inputs").map_or_else(|| Ok(Vec::new()), inputs);
    let inputs = diagnostics.keep(inputs)?;
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

fn duplicates(names: &[Ident], what: &str, diagnostics: &mut Diagnostics) {
    for (at, name) in names.iter().enumerate() {
        if names[..at].contains(name) {
            let help = format!("keep one `{name}`");
            diagnostics.push(Diagnostic::new("AMK0930", name, format!("{what} `{name}` is declared twice"), help));
        }
    }
}

type Facts = (Vec<(Expr, Expr)>, Vec<Equality>);

/// `where(Q % HEAD_DIM, KV == KV_HEADS * HEAD_DIM)`
fn facts(setting: &Setting, dims: &[Ident], diagnostics: &mut Diagnostics) -> Facts {
    let Some(tokens) = diagnostics.keep(setting.list("where(Q % HEAD_DIM, KV == KV_HEADS * HEAD_DIM)")) else {
        return Facts::default();
    };
    let parser = Punctuated::<FactTokens, Token![,]>::parse_terminated;
    let (mut multiples, mut equalities) = Facts::default();
    match parser.parse2(tokens.clone()) {
        Err(error) => {
            diagnostics.push(Diagnostic::syntax("AMK0933", &error, "write `A % B` or `A == B`, separated by commas"))
        }
        Ok(facts) => {
            for fact in facts {
                match diagnostics.keep(fact.read(dims)) {
                    Some(Fact::Multiple(of, by)) => multiples.push((of, by)),
                    Some(Fact::Equality(equality)) => {
                        multiples
                            .extend(factors(&equality.value).into_iter().map(|by| (Expr::name(&equality.dim), by)));
                        equalities.push(equality);
                    }
                    None => {}
                }
            }
        }
    }
    (multiples, equalities)
}

/// The factors of a product.
fn factors(expr: &Expr) -> Vec<Expr> {
    match expr {
        Expr::Binary(Op::Mul, a, b) => [factors(a), factors(b)].concat(),
        other => vec![other.clone()],
    }
}

enum Fact {
    Multiple(Expr, Expr),
    Equality(Equality),
}

/// The tokens of a declared fact.
struct FactTokens(TokenStream);

impl Parse for FactTokens {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        up_to_comma(input).map(Self)
    }
}

impl FactTokens {
    fn read(&self, dims: &[Ident]) -> Result<Fact, Diagnostic> {
        let text = expr_text(&self.0);
        let wrong = |help: &str| {
            Err(Diagnostic::new(
                "AMK0933",
                &self.0,
                format!("`{text}` is neither a multiple nor an equality of dims"),
                help,
            ))
        };
        let expr = |text: &str| Expr::parse(text.trim()).ok();
        if let Some((left, right)) = text.split_once("==") {
            return match (expr(left), expr(right)) {
                (Some(Expr::Name(dim)), Some(value)) | (Some(value), Some(Expr::Name(dim))) => {
                    self.declared(&[&Expr::name(&dim), &value], dims)?;
                    Ok(Fact::Equality(Equality { dim, value, tokens: self.0.clone() }))
                }
                _ => wrong("write a dim on one side: `KV == KV_HEADS * HEAD_DIM`"),
            };
        }
        match expr(&text) {
            Some(Expr::Binary(Op::Rem, of, by)) => {
                self.declared(&[&of, &by], dims)?;
                Ok(Fact::Multiple(*of, *by))
            }
            _ => wrong("write `Q % HEAD_DIM`: Q is a multiple of HEAD_DIM"),
        }
    }

    fn declared(&self, exprs: &[&Expr], dims: &[Ident]) -> Result<(), Diagnostic> {
        exprs.iter().try_for_each(|expr| known_dims(expr, dims, &self.0))
    }
}

/// Reports the first name of the expression that is no declared dim.
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

/// `instances(tiny(HIDDEN = 64, ..), ..)`
fn instances(
    setting: &Setting,
    dims: &[Ident],
    equalities: &[Equality],
    diagnostics: &mut Diagnostics,
) -> Vec<InstanceArgument> {
    let form = "instances(tiny(HIDDEN = 64))";
    let Some(tokens) = diagnostics.keep(setting.list(form)) else { return Vec::new() };
    let parser = Punctuated::<Setting, Token![,]>::parse_terminated;
    let all = match parser.parse2(tokens.clone()) {
        Ok(all) => all,
        Err(error) => {
            diagnostics.push(Diagnostic::syntax("AMK0931", &error, format!("list the instances: `{form}`")));
            return Vec::new();
        }
    };
    let names: Vec<Ident> = all.iter().map(|setting| setting.key.clone()).collect();
    duplicates(&names, "instance", diagnostics);
    all.iter().filter_map(|setting| instance(setting, dims, equalities, diagnostics)).collect()
}

fn instance(
    setting: &Setting,
    dims: &[Ident],
    equalities: &[Equality],
    diagnostics: &mut Diagnostics,
) -> Option<InstanceArgument> {
    let name = &setting.key;
    let tokens = diagnostics.keep(setting.list(&format!("{name}(HIDDEN = 64)")))?;
    let values = match Punctuated::<InstanceValue, Token![,]>::parse_terminated.parse2(tokens.clone()) {
        Ok(values) => values,
        Err(error) => {
            let help = "write `HIDDEN = 64`, `w.tied = true`, `w.eps = 1e-5` or `schedule(..)`, separated by commas";
            diagnostics.push(Diagnostic::syntax("AMK0931", &error, help));
            return None;
        }
    };
    let mut argument = InstanceArgument {
        name: name.clone(),
        instance: Instance { name: name.to_string(), ..Instance::default() },
        schedule: None,
    };
    for value in values {
        let result = argument.add(value, dims, diagnostics);
        diagnostics.keep(result);
    }
    let missing: Vec<String> =
        dims.iter().map(ToString::to_string).filter(|dim| !argument.instance.dims.contains_key(dim)).collect();
    if !missing.is_empty() {
        let headline = format!("instance `{name}` gives no value for {}", list(missing.iter().map(String::as_str)));
        diagnostics.push(Diagnostic::new("AMK0931", name, headline, format!("add `{} = ..`", missing[0])));
        return None;
    }
    for equality in equalities {
        let result = argument.holds(equality);
        diagnostics.keep(result);
    }
    Some(argument)
}

/// One value of an instance.
enum InstanceValue {
    Schedule(Setting),
    Value { path: Vec<Ident>, value: TokenStream },
}

impl Parse for InstanceValue {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        if input.peek(syn::Ident) && input.peek2(syn::token::Paren) {
            return input.parse().map(Self::Schedule);
        }
        let mut path = vec![input.parse::<Ident>()?];
        while input.peek(Token![.]) {
            input.parse::<Token![.]>()?;
            path.push(input.parse()?);
        }
        input.parse::<Token![=]>()?;
        Ok(Self::Value { path, value: up_to_comma(input)? })
    }
}

impl InstanceArgument {
    fn add(&mut self, value: InstanceValue, dims: &[Ident], diagnostics: &mut Diagnostics) -> Result<(), Diagnostic> {
        let (path, value) = match value {
            InstanceValue::Schedule(setting) if setting.key == "schedule" => {
                let schedule = schedule::parse(&setting, diagnostics);
                self.instance.schedule = Some(schedule.schedule.clone());
                self.schedule = Some(schedule);
                return Ok(());
            }
            InstanceValue::Schedule(setting) => {
                let headline = format!("unknown argument `{}` of instance `{}`", setting.key, self.name);
                return Err(Diagnostic::new(
                    "AMK0931",
                    setting.key,
                    headline,
                    "write `schedule(..)`, or `NAME = value`",
                ));
            }
            InstanceValue::Value { path, value } => (path, value),
        };
        match path.as_slice() {
            [dim] => self.dim(dim, &value, dims),
            fields => self.field(fields, &value),
        }
    }

    fn dim(&mut self, dim: &Ident, value: &TokenStream, dims: &[Ident]) -> Result<(), Diagnostic> {
        let name = dim.to_string();
        if !dims.contains(dim) {
            let known: Vec<String> = dims.iter().map(ToString::to_string).collect();
            let headline = format!("instance `{}` gives a value for `{name}`, which is not in `dims(..)`", self.name);
            return Err(Diagnostic::new("AMK0931", dim, headline, suggestion(&name, known.iter().map(String::as_str))));
        }
        let known = |name: &str| self.instance.dims.get(name).map(|value| i64::from(*value));
        let number = expr(value).ok().and_then(|expr| expr.eval(&known).ok());
        let number = number.and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0);
        let Some(number) = number else {
            let headline = format!("`{name}` of instance `{}` is no positive number of 32 bits", self.name);
            let help = "write a number, or an expression over dims that stand before it";
            return Err(Diagnostic::new("AMK0931", value, headline, help));
        };
        if self.instance.dims.insert(name.clone(), number).is_some() {
            let headline = format!("instance `{}` gives `{name}` twice", self.name);
            return Err(Diagnostic::new("AMK0931", dim, headline, format!("keep one `{name}`")));
        }
        Ok(())
    }

    fn field(&mut self, fields: &[Ident], value: &TokenStream) -> Result<(), Diagnostic> {
        let path: Vec<String> = fields.iter().map(ToString::to_string).collect();
        let path = path.join(".");
        let text = value.to_string();
        match (text.as_str(), text.replace(' ', "").parse::<f32>()) {
            ("true" | "false", _) => {
                self.instance.flags.insert(path, text == "true");
                Ok(())
            }
            (_, Ok(number)) => {
                self.instance.floats.insert(path, number);
                Ok(())
            }
            (_, Err(_)) => {
                let headline = format!("`{path}` of instance `{}` is neither a flag nor a number", self.name);
                Err(Diagnostic::new("AMK0931", value, headline, "write `true`, `false` or a number"))
            }
        }
    }

    fn holds(&self, equality: &Equality) -> Result<(), Diagnostic> {
        let value = |name: &str| self.instance.dims.get(name).map(|value| i64::from(*value));
        let (left, right) = (value(&equality.dim), equality.value.eval(&value).ok());
        if left.is_some() && left == right {
            return Ok(());
        }
        let show = |number: Option<i64>| number.map_or_else(|| "undefined".to_owned(), |number| number.to_string());
        let headline = format!("instance `{}` breaks `where({})`", self.name, equality.tokens);
        let note = format!("`{}` is {}, `{}` is {}", equality.dim, show(left), equality.value, show(right));
        let help = format!("give it `{} = {}`", equality.dim, show(right));
        Err(Diagnostic::new("AMK0931", &self.name, headline, help).note(note))
    }
}

/// The text of the dims of an instance, for notes: `HIDDEN = 64, FFN = 96, ..`.
pub(crate) fn describe(dims: &BTreeMap<String, u32>, order: &[Ident]) -> String {
    let shown: Vec<String> = order
        .iter()
        .filter_map(|dim| dims.get(&dim.to_string()).map(|value| format!("{dim} = {value}")))
        .take(6)
        .collect();
    let more = if order.len() > shown.len() { ", .." } else { "" };
    format!("{}{more}", shown.join(", "))
}

//! `instances(tiny(HIDDEN = 64, w.tied = true, schedule(..)))`: values for which the program is
//! made and verified.

use crate::diag::{Diagnostic, Diagnostics};
use crate::names::{list, suggestion};
use crate::parse::attribute::{Setting, up_to_comma};
use crate::parse::kernel::duplicates;
use crate::parse::layout::expr;
use crate::parse::schedule::{self, ScheduleArgument};
use amk_ir::graph::Instance;
use proc_macro2::{Ident, TokenStream};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{LitInt, Token};

/// `tiny(HIDDEN = 64, w.tied = true, schedule(..))`
pub(crate) struct InstanceArgument {
    /// The name.
    pub(crate) name: Ident,
    /// Its values.
    pub(crate) instance: Instance,
    /// The fields that it sets, to check and to locate errors.
    pub(crate) fields: Vec<InstanceField>,
    /// Its schedule, to point at.
    pub(crate) schedule: Option<ScheduleArgument>,
}

/// `w.layers[0].tied = true`
pub(crate) struct InstanceField {
    /// The parameter, without `r#`.
    pub(crate) root: Ident,
    /// The fields on the way, and the field.
    pub(crate) steps: Vec<Step>,
    /// The value's tokens.
    pub(crate) value: TokenStream,
    /// Whether the value is a flag's.
    pub(crate) flag: bool,
}

/// A name in the path of a field, with the number of the list's element.
pub(crate) struct Step {
    /// The name, without `r#`.
    pub(crate) name: Ident,
    /// The element.
    pub(crate) index: Option<u32>,
}

impl Parse for Step {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let name = input.parse::<Ident>()?.unraw();
        if !input.peek(syn::token::Bracket) {
            return Ok(Self { name, index: None });
        }
        let inner;
        syn::bracketed!(inner in input);
        Ok(Self { name, index: Some(inner.parse::<LitInt>()?.base10_parse()?) })
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.index {
            Some(index) => write!(f, "{}[{index}]", self.name),
            None => self.name.fmt(f),
        }
    }
}

/// `instances(tiny(HIDDEN = 64, ..), ..)`
pub(crate) fn instances(setting: &Setting, dims: &[Ident], diagnostics: &mut Diagnostics) -> Vec<InstanceArgument> {
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
    all.iter().filter_map(|setting| instance(setting, dims, diagnostics)).collect()
}

fn instance(setting: &Setting, dims: &[Ident], diagnostics: &mut Diagnostics) -> Option<InstanceArgument> {
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
        fields: Vec::new(),
        schedule: None,
    };
    let given = |dim: &&Ident| values.iter().any(|value| value.is_of(dim));
    let missing: Vec<String> = dims.iter().filter(|dim| !given(dim)).map(ToString::to_string).collect();
    for value in values {
        let result = argument.add(value, dims, diagnostics);
        diagnostics.keep(result);
    }
    if !missing.is_empty() {
        let headline = format!("instance `{name}` gives no value for {}", list(missing.iter().map(String::as_str)));
        diagnostics.push(Diagnostic::new("AMK0931", name, headline, format!("add `{} = ..`", missing[0])));
    }
    dims.iter().all(|dim| argument.instance.dims.contains_key(&dim.to_string())).then_some(argument)
}

/// One value of an instance.
enum InstanceValue {
    Schedule(Setting),
    Value { root: Ident, steps: Vec<Step>, value: TokenStream },
}

impl InstanceValue {
    fn is_of(&self, dim: &Ident) -> bool {
        matches!(self, Self::Value { root, steps, .. } if steps.is_empty() && root == dim)
    }
}

impl Parse for InstanceValue {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        if input.peek(syn::Ident) && input.peek2(syn::token::Paren) {
            return input.parse().map(Self::Schedule);
        }
        let root = input.parse()?;
        let mut steps = Vec::new();
        while input.peek(Token![.]) {
            input.parse::<Token![.]>()?;
            steps.push(input.parse()?);
        }
        input.parse::<Token![=]>()?;
        Ok(Self::Value { root, steps, value: up_to_comma(input)? })
    }
}

impl InstanceArgument {
    fn add(&mut self, value: InstanceValue, dims: &[Ident], diagnostics: &mut Diagnostics) -> Result<(), Diagnostic> {
        let (root, steps, value) = match value {
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
            InstanceValue::Value { root, steps, value } => (root, steps, value),
        };
        if steps.is_empty() { self.dim(&root, &value, dims) } else { self.field(root, steps, value) }
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
            let headline = format!("`{name}` of instance `{}` is not a positive number of 32 bits", self.name);
            let help = "write a number, or an expression over dims that stand before it";
            return Err(Diagnostic::new("AMK0931", value, headline, help));
        };
        if self.instance.dims.insert(name.clone(), number).is_some() {
            let headline = format!("instance `{}` gives `{name}` twice", self.name);
            return Err(Diagnostic::new("AMK0931", dim, headline, format!("keep one `{name}`")));
        }
        Ok(())
    }

    fn field(&mut self, root: Ident, steps: Vec<Step>, value: TokenStream) -> Result<(), Diagnostic> {
        let root = root.unraw();
        let key = steps.iter().fold(root.to_string(), |path, step| format!("{path}.{step}"));
        let text = value.to_string();
        let (flag, twice) = match (text.as_str(), text.replace(' ', "").parse::<f32>()) {
            ("true" | "false", _) => (true, self.instance.flags.insert(key.clone(), text == "true").is_some()),
            (_, Ok(number)) => (false, self.instance.floats.insert(key.clone(), number).is_some()),
            (_, Err(_)) => {
                let headline = format!("`{key}` of instance `{}` is neither a flag nor a number", self.name);
                return Err(Diagnostic::new("AMK0931", value, headline, "write `true`, `false` or a number"));
            }
        };
        if twice {
            let headline = format!("instance `{}` gives `{key}` twice", self.name);
            return Err(Diagnostic::new("AMK0931", value, headline, format!("keep one `{key}`")));
        }
        self.fields.push(InstanceField { root, steps, value, flag });
        Ok(())
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

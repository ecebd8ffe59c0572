//! Event tensors written by hand: `events(e[N / 32])`, `#[signal(e[n / 2])]`, `#[wait(e[n] == 2)]`.

use crate::diag::{Diagnostic, Diagnostics};
use crate::names::nearest;
use crate::parse::attribute::Setting;
use crate::parse::kernel::duplicates;
use crate::parse::layout::{Shape, Size};
use amk_ir::expr::Expr;
use proc_macro2::{Ident, TokenStream};
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Attribute, Token};

/// An event tensor: its name and extents.
pub(crate) struct EventArgument {
    /// The name.
    pub(crate) name: Ident,
    /// Extents over dims.
    pub(crate) shape: Vec<Expr>,
}

impl Parse for EventArgument {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let name = input.parse()?;
        let shape = if input.peek(syn::token::Bracket) { input.parse::<Shape>()?.0 } else { Vec::new() };
        Ok(Self { name, shape })
    }
}

/// Reads `events(..)`.
pub(crate) fn events(setting: &Setting, diagnostics: &mut Diagnostics) -> Vec<EventArgument> {
    let Some(tokens) = diagnostics.keep(setting.list("events(e[N / 32])")) else { return Vec::new() };
    let parsed = Punctuated::<EventArgument, Token![,]>::parse_terminated.parse2(tokens.clone());
    match parsed {
        Ok(events) => {
            let names: Vec<Ident> = events.iter().map(|event| event.name.clone()).collect();
            duplicates(&names, "event tensor", diagnostics);
            events.into_iter().collect()
        }
        Err(error) => {
            let help = "list event tensors with their extents: `events(e[N / 32], done)`";
            diagnostics.push(Diagnostic::syntax("AMK0934", &error, help));
            Vec::new()
        }
    }
}

/// An event attribute of a statement.
pub(crate) struct EventAttribute {
    /// The event tensor and the element of it.
    pub(crate) event: EventArgument,
    /// The threshold of a `#[wait]`; `None` for a `#[signal]`.
    pub(crate) threshold: Option<Expr>,
    /// The attribute's tokens, to point at.
    pub(crate) tokens: TokenStream,
}

/// Attributes that do not change the function.
pub(crate) const HARMLESS: [&str; 6] = ["allow", "expect", "warn", "deny", "doc", "rustfmt"];

/// The attributes of a statement.
const EVENTS: [&str; 2] = ["signal", "wait"];

/// Whether an attribute is one of ours.
pub(crate) fn is_event(attribute: &Attribute) -> bool {
    EVENTS.iter().any(|event| attribute.path().is_ident(event))
}

/// Which of ours the attribute was likely meant to be.
pub(crate) fn misspelt_event(attribute: &Attribute) -> Option<&'static str> {
    let name = attribute.path().get_ident().filter(|_| !is_event(attribute))?.to_string();
    nearest(&name, EVENTS).filter(|_| !HARMLESS.contains(&name.as_str()))
}

/// Reads a `#[signal(..)]` or `#[wait(..)]`.
pub(crate) fn attribute(attribute: &Attribute) -> Result<EventAttribute, Diagnostic> {
    let waits = attribute.path().is_ident("wait");
    let parse = |input: ParseStream| {
        let event: EventArgument = input.parse()?;
        if !waits {
            return Ok((event, None));
        }
        input.parse::<Token![==]>()?;
        let threshold = input.parse::<Size>()?.0;
        Ok((event, Some(threshold)))
    };
    let tokens = quote::ToTokens::to_token_stream(&attribute.meta);
    attribute
        .parse_args_with(parse)
        .map(|(event, threshold)| EventAttribute { event, threshold, tokens: tokens.clone() })
        .map_err(|_| {
            let (word, form) = if waits { ("wait", "#[wait(e[n] == 2)]") } else { ("signal", "#[signal(e[n / 2])]") };
            let headline = format!("this `#[{word}]` does not have its form");
            Diagnostic::new("AMK0934", tokens, headline, format!("write `{form}`"))
        })
}

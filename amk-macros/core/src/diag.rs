//! Diagnostics: a code, one line, facts, and one edit that mends it, at the user's tokens.

use amk_ir::graph_error::GraphError;
use proc_macro2::TokenStream;
use quote::ToTokens;
use std::borrow::Cow;
use std::collections::HashMap;

/// How many findings of a code are shown.
const SHOWN: usize = 5;

/// One finding; boxed, for it is the error of many results.
#[derive(Debug)]
pub(crate) struct Diagnostic(Box<Parts>);

#[derive(Debug)]
struct Parts {
    code: Cow<'static, str>,
    tokens: TokenStream,
    headline: String,
    notes: Vec<String>,
    help: String,
}

impl Diagnostic {
    /// A finding at `tokens`; `help` is one edit.
    pub(crate) fn new(
        code: impl Into<Cow<'static, str>>,
        tokens: impl ToTokens,
        headline: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self(Box::new(Parts {
            code: code.into(),
            tokens: tokens.into_token_stream(),
            headline: headline.into(),
            notes: Vec::new(),
            help: help.into(),
        }))
    }

    /// The same with a fact.
    #[must_use]
    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.0.notes.push(note.into());
        self
    }

    /// The same with another edit that mends it.
    #[must_use]
    pub(crate) fn help(mut self, help: String) -> Self {
        self.0.help = help;
        self
    }

    /// A finding about a graph or a signature, at `tokens`.
    pub(crate) fn of(error: &GraphError, tokens: impl ToTokens) -> Self {
        error.notes.iter().fold(Self::new(error.code, tokens, &error.headline, &error.help), Self::note)
    }

    /// Reports a syntax error from syn.
    pub(crate) fn syntax(code: &'static str, error: &syn::Error, help: impl Into<String>) -> Self {
        let mark = proc_macro2::Ident::new("here", error.span());
        Self::new(code, mark, error.to_string(), help)
    }

    /// The message: headline, notes, help.
    pub(crate) fn message(&self) -> String {
        let Parts { code, headline, notes, help, .. } = &*self.0;
        let mut text = format!("{code}: {headline}\n");
        for note in notes {
            text.push_str(&format!("\nnote: {note}"));
        }
        text.push_str(&format!("\nhelp: {help}"));
        text
    }
}

/// Findings in the order they were made.
#[derive(Debug, Default)]
pub(crate) struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    /// Adds a finding.
    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        self.0.push(diagnostic);
    }

    /// Adds the finding, if it is one.
    pub(crate) fn keep<T>(&mut self, result: Result<T, Diagnostic>) -> Option<T> {
        result.map_err(|diagnostic| self.push(diagnostic)).ok()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One `compile_error!` a finding, at most [`SHOWN`] of a code; the last one counts the rest.
    pub(crate) fn into_tokens(self) -> TokenStream {
        let mut total: HashMap<String, usize> = HashMap::new();
        for diagnostic in &self.0 {
            *total.entry(diagnostic.0.code.to_string()).or_default() += 1;
        }
        let mut shown: HashMap<String, usize> = HashMap::new();
        let mut tokens = TokenStream::new();
        for mut diagnostic in self.0 {
            let count = shown.entry(diagnostic.0.code.to_string()).or_default();
            *count += 1;
            let more = total[&*diagnostic.0.code].saturating_sub(SHOWN);
            if *count == SHOWN && more > 0 {
                let more = format!("and {more} more of {}", diagnostic.0.code);
                diagnostic = diagnostic.note(more);
            }
            if *count <= SHOWN {
                tokens.extend(syn::Error::new_spanned(&diagnostic.0.tokens, diagnostic.message()).to_compile_error());
            }
        }
        tokens
    }

    /// The messages, for tests.
    #[cfg(test)]
    pub(crate) fn messages(&self) -> Vec<String> {
        self.0.iter().map(Diagnostic::message).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quote::quote;

    #[test]
    fn at_most_five_of_a_code_are_shown() {
        let mut diagnostics = Diagnostics::default();
        for n in 0..9 {
            diagnostics.push(Diagnostic::new("AMK0910", quote!(x), format!("finding {n}"), "mend it"));
        }
        diagnostics.push(Diagnostic::new("AMK0911", quote!(y), "another", "mend it"));
        let text = diagnostics.into_tokens().to_string();
        assert_eq!(text.matches("compile_error").count(), 6);
        assert!(text.contains("and 4 more of AMK0910"));
    }
}

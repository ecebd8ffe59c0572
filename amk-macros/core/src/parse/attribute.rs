//! Attribute arguments: `key = value` and `key(..)`, in any order, each once.

use crate::diag::Diagnostic;
use crate::names::suggestion;
use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{LitStr, Path, Token};

/// One argument of an attribute.
#[derive(Debug)]
pub(crate) struct Setting {
    /// The key, without `r#`.
    pub(crate) key: Ident,
    /// The value.
    pub(crate) value: SettingValue,
}

/// The values of a [`Setting`].
#[derive(Debug)]
pub(crate) enum SettingValue {
    /// `key = tokens`
    Equals(TokenStream),
    /// `key(tokens)`
    List(TokenStream),
    /// `key`
    Nothing,
}

impl Parse for Setting {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let key = Ident::parse_any(input)?.unraw();
        if input.peek(syn::token::Paren) {
            let inner;
            syn::parenthesized!(inner in input);
            return Ok(Self { key, value: SettingValue::List(inner.parse()?) });
        }
        if !input.peek(Token![=]) {
            return Ok(Self { key, value: SettingValue::Nothing });
        }
        input.parse::<Token![=]>()?;
        Ok(Self { key, value: SettingValue::Equals(up_to_comma(input)?) })
    }
}

/// The tokens up to a comma or the end.
pub(crate) fn up_to_comma(input: ParseStream) -> syn::Result<TokenStream> {
    let mut tokens = TokenStream::new();
    while !input.is_empty() && !input.peek(Token![,]) {
        tokens.extend([input.parse::<TokenTree>()?]);
    }
    Ok(tokens)
}

impl ToTokens for Setting {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let key = &self.key;
        tokens.extend(match &self.value {
            SettingValue::Equals(value) => quote!(#key = #value),
            SettingValue::List(list) => quote!(#key (#list)),
            SettingValue::Nothing => quote!(#key),
        });
    }
}

impl Setting {
    /// The argument's tokens after `key =`, parsed; `form` is shown where they are something else.
    pub(crate) fn value<T: Parse>(&self, form: &str) -> Result<T, Diagnostic> {
        let found = match &self.value {
            SettingValue::Equals(tokens) => syn::parse2(tokens.clone()).ok(),
            SettingValue::List(_) | SettingValue::Nothing => None,
        };
        found.ok_or_else(|| self.wrong(form))
    }

    /// The tokens in the argument's parentheses.
    pub(crate) fn list(&self, form: &str) -> Result<&TokenStream, Diagnostic> {
        match &self.value {
            SettingValue::List(tokens) => Ok(tokens),
            SettingValue::Equals(_) | SettingValue::Nothing => Err(self.wrong(form)),
        }
    }

    /// The text of a `key = ".."`.
    pub(crate) fn text(&self) -> Result<LitStr, Diagnostic> {
        self.value(&format!("{} = \"..\"", self.key))
    }

    fn wrong(&self, form: &str) -> Diagnostic {
        let tokens = match &self.value {
            SettingValue::Equals(tokens) if !tokens.is_empty() => tokens.clone(),
            SettingValue::List(tokens) if !tokens.is_empty() => tokens.clone(),
            _ => self.key.to_token_stream(),
        };
        Diagnostic::new("AMK0902", tokens, format!("`{}` does not have this form", self.key), format!("write `{form}`"))
    }
}

/// The arguments of an attribute, each key one of `keys` and there once.
pub(crate) fn settings(tokens: TokenStream, keys: &[&str]) -> Result<Vec<Setting>, Vec<Diagnostic>> {
    let parser = Punctuated::<Setting, Token![,]>::parse_terminated;
    let help = || format!("separate arguments by commas; the keys are {}", crate::names::list(keys.iter().copied()));
    let all = syn::parse::Parser::parse2(parser, tokens)
        .map_err(|error| vec![Diagnostic::syntax("AMK0902", &error, help())])?;
    let (mut seen, mut wrong): (Vec<String>, Vec<Diagnostic>) = (Vec::new(), Vec::new());
    for setting in &all {
        let key = setting.key.to_string();
        if !keys.contains(&key.as_str()) {
            let help = suggestion(&key, keys.iter().copied());
            wrong.push(Diagnostic::new("AMK0902", &setting.key, format!("unknown argument `{key}`"), help));
        } else if seen.contains(&key) {
            let headline = format!("`{key}` is given twice");
            wrong.push(Diagnostic::new("AMK0902", &setting.key, headline, format!("keep one `{key}`")));
        }
        seen.push(key);
    }
    if wrong.is_empty() { Ok(all.into_iter().collect()) } else { Err(wrong) }
}

/// The path by which expansions name the amk crate: `crate = path`, else `::amk`.
pub(crate) fn crate_path(settings: &[Setting]) -> Result<Path, Diagnostic> {
    match settings.iter().find(|setting| setting.key == "crate") {
        Some(setting) => setting.value("crate = path::to::amk"),
        None => Ok(syn::parse_quote!(::amk)),
    }
}

//! The chain through the companions of several paths, and its end.

use crate::companion::RecordKind;
use amk_ir::layout::Layout;
use amk_ir::signature::Signature;
use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use std::collections::BTreeMap;
use syn::parse::{Parse, ParseStream};
use syn::{Expr, ExprPath, Path, Token, braced};

/// The text of a path by which its record is found: its segments without generic arguments.
pub(crate) fn key(path: &Path) -> String {
    let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    let root = if path.leading_colon.is_some() { "::" } else { "" };
    format!("{root}{}", segments.join("::"))
}

/// The path that is called; a user's macro may have put it into a group.
pub(crate) fn callee(called: &Expr) -> Option<&ExprPath> {
    match called {
        Expr::Group(inner) => callee(&inner.expr),
        Expr::Paren(inner) => callee(&inner.expr),
        Expr::Path(path) if path.qself.is_none() => Some(path),
        _ => None,
    }
}

/// The path as a macro's: without generic arguments.
pub(crate) fn macro_path(path: &Path) -> TokenStream {
    let mut path = path.clone();
    for segment in &mut path.segments {
        segment.arguments = syn::PathArguments::None;
    }
    path.into_token_stream()
}

/// The call of the first companion; `end` is called with all records and the payload. Each path is
/// asked once.
pub(crate) fn start(paths: &[Path], end: &TokenStream, payload: &TokenStream) -> TokenStream {
    let mut links: Vec<(String, TokenStream)> = Vec::new();
    for path in paths {
        let key = key(path);
        if links.iter().all(|(known, _)| *known != key) {
            links.push((key, macro_path(path)));
        }
    }
    links.push(("$end".to_owned(), end.clone()));
    let (first, first_path) = &links[0];
    let rest = links[1..].iter().map(|(key, path)| quote!(#key [#path]));
    quote! { #first_path ! { @amk1 #first {} { #(#rest)* } { #payload } } }
}

/// A record, as emitted by a companion.
#[derive(Debug)]
pub(crate) enum Record {
    /// Of an instruction.
    Instruction(Signature),
    /// Of a struct.
    Layout(Layout),
    /// Of `Token`, `Pos` or `Tensor`.
    Input(String),
    /// Of an item with errors.
    Error,
}

/// The input at the end of a chain.
pub(crate) struct End {
    /// The records by the path's [`key`].
    pub(crate) records: BTreeMap<String, Record>,
    /// The payload from the start of the chain.
    pub(crate) payload: TokenStream,
}

impl Parse for End {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        input.parse::<Token![@]>()?;
        input.parse::<Ident>()?;
        input.parse::<TokenTree>()?;
        let (done, rest, payload);
        braced!(done in input);
        braced!(rest in input);
        rest.parse::<TokenStream>()?;
        braced!(payload in input);
        let mut records = BTreeMap::new();
        while !done.is_empty() {
            let (key, record) = record(&done)?;
            records.insert(key, record);
        }
        Ok(Self { records, payload: payload.parse()? })
    }
}

fn record(input: ParseStream) -> syn::Result<(String, Record)> {
    let inner;
    braced!(inner in input);
    let key: syn::LitStr = inner.parse()?;
    let word: Ident = inner.parse()?;
    let content: syn::LitStr = inner.parse()?;
    let json = |error: serde_json::Error| {
        let text = format!("`{}` was declared with another version of amk ({error})", key.value());
        syn::Error::new(key.span(), text)
    };
    let record = match RecordKind::of_word(&word.to_string()) {
        Some(RecordKind::Instruction) => Record::Instruction(serde_json::from_str(&content.value()).map_err(json)?),
        Some(RecordKind::Layout) => Record::Layout(serde_json::from_str(&content.value()).map_err(json)?),
        Some(RecordKind::Input) => Record::Input(content.value()),
        Some(RecordKind::Error) => Record::Error,
        None => return Err(syn::Error::new(word.span(), "declared with another version of amk")),
    };
    Ok((key.value(), record))
}

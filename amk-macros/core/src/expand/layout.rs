//! `#[derive(WeightLayout)]`: the trait's implementation and the companion, after a chain through
//! the structs in the struct.

use crate::chain::{self, End, Record, key};
use crate::companion::{RecordKind, companion};
use crate::diag::{Diagnostic, Diagnostics};
use crate::origin::Origin;
use crate::parse::layout::{LayoutField, LayoutFieldKind, LayoutItem, parse};
use amk_ir::expr::Expr;
use amk_ir::layout::{Field, FieldKind, Layout};
use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use std::collections::BTreeMap;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{DeriveInput, LitInt, LitStr, Path};

/// Limit on the fields of a layout, nested layouts included, each counted as often as a field has
/// it.
const MOST_FIELDS: usize = 65_536;

/// Expands the derive: at once, or after a chain through the records of the structs in the struct.
pub(crate) fn derive(origin: &Origin, item: TokenStream) -> TokenStream {
    let input: DeriveInput = match syn::parse2(item) {
        Ok(input) => input,
        Err(error) => return error.to_compile_error(),
    };
    let mut diagnostics = Diagnostics::default();
    let Some(layout) = parse(&input, &mut diagnostics) else {
        let companion = companion(origin, &input.vis, &input.ident, RecordKind::Error, "");
        let errors = diagnostics.into_tokens();
        return quote!(#companion #errors);
    };
    let inner: Vec<Path> = layout.fields.iter().filter_map(LayoutField::inner).cloned().collect();
    if inner.is_empty() {
        return implementation(origin, &input, &layout, &BTreeMap::new());
    }
    let krate = &layout.krate;
    let Origin { crate_name, file, line, column } = origin;
    chain::start(&inner, &quote!(#krate::__private::define), &quote!(#crate_name #file #line #column #input))
}

/// The end of the chain: all records are there.
pub(crate) fn define(input: TokenStream) -> TokenStream {
    let parsed = syn::parse2::<End>(input).and_then(|end| Ok((end.records, syn::parse2::<Declared>(end.payload)?)));
    let (records, Declared { origin, input }) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return error.to_compile_error(),
    };
    match parse(&input, &mut Diagnostics::default()) {
        Some(layout) => implementation(&origin, &input, &layout, &records),
        None => TokenStream::new(),
    }
}

/// The payload that the derive sends along the chain: the location of the struct, and the struct.
struct Declared {
    origin: Origin,
    input: DeriveInput,
}

impl Parse for Declared {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let crate_name = input.parse::<LitStr>()?.value();
        let file = input.parse::<LitStr>()?.value();
        let line = input.parse::<LitInt>()?.base10_parse()?;
        let column = input.parse::<LitInt>()?.base10_parse()?;
        Ok(Self { origin: Origin { crate_name, file, line, column }, input: input.parse()? })
    }
}

fn implementation(
    origin: &Origin,
    input: &DeriveInput,
    item: &LayoutItem,
    records: &BTreeMap<String, Record>,
) -> TokenStream {
    let mut diagnostics = Diagnostics::default();
    let Some(layout) = layout(origin, input, item, records, &mut diagnostics) else {
        let companion = companion(origin, &input.vis, &input.ident, RecordKind::Error, "");
        let errors = diagnostics.into_tokens();
        return quote!(#companion #errors);
    };
    let json = serde_json::to_string(&layout).unwrap_or_default();
    let companion = companion(origin, &input.vis, &input.ident, RecordKind::Layout, &json);
    let implementation = trait_impl(input, item, &json);
    quote!(#implementation #companion)
}

/// The struct's record; `None` where the record of a struct in it is missing or an error.
pub(crate) fn layout(
    origin: &Origin,
    input: &DeriveInput,
    item: &LayoutItem,
    records: &BTreeMap<String, Record>,
    diagnostics: &mut Diagnostics,
) -> Option<Layout> {
    let fields: Option<Vec<Field>> = item.fields.iter().map(|field| record_of(field, records, diagnostics)).collect();
    let layout = Layout { name: input.ident.unraw().to_string(), declared_at: origin.declared_at(), fields: fields? };
    let fields = count(&layout);
    if fields > MOST_FIELDS {
        let headline =
            format!("`{}` has {fields} fields including nested structs, over the limit of {MOST_FIELDS}", layout.name);
        let help = "hold structs of one type in a `Vec`, with `#[list(LENGTH)]`";
        diagnostics.push(Diagnostic::new("AMK0909", &input.ident, headline, help));
        return None;
    }
    Some(layout)
}

/// The fields of a layout and of those in it.
fn count(layout: &Layout) -> usize {
    let inner = layout.fields.iter().map(|field| match &field.kind {
        FieldKind::List { layout, .. } | FieldKind::Struct(layout) => count(layout),
        _ => 0,
    });
    inner.fold(layout.fields.len(), usize::saturating_add)
}

/// The field's record; `None` where the record of the struct in it is missing or an error.
fn record_of(field: &LayoutField, records: &BTreeMap<String, Record>, diagnostics: &mut Diagnostics) -> Option<Field> {
    let mut inner = |path: &Path| match records.get(&key(path)) {
        Some(Record::Layout(layout)) => Some(layout.clone()),
        Some(Record::Error) | None => None,
        Some(Record::Instruction(_) | Record::Input(_)) => {
            let headline = format!("`{}` is not a struct with `#[derive(WeightLayout)]`", key(path));
            diagnostics.push(Diagnostic::new(
                "AMK0908",
                path,
                headline,
                "derive `WeightLayout` for the field's struct",
            ));
            None
        }
    };
    let kind = match &field.kind {
        LayoutFieldKind::Weight { source, fallback, shape } => FieldKind::Weight {
            source: source.value(),
            fallback: fallback.as_ref().map(LitStr::value),
            shape: shape.clone(),
        },
        LayoutFieldKind::State(shape) => FieldKind::State { shape: shape.clone() },
        LayoutFieldKind::Table(shape) => FieldKind::Table { shape: shape.clone() },
        LayoutFieldKind::Param => FieldKind::Param,
        LayoutFieldKind::Dim(size) => FieldKind::Dim(size.clone()),
        LayoutFieldKind::Flag => FieldKind::Flag,
        LayoutFieldKind::List { length, element } => {
            FieldKind::List { layout: inner(element)?, length: length.clone() }
        }
        LayoutFieldKind::Layout(path) => FieldKind::Struct(inner(path)?),
    };
    Some(Field { name: field.name.unraw().to_string(), kind })
}

fn trait_impl(input: &DeriveInput, item: &LayoutItem, json: &str) -> TokenStream {
    let (name, krate) = (&input.ident, &item.krate);
    let names: Vec<_> = item.fields.iter().map(|field| &field.name).collect();
    // Where a field has another type than its attribute says, Rust points at the type.
    let at = |field: &LayoutField| Span::call_site().located_at(field.at);
    let builds = item.fields.iter().map(|field| build(field, at(field)));
    let visits = item.fields.iter().map(|field| visit(field, at(field)));
    quote! {
        impl #krate::layout::WeightLayout for #name {
            const LAYOUT: &'static str = #json;

            fn build(
                from: &mut #krate::layout::Builder<'_>,
            ) -> ::core::result::Result<Self, #krate::layout::BuildError> {
                ::core::result::Result::Ok(Self { #(#names: #builds),* })
            }

            fn visit<'a>(&'a self, visitor: &mut #krate::layout::Visitor<'_, 'a>) {
                #(#visits)*
            }
        }
    }
}

fn build(field: &LayoutField, at: Span) -> TokenStream {
    let name = field.name.unraw().to_string();
    let texts = |shape: &[Expr]| -> Vec<String> { shape.iter().map(ToString::to_string).collect() };
    match &field.kind {
        LayoutFieldKind::Weight { source, fallback, shape } => {
            let shape = texts(shape);
            let fallback = match fallback {
                Some(fallback) => quote!(::core::option::Option::Some(#fallback)),
                None => quote!(::core::option::Option::None),
            };
            quote_spanned!(at=> from.weight(#name, #source, #fallback, &[#(#shape),*])?)
        }
        LayoutFieldKind::State(shape) => {
            let shape = texts(shape);
            quote_spanned!(at=> from.state(#name, &[#(#shape),*])?)
        }
        LayoutFieldKind::Table(shape) => {
            let shape = texts(shape);
            quote_spanned!(at=> from.table(#name, &[#(#shape),*])?)
        }
        LayoutFieldKind::Param => quote_spanned!(at=> from.param(#name)?),
        LayoutFieldKind::Dim(size) => {
            let size = size.to_string();
            quote_spanned!(at=> from.dim(#name, #size)?)
        }
        LayoutFieldKind::Flag => quote_spanned!(at=> from.flag(#name)?),
        LayoutFieldKind::List { length, element } => {
            let length = length.to_string();
            quote_spanned!(at=> from.list(#name, #length, <#element>::build)?)
        }
        LayoutFieldKind::Layout(path) => quote_spanned!(at=> from.layout(#name, <#path>::build)?),
    }
}

fn visit(field: &LayoutField, at: Span) -> TokenStream {
    let (ident, name) = (&field.name, field.name.unraw().to_string());
    match &field.kind {
        LayoutFieldKind::Weight { .. } => quote_spanned!(at=> visitor.weight(#name, &self.#ident);),
        LayoutFieldKind::State(_) => quote_spanned!(at=> visitor.state(#name, &self.#ident);),
        LayoutFieldKind::Table(_) => quote_spanned!(at=> visitor.table(#name, &self.#ident);),
        LayoutFieldKind::Param => quote_spanned!(at=> visitor.param(#name, self.#ident);),
        LayoutFieldKind::Dim(_) => quote_spanned!(at=> visitor.dim(#name, self.#ident);),
        LayoutFieldKind::Flag => quote_spanned!(at=> visitor.flag(#name, self.#ident);),
        LayoutFieldKind::List { .. } => quote_spanned!(at=> visitor.list(#name, &self.#ident);),
        LayoutFieldKind::Layout(_) => quote_spanned!(at=> visitor.layout(#name, &self.#ident);),
    }
}

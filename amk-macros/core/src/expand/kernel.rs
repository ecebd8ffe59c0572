//! `#[megakernel]`: the unchanged function, and in a second stage, after a chain through the
//! records of all it names, its graph as a `static`.

use crate::chain::{self, End, Record, key};
use crate::check::check;
use crate::diag::{Diagnostic, Diagnostics};
use crate::expand::asked::{asked, not_builtin};
use crate::expand::strip::Strip;
use crate::lower::{LoweredFunction, lower};
use crate::parse::attribute::{crate_path, settings};
use crate::parse::callee::functions;
use crate::parse::function::{check_form, parameters};
use crate::parse::kernel::{KEYS, KernelAttribute, parse};
use proc_macro2::{Group, TokenStream};
use quote::{format_ident, quote};
use std::collections::{BTreeMap, HashSet};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::visit_mut::VisitMut;
use syn::{ItemFn, Path};

/// Emits the function, without the attributes that Rust does not know, and the chain to the second
/// stage.
pub(crate) fn first_stage(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let mut diagnostics = Diagnostics::default();
    let function: ItemFn = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            diagnostics.push(Diagnostic::syntax("AMK0901", &error, "put `#[megakernel(..)]` on a function"));
            let errors = diagnostics.into_tokens();
            return quote!(#item #errors);
        }
    };
    check_form(&function, "megakernel", &mut diagnostics);
    let types = parameters(&function, &mut diagnostics).unwrap_or_default();
    for parameter in &types {
        diagnostics.keep(not_builtin(parameter));
    }
    let mut types: Vec<Path> = types.into_iter().map(|parameter| parameter.ty.path.clone()).collect();
    let mut seen = HashSet::new();
    types.retain(|path| seen.insert(key(path)));
    let functions = functions(&function);
    let mut plain = function.clone();
    let mut strip = Strip::default();
    strip.visit_signature_mut(&mut plain.sig);
    strip.visit_block_mut(&mut plain.block);
    if !diagnostics.is_empty() {
        let errors = diagnostics.into_tokens();
        return quote!(#plain #errors);
    }
    // Only the path of the crate is needed here; the second stage reports other errors of the
    // attribute.
    let named = syn::parse2::<CrateArgument>(attribute.clone()).map(|argument| argument.0);
    let krate = named.unwrap_or_else(|_| syn::parse_quote!(::amk));
    let asked = asked(&types, &functions);
    let paths = [types, functions].concat();
    let chain = chain::start(&paths, &quote!(#krate::__private::stage2), &quote!([#attribute] #function));
    quote!(#plain #asked #chain)
}

/// The `crate = path` among the arguments, whatever the others are.
struct CrateArgument(Path);

impl Parse for CrateArgument {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let tokens: TokenStream = input.parse()?;
        let all = settings(tokens, &KEYS);
        let all = all.map_err(|_| input.error("not readable"))?;
        crate_path(&all).map(Self).map_err(|_| input.error("not a path"))
    }
}

/// The end of the chain: lowers, checks, and emits the graph.
pub(crate) fn second_stage(input: TokenStream) -> TokenStream {
    let parsed = syn::parse2::<End>(input).and_then(|end| Ok((end.records, syn::parse2::<Payload>(end.payload)?)));
    let (records, Payload { attribute, function }) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return error.to_compile_error(),
    };
    let mut diagnostics = Diagnostics::default();
    let Some(attribute) = parse(attribute, &function.sig.ident, &mut diagnostics) else {
        return diagnostics.into_tokens();
    };
    let lowered = lower(&function, &attribute, &records, &mut diagnostics);
    let known = records.values().all(|record| !matches!(record, Record::Error));
    match lowered {
        Some(mut lowered) if known => {
            check(&attribute, &mut lowered, &mut diagnostics);
            if diagnostics.is_empty() {
                emit(&function, &attribute, &lowered, &records)
            } else {
                diagnostics.into_tokens()
            }
        }
        _ => diagnostics.into_tokens(),
    }
}

/// The payload that the first stage sends along the chain: the attribute's arguments in brackets,
/// and the function.
struct Payload {
    attribute: TokenStream,
    function: ItemFn,
}

impl Parse for Payload {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let group: Group = input.parse()?;
        Ok(Self { attribute: group.stream(), function: input.parse()? })
    }
}

/// The graph as one string: tokens cost the compiler time, text does not.
fn emit(
    function: &ItemFn,
    attribute: &KernelAttribute,
    lowered: &LoweredFunction,
    records: &BTreeMap<String, Record>,
) -> TokenStream {
    let (krate, visibility) = (&attribute.krate, &function.vis);
    let name = function.sig.ident.unraw().to_string();
    let upper = format_ident!("{}", name.to_uppercase(), span = function.sig.ident.span());
    let json = serde_json::to_string(&lowered.graph).unwrap_or_default();
    let documentation = format!("The megakernel of [`{name}()`].");
    let constants = constants(attribute, lowered);
    let calls = calls(function, krate, records);
    let layouts = layouts(function, krate, records);
    quote! {
        #[doc = #documentation]
        #[allow(dead_code)]
        #visibility static #upper: #krate::Megakernel = #krate::Megakernel::new(#name, #json, &[#calls]);
        #constants
        #layouts
    }
}

/// The functions that Rust finds under the names of instructions: a function beside a glob import
/// hides the imported one, but not its companion.
fn calls(function: &ItemFn, krate: &Path, records: &BTreeMap<String, Record>) -> TokenStream {
    let calls = functions(function).into_iter().filter_map(|path| match records.get(&key(&path)) {
        Some(Record::Instruction(signature)) => {
            let name = &signature.path;
            Some(quote!((#name, || #krate::__private::type_of(&#path))))
        }
        _ => None,
    });
    quote!(#(#calls),*)
}

/// A struct beside a glob import hides the imported one, but not its companion: it has to be a
/// layout too.
fn layouts(function: &ItemFn, krate: &Path, records: &BTreeMap<String, Record>) -> TokenStream {
    let parameters = parameters(function, &mut Diagnostics::default()).unwrap_or_default();
    let types = parameters.iter().map(|parameter| &parameter.ty.path);
    let layouts = types.filter(|path| matches!(records.get(&key(path)), Some(Record::Layout(_))));
    let checks = layouts.map(|path| quote!(layout::<#path>();));
    quote! {
        const _: fn() = || {
            fn layout<T: #krate::WeightLayout>() {}
            #(#checks)*
        };
    }
}

/// The dims that the body uses are constants in the eager function: they must equal the instances'
/// values.
fn constants(attribute: &KernelAttribute, lowered: &LoweredFunction) -> TokenStream {
    let mut checks = TokenStream::new();
    for (name, constant) in &lowered.used_dims {
        for argument in &attribute.instances {
            let Some(value) = argument.instance.dims.get(name) else { continue };
            let value = *value as usize;
            let text = format!(
                "AMK0935: `{name}` is {value} in instance `{}`, but another number as a constant here\n\nhelp: \
                 give both the same value, or take the number from a layout: `w.layers.len()`",
                argument.name
            );
            let check =
                quote::quote_spanned!(constant.span()=> const _: () = ::core::assert!(#constant == #value, #text););
            checks.extend(check);
        }
    }
    checks
}

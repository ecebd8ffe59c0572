//! `#[instruction]`: the unchanged function, its companion, and its registration.

use crate::companion::{RecordKind, companion};
use crate::diag::{Diagnostic, Diagnostics};
use crate::origin::Origin;
use crate::parse::instruction::{Instruction, parse};
use amk_ir::Access;
use amk_ir::signature::{ParamKind, Signature, TensorClass};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};
use syn::ItemFn;
use syn::ext::IdentExt;

/// Expands the attribute. The function stays also where something is wrong, for whoever calls it.
pub(crate) fn expand(origin: &Origin, attribute: TokenStream, item: TokenStream) -> TokenStream {
    let function: ItemFn = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            let mut diagnostics = Diagnostics::default();
            diagnostics.push(Diagnostic::syntax("AMK0901", &error, "put `#[instruction(..)]` on a function"));
            let errors = diagnostics.into_tokens();
            return quote!(#item #errors);
        }
    };
    let mut diagnostics = Diagnostics::default();
    let parsed = parse(origin, attribute, &function, &mut diagnostics);
    let (kind, content, registration) = match &parsed {
        Some(instruction) => {
            let json = serde_json::to_string(&instruction.signature).unwrap_or_default();
            let registration = registration(instruction, &function.sig.ident, &json);
            (RecordKind::Instruction, json, registration)
        }
        None => (RecordKind::Error, String::new(), TokenStream::new()),
    };
    let companion = companion(origin, &function.vis, &function.sig.ident, kind, &content);
    let errors = diagnostics.into_tokens();
    quote!(#function #companion #registration #errors)
}

/// The entry of the registry, with the function that calls the instruction on a frame.
fn registration(instruction: &Instruction, function: &Ident, json: &str) -> TokenStream {
    let Instruction { signature, rows, cuda, krate } = instruction;
    let path = &signature.path;
    // No local name may be the instruction's own.
    let run = format_ident!("run_{}", function.unraw(), span = Span::call_site());
    let definition_of_one = definition(&run, signature, &quote!(#function), krate);
    let run_rows = format_ident!("run_rows_of_{}", function.unraw(), span = Span::call_site());
    let (rows, definition_of_rows) = match rows {
        Some(rows) => {
            (quote!(::core::option::Option::Some(#run_rows)), definition(&run_rows, signature, &quote!(#rows), krate))
        }
        None => (quote!(::core::option::Option::None), TokenStream::new()),
    };
    let cuda = match cuda {
        Some(file) => quote!(::core::option::Option::Some(::core::include_str!(#file))),
        None => quote!(::core::option::Option::None),
    };
    quote! {
        const _: () = {
            #definition_of_one
            #definition_of_rows
            #krate::__private::inventory::submit! {
                #krate::registry::Entry {
                    path: #path,
                    signature: #json,
                    function: || #krate::__private::type_of(&#function),
                    run: #run,
                    rows: #rows,
                    cuda: #cuda,
                }
            }
        };
    }
}

fn definition(run: &Ident, signature: &Signature, function: &TokenStream, krate: &syn::Path) -> TokenStream {
    let frame = Ident::new("frame", Span::mixed_site());
    let mut takes = Vec::new();
    let mut args = Vec::new();
    for (number, param) in signature.params.iter().enumerate() {
        let name = format_ident!("p{number}", span = Span::mixed_site());
        let (take, arg) = match &param.kind {
            ParamKind::Tensor { class, access, .. } => tensor(*class, *access, number, &frame, &name),
            ParamKind::Float => (quote!(let #name = #frame.float(#number);), quote!(#name)),
            ParamKind::Dim(_) => (quote!(let #name = #frame.dim(#number);), quote!(#name)),
            ParamKind::Pos => (quote!(let #name = #frame.pos();), quote!(#name)),
        };
        takes.push(take);
        args.push(arg);
    }
    let call = quote!(#function(#(#args),*));
    let names: Vec<Ident> =
        (0..signature.results.len()).map(|number| format_ident!("r{number}", span = Span::mixed_site())).collect();
    let numbers = 0..names.len();
    let body = match names.as_slice() {
        [] => quote!(#call;),
        [_] => quote!(#frame.result(0usize, #call);),
        _ => quote!(let (#(#names),*) = #call; #(#frame.result(#numbers, #names);)*),
    };
    quote! {
        fn #run(#frame: &mut #krate::registry::Frame<'_>) {
            #(#takes)*
            #body
        }
    }
}

fn tensor(
    class: TensorClass,
    access: Access,
    number: usize,
    frame: &Ident,
    name: &Ident,
) -> (TokenStream, TokenStream) {
    match class {
        TensorClass::Tensor => (quote!(let #name = #frame.tensor(#number);), quote!(&#name)),
        TensorClass::Weight => (quote!(let #name = #frame.weight(#number);), quote!(&#name)),
        TensorClass::State if access.writes() => {
            (quote!(let mut #name = #frame.state_mut(#number);), quote!(&mut #name))
        }
        TensorClass::State => (quote!(let #name = #frame.state(#number);), quote!(&#name)),
        TensorClass::Token => (quote!(let #name = #frame.token(#number);), quote!(#name)),
    }
}

//! Checks that every path named in a body has a companion. Without one, rustc only reports
//! `cannot find macro`, so each companion sets a constant and the expansion reports the ones that
//! stay unset.

use crate::chain::{key, macro_path};
use crate::diag::Diagnostic;
use crate::parse::callee::not_an_instruction;
use crate::parse::function::{Parameter, is_builtin};
use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::Path;
use syn::spanned::Spanned;

/// Asks the companions of parameters' types and of called functions.
pub(crate) fn asked(types: &[Path], functions: &[Path]) -> TokenStream {
    let types = types.iter().map(|path| (path, not_a_layout(path)));
    let functions = functions.iter().map(|path| (path, not_an_instruction(path)));
    let each = types.chain(functions).enumerate().map(|(number, (path, missing))| {
        let text = missing.message();
        let companion = macro_path(path);
        let span = path.segments.last().map_or_else(|| path.span(), |last| last.ident.span());
        let answer = quote_spanned!(span=> const _: () = ::core::assert!(Asked::<#number>::FOUND, #text););
        quote! {
            #companion ! { @amk1 { impl Asked<#number> { const FOUND: bool = true; } } }
            #answer
        }
    });
    quote! {
        const _: () = {
            #[allow(dead_code)]
            struct Asked<const N: usize>;
            #[allow(dead_code)]
            trait Unanswered {
                const FOUND: bool = false;
            }
            impl<const N: usize> Unanswered for Asked<N> {}
            #(#each)*
        };
    }
}

/// Refuses a parameter of a type of Rust itself, which has no companion to ask.
pub(crate) fn not_builtin(parameter: &Parameter<'_>) -> Result<(), Diagnostic> {
    let Some(ty) = parameter.ty.path.get_ident().map(ToString::to_string).filter(|ty| is_builtin(ty)) else {
        return Ok(());
    };
    let help = match ty.as_str() {
        "bool" => "make it a `#[flag]` of a struct with `#[derive(WeightLayout)]`",
        "f32" | "f64" => "make it a `#[param]` of a struct with `#[derive(WeightLayout)]`, an `f32`",
        "usize" => "make it a dim: declare it in `dims(..)`, or make it a `#[dim]` of a struct",
        _ => "use `Token`, `Pos`, `&Tensor`, or a reference to a struct with `#[derive(WeightLayout)]`",
    };
    let headline = format!("`{}` has the type `{ty}`, which a megakernel does not take", parameter.name);
    Err(Diagnostic::new("AMK0921", parameter.ty, headline, help))
}

fn not_a_layout(path: &Path) -> Diagnostic {
    let headline = format!("`{}` is not a type that a megakernel takes", key(path));
    let help = "give the struct `#[derive(WeightLayout)]`, or use `Token`, `Pos` or `&Tensor`";
    Diagnostic::new("AMK0921", path, headline, help)
}

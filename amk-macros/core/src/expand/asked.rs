//! Checks that every path named in a body has a companion. Without one, rustc only reports
//! `cannot find macro`, so each companion sets a constant and the expansion reports the ones that
//! stay unset.

use crate::chain::{key, macro_path};
use crate::diag::Diagnostic;
use crate::parse::callee::not_an_instruction;
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

fn not_a_layout(path: &Path) -> Diagnostic {
    let headline = format!("`{}` is not a type that a megakernel takes", key(path));
    let help = "give the struct `#[derive(WeightLayout)]`, or use `Token`, `Pos` or `&Tensor`";
    Diagnostic::new("AMK0921", path, headline, help)
}

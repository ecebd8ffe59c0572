//! Companions: the declarative macro with an item's name that passes the item's record along a
//! chain.

use crate::origin::Origin;
use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};
use syn::Visibility;
use syn::ext::IdentExt;

/// The kinds of items with a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RecordKind {
    /// A [`amk_ir::signature::Signature`].
    Instruction,
    /// A [`amk_ir::layout::Layout`].
    Layout,
    /// `Token`, `Pos` or `Tensor`.
    Input,
    /// An item whose own macro has reported errors: its users report nothing.
    Error,
}

impl RecordKind {
    /// The word in the protocol.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Instruction => "instruction",
            Self::Layout => "layout",
            Self::Input => "input",
            Self::Error => "error",
        }
    }

    /// The kind of a word of the protocol.
    pub(crate) fn of_word(word: &str) -> Option<Self> {
        [Self::Instruction, Self::Layout, Self::Input, Self::Error].into_iter().find(|kind| kind.word() == word)
    }
}

/// The companion of the item `name`: `content` is the record's JSON, one literal, because the cost
/// of a chain is its tokens.
pub(crate) fn companion(
    origin: &Origin,
    visibility: &Visibility,
    name: &Ident,
    kind: RecordKind,
    content: &str,
) -> TokenStream {
    let plain = name.unraw().to_string();
    let hidden = format_ident!("__amk_{plain}_{}", origin.unique(&plain), span = Span::call_site());
    let export = matches!(visibility, Visibility::Public(_)).then(|| quote!(#[macro_export]));
    let word = Ident::new(kind.word(), Span::call_site());
    let misuse =
        format!("`{plain}` is not a macro: it is declared for amk's macros to read\n\nhelp: write it without `!`");
    quote! {
        #[doc(hidden)]
        #[allow(unused_macros)]
        #export
        macro_rules! #hidden {
            (@amk1 $key:tt { $($done:tt)* } { $nkey:tt [$($np:tt)*] $($rest:tt)* } $payload:tt) => {
                $($np)* ! { @amk1 $nkey { $($done)* { $key #word #content } } { $($rest)* } $payload }
            };
            (@amk1 { $($found:tt)* }) => { $($found)* };
            ($($t:tt)*) => { ::core::compile_error! { #misuse } };
        }
        #[doc(hidden)]
        #[allow(unused_imports, unreachable_pub)]
        #visibility use #hidden as #name;
    }
}

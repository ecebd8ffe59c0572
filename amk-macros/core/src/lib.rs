//! The amk macros as an ordinary library: tokens in, tokens out, so that everything is tested
//! without a compiler.
//!
//! ```text
//! #[instruction]            parse/instruction ──► Signature ──► expand/instruction    fn + companion + registration
//! #[derive(WeightLayout)]   parse/layout ───────► Layout ─────► expand/layout         impl + companion
//! #[megakernel]             names of the body ──► chain of companions ──► stage 2:
//!                           parse/kernel, lower/* ──► Graph ──► check (shapes, lowering, verifier) ──► expand/kernel
//! ```
//!
//! # How one macro reads another's output
//!
//! A macro sees tokens, not types. So `#[instruction] fn linear` emits the function and a
//! *companion*: a declarative macro of the same name, in the macro namespace, that holds the
//! signature. Rust's own name resolution (`use`, `as`, globs, re-exports, other crates) carries
//! both. `#[megakernel]` calls the companions of all paths its body names, one after the other;
//! each adds its record, and the last calls the second stage, which has all records and the body:
//!
//! ```text
//! embed! { @amk1 "embed" {} { "linear" [linear] "$end" [::amk::__private::stage2] } { [attribute] fn decode(..) {..} } }
//! ```
//!
//! A path without a companion breaks the chain, and rustc only says that there is no such macro. So
//! each companion is also invoked on its own, `linear! { @amk1 { items } }`, and returns the items:
//! constants next to the chain show which ones did not.
//!
//! A record must not name anything itself, for it is read at the place of use. An item that depends
//! on other records (a layout with layouts in it) therefore runs the same chain where it is
//! declared, and its companion holds the result.

mod chain;
mod check;
mod companion;
mod diag;
mod expand;
mod lower;
mod names;
mod origin;
mod parse;

pub use origin::Origin;

use proc_macro2::TokenStream;

/// `#[instruction(..)]` on a function.
pub fn instruction(origin: &Origin, attribute: TokenStream, item: TokenStream) -> TokenStream {
    expand::instruction::expand(origin, attribute, item)
}

/// `#[derive(WeightLayout)]` on a struct.
pub fn weight_layout(origin: &Origin, item: TokenStream) -> TokenStream {
    expand::layout::derive(origin, item)
}

/// The end of the chain that `#[derive(WeightLayout)]` starts for a struct with structs in it.
pub fn define(input: TokenStream) -> TokenStream {
    expand::layout::define(input)
}

/// `#[megakernel(..)]` on a function.
pub fn megakernel(attribute: TokenStream, item: TokenStream) -> TokenStream {
    expand::kernel::first_stage(attribute, item)
}

/// The end of the chain that `#[megakernel]` starts: checks the function and emits its graph.
pub fn stage2(input: TokenStream) -> TokenStream {
    expand::kernel::second_stage(input)
}

//! The amk procedural macros. Use them through the `amk` crate, whose prelude has them.
//!
//! * [`macro@instruction`] makes a function an instruction.
//! * [`macro@WeightLayout`] names the tensors of a struct.
//! * [`macro@megakernel`] makes a function over both a graph, checks it, and emits it as a
//!   `static`.
//!
//! All that is wrong is a compile error with a code (`AMK0911`), at the user's tokens, ending in
//! one edit that mends it.

use amk_macros_core::Origin;
use proc_macro::{Span, TokenStream};

/// Where the item of the running macro is.
fn origin() -> Origin {
    let span = Span::call_site();
    Origin::of_package(&span.file(), span.line(), span.column())
}

/// Makes a function an instruction, the operation of a task.
///
/// The function does not change and is the reference: plain Rust, accumulating in f32. A task of
/// the instruction is a call of the function on sub-tensors, which the clauses define.
///
/// ```ignore
/// #[instruction(op = "linear",
///     shape = "x: [K], w: [N, K] -> y: [N]",
///     tile = "T = 16",
///     task = "n in 0..N step T: y[n..n+T] <- x[..], w[n..n+T, ..]",
///     cuda = "body.cuh")]
/// pub fn linear(x: &Tensor, w: &Weight) -> Tensor { .. }
/// ```
///
/// | argument | says |
/// |---|---|
/// | `op` | the micro-kernel's name |
/// | `shape` | operands `name: [extents]`, sizes `name: D` of `usize` parameters, results `-> y: [N]` or `-> (a: [N], b: [M])` |
/// | `tile` | sizes that a schedule may set, with defaults; several separated by commas |
/// | `task` | the grid `var in 0..extent step size` (none: one task), then what a task writes `<-` what it reads |
/// | `multiples` | `Q % D`: Q has to be a multiple of D |
/// | `cuda` | the CUDA body's file, beside this one |
/// | `rows` | `rows = "linear_rows"`: the function beside this one that computes several rows at once |
/// | `crate` | the path of the amk crate, where it is not `::amk` |
///
/// Parameters: `&Tensor`, `&Weight`, `&State`, `&mut State`, `Token`, `f32`, `usize`, `Pos`.
/// Results: `Tensor`, `Token`. An interval that depends on `pos` is passed whole; the body indexes
/// it by the position.
#[proc_macro_attribute]
pub fn instruction(attribute: TokenStream, item: TokenStream) -> TokenStream {
    amk_macros_core::instruction(&origin(), attribute.into(), item.into()).into()
}

/// Names the tensors of a struct of weights, states and settings.
///
/// | attribute of a field | the field is |
/// |---|---|
/// | `#[weight("name.{l}.weight", or = "other", [A, B])]` | a checkpoint's tensor; `{l}` is the index of the list around it |
/// | `#[state([A, B, C])]` | a tensor kept from step to step |
/// | `#[table([A / 2])]` | a tensor that the loader computes |
/// | `#[param]` | an `f32` of the configuration |
/// | `#[dim(A)]` | a `usize` that equals an expression over dims |
/// | `#[flag]` | a `bool` that decides what the graph has |
/// | `#[list(A)]` | a `Vec` of a struct with this derive |
/// | `#[layout]` | a struct with this derive |
///
/// `#[weight_layout(crate = path)]` on the struct names the amk crate, where it is not `::amk`.
#[proc_macro_derive(WeightLayout, attributes(weight, state, table, param, dim, flag, list, layout, weight_layout))]
pub fn weight_layout(item: TokenStream) -> TokenStream {
    amk_macros_core::weight_layout(&origin(), item.into()).into()
}

/// Makes a function a megakernel: `static DECODE: Megakernel` next to `fn decode`.
///
/// The function stays as it is: called directly it computes with CPU tensors. Its body may have
/// `let`, assignments, calls of instructions, `for` over `0..DIM` and over lists of layouts, `if`
/// on flags, blocks and tuples.
///
/// | argument | says |
/// |---|---|
/// | `dims(A, B)` | the names of the sizes |
/// | `where(A % B, C == A * B)` | what holds of them |
/// | `instances(tiny(A = 64, B = 8, w.tied = true, w.cap = 2.0, schedule(..)))` | values for which the program is made and verified here |
/// | `schedule(workers = 8, tile(linear = 16), queue = ticket, steps = pipelined, rows(most = 64, block = 16), assign = balanced, fusion = true, fuse(add = producer), splits = 4, run = 4, late = 32, split_k = 48, ring(..), exchange = packets, limits(..))` | how |
/// | `events(e[A / 32])` | event tensors for `#[signal(e[n / 2])]` and `#[wait(e[n] == 2)]` on statements |
/// | `inputs(x: [A])` | the shapes of `&Tensor` parameters |
/// | `crate = path` | the amk crate, where it is not `::amk` |
#[proc_macro_attribute]
pub fn megakernel(attribute: TokenStream, item: TokenStream) -> TokenStream {
    amk_macros_core::megakernel(attribute.into(), item.into()).into()
}

#[doc(hidden)]
#[proc_macro]
pub fn stage2(input: TokenStream) -> TokenStream {
    amk_macros_core::stage2(input.into()).into()
}

#[doc(hidden)]
#[proc_macro]
pub fn define(input: TokenStream) -> TokenStream {
    amk_macros_core::define(input.into()).into()
}

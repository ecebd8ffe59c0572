//! The text format `.amk`, and JSON.
//!
//! ```text
//! program @decode.tiny
//! positions 32                                        ; default 1
//! steps pipelined                                     ; default barrier
//! limits workers 8 local 232448 memory 1000000000     ; each part optional
//! dim HIDDEN = 64
//! instruction i0 "amk_kernels::linear" linear(x, w) -> (y)
//! instruction i1 "amk_kernels::kv_append" kv_append(x, mut cache) { pos }
//! op o0 "layers[0].wq: linear"
//! buffer b0 @x activation f32[64] packet 2 at 4096
//! event e0 @x_done[4]
//! task t0 o0: linear(b0[0..64], early b1[0..16, ..]) -> (b2[0..16]) wait e0[0] >= 4 signal e1 then ..
//! worker w0: t0 t2
//! ticket 4: t0 t1 t2                                  ; instead of the worker lines
//! ```
//!
//! The format is line oriented and `;` starts a comment. Entities are dense and in order. What a line names must be
//! declared above it where the reader needs it: instructions before the calls that name them, buffers before `..`
//! and event tensors before indices of two and more dimensions. Everything else, references to missing entities
//! included, is read as it stands and is for the verifier to judge, so that the format can hold every program:
//!
//! * an instruction may be called by its id (`i7(..)`), which the printer does where the name is missing or not unique;
//! * a write that is declared before a read stands among the reads, marked `out`;
//! * an event index of one number for a tensor of other than one dimension is the row-major index.
//!
//! `print(&parse(text)?)` is a fixed point of both, and `parse(&print(&program))` is the program again; NaN parameters
//! keep being NaN.

mod cursor;
mod error;
mod json;
mod parse;
mod print;

pub use error::{ParseCause, ParseError};
pub use json::{JSON_VERSION, JsonError};
pub use parse::{Lines, parse, parse_with_lines};
pub use print::print;

pub(crate) use print::{interval_text, kind_name, operands_text, task_text};

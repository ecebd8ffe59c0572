//! The text format `.amk` of programs and graphs, and JSON.
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
//! table r0 @topk b7 routes 4 distinct                 ; entries of b7 are below 4, and differ in each row
//! table r1 @indptr b8 splits 16                       ; entries of b8 go up from 0 to 16
//! event e0 @x_done[4]
//! task t0 o0: linear(b0[0..64], early b1[0..16, ..]) -> (b2[0..16]) wait e0[0] >= 4 signal e1 then ..
//! task t1: pack(b2[0, ..], b7[0, ..]) -> (b9[row r0[0, 1], ..]) signal e2[r0[0, 1]]
//! task t2: ffn(b9[rows r0[3], ..], b7[..]) -> (b10[rows r0[3], ..]) wait e0[0] >= 1, e2[3] >= count r0
//! worker w0: t0 t2
//! ticket 4: t0 t1 t2                                  ; instead of the worker lines
//! ```
//!
//! The format is line oriented and `;` starts a comment. Entities are dense and in order. A line's
//! names must be declared above it where the reader needs them: instructions before the calls that
//! name them, buffers before `..` and event tensors before indices of two and more dimensions.
//! Everything else, references to missing entities included, is read unchecked and left to the
//! verifier, so that the format can hold every program:
//!
//! * an instruction may be called by its id (`i7(..)`), which the printer does where the name is
//!   missing or not unique;
//! * a write that is declared before a read is listed among the reads, marked `out`;
//! * a table's choice replaces a tile's first interval, `b9[rows r0[3], ..]`, or else follows the
//!   tile, `b9[0..2, ..] by rows r0[3]`;
//! * a name that is not a plain word is quoted, with JSON's escapes: the printer escapes
//!   unprintable characters;
//! * an event index of one number for a tensor of other than one dimension is the row-major index.
//!
//! `print(&parse(text)?)` is a fixed point of both, and `parse(&print(&program))` is the program
//! again; NaN parameters keep being NaN.
//!
//! A text whose first line starts with `graph` is a graph; [`graph`] describes its lines.

mod cursor;
mod error;
pub mod graph;
mod json;
mod parse;
mod print;
mod shown;
mod table;

pub use error::{ParseCause, ParseError};
pub use graph::{GraphLines, is_graph, parse_graph, parse_graph_with_lines};
pub use json::{FormError, JSON_VERSION, JsonError, read_json};
pub use parse::{Lines, parse, parse_with_lines};
pub use print::print;
pub use shown::{OneLine, Shown};

pub(crate) use print::{index_text, interval_text, kind_name, operands_text, param_text, task_text};
pub(crate) use shown::clipped;

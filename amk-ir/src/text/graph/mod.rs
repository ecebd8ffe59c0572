//! The text of a graph.
//!
//! ```text
//! graph @decode
//! dims HIDDEN, LAYERS, FFN
//! where HIDDEN % 16 == 0
//! schedule(workers = 4, tile(linear = 16), fuse(add = producer))       ; default: schedule()
//! instance tiny(FFN = 96, HIDDEN = 64, LAYERS = 2, w.tied = true, w.eps = 1e-5)
//! event done[LAYERS]
//! layout w: Model at "src/model.rs:3" {
//!     layers: list[LAYERS] of Layer {
//!         up: weight[FFN, HIDDEN] "layers.{l}.up"
//!     }
//!     head: weight[HIDDEN, HIDDEN] "head" or "embed"
//!     freqs: table[HIDDEN / 2]
//!     eps: param
//!     width: dim HIDDEN
//!     tied: flag
//! }
//! instruction linear(x: tensor[K], w: weight[N, K]) -> (y: f32[N]) {
//!     from "amk_kernels::linear" at "src/linear/mod.rs:19" op linear cuda "body.cuh"
//!     tile T = 16
//!     task n in 0..N step T: y[n..n + T] <- x[..], w[n..n + T, ..]
//!     where N % 2 == 0
//! }
//! fn (x: tensor f32[HIDDEN], w: Model) {
//!     for l in 0..LAYERS {
//!         m: f32[FFN] = linear(x, w.layers[l].up) wait done[l] >= 4 signal done[l + 1]
//!         if w.tied {
//!             x = m
//!         } else {
//!             kv_append(kv.layers[l].k, x, pos) site 7
//!         }
//!     }
//!     return x
//! }
//! ```
//!
//! Line oriented like the text of a program, with the same names, quotes and comments. Instructions
//! precede the function that calls them; other lines before the function come in any order.
//!
//! * Where a call's results or a parameter name a value for the first time, they declare it. Its
//!   type may be left out after that, and where it is assigned a value of the same type. A name
//!   that is not a word or a word with a number, `x.2`, is quoted.
//! * A graph whose values are numbered otherwise declares them first, one a line, as in
//!   `value %3 x: f32[HIDDEN]`. There several may have one name, and `%3` refers to one of them.
//! * An argument is a value, a field (`w.layers[l].up`), a float, an integer over dims and loop
//!   indices (in parentheses where it begins with a value's name), or `pos`.
//! * Each call and assignment has a site, the number by which errors point to the source: one more
//!   than the line before, unless `site` sets it.
//! * In the `task` clause of an instruction written regions are left of the arrow and read regions
//!   right of it; an operand marked `mut` is on the left. Without the clause a call is one task on
//!   whole tensors.
//!
//! `graph.to_string()` is a fixed point of both, and reads back as the same graph; NaN keeps being
//! NaN.

mod instance;
mod layout;
mod names;
mod parse;
mod print;
mod signature;

pub use parse::{GraphLines, is_graph, parse_graph, parse_graph_with_lines};

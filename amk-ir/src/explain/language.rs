//! Pages of AMK09xx: constructs that the language lacks, and their replacements.

use super::Page;

/// The pages in order of their codes.
pub(super) const PAGES: &[Page] = &[
    Page {
        code: 901,
        title: "a function that a macro cannot take",
        text: r#"`#[instruction]` and `#[megakernel]` take plain functions: no type or const parameters
(lifetimes are fine), no `async`, `unsafe`, `extern` or variadics, no `self`. Sizes are
dims, not const generics: a shape clause or `dims(..)` names them, and one function
serves all values.

    #[instruction(op = "id", shape = "x: [N] -> y: [N]", task = "y[..] <- x[..]")]
    fn id<const N: usize>(x: &Tensor) -> Tensor { .. }      // AMK0901
    fn id(x: &Tensor) -> Tensor { .. }                      // accepted"#,
    },
    Page {
        code: 902,
        title: "an attribute's argument",
        text: r#"An argument is unknown, is given twice, is missing, or does not have its form. The
message names the legal ones. An `op` is a name without blanks.

    #[instruction(op = "id", shap = "x: [N] -> y: [N]")]    // AMK0902: did you mean `shape`?"#,
    },
    Page {
        code: 903,
        title: "a clause that cannot be read",
        text: r#"The clauses of `#[instruction]` are text in this form:

    shape     = "x: [K], w: [N, K], size: D -> y: [N]"      results of several: -> (a: [N], b: [M])
    tile      = "T = 16"
    task      = "n in 0..N step T: y[n..n+T] <- x[..], w[n..n+T, ..]"
    multiples = "Q % D, Q / D % G"

Sizes are expressions over names and numbers with `+ - * / /^ %`, where `/` rounds down
and `/^` up. A grid variable counts from 0 in steps. Written regions are left of `<-`,
read regions right of it; an interval is `lo..hi`, `..` or one index. A name has one
meaning in all clauses: `pos` is the position of the step, so no operand, dim, tile or
grid variable has that name, `in` and `step` are words, and a grid variable or a tile is
not named like a dim."#,
    },
    Page {
        code: 904,
        title: "clause and function disagree",
        text: r#"Every tensor parameter has a shape in the shape clause and a region in the task clause,
with one interval a dimension; every `usize` parameter is a size (`head_dim: D`); `f32`
and `Pos` parameters are not listed, and there is one `Pos` at most; every result is
listed after `->` and written left of `<-`; every tile is used in the task clause.
Parameters are `&Tensor`, `&Weight`, `&State`, `&mut State`, `Token`, `f32`, `usize`,
`Pos`; results are `Tensor` and `Token`."#,
    },
    Page {
        code: 905,
        title: "an instruction with a name that is taken",
        text: r#"An instruction has a companion macro of the same name, by which `#[megakernel]` finds
its signature. Called `concat` or `vec` it would hide the macro of that name in every
module that imports it. Two instructions of one crate are distinguished by name only,
whatever their modules: a kernel cannot call both `fast::scale` and `slow::scale`.
Choose another name."#,
    },
    Page {
        code: 906,
        title: "a name without a value in a clause",
        text: r#"Shapes may use the dims that appear alone as an extent of some operand or as a size: a
call binds them. The grid may also use tiles; regions also grid variables, and `pos`
where the function has a parameter `pos: Pos`.

    shape = "x: [N] -> y: [M]"                              // AMK0906: no operand determines M"#,
    },
    Page {
        code: 907,
        title: "a write through a shared reference",
        text: r#"A task writes the operands left of `<-`, and the function takes them by `&mut`; both or
neither.

    task = "cache[pos..pos+1, ..] <- x[..]"                 // wants: cache: &mut State"#,
    },
    Page {
        code: 908,
        title: "a field of a layout",
        text: r#"Every field of a struct with `#[derive(WeightLayout)]` has one attribute that declares
its kind:

    #[weight("name.{l}.weight", or = "other", [A, B])]      #[state([A, B])]      #[table([A / 2])]
    #[list(LAYERS)] on a Vec<Struct>      #[layout] on a struct      #[dim(A)]      #[param]      #[flag]

A `#[weight]` and a `#[table]` are a `Weight`, a `#[state]` is a `State`, a `#[dim]` a
`usize`, a `#[param]` an `f32` and a `#[flag]` a `bool`. `pos` is not a dim."#,
    },
    Page {
        code: 909,
        title: "a layout that is not a plain struct",
        text: r#"`#[derive(WeightLayout)]` takes a struct with named fields that owns its tensors, so
without parameters of any kind: its tensors go by the fields' names. It does not hold
itself. With the structs in it, it has 65536 fields at most."#,
    },
    Page {
        code: 910,
        title: "a statement that a graph does not have",
        text: r#"The body of a megakernel is the graph, so it has statements whose meaning does not
depend on values: `let`, assignments to variables, calls of instructions, `for` over
dims and layouts, `if` on flags, blocks. Not: `while`, `loop`, `match`, `return`,
`break`, items, macros, variables without a value, attributes such as `#[cfg]`, and
calls whose result is dropped although it is all that they write. At most 32 loops and
branches are within each other; an `else if` is within its `if`.

    while norm(&x) > 1.0 { .. }                             // AMK0910
    for l in 0..w.layers.len() { .. }                       // accepted"#,
    },
    Page {
        code: 911,
        title: "an expression that a graph does not have",
        text: r#"Values are results of instructions, fields of layouts, dims, numbers and the position.
The macro cannot see what a method, a macro, a closure or a cast does: write an
`#[instruction]`, or compute it in the loader and pass it as a `#[param]`. A function
that calls itself would be a graph without an end, and `?` a step that ends in the
middle.

    linear(&y.clone(), &w.down)                             // AMK0911: write `&y`
    let up = |x: &Tensor| linear(x, &w.up);                 // AMK0911: write its calls where it is called
    Some(linear(&y, &w.up))?                                // AMK0911: instructions do not fail"#,
    },
    Page {
        code: 912,
        title: "the head of a loop",
        text: r#"A loop runs over a range from 0 to a dim, or over a list of a layout:

    for l in 0..w.layers.len() { let lw = &w.layers[l]; .. }
    for lw in &w.layers { .. }
    for (l, (lw, cache)) in w.layers.iter().zip(&mut kv.layers).enumerate() { .. }

For another start compute with the index: `w.layers[l + 1]`. The function also runs by
itself, so for `0..LAYERS` it needs a constant `LAYERS` of the dim's value in its
scope; a field with `#[dim(LAYERS)]` or the length of a list needs none."#,
    },
    Page {
        code: 913,
        title: "lists of different lengths",
        text: r#"`.zip(..)` would stop at the shorter list, and which one that is depends on the dims.
Zip lists that have the same dim as length."#,
    },
    Page {
        code: 914,
        title: "a condition that is not a flag",
        text: r#"Which ops a graph has is decided when it is lowered, so a condition is a field with
`#[flag]`, or `!` of one. As a value an `if` needs an `else`. An instance sets flags:
`instances(tiny(HIDDEN = 64, w.tied = true))`."#,
    },
    Page {
        code: 915,
        title: "an unknown name",
        text: r#"The name is neither a variable of the function nor a declared dim. A macro sees names,
not the values of constants: what the body counts with is declared in `dims(..)`, and
each instance gives it a value. A number that is not an integer is written out or passed as
a `#[param]`."#,
    },
    Page {
        code: 916,
        title: "an unknown field",
        text: r#"The struct has no such field, or it is indexed where it is not a list. Fields are
reached by name: `w.layers[l].attn.q`."#,
    },
    Page {
        code: 917,
        title: "arithmetic",
        text: r#"Tensors are computed by instructions (`add(&a, &b)`), which declare what a task reads.
Sizes may be computed from dims and loop indices by `+ - * / %`. Numbers of the
configuration are computed by the loader and passed as a `#[param]`."#,
    },
    Page {
        code: 918,
        title: "an argument that no instruction takes",
        text: r#"Instructions take tensors, fields, numbers and the position, one by one; not structs,
lists or tuples."#,
    },
    Page {
        code: 919,
        title: "a pattern",
        text: r#"Values are bound by names and tuples: `let (q, k) = (..);`,
`for (l, lw) in w.layers.iter().enumerate()`."#,
    },
    Page {
        code: 921,
        title: "a parameter of a megakernel",
        text: r#"A megakernel takes `Token`, `Pos`, `&Tensor` and references to structs with
`#[derive(WeightLayout)]`. A step has one token and one position, so there is one
`Token` and one `Pos` at most. Numbers and flags are fields of a struct: `#[param]`,
`#[dim]`, `#[flag]`. An input tensor has its shape in the attribute:
`inputs(x: [HIDDEN])`."#,
    },
    Page {
        code: 922,
        title: "a result of a megakernel",
        text: r#"The function ends with the result of an op: a call, or a variable, or a tuple of them."#,
    },
    Page {
        code: 923,
        title: "a call of a function that is not an instruction",
        text: r#"`#[megakernel]` asks the companion macro of every function that the body calls for its
signature, and only `#[instruction]` makes one. Give the function `#[instruction(..)]`,
or write out what it does. rustc says besides, in its own words, that there is no such
macro:

    error: cannot find macro `relu` in this scope
      = note: `relu` is in scope, but it is a function, not a macro"#,
    },
    Page {
        code: 930,
        title: "dims",
        text: r#"`dims(..)` declares every size that the function and its layouts use, each once. `pos`
is the position of a step, so no dim has that name."#,
    },
    Page {
        code: 931,
        title: "an instance",
        text: r#"An instance gives every dim a positive value, each once, by a number or an expression
over dims before it; flags and floats by path; and what `where(..)` declares holds of
it.

    instances(tiny(HEADS = 4, HEAD_DIM = 8, HIDDEN = HEADS * HEAD_DIM, w.tied = true, w.eps = 1e-5,
        schedule(workers = 2)))"#,
    },
    Page {
        code: 932,
        title: "a schedule",
        text: r#"A schedule has these parts, all optional:

    schedule(workers = 8, tile(linear = 16, silu_mul = whole, add = per_worker), queue = static | ticket,
        steps = barrier | pipelined, assign = round_robin | balanced, fuse(silu_mul = producer, rms_norm = consumers),
        cache = f32 | bf16 | e4m3, fusion = true | false, splits = 132, run = 4,
        ring(slots = 6, in_flight = 2, pace = 205, lookahead = 0), exchange = packets | counters | barrier,
        limits(workers = 132, local = 232448, memory = 141_000_000_000))

`tile`, `queue = ticket`, `steps = barrier`, `assign = balanced`, `rows` and `fuse` are for the CPU VM.
`splits`, `run`, `ring` and an `exchange` other than `counters` are for GPUs. No VM runs a schedule
with both: give them to instances of their own."#,
    },
    Page {
        code: 933,
        title: "a declared fact",
        text: r#"`where(..)` has multiples, `Q % HEAD_DIM` (Q is a multiple of HEAD_DIM), and equalities
of a dim, `KV == KV_HEADS * HEAD_DIM`. Shapes are compared with them in hand, and every
instance has to meet them."#,
    },
    Page {
        code: 934,
        title: "events by hand",
        text: r#"`events(e[N / 32])` in the attribute declares an event tensor. On a statement that is
the call of an op, `#[signal(e[n / 2])]` makes each task signal an element when it is
done and `#[wait(e[n] == 2)]` makes each task wait for signals, in place of the waits
that would be derived. Coordinates are over the tile numbers of the op's grid
variables, loop indices and dims."#,
    },
    Page {
        code: 935,
        title: "a dim that is another constant in the function",
        text: r#"A function that counts to a dim (`0..LAYERS`) is also run eagerly, with the constant
`LAYERS` in its scope. An instance with another value would be another function. Give
both the same value, or take the number from a layout: `w.layers.len()`."#,
    },
];

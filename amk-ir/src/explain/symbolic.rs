//! Pages of AMK06xx: shapes for all dims, instances and schedules.

use super::Page;

/// The pages in order of their codes.
pub(super) const PAGES: &[Page] = &[
    Page {
        code: 601,
        title: "an extent that is another one",
        text: r#"An instruction's shape clause says which extents are equal, and they are compared for
all values of the dims: `HIDDEN` and `FFN` are different even if an instance gives them
the same number. What is always equal is declared: `where(KV == KV_HEADS * HEAD_DIM)`.

    linear(&h, &w.down)             // dimension 1 of `w` of `linear` is `FFN`, expected `HIDDEN`"#,
    },
    Page {
        code: 602,
        title: "a multiple that is not declared",
        text: r#"An instruction needs one extent to be a multiple of another, `multiples = "Q % D"`, and
what the kernel declares does not imply it. The note has dims for which it fails.
Declare it, `where(Q % HEAD_DIM)`, and every instance is checked against it."#,
    },
    Page {
        code: 603,
        title: "an argument of another kind",
        text: r#"A tensor is passed where a weight, a state, a size, a float, the token or the position
is expected, or the other way round, or a value is used before anything was assigned to
it."#,
    },
    Page {
        code: 604,
        title: "the number of arguments",
        text: r#"A call has as many arguments as the instruction has parameters."#,
    },
    Page {
        code: 605,
        title: "a variable whose shape changes",
        text: r#"A variable that is assigned again, as in a loop over layers, keeps its shape: the next
round reads it with the same instructions. The message points at the assignment; use
another variable for a value of another shape. The branches of an `if` give values of one
shape, too.

    y = linear(&y, &w.up);              // AMK0605: `y` was `[HIDDEN]`
    let up = linear(&y, &w.up);         // accepted"#,
    },
    Page {
        code: 606,
        title: "an expression over a name that has no value",
        text: r#"An extent, an index or an instance uses a name that is not a dim of the kernel. Dims
are declared in `dims(..)`."#,
    },
    Page {
        code: 607,
        title: "an instance that lacks a dim or breaks a declared fact",
        text: r#"An instance gives every dim a value, and what `where(..)` declares holds of the values."#,
    },
    Page {
        code: 608,
        title: "a tile that does not divide its extent",
        text: r#"A tile that the schedule sets divides every extent that its instruction cuts, in all of
its calls, so that all tiles are alike. For extents of 96 and 64 a tile of 48 is
refused, one of 32 or 16 is fine; `whole` takes all of an extent, `per_worker` about
one part a worker. Where an instruction has a step size, that size divides the extent."#,
    },
    Page {
        code: 609,
        title: "a hand-written event that cannot be followed",
        text: r#"`#[signal(e[..])]` and `#[wait(e[..] == n)]` name declared event tensors, with
coordinates over tile numbers, loop indices and dims."#,
    },
    Page {
        code: 610,
        title: "coordinates outside of an event tensor",
        text: r#"A hand-written event has one coordinate for each dimension of its tensor, inside the
extent, at every tile. The note names a tile where it is not."#,
    },
    Page {
        code: 611,
        title: "a schedule that does not fit the kernel",
        text: r#"A schedule names ops that the kernel calls, sets tiles of instructions whose `tile`
clause leaves them free, and has from 1 to 65536 workers."#,
    },
    Page {
        code: 612,
        title: "an extent that no buffer can have",
        text: r#"With the values of an instance every extent is positive and below 2^32, and no operand
has more than 4 dimensions."#,
    },
    Page {
        code: 613,
        title: "a fusion that would repeat work",
        text: r#"An op is fused into its consumers by repeating it in each of their tasks, so it has one
task itself, such as the norm of a vector. An element-wise op is fused into its
producer instead."#,
    },
    Page {
        code: 614,
        title: "an index outside of its list",
        text: r#"The index into a list of a layout is over loop indices and dims, and for every value
that it takes in an instance it is below the list's length: `w.layers[l + 1]` has no
layer in the last round of a loop over all of them."#,
    },
    Page {
        code: 615,
        title: "a result that is not a separate output",
        text: r#"Each result of a kernel is a value that an instruction of the step gives, once: a
buffer that the host reads afterwards. An input that is handed back, a value that is
returned twice, or one that has no value in an instance, is none.

    (token, logits)                 // AMK0615: the caller has the token
    (next, next, logits)            // AMK0615: return `next` once"#,
    },
    Page {
        code: 616,
        title: "a program that is too large",
        text: r#"A graph is small however large its dims are, but its program has a task for every tile
of every call of every round. How many there will be is counted before any is made, and
refused over these limits: 65536 calls and assignments of all rounds, 524288 calls of
all tasks, 256 calls in one task, 1048576 counters in `events(..)`, 2^25 pairs of tasks
whose tiles are compared, and 4096 names and operations in an extent.

    instances(deep(DEPTH = 3_000_000))                  // AMK0616 where a loop runs to `DEPTH`
    instances(wide(N = 2_000_000_000, schedule(tile(linear = 1))))

An instance in the attribute is for the checks: its loops may be short, whatever a model's are."#,
    },
    Page {
        code: 620,
        title: "tasks that do not write a result exactly once",
        text: r#"For all values of an instruction's dims that meet its `multiples`, the regions of its
tasks partition each result: no element is left out, none is written twice. The note
has dims for which that fails.

    task = "n in 0..N/16 step 1: y[16*n..16*n+16] <- x[..]"     // the last N % 16 elements stay unwritten

A `tile` cuts its last tile to fit: `n in 0..N step T: y[n..n+T]`. For a step that is a
dim, state that it divides: `multiples = "N % D"`."#,
    },
    Page {
        code: 621,
        title: "a task region outside of its operand",
        text: r#"For some dims that meet the instruction's `multiples` a task's region leaves the
operand. The note has the dims.

    shape = "x: [N] -> y: [N]", task = "n in 0..N step 1: y[n..n+1] <- x[n..n+2]"     // reads one past the end"#,
    },
];

//! Pages of AMK08xx: programs with rows.

use super::Page;

/// The pages in order of their codes.
pub(super) const PAGES: &[Page] = &[
    Page {
        code: 801,
        title: "a program that cannot have rows, or a call that cannot have its rows",
        text: r#"A program with `rows N` computes its function for 1 to N rows in a step. Each call says
behind its parameters which rows it is for, some of 0..N. Steps are `barrier`, as sequences
come and go between them; there are no tables. Packets do not move with the position, and only
row 0's order anything else, as other rows may be missing. States, and buffers whose
tiles move with the position, share their bytes with no other buffer.

    program @example
    rows 4
    instruction i0 "ops::fill" fill() -> (y)
    buffer b0 @y output f32[4, 8]
    task t0: fill() -> (b0[.., ..]) rows 0..5
    worker w0: t0"#,
    },
    Page {
        code: 802,
        title: "a tile that is not the tile of the call's rows",
        text: r#"Rows meet in states only. In a program with rows activations, inputs, outputs and locals
have the rows as their first dimension, and a call for rows 0..2 has the tiles 0..2 there
(of a local, which is its task's alone, all rows; all calls that use it are for the same). A
tile on a state is the union of what each row touches at its own position: an append of rows
0..2 is to `pos..pos+2`. A row writes a state at its own position alone, as other pages may be
shared with other sequences.

    program @example
    rows 4
    instruction i0 "ops::fill" fill() -> (y)
    buffer b0 @y output f32[4, 8]
    task t0: fill() -> (b0[.., ..]) rows 0..2
    worker w0: t0"#,
    },
    Page {
        code: 803,
        title: "what rows do to a state, in the wrong order",
        text: r#"A step means: the function for row 0, then for row 1, and so on. Its tasks run op by op
over all rows, which is the same as long as rows of a sequence touch an element of a state
in their order. Here row 1 reads what row 0 appends, and the read is listed first.

    program @example
    positions 16
    rows 2
    instruction i0 "ops::append" append(mut cache)
    instruction i1 "ops::attend" attend(cache) -> (y)
    buffer b0 @cache state f32[16, 8]
    buffer b1 @y output f32[2, 8]
    task t0: attend(b0[0..pos+1, ..]) -> (b1[.., ..]) rows 0..2
    task t1: append(mut b0[pos..pos+2, ..]) rows 0..2
    worker w0: t0 t1"#,
    },
    Page {
        code: 804,
        title: "something depends on rows that are not wanted",
        text: r#"A call marked `wanted` leaves out the rows whose outputs nobody wants. So it writes no
state, which later steps read, and what it writes is read by calls marked `wanted` alone.

    program @example
    rows 2
    instruction i0 "ops::fill" fill() -> (y)
    instruction i1 "ops::copy" copy(x) -> (y)
    buffer b0 @x activation f32[2, 8]
    buffer b1 @y output f32[2, 8]
    task t0: fill() -> (b0[.., ..]) rows 0..2 wanted
    task t1: copy(b0[.., ..]) -> (b1[.., ..]) rows 0..2
    worker w0: t0 t1"#,
    },
    Page {
        code: 805,
        title: "a tile that cuts a dimension in which others move",
        text: r#"Where tiles of a state move with the position, each bound in that dimension is `pos + N`,
0 or the extent, and a lower one may be `max(0, pos - N)`. Then a conflict of two rows depends only
on how far apart they are, and one sequence that starts anywhere stands for all.

    program @example
    positions 16
    rows 2
    instruction i0 "ops::append" append(mut cache)
    instruction i1 "ops::first" first(cache) -> (y)
    buffer b0 @cache state f32[16, 8]
    buffer b1 @y output f32[2, 8]
    task t0: append(mut b0[pos..pos+2, ..]) rows 0..2
    task t1: first(b0[0..4, ..]) -> (b1[.., ..]) rows 0..2
    worker w0: t0 t1"#,
    },
];

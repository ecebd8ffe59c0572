//! Pages of AMK063x: tables, and what depends on them.

use super::Page;

/// The pages in order of their codes.
pub(super) const PAGES: &[Page] = &[
    Page {
        code: 630,
        title: "a table that cannot be one",
        text: r#"A table holds numbers that a step computes and that select the rows, counters and
counts of later tasks. It is a separate activation: `routes N`, `[entries]` or
`[rows, entries]`, each below N, `distinct` where the entries of a row differ; or
`splits N`, `[groups + 1]`, going up from 0 to N. Each row is written whole, by one
task: then the VM checks that it meets its contract.

    program @partly
    instruction i0 "test::route" route() -> (topk)
    buffer b0 @topk activation u32[4, 2]
    table r0 @topk b0 routes 8 distinct
    task t0: route() -> (b0[.., 0..1])
    worker w0: t0

Write rows whole: `b0[.., ..]`, or `b0[0..2, ..]` in one task and `b0[2..4, ..]` in another."#,
    },
    Page {
        code: 631,
        title: "a tile on which its table cannot decide",
        text: r#"`row r0[1, 0]` is the row of an entry when entries are sorted by value, `rows r0[2]`
the rows of all entries equal to 2, and `r0[1, 0]` the one element that the entry
names, read only. The first dimension of the buffer has as many rows as the table
implies (entries of routes, the total of splits; for a picked element the values), and
no other operand cuts it elsewhere: an activation, an output, an input or a weight,
without packets and without a place.

    program @mixed
    instruction i0 "test::route" route() -> (topk, rows)
    instruction i1 "test::use" use(topk, rows, first)
    buffer b0 @topk activation u32[4]
    buffer b1 @rows activation f32[4]
    table r0 @topk b0 routes 2
    task t0: route() -> (b0[..], b1[..])
    task t1: use(b0[..], b1[rows r0[1]], b1[0..2])
    worker w0: t0 t1

Rows 0 and 1 may be of any value. Read all of them, `b1[..]`, or the rows of one value."#,
    },
    Page {
        code: 632,
        title: "signals other than the ones that a table counts",
        text: r#"`wait e0[2] >= count r0` waits for one signal of each entry equal to 2, however many
they are, none included. That holds for every routing if each entry signals once,
`signal e0[r0[1, 0]]`, and nothing else signals the event tensor. It has one counter
for each value.

    program @uncounted
    instruction i0 "test::route" route() -> (topk)
    instruction i1 "test::look" look(topk)
    buffer b0 @topk activation u32[2]
    table r0 @topk b0 routes 2
    event e0 @packed[2]
    task t0: route() -> (b0[..])
    task t1: look(b0[..]) signal e0[r0[0]]
    task t2: look(b0[..]) wait e0[1] >= count r0
    worker w0: t0 t1 t2

If entry 1 is 1, `t2` waits for its signal for ever. Let the task of entry 1 send it:
`signal e0[r0[1]]`."#,
    },
    Page {
        code: 633,
        title: "a task that depends on a table it does not read",
        text: r#"A task whose waits, signals or tiles depend on an entry has an operand that reads it;
for a count and for rows, the whole table. That read orders the task after the ones
that write the table, by waits that depend on no table: who waits for `e0[r0[3]]` must
know `r0[3]` before.

    program @blind
    instruction i0 "test::route" route() -> (topk)
    instruction i1 "test::look" look(topk)
    buffer b0 @topk activation u32[2]
    table r0 @topk b0 routes 2
    event e0 @packed[2]
    task t0: route() -> (b0[..])
    task t1: look(b0[0]) signal e0[r0[0]], e0[r0[1]]
    worker w0: t0 t1

Read the row that is signalled: `look(b0[..])`. The task that writes the table cannot
depend on it itself."#,
    },
    Page {
        code: 634,
        title: "a table in pipelined steps",
        text: r#"Counters are never reset, so a wait of a step adds what the steps before have
signalled. Where a table decides on that, it is known when those steps have ended:
programs with tables have `steps barrier`.

    program @ahead
    steps pipelined
    instruction i0 "test::route" route() -> (topk)
    buffer b0 @topk activation u32[2]
    table r0 @topk b0 routes 2
    task t0: route() -> (b0[..])
    worker w0: t0"#,
    },
];

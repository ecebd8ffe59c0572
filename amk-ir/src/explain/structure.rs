//! Pages of AMK01xx: what can be decided without any order of tasks.

use super::Page;

/// The pages in order of their codes.
pub(super) const PAGES: &[Page] = &[
    Page {
        code: 101,
        title: "a reference to something that does not exist",
        text: r#"A call names a buffer, an instruction or an op, a wait or a signal a counter, or a
queue a task, that the program does not declare. Ids count from 0 in the order of the
lines; `e0[4]` is the fifth counter of `e0`.

    program @example
    task t0: signal e0
    worker w0: t0"#,
    },
    Page {
        code: 102,
        title: "a call that does not fit its instruction",
        text: r#"A call has as many operands and parameters as its instruction declares, in that order,
and does with each operand what is declared: reads stand bare before the arrow, updates
are marked `mut`, writes stand behind the arrow.

    program @example
    instruction i0 "ops::copy" copy(x) -> (y)
    buffer b0 @x input f32[4]
    task t0: copy(b0[..])
    worker w0: t0"#,
    },
    Page {
        code: 103,
        title: "a shape that nothing can have",
        text: r#"Buffers have 1 to 4 dimensions. No extent of a buffer or an event tensor is zero, and a
program has at least one position.

    program @example
    buffer b0 @x activation f32[4, 0]"#,
    },
    Page {
        code: 104,
        title: "a tile outside of its buffer",
        text: r#"A tile has one interval for each dimension of its buffer and lies inside it, at every
position. With `positions 32` a bound `pos+1` is at most 32.

    program @example
    positions 32
    instruction i0 "ops::append" append(x, mut cache)
    buffer b0 @x input f32[8]
    buffer b1 @cache state f32[31, 8]
    task t0: append(b0[..], mut b1[pos, ..])
    worker w0: t0"#,
    },
    Page {
        code: 105,
        title: "a tile without elements, or whose bounds cross",
        text: r#"An interval never starts behind its end, and a tile has an element at some position. A
tile may be empty at some positions: `cache[0..pos]` has nothing at position 0.

    program @example
    instruction i0 "ops::fill" fill() -> (y)
    buffer b0 @y activation f32[8]
    task t0: fill() -> (b0[4..4])
    worker w0: t0"#,
    },
    Page {
        code: 106,
        title: "a write to what is read only",
        text: r#"Weights and inputs are never written in a launch. That is why they may be read before
any wait, as a prefetch. What a task writes is an `activation`, an `output` or a
`state`.

    program @example
    instruction i0 "ops::fill" fill() -> (y)
    buffer b0 @w weight f32[8]
    task t0: fill() -> (b0[..])
    worker w0: t0"#,
    },
    Page {
        code: 107,
        title: "a local buffer of two tasks",
        text: r#"A `local` buffer carries values between the calls of one fused task, in memory of the
worker that runs it. Another task, on another worker or later, finds nothing there.
Exchange values between tasks through an `activation`.

    program @example
    instruction i0 "ops::fill" fill() -> (y)
    buffer b0 @h local f32[8]
    task t0: fill() -> (b0[..])
    task t1: fill() -> (b0[..])
    worker w0: t0 t1"#,
    },
    Page {
        code: 108,
        title: "a task that is not queued exactly once",
        text: r#"Every task is in one queue, once: a task in no queue never runs, one in two runs twice
a step.

    program @example
    task t0:
    task t1:
    worker w0: t0"#,
    },
    Page {
        code: 109,
        title: "an output that is not written",
        text: r#"Every element of an `output` is written in each step, at every position, because the
host reads all of it afterwards.

    program @example
    instruction i0 "ops::fill" fill() -> (y)
    buffer b0 @logits output f32[8]
    task t0: fill() -> (b0[0..6])
    worker w0: t0"#,
    },
    Page {
        code: 110,
        title: "more than the target has",
        text: r#"With static queues every worker must be resident: a worker that waits for a free place
would never signal, and the others would wait for it. Tickets need one. The buffers of
a task that are `local` fit in the local memory of a worker, and all others in memory,
where buffers with places share.

    program @example
    limits workers 1
    task t0:
    worker w0: t0
    worker w1:"#,
    },
    Page {
        code: 111,
        title: "a counter that is named twice",
        text: r#"A task signals a counter at most once, so that the fan-in of a counter is the number of
tasks that signal it; and waits for it at most once, for the largest threshold.

    program @example
    task t0: signal e0, e0
    event e0 @done
    worker w0: t0"#,
    },
    Page {
        code: 112,
        title: "packets where there can be none",
        text: r#"A packet carries the epoch of its step, and reading it waits for that epoch. So only
data that is written and read within a step is exchanged by packets: an `activation` or
an `output`. A packet buffer has at least one slot.

    program @example
    buffer b0 @cache state f32[8] packet 1"#,
    },
    Page {
        code: 113,
        title: "more than the format can count",
        text: r#"Ids of tasks, buffers and counters have 32 bits, and offsets in memory stay below 2^60
bytes.

    program @example
    event e0 @done[65536, 65536]"#,
    },
    Page {
        code: 114,
        title: "a program that takes too long to check",
        text: r#"A check has a budget of work in proportion to the size of the program, so that it ends
within a second or so and never takes gigabytes. The message says what would exceed it,
and how to cut the program so that it does not.

    program @example
    positions 40000
    instruction i0 "ops::fill" fill() -> (y)
    instruction i1 "ops::use" use(x)
    buffer b0 @x activation f32[300, 50000] at 0
    buffer b1 @y activation f32[300, 50000] at 30000000
    task t0: fill() -> (b0[.., pos..pos+8])
    task t1: use(b0[.., pos..pos+8])
    task t2: fill() -> (b1[.., pos..pos+8])
    task t3: use(b1[.., pos..pos+8])
    worker w0: t0 t1 t2 t3"#,
    },
    Page {
        code: 115,
        title: "an early write",
        text: r#"`early` says that an operand may be read before the task's waits, as a prefetch. What a
call writes or updates it writes after them, so `early` stands at reads only.

    program @example
    instruction i0 "ops::fill" fill() -> (y)
    buffer b0 @y activation f32[8]
    task t0: fill() -> (early b0[..])
    worker w0: t0"#,
    },
    Page {
        code: 116,
        title: "a parameter that is not a finite number",
        text: r#"The floats that calls have as parameters are finite numbers of 32 bits. The text format
can express `inf` and `nan`, and reads a number beyond `3.4028235e38` as `inf`; a
program with one is refused.

    program @example
    instruction i0 "ops::fill" fill() -> (y) { value }
    buffer b0 @y activation f32[8]
    task t0: fill() -> (b0[..]) {1e39}
    worker w0: t0"#,
    },
];

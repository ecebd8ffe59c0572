//! Pages of AMK04xx and AMK05xx: shared bytes, and one step after the other.

use super::Page;

/// The pages in order of their codes.
pub(super) const PAGES: &[Page] = &[
    Page {
        code: 401,
        title: "a place that is not aligned",
        text: r#"The place of a buffer in the arena is a multiple of the size of its elements.

    program @example
    buffer b0 @x activation f32[8] at 6"#,
    },
    Page {
        code: 402,
        title: "bytes that must be kept are shared",
        text: r#"Outputs, states, weights and inputs have a meaning after the step, so at its end their
bytes hold what was last written to themselves. Two buffers that already have a meaning
before the step share none, and a packet buffer shares none with anybody: other words
could be mistaken for packets.

    program @example
    instruction i0 "ops::fill" fill() -> (y)
    buffer b0 @logits output f32[8] at 0
    buffer b1 @x activation f32[8] at 16
    task t0: fill() -> (b0[..])
    task t1: fill() -> (b1[..])
    worker w0: t0 t1"#,
    },
    Page {
        code: 403,
        title: "bytes that another buffer has overwritten",
        text: r#"Between the write of an element and its read, in eager order, another buffer with the
same bytes was written. The order of the tasks is proven, but the value is gone: the
lifetimes of the two buffers overlap.

    program @example
    instruction i0 "ops::fill" fill() -> (y)
    instruction i1 "ops::use" use(x)
    buffer b0 @x activation f32[8] at 0
    buffer b1 @y activation f32[8] at 0
    task t0: fill() -> (b0[..])
    task t1: fill() -> (b1[..])
    task t2: use(b0[..])
    worker w0: t0 t1 t2"#,
    },
    Page {
        code: 404,
        title: "bytes that are reused too early",
        text: r#"Two buffers share bytes, one is used after the other in eager order, but in some
execution the use of the second starts while the first is still in use. The order
between the last use of one and the first write of the other has to be proven like any
other.

    program @example
    instruction i0 "ops::fill" fill() -> (y)
    instruction i1 "ops::use" use(x)
    buffer b0 @x activation f32[8] at 0
    buffer b1 @y activation f32[8] at 0
    task t0: fill() -> (b0[..])
    task t1: use(b0[..])
    task t2: fill() -> (b1[..])
    worker w0: t0 t1
    worker w1: t2"#,
    },
    Page {
        code: 405,
        title: "a local buffer with a place",
        text: r#"A `local` buffer lies in the local memory of the worker that runs its task, not in the
arena.

    program @example
    buffer b0 @h local f32[8] at 0"#,
    },
    Page {
        code: 501,
        title: "a packet that is written twice in a step",
        text: r#"A word of a packet buffer carries the number of its step. After two writes in one step
a reader could not tell which it has found. Write each element once a step.

    program @example
    instruction i0 "ops::fill" fill() -> (y)
    buffer b0 @x activation f32[8] packet 1
    task t0: fill() -> (b0[..])
    task t1: fill() -> (b0[0..2])
    worker w0: t0 t1"#,
    },
    Page {
        code: 502,
        title: "a packet slot that is reused too early",
        text: r#"In step n a packet buffer with s slots uses slot n mod s. In step n + s a writer may
overwrite the slot while a reader of step n has not seen its word: the reader would
wait for an epoch that is gone. All readers of a step come before the writers of s
steps later.

    program @example
    steps pipelined
    instruction i0 "ops::fill" fill() -> (y)
    instruction i1 "ops::use" use(x)
    buffer b0 @x activation f32[8] packet 1
    task t0: fill() -> (b0[..])
    task t1: use(b0[..])
    worker w0: t0
    worker w1: t1

With `steps barrier`, or where the writer itself waits for something of the readers,
this cannot happen. One more slot gives one more step of distance, but no order by
itself."#,
    },
    Page {
        code: 503,
        title: "a race with the next step",
        text: r#"With `steps pipelined` a worker that has done its queue starts the next step at once.
(2), in a later step, touches what (1) still uses. Counters only count up, so a worker
that runs ahead can also make up for signals that others have not given yet.

    program @example
    steps pipelined
    instruction i0 "ops::fill" fill() -> (y)
    instruction i1 "ops::use" use(x)
    buffer b0 @x activation f32[8]
    event e0 @done
    task t0: fill() -> (b0[..]) signal e0
    task t1: use(b0[..]) wait e0 >= 1
    worker w0: t0
    worker w1: t1"#,
    },
    Page {
        code: 504,
        title: "more signals than 32 bits tell apart",
        text: r#"Counters have 32 bits, are never reset, and are compared by their wrapping difference.
That is right as long as two steps give a counter less than 2^31 signals, so a counter
takes less than 2^30 a step. With `steps pipelined` all steps of a launch count: signals
a step times `positions` stay below 2^31. After a launch that was aborted the host starts the next
one from a new base, above all that the old one can have counted."#,
    },
    Page {
        code: 505,
        title: "moving packets in pipelined tickets",
        text: r#"Which packets a task waits for depends on the position where their tiles move with it.
With tickets a task of a later step can overtake the same task of an earlier one, which
waits for others; no order within one step then determines the order of the next. Use
static queues, where a worker does not overtake itself, `steps barrier`, or tiles that
do not move.

    program @example
    positions 8
    steps pipelined
    instruction i0 "ops::fill" fill() -> (y)
    instruction i1 "ops::use" use(x)
    buffer b0 @x activation f32[8] packet 1
    task t0: fill() -> (b0[..])
    task t1: use(b0[pos])
    ticket 2: t0 t1"#,
    },
];

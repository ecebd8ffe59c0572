//! Pages of AMK02xx and AMK03xx: deadlocks and races.

use super::Page;

/// The pages in order of their codes.
pub(super) const PAGES: &[Page] = &[
    Page {
        code: 201,
        title: "a wait that can never hold, or always holds",
        text: r#"A task signals a counter once when it is done. A wait for more signals than there are
tasks that signal never holds; a wait for none always does. The threshold is in 1 to
the fan-in.

    program @example
    event e0 @done
    task t0: signal e0
    task t1: wait e0 >= 2
    worker w0: t0
    worker w1: t1"#,
    },
    Page {
        code: 202,
        title: "tasks that wait for each other",
        text: r#"Waits, packets and the order of queues together form a circle: each task in it waits
for another to finish. No wait alone is wrong, and often no queue reverses an edge: the
circle goes through several queues. The message shows the shortest one.

    program @example
    event e0 @a_done
    event e1 @c_done
    task t0: signal e0
    task t1: wait e0 >= 1 signal e1
    task t2: wait e1 >= 1
    worker w0: t2 t0
    worker w1: t1

Queues that keep the order of the tasks (t0, t1, ..), each on its own, never deadlock
if waits only refer to earlier tasks."#,
    },
    Page {
        code: 203,
        title: "a wait for a later ticket",
        text: r#"Workers draw tickets in order, and one resident worker must be enough: it cannot draw
the next ticket while the task it has waits. So what a task waits for stands before it
in the order of tickets.

    program @example
    event e0 @done
    task t0: signal e0
    task t1: wait e0 >= 1
    ticket 2: t1 t0"#,
    },
    Page {
        code: 204,
        title: "no workers",
        text: r#"There are tasks, and no worker to run them.

    program @example
    task t0:
    ticket 0: t0"#,
    },
    Page {
        code: 301,
        title: "a read of an element that has not been written",
        text: r#"Activations, outputs and locals are undefined at the start of a step, whatever an
earlier step left in them. In eager order (the order of the task lines) every element
is written before it is read. The message names elements that are not.

    program @example
    instruction i0 "ops::fill" fill() -> (y)
    instruction i1 "ops::use" use(x)
    buffer b0 @x activation f32[8]
    task t0: fill() -> (b0[0..6])
    task t1: use(b0[..])
    worker w0: t0 t1"#,
    },
    Page {
        code: 302,
        title: "a read that may come before the write",
        text: r#"(1) writes elements that (2) reads, and in some execution (2) starts before (1) has
finished. An order is proven by a chain of waits, packets and neighbours in queues. A
wait for some of a counter's signals proves nothing about a single one of them, unless
the order of the others is itself proven.

    program @example
    instruction i0 "ops::fill" fill() -> (y)
    instruction i1 "ops::use" use(x)
    buffer b0 @x activation f32[8]
    event e0 @done
    task t0: fill() -> (b0[0..4]) signal e0
    task t1: fill() -> (b0[4..8]) signal e0
    task t2: use(b0[..]) wait e0 >= 1
    worker w0: t0
    worker w1: t1
    worker w2: t2

Wait for all signals, `e0 >= 2`, or give each tile a separate counter."#,
    },
    Page {
        code: 303,
        title: "two writes in no order",
        text: r#"(1) and (2) write the same elements, and either may come last. In eager order it is
(2).

    program @example
    instruction i0 "ops::fill" fill() -> (y)
    buffer b0 @x activation f32[8]
    task t0: fill() -> (b0[0..5])
    task t1: fill() -> (b0[4..8])
    worker w0: t0
    worker w1: t1"#,
    },
    Page {
        code: 304,
        title: "a write that may come before the read",
        text: r#"(1) reads what (2) overwrites, and (2) may start while (1) still reads. That (1) waits
for the first value is not enough: the second write has to wait for (1).

    program @example
    instruction i0 "ops::use" use(x)
    instruction i1 "ops::fill" fill() -> (y)
    buffer b0 @x state f32[8]
    task t0: use(b0[..])
    task t1: fill() -> (b0[..])
    worker w0: t0
    worker w1: t1"#,
    },
    Page {
        code: 305,
        title: "an early read of an element that is written",
        text: r#"An operand marked `early` may be read at any time since the launch, before the waits of
its task: weights on a tape, a prefetch. So no task of the launch, in any step at any
position, writes an element of it.

    program @example
    positions 4
    instruction i0 "ops::append" append(x, mut cache)
    instruction i1 "ops::use" use(cache)
    buffer b0 @x input f32[8]
    buffer b1 @cache state f32[4, 8]
    task t0: append(b0[..], mut b1[pos, ..])
    task t1: use(early b1[0, ..])
    worker w0: t0 t1"#,
    },
    Page {
        code: 306,
        title: "a call that writes what it also uses",
        text: r#"Threads of a worker run one call together, so within a call reads and writes have no
order. An operand that is written overlaps no other operand of the call. What an
instruction changes in place is one operand, marked `mut`.

    program @example
    instruction i0 "ops::copy" copy(x) -> (y)
    buffer b0 @x state f32[8]
    task t0: copy(b0[0..5]) -> (b0[4..8])
    worker w0: t0"#,
    },
];

//! Pages of AMK07xx: a program and the functions that it calls.

use super::Page;

/// The pages in order of their codes.
pub(super) const PAGES: &[Page] = &[
    Page {
        code: 701,
        title: "an instruction that no linked crate has",
        text: r#"An instruction names its function by the path, `amk_kernels::linear`. The crate is
linked and registers no function of that path, or two of it; or, with
`amk check --strict`, the crate is not linked. Without `--strict` the calls of a crate
that is not linked are accepted as they are declared, and a note reports that they were
compared with no function."#,
    },
    Page {
        code: 702,
        title: "an instruction that is declared otherwise than its function",
        text: r#"An instruction has the operands, accesses and parameters of its function, by the same
names. The program was written for another version of it, or by hand.

    instruction i0 "amk_kernels::rms_norm" rms_norm(x) -> (y)     // the function is `rms_norm(x, w) -> (y) { eps }`"#,
    },
    Page {
        code: 703,
        title: "an operand or parameter that the function does not take",
        text: r#"A function takes tensors of the step, weights, states and tokens, each at its place:
buffers of kind `weight`, of kind `state`, of one `u32`, and others of `f32`. A
parameter is a float (`1.0`, not `1`), an unsigned integer or the position."#,
    },
    Page {
        code: 704,
        title: "tiles that do not meet the shape clause",
        text: r#"A task is a call of the function on its tiles, so their extents meet the shape clause
of the instruction. Arguments are whole where they move with the position; results have
the extents at the position.

    #[instruction(shape = "x: [N] -> y: [N]", ..)]
    copy(b0[0..4]) -> (b1[..])          // `b1` has 9999 elements: dimension 0 of `y` is `9999`, expected `4`"#,
    },
    Page {
        code: 705,
        title: "tiles that are not multiples",
        text: r#"The extents of a call's tiles meet the `multiples` of the instruction, at every
position.

    #[instruction(shape = "x: [N], head_dim: D -> y: [N]", multiples = "N % D", ..)]
    rope(b0[0..6]) -> (b1[0..6]) {4}    // `N` is `6`, no multiple of `D`"#,
    },
];

//! Programs against the functions that they call: differences are reported, with a code.

use amk::ir::callee::Unfit;
use amk::ir::text::parse;
use amk::prelude::*;
use amk::registry::{Linked, Registry};

/// `y = x`.
#[instruction(op = "copy", shape = "x: [N] -> y: [N]", task = "y[..] <- x[..]")]
fn copy(x: &Tensor) -> Tensor {
    x.clone()
}

/// Turns pairs.
#[instruction(
    op = "turn",
    shape = "x: [N], freqs: [R], head_dim: D -> y: [N]",
    multiples = "N % D",
    task = "h in 0..N step D: y[h..h+D] <- x[h..h+D], freqs[..]"
)]
fn turn(x: &Tensor, freqs: &Weight, head_dim: usize, scale: f32, pos: Pos) -> Tensor {
    let by = scale * head_dim as f32 * pos.index() as f32 + freqs.row(0).to_f32()[0];
    x.data().iter().map(|x| x * by).collect()
}

/// Writes a row of each head.
#[instruction(
    op = "append",
    shape = "cache: [G, C, D], x: [G * D]",
    task = "g in 0..G step 1: cache[g..g+1, pos..pos+1, ..] <- x[g*D..(g+1)*D]"
)]
fn append(cache: &mut State, x: &Tensor, pos: Pos) {
    cache.row_mut([0, pos.index()]).copy_from_slice(x.data());
}

/// The row of a token.
#[instruction(op = "pick", shape = "table: [V, K], token: [1] -> y: [K]", task = "y[..] <- table[.., ..], token[..]")]
fn pick(table: &Weight, token: Token) -> Tensor {
    table.row(token.index()).to_f32().iter().copied().collect()
}

/// `y = x` of a matrix.
#[instruction(op = "rows", shape = "x: [N, D], of: [T] -> y: [N, D]", task = "y[.., ..] <- x[.., ..], of[..]")]
fn rows(x: &Tensor, of: &Tensor) -> Tensor {
    assert!(!of.is_empty());
    x.clone()
}

const HEAD: &str = r#"
program @test
positions 8
instruction i0 "all::copy" copy(x) -> (y)
instruction i1 "all::turn" turn(x, freqs) -> (y) { head_dim, scale, pos }
instruction i2 "all::append" append(out cache, x) { pos }
instruction i3 "all::pick" pick(table, token) -> (y)
instruction i4 "all::rows" rows(x, of) -> (y)
buffer b0 @x activation f32[8]
buffer b1 @y activation f32[9999]
buffer b2 @freqs weight bf16[2]
buffer b3 @cache state f32[2, 8, 4]
buffer b4 @table weight f32[16, 8]
buffer b5 @token input u32[1]
buffer b6 @half activation f16[8]
buffer b7 @m activation f32[8, 8]
buffer b8 @route activation f32[8]
table r0 @route b8 routes 4
"#;

fn link(task: &str) -> Linked {
    let program = parse(&format!("{HEAD}task t0: {task}\nworker w0: t0\n")).unwrap_or_else(|error| panic!("{error}"));
    Registry::linked().unwrap().link(&program)
}

/// The report on a program with one task; empty when it fits.
fn report(task: &str) -> String {
    let program = parse(&format!("{HEAD}task t0: {task}\nworker w0: t0\n")).unwrap_or_else(|error| panic!("{error}"));
    let linked = Registry::linked().unwrap().link(&program);
    assert!(linked.missing.is_empty());
    let messages = linked.unfit.iter().map(|unfit| {
        let message = unfit.message(&program);
        assert_eq!(message.code, unfit.code());
        assert!(message.headline.chars().count() <= 90 && !message.help.is_empty(), "{message}");
        format!("{}: {}", message.code, message.headline)
    });
    messages.collect::<Vec<_>>().join("\n")
}

#[test]
fn calls_that_a_function_takes_fit() {
    for task in [
        "copy(b0[..]) -> (b1[0..8])",
        "copy(b0[2..4]) -> (b1[7..9])",
        "turn(b0[0..8], b2[..]) -> (b1[8..16]) {4, 1.0, pos}",
        "append(out b3[1, pos, ..], b0[0..4]) {pos}",
        "append(out b3[.., pos, ..], b0[..]) {pos}",
        "pick(b4[.., 2..4], b5[..]) -> (b0[0..2])",
        // An argument that moves is whole; a result of one row has one row.
        "copy(b0[0..pos+1]) -> (b1[0..8])",
        "rows(b7[pos, ..], b8[..]) -> (b7[.., ..])",
        "rows(b7[0, ..], b8[..]) -> (b7[pos, ..])",
        "rows(b7[rows r0[2], 0..3], b8[..]) -> (b7[rows r0[2], 4..7])",
        "rows(b7[row r0[2], ..], b8[..]) -> (b7[0, ..])",
    ] {
        assert_eq!(report(task), "", "{task}");
    }
}

#[test]
fn tiles_meet_the_shape_clause() {
    for (task, what) in [
        ("copy(b0[0..4]) -> (b1[..])", "AMK0704: dimension 0 of `y` of `copy` in `t0` is `9999`, expected `4`"),
        ("copy(b7[..,..]) -> (b1[0..64])", "AMK0704: `x` of `copy` in `t0` has 2 dimensions, expected 1"),
        ("copy(b0[..]) -> (b1[0..pos+1])", "AMK0704: dimension 0 of `y` of `copy` in `t0` is `pos + 1`, expected `8`"),
        (
            "append(out b3[.., pos, ..], b0[0..4]) {pos}",
            "AMK0704: dimension 0 of `x` of `append` in `t0` is `4`, expected `8`",
        ),
        (
            "turn(b0[0..6], b2[..]) -> (b1[0..6]) {4, 1.0, pos}",
            "AMK0705: `N` of `turn` in `t0` is `6`, no multiple of `D`",
        ),
        (
            "turn(b0[0..6], b2[..]) -> (b1[0..6]) {0, 1.0, pos}",
            "AMK0705: `N` of `turn` in `t0` is `6`, no multiple of `D`",
        ),
        (
            "rows(b7[rows r0[2], ..], b8[..]) -> (b7[rows r0[1], ..])",
            "AMK0704: dimension 0 of `y` of `rows` in `t0` is `rows r0[1]`, expected `rows r0[2]`",
        ),
    ] {
        assert_eq!(report(task), what, "{task}");
    }
}

#[test]
fn operands_and_parameters_are_of_the_kinds_that_a_function_takes() {
    for (task, what) in [
        ("copy(b2[..]) -> (b0[0..2])", "AMK0703: `x` of `copy` in `t0` is a weight, expected a tensor of this step"),
        (
            "copy(b6[..]) -> (b0[..])",
            "AMK0703: `x` of `copy` in `t0` has elements of `f16`, expected a tensor of this step",
        ),
        (
            "pick(b4[.., ..], b0[0]) -> (b0[..])",
            "AMK0703: `token` of `pick` in `t0` is a tensor of this step, expected a token",
        ),
        (
            "pick(b3[0, .., ..], b5[..]) -> (b0[0..4])",
            "AMK0703: `table` of `pick` in `t0` is a state, expected a weight",
        ),
        (
            "turn(b0[..], b2[..]) -> (b1[0..8]) {4, 1, pos}",
            "AMK0703: `scale` of `turn` in `t0` is an unsigned integer, expected a float",
        ),
        (
            "turn(b0[..], b2[..]) -> (b1[0..8]) {4.0, 1.0, pos}",
            "AMK0703: `head_dim` of `turn` in `t0` is a float, expected an unsigned integer",
        ),
        (
            "turn(b0[..], b2[..]) -> (b1[0..8]) {4, 1.0, 7}",
            "AMK0703: `pos` of `turn` in `t0` is an unsigned integer, expected the position",
        ),
    ] {
        assert_eq!(report(task), what, "{task}");
    }
}

#[test]
fn a_declaration_is_the_functions() {
    let text =
        "program @p\ninstruction i0 \"all::DECLARED\nbuffer b0 @x activation f32[8]\ntask t0: CALL\nworker w0: t0\n";
    for (declared, call) in [
        ("copy\" copy(x) -> (z)", "copy(b0[0..4]) -> (b0[4..8])"),
        ("copy\" copy(x, y)", "copy(b0[0..4], b0[4..8])"),
        ("copy\" copy(x, w) -> (y)", "copy(b0[0..4], b0[..]) -> (b0[4..8])"),
        ("copy\" copy(x) -> (y) { eps }", "copy(b0[0..4]) -> (b0[4..8]) {1.0}"),
        ("copy\" copy(mut x) -> (y)", "copy(mut b0[0..4]) -> (b0[4..8])"),
    ] {
        let program = parse(&text.replace("DECLARED", declared).replace("CALL", call)).unwrap();
        let linked = Registry::linked().unwrap().link(&program);
        let [unfit @ Unfit::Declaration { .. }] = linked.unfit.as_slice() else {
            panic!("{declared}: {:?}", linked.unfit)
        };
        let message = unfit.message(&program).to_string();
        assert!(
            message
                .starts_with("AMK0702: `copy` is declared otherwise than its function\nnote: the program has `copy("),
            "{message}"
        );
        assert!(message.contains("note: the function is `copy(x) -> (y)` at amk/tests/link.rs:"), "{message}");
    }
}

#[test]
fn a_function_that_is_not_there_is_missing_if_it_is_called() {
    let head = "program @p\ninstruction i0 \"all::gone\" gone()\ninstruction i1 \"far::off\" off()\n";
    let missing = |tasks: &str| {
        let linked = Registry::linked().unwrap().link(&parse(&format!("{head}{tasks}")).unwrap());
        linked.missing.iter().map(|error| error.to_string().split(';').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(missing("task t0:\n"), Vec::<String>::new());
    assert_eq!(
        missing("task t0: off() then gone()\ntask t1: off()\n"),
        ["instruction `far::off` is not linked into this program", "crate `all` registers no instruction `all::gone`"]
    );
}

#[test]
fn calls_that_are_unfit_in_the_same_way_are_told_once() {
    let linked =
        link("copy(b0[0..4]) -> (b1[0..5]) then copy(b0[4..8]) -> (b1[5..10]) then copy(b0[0..4]) -> (b1[0..6])");
    let alike: Vec<u32> = linked
        .unfit
        .iter()
        .filter_map(|unfit| match unfit {
            Unfit::Call { alike, .. } => Some(*alike),
            Unfit::Declaration { .. } => None,
        })
        .collect();
    assert_eq!(alike, [2, 1]);
}

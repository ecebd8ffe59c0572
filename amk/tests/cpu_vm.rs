//! The CPU VM on programs written by hand: exchange, memory, and what it says when something does
//! not fit.

use amk::ir::verify::verify;
use amk::prelude::*;
use amk::registry::{Output, Registry};
use amk::vm::Bindings;
use amk::vm::cpu::{Mode, Options, Step, Vm, VmError};
use core::time::Duration;

/// `y = 2 x`.
#[instruction(
    op = "double",
    shape = "x: [N] -> y: [N]",
    tile = "T = 1",
    task = "n in 0..N step T: y[n..n+T] <- x[n..n+T]"
)]
fn double(x: &Tensor) -> Tensor {
    x.data().iter().map(|x| 2.0 * x).collect()
}

/// `y = x + w`.
#[instruction(op = "shift", shape = "x: [N], w: [N] -> y: [N]", task = "y[..] <- x[..], w[..]")]
fn shift(x: &Tensor, w: &Weight) -> Tensor {
    x.data().iter().zip(&*w.row(0).to_f32()).map(|(x, w)| x + w).collect()
}

/// The token as a number, everywhere.
#[instruction(op = "spread", shape = "table: [N], token: [1] -> y: [N]", task = "y[..] <- table[..], token[..]")]
fn spread(table: &Weight, token: Token) -> Tensor {
    table.row(0).to_f32().iter().map(|x| x + token.0 as f32).collect()
}

/// Says that it writes one row, and writes the next.
#[instruction(op = "stray", shape = "s: [C, D], x: [D]", task = "s[pos..pos+1, ..] <- x[..]")]
fn stray(s: &mut State, x: &Tensor, pos: Pos) {
    s.row_mut([pos.index() + 1]).copy_from_slice(x.data());
}

/// Writes a row.
#[instruction(op = "keep", shape = "s: [C, D], x: [D]", task = "s[pos..pos+1, ..] <- x[..]")]
fn keep(s: &mut State, x: &Tensor, pos: Pos) {
    s.row_mut([pos.index()]).copy_from_slice(x.data());
}

/// Takes its time.
#[instruction(op = "slow", shape = "x: [N] -> y: [N]", task = "y[..] <- x[..]")]
fn slow(x: &Tensor) -> Tensor {
    std::thread::sleep(Duration::from_millis(300));
    x.clone()
}

/// Gives less than it says.
#[instruction(op = "short", shape = "x: [N] -> y: [N]", task = "y[..] <- x[..]")]
fn short(x: &Tensor) -> Tensor {
    Tensor::from(&x.data()[1..])
}

/// `y = -x` of a matrix.
#[instruction(op = "negate", shape = "x: [M, N] -> y: [M, N]", task = "y[.., ..] <- x[.., ..]")]
fn negate(x: &Tensor) -> Tensor {
    Tensor::new(x.shape(), x.data().iter().map(|x| -x).collect()).unwrap()
}

/// Numbers.
#[instruction(op = "fill", shape = "-> y: [1, 4]", task = "y[.., ..] <-")]
fn fill() -> Tensor {
    Tensor::new(&[1, 4], vec![1.0, 2.0, 3.0, 4.0]).unwrap()
}

/// The same of a row.
#[instruction(op = "fill_row", shape = "-> y: [4]", task = "y[..] <-")]
fn fill_row() -> Tensor {
    Tensor::from([1.0, 2.0, 3.0, 4.0])
}

/// Writes a row of a head.
#[instruction(op = "keep_of", shape = "s: [G, C, D], x: [D]", task = "s[.., pos..pos+1, ..] <- x[..]")]
fn keep_of(s: &mut State, x: &Tensor, pos: Pos) {
    s.row_mut([0, pos.index()]).copy_from_slice(x.data());
}

/// The token after a token.
#[instruction(op = "following", shape = "token: [1] -> next: [1]", task = "next[..] <- token[..]")]
fn following(token: Token) -> Token {
    Token(token.0 + 1)
}

/// Fails.
#[instruction(op = "fail", shape = "x: [N] -> y: [N]", task = "y[..] <- x[..]")]
fn fail(x: &Tensor) -> Tensor {
    panic!("no luck with {x:?}")
}

const HEAD: &str = r#"
program @test
positions 4
instruction i0 "all::double" double(x) -> (y)
instruction i1 "all::shift" shift(x, w) -> (y)
instruction i2 "all::spread" spread(table, token) -> (y)
instruction i3 "all::stray" stray(x) -> (s) { pos }
instruction i4 "all::keep" keep(x) -> (s) { pos }
instruction i5 "all::slow" slow(x) -> (y)
instruction i6 "all::short" short(x) -> (y)
instruction i7 "all::fail" fail(x) -> (y)
instruction i8 "all::negate" negate(x) -> (y)
instruction i9 "all::gone" gone(x) -> (y)
instruction i10 "all::following" following(token) -> (next)
instruction i11 "all::fill" fill() -> (y)
buffer b0 @token input u32[1]
buffer b1 @w weight f32[4]
"#;

/// The VM of a program: the lines after the head.
fn vm(lines: &str, mode: Mode, deadline: Duration) -> Result<Vm, VmError> {
    let program = amk::ir::text::parse(&format!("{HEAD}{lines}")).unwrap_or_else(|error| panic!("{error}"));
    let verified = verify(program).unwrap_or_else(|rejected| panic!("{rejected}"));
    let bindings = Bindings::new().weight("w", Weight::f32(&[4], vec![1.0, 2.0, 3.0, 4.0]).unwrap());
    Vm::with(verified, &bindings, &Registry::linked().unwrap(), Options { mode, deadline, ..Options::default() })
}

fn threads(lines: &str) -> Result<Vm, VmError> {
    vm(lines, Mode::Threads, Duration::from_secs(20))
}

fn step(token: u32, pos: u32) -> Step {
    Step { pos: Pos(pos), tokens: vec![Token(token)] }
}

fn tensor(outputs: &[Output]) -> &[f32] {
    match outputs {
        [Output::Tensor(tensor)] => tensor.data(),
        other => panic!("{other:?}"),
    }
}

const CHAIN: &str = r"
buffer b2 @x activation f32[4]
buffer b3 @y output f32[4]
event e0 @ready
task t0: spread(b1[..], b0[..]) -> (b2[..]) signal e0
task t1: CALL(b2[..]) -> (b3[..]) wait e0 >= 1
worker w0: t0
worker w1: t1
";

/// A task with `count` local buffers of 2^60 bytes.
fn large_locals(count: usize) -> String {
    let places: Vec<String> = (0..=count).map(|n| format!("b{}[0, 0..4]", n + 3)).collect();
    let calls = places.windows(2).map(|pair| format!(" then negate({}) -> ({})", pair[0], pair[1]));
    let locals = (0..count).map(|n| format!("buffer b{} @l{n} local f32[268435456, 1073741824]\n", n + 4));
    format!(
        "buffer b2 @x output f32[4]\nbuffer b3 @y activation f32[1, 4]\n{}task t0: spread(b1[..], b0[..]) -> (b2[..])\n\
         task t1: fill() -> (b3[.., ..]){}\nworker w0: t0 t1\n",
        locals.collect::<String>(),
        calls.collect::<String>(),
    )
}

#[test]
fn local_memory_beyond_the_address_space_is_refused() {
    let error = threads(&large_locals(15)).map(drop).unwrap_err();
    assert!(matches!(error, VmError::Memory { .. }), "{error}");
    let program = amk::ir::text::parse(&format!("{HEAD}{}", large_locals(16))).unwrap();
    let rejected = verify(program).map(drop).unwrap_err().to_string();
    assert!(rejected.contains("AMK0110"), "{rejected}");
}

#[test]
fn a_pool_of_pages_beyond_the_address_space_is_refused() {
    let text = r#"
program @pages
positions 1
rows 1
instruction i0 "all::keep_of" keep_of(x) -> (s) { pos }
instruction i1 "all::fill_row" fill_row() -> (y)
buffer b0 @s state f32[1073741824, 1, 268435456]
buffer b1 @x activation f32[1, 4]
buffer b2 @y output f32[1, 4]
task t0: fill_row() -> (b1[.., ..]) rows 0..1 then keep_of(b1[.., ..]) -> (b0[1000, pos, 0..4]) {pos} rows 0..1
task t1: fill_row() -> (b2[.., ..]) rows 0..1
worker w0: t0 t1
"#;
    let verified = verify(amk::ir::text::parse(text).unwrap()).unwrap_or_else(|rejected| panic!("{rejected}"));
    let vm = Vm::with(verified, &Bindings::new(), &Registry::linked().unwrap(), Options::default());
    let error = vm.map(drop).unwrap_err();
    assert!(matches!(error, VmError::Memory { .. }), "{error}");
}

#[test]
fn what_a_task_hands_on_in_bf16_is_rounded() {
    let lines = r"
buffer b2 @x activation bf16[4] packet 1
buffer b3 @y output f32[4]
task t0: spread(b1[..], b0[..]) -> (b2[..])
task t1: double(b2[0..4]) -> (b3[..])
worker w0: t0
worker w1: t1
";
    let mut vm = threads(lines).unwrap();
    // 258, 259, 260 and 261: from 256 on every second integer is a bf16, and of two equally near
    // ones the even is taken.
    assert_eq!(tensor(vm.run(vec![step(257, 0)]).unwrap()), [516.0, 520.0, 520.0, 520.0]);
}

#[test]
fn a_state_of_tokens_is_set_kept_and_read() {
    let lines = r"
buffer b2 @next state u32[3]
buffer b3 @y output f32[4]
task t0: following(b2[1]) -> (b2[2])
task t1: following(b2[2]) -> (b2[0])
task t2: spread(b1[..], b2[0]) -> (b3[..])
worker w0: t0 t1 t2
";
    let mut vm = threads(lines).unwrap();
    vm.set_tokens("next", &[0, 7, 0].map(Token)).unwrap();
    assert_eq!(tensor(vm.run(vec![step(0, 0)]).unwrap()), [10.0, 11.0, 12.0, 13.0]);
    assert_eq!(vm.tokens("next"), Some([9, 7, 8].map(Token).to_vec()));
    let error = vm.set_tokens("next", &[Token(1)]).unwrap_err().to_string();
    assert_eq!(error, "`next` has shape [3], but shape [1] is bound to it");
    let error = vm.set_tokens("y", &[Token(1)]).unwrap_err().to_string();
    assert_eq!(error, "the program keeps no tokens in a state `y`");
    assert_eq!(vm.tokens("w"), None);
}

#[test]
fn packets_in_two_slots_carry_each_step() {
    let lines = r"
buffer b2 @x activation f32[4] packet 2
buffer b3 @left activation f32[4] packet 2
buffer b4 @y output f32[4]
task t0: spread(b1[..], b0[..]) -> (b2[..])
task t1: double(b2[0..2]) -> (b3[0..2])
task t2: double(b2[2..4]) -> (b3[2..4])
task t3: double(b3[..]) -> (b4[..])
worker w0: t0 t1
worker w1: t2 t3
";
    for seed in 0..50 {
        for mode in [Mode::Shuffled { seed }, Mode::Delayed { seed }] {
            let mut vm = vm(lines, mode, Duration::from_secs(20)).unwrap();
            let outputs = vm.run((0..4).map(|n| step(10 * n, 0)).collect()).unwrap();
            assert_eq!(tensor(outputs), [124.0, 128.0, 132.0, 136.0], "{mode:?}");
            assert_eq!(tensor(vm.run(vec![step(1, 0)]).unwrap()), [8.0, 12.0, 16.0, 20.0], "{mode:?}");
        }
    }
}

#[test]
fn pipelined_steps_of_a_verified_program_keep_apart() {
    let lines = r"
steps pipelined
buffer b2 @x activation f32[4] packet 2
buffer b3 @y activation f32[4] packet 1
buffer b4 @z output f32[4]
buffer b5 @s state f32[4, 4]
task t0: spread(b1[..], b0[..]) -> (b2[..])
task t1: double(b2[..]) -> (b3[..])
task t2: double(b3[..]) -> (b4[..])
task t3: keep(b2[..]) -> (b5[pos, ..]) {pos}
worker w0: t0 t2
worker w1: t1 t3
";
    for seed in 0..50 {
        for mode in [Mode::Shuffled { seed }, Mode::Delayed { seed }] {
            let mut vm = vm(lines, mode, Duration::from_secs(20)).unwrap();
            let outputs = vm.run((0..4).map(|n| step(10 * n, n)).collect()).unwrap();
            assert_eq!(tensor(outputs), [124.0, 128.0, 132.0, 136.0], "{mode:?}");
            let state = vm.state("s").unwrap();
            assert_eq!((0..4).map(|n| state.row([n])[0]).collect::<Vec<_>>(), [1.0, 11.0, 21.0, 31.0], "{mode:?}");
        }
    }
}

#[test]
fn a_fused_task_passes_values_in_local_buffers() {
    let lines = r"
buffer b2 @h local f32[4]
buffer b3 @i local f32[4]
buffer b4 @y output f32[4]
task t0: spread(b1[..], b0[..]) -> (b2[..]) then double(b2[..]) -> (b3[..]) then shift(b3[0..2], b1[2..4]) -> (b4[0..2]) then shift(b3[2..4], b1[0..2]) -> (b4[2..4])
worker w0: t0
";
    let mut vm = threads(lines).unwrap();
    assert_eq!(tensor(vm.run(vec![step(1, 0)]).unwrap()), [7.0, 10.0, 9.0, 12.0]);
}

#[test]
fn placed_buffers_share_the_arena() {
    let lines = r"
buffer b2 @a activation f32[4] at 64
buffer b3 @b activation f32[4] at 0
buffer b4 @c activation f32[4] at 64
buffer b5 @y output f32[4]
task t0: spread(b1[..], b0[..]) -> (b2[..])
task t1: double(b2[..]) -> (b3[..])
task t2: double(b3[..]) -> (b4[..])
task t3: double(b4[..]) -> (b5[..])
worker w0: t0 t1 t2 t3
";
    assert_eq!(tensor(threads(lines).unwrap().run(vec![step(0, 0)]).unwrap()), [8.0, 16.0, 24.0, 32.0]);
}

#[test]
fn columns_of_a_matrix_are_gathered_and_scattered() {
    let lines = r"
buffer b2 @x input f32[2, 3]
buffer b3 @y output f32[2, 3]
task t0: negate(b2[.., 1..3]) -> (b3[.., 0..2])
task t1: negate(b2[.., 0]) -> (b3[.., 2])
worker w0: t0 t1
";
    let mut vm = threads(lines).unwrap();
    vm.set_input("x", &Tensor::new(&[2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap()).unwrap();
    assert_eq!(tensor(vm.run(vec![step(0, 0)]).unwrap()), [-2.0, -3.0, -1.0, -5.0, -6.0, -4.0]);
}

#[test]
fn states_are_kept_and_checked_row_by_row() {
    let lines = r"
buffer b2 @x activation f32[4]
buffer b3 @s state f32[4, 4]
buffer b4 @y output f32[4]
task t0: spread(b1[..], b0[..]) -> (b2[..])
task t1: CALL(b2[..]) -> (b3[pos, ..]) {pos}
task t2: double(b2[..]) -> (b4[..])
worker w0: t0 t1 t2
";
    let mut vm = threads(&lines.replace("CALL", "keep")).unwrap();
    vm.run(vec![step(0, 0), step(10, 2)]).unwrap();
    let state = vm.state("s").unwrap();
    assert_eq!(
        (state.row([0]), state.row([1]), state.row([2])),
        (&[1.0, 2.0, 3.0, 4.0][..], &[0.0; 4][..], &[11.0, 12.0, 13.0, 14.0][..])
    );
    let error = vm.run(vec![step(0, 4)]).unwrap_err();
    assert_eq!(error.to_string(), "position 4 is outside the program's 0..4");
    vm.run(vec![step(0, 3)]).unwrap();

    let error = threads(&lines.replace("CALL", "stray")).unwrap().run(vec![step(0, 0)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "w0 in t1 (stray): the instruction panicked: row [1]: index 1 of dimension 0 is outside 0..1"
    );
}

#[test]
fn a_wait_that_takes_too_long_says_who_waits_for_what() {
    let lines = r"
buffer b2 @x activation f32[4]
buffer b3 @y output f32[4]
buffer b4 @z activation f32[4]
event e0 @ready
task t0: spread(b1[..], b0[..]) -> (b2[..])
task t1: slow(b2[..]) -> (b3[..]) signal e0
task t2: double(b2[..]) -> (b4[..]) wait e0 >= 1
worker w0: t0 t1
worker w1: t2
";
    let error = vm(lines, Mode::Threads, Duration::from_millis(20)).unwrap().run(vec![step(0, 0)]).unwrap_err();
    let VmError::Stalled(stall) = &error else { panic!("{error}") };
    assert_eq!((stall.worker.0, stall.task.unwrap().0, stall.wanted, stall.found), (1, 2, 1, 0));
    assert!(
        error.to_string().starts_with("w1 with t2 (double) waited 0.0 s for event `ready` >= 1, found 0"),
        "{error}"
    );
}

#[test]
fn threads_wake_for_every_launch() {
    let mut vm = threads(&CHAIN.replace("CALL", "double")).unwrap();
    for n in 0..2000 {
        // Long enough for the threads to fall asleep.
        if n % 100 == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(tensor(vm.run(vec![step(n, 0)]).unwrap())[0], 2.0 * (1.0 + n as f32));
    }
}

#[test]
fn a_failure_is_named_and_ends_the_vm() {
    for (call, message) in [
        ("fail", "w1 in t1 (fail): the instruction panicked: no luck with Tensor(f32 [4])"),
        ("short", "w1 in t1 (short): result 0 should be [4], but is [3]"),
    ] {
        let mut vm = threads(&CHAIN.replace("CALL", call)).unwrap();
        assert_eq!(vm.run(vec![step(0, 0)]).unwrap_err().to_string(), message);
        assert_eq!(vm.run(vec![step(0, 0)]).unwrap_err(), VmError::Poisoned);
    }
}

#[test]
fn what_does_not_fit_is_refused_before_anything_runs() {
    let refused = |lines: &str| threads(lines).err().map(|error| error.to_string()).unwrap_or_default();
    assert_eq!(
        refused(&CHAIN.replace("CALL", "gone")).split(';').next().unwrap(),
        "crate `all` registers no instruction `all::gone`"
    );
    let weight = CHAIN.replace("CALL(b2[..])", "double(b1[..])");
    let kind =
        "AMK0703: `x` of `double` in `t1` is a weight, expected a tensor of this step\nnote: it is of buffer `w`\n";
    assert!(refused(&weight).starts_with(kind), "{}", refused(&weight));
    let halves = CHAIN.replace("CALL(b2[..])", "double(b2[0..2])");
    let shape =
        "AMK0704: dimension 0 of `y` of `double` in `t1` is `4`, expected `2`\nnote: `N` is `2` because of `x`\n";
    assert!(refused(&halves).starts_with(shape), "{}", refused(&halves));
    let unbound =
        CHAIN.replace("CALL(b2[..])", "shift(b2[..], b4[..])").replace("event", "buffer b4 @v weight f32[4]\nevent");
    assert_eq!(refused(&unbound), "nothing is bound to weight `v`; add the layout or the weight to the bindings");
    let mut vm = threads(&CHAIN.replace("CALL", "double")).unwrap();
    let none = vm.run(vec![Step { pos: Pos(0), tokens: vec![] }]).unwrap_err();
    assert_eq!(none, VmError::Tokens { expected: 1, found: 0 });
    assert_eq!(vm.step(Token(1), Pos(0)).unwrap().data(), [4.0, 6.0, 8.0, 10.0]);
}

#[test]
fn an_input_tensor_is_set_by_name() {
    let lines = r"
buffer b2 @x input f32[4]
buffer b3 @y output f32[4]
task t0: double(b2[..]) -> (b3[..])
worker w0: t0
";
    let mut vm = threads(lines).unwrap();
    vm.set_input("x", &Tensor::from([1.0, 2.0, 3.0, 4.0])).unwrap();
    assert_eq!(tensor(vm.run(vec![step(0, 0)]).unwrap()), [2.0, 4.0, 6.0, 8.0]);
    assert_eq!(vm.set_input("z", &Tensor::from([1.0])).unwrap_err().to_string(), "the program has no tensor input `z`");
    let misshaped = vm.set_input("x", &Tensor::from([1.0])).unwrap_err();
    assert_eq!(misshaped.to_string(), "`x` has shape [4], but shape [1] is bound to it");
}

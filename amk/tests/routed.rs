//! The CPU VM on a program whose edges depend on a table: a mixture of experts, for every routing.

use amk::ir::text::parse;
use amk::ir::verify::verify;
use amk::prelude::*;
use amk::registry::{Output, Registry};
use amk::vm::Bindings;
use amk::vm::cpu::{Breach, Mode, Options, Step, Vm, VmError};
use core::time::Duration;
use std::thread::sleep;

/// The experts of each token: here they are its first elements.
#[instruction(op = "route", shape = "x: [T, K] -> topk: [T, K]", task = "topk[.., ..] <- x[.., ..]")]
fn route(x: &Tensor) -> Tensor {
    x.clone()
}

/// A row for an expert.
#[instruction(
    op = "pack",
    shape = "x: [N, D], topk: [T, K] -> y: [N, D]",
    task = "y[.., ..] <- x[.., ..], topk[.., ..]"
)]
fn pack(x: &Tensor, topk: &Tensor) -> Tensor {
    assert_eq!(topk.shape(), [2, 2]);
    x.clone()
}

/// Rows times the expert's weights.
#[instruction(
    op = "expert",
    shape = "x: [N, D], topk: [T, K], w: [M, D] -> y: [N, D]",
    task = "y[.., ..] <- x[.., ..], topk[.., ..], w[.., ..]"
)]
fn expert(x: &Tensor, topk: &Tensor, w: &Weight) -> Tensor {
    assert_eq!((topk.len(), w.shape()[0]), (4, 1));
    let w = w.row(0).to_f32();
    Tensor::new(x.shape(), x.data().chunks(w.len()).flat_map(|row| times(row, &w)).collect()).unwrap()
}

/// The combination of two experts' results for a token, and the first's weight.
#[instruction(
    op = "combine",
    shape = "a: [N, D], b: [N, D], topk: [T, K], w: [N, D] -> y: [N, D]",
    task = "y[.., ..] <- a[.., ..], b[.., ..], topk[.., ..], w[.., ..]"
)]
fn combine(a: &Tensor, b: &Tensor, topk: &Tensor, w: &Weight) -> Tensor {
    assert_eq!(topk.len(), 4);
    let w = w.row(0).to_f32();
    let sums = a.data().iter().zip(b.data()).zip(w.iter()).map(|((a, b), w)| a + 2.0 * b + 3.0 * w);
    Tensor::new(a.shape(), sums.collect()).unwrap()
}

fn times(row: &[f32], w: &[f32]) -> Vec<f32> {
    row.iter().zip(w).map(|(x, w)| x * w).collect()
}

const PROGRAM: &str = r#"
program @moe
instruction i0 "all::route" route(x) -> (topk)
instruction i1 "all::pack" pack(x, topk) -> (y)
instruction i2 "all::expert" expert(x, topk, w) -> (y)
instruction i3 "all::combine" combine(a, b, topk, w) -> (y)
buffer b0 @x input f32[2, 3]
buffer b1 @topk activation f32[2, 2]
buffer b2 @packed activation f32[4, 3]
buffer b3 @w weight f32[3, 3]
buffer b4 @h activation f32[4, 3]
buffer b5 @out output f32[2, 3]
table r0 @topk b1 routes 3 distinct
event e0 @routed
event e1 @packed[3]
event e2 @done[3]
task t0: route(b0[.., 0..2]) -> (b1[.., ..]) signal e0
task t1: pack(b0[0, ..], b1[.., ..]) -> (b2[row r0[0, 0], ..]) then pack(b0[0, ..], b1[.., ..]) -> (b2[row r0[0, 1], ..]) wait e0 >= 1 signal e1[r0[0, 0]], e1[r0[0, 1]]
task t2: pack(b0[1, ..], b1[.., ..]) -> (b2[row r0[1, 0], ..]) then pack(b0[1, ..], b1[.., ..]) -> (b2[row r0[1, 1], ..]) wait e0 >= 1 signal e1[r0[1, 0]], e1[r0[1, 1]]
task t3: expert(b2[rows r0[0], ..], b1[.., ..], b3[0, ..]) -> (b4[rows r0[0], ..]) wait e0 >= 1, e1[0] >= count r0 signal e2[0]
task t4: expert(b2[rows r0[1], ..], b1[.., ..], b3[1, ..]) -> (b4[rows r0[1], ..]) wait e0 >= 1, e1[1] >= count r0 signal e2[1]
task t5: expert(b2[rows r0[2], ..], b1[.., ..], b3[2, ..]) -> (b4[rows r0[2], ..]) wait e0 >= 1, e1[2] >= count r0 signal e2[2]
task t6: combine(b4[row r0[0, 0], ..], b4[row r0[0, 1], ..], b1[.., ..], b3[r0[0, 0], ..]) -> (b5[0, ..]) wait e0 >= 1, e2[r0[0, 0]] >= 1, e2[r0[0, 1]] >= 1
task t7: combine(b4[row r0[1, 0], ..], b4[row r0[1, 1], ..], b1[.., ..], b3[r0[1, 0], ..]) -> (b5[1, ..]) wait e0 >= 1, e2[r0[1, 0]] >= 1, e2[r0[1, 1]] >= 1
"#;

const WEIGHTS: [[f32; 3]; 3] = [[1.0, 10.0, 100.0], [2.0, 20.0, 200.0], [3.0, 30.0, 300.0]];

fn vm(text: &str, queues: &str, mode: Mode) -> Vm {
    let program = parse(&format!("{text}{queues}")).unwrap_or_else(|error| panic!("{error}"));
    let verified = verify(program).unwrap_or_else(|rejected| panic!("{rejected}"));
    let bindings = Bindings::new().weight("w", Weight::f32(&[3, 3], WEIGHTS.concat()).unwrap());
    let options = Options { mode, deadline: Duration::from_secs(20), ..Options::default() };
    Vm::with(verified, &bindings, &Registry::linked().unwrap(), options).unwrap_or_else(|error| panic!("{error}"))
}

fn input(routes: [[f32; 2]; 2]) -> Tensor {
    Tensor::new(&[2, 3], routes.iter().flat_map(|row| [row[0], row[1], row[0] + 7.0 * row[1]]).collect()).unwrap()
}

/// The result when the tokens run one after the other.
fn expected(x: &Tensor) -> Vec<f32> {
    let token = |row: &[f32]| {
        let [first, second] = [row[0], row[1]].map(|expert| WEIGHTS[expert as usize]);
        let (a, b) = (times(row, &first), times(row, &second));
        (0..3).map(|n| a[n] + 2.0 * b[n] + 3.0 * first[n]).collect::<Vec<_>>()
    };
    x.data().chunks(3).flat_map(token).collect()
}

fn run(vm: &mut Vm, steps: usize) -> Result<Vec<f32>, VmError> {
    match vm.run(vec![Step { pos: Pos(0), tokens: Vec::new() }; steps])? {
        [Output::Tensor(tensor)] => Ok(tensor.data().to_vec()),
        other => panic!("{other:?}"),
    }
}

const QUEUES: [&str; 3] = [
    "worker w0: t0 t3 t7\nworker w1: t1 t4\nworker w2: t2 t5 t6\n",
    "worker w0: t0 t1 t2 t3 t4 t5 t6 t7\n",
    "ticket 3: t0 t1 t2 t3 t4 t5 t6 t7\n",
];

#[test]
fn every_routing_gives_what_the_tokens_get_one_by_one() {
    let rows: Vec<[f32; 2]> =
        (0..9).map(|n| [(n / 3) as f32, (n % 3) as f32]).filter(|[first, second]| first != second).collect();
    let mut routings = 0;
    for queues in QUEUES {
        for mode in [Mode::Threads, Mode::Shuffled { seed: 1 }, Mode::Shuffled { seed: 2 }, Mode::Delayed { seed: 3 }] {
            // One VM for all, so that counts of other routings are behind each.
            let mut vm = vm(PROGRAM, queues, mode);
            for &first in &rows {
                for &second in &rows {
                    let x = input([first, second]);
                    vm.set_input("x", &x).unwrap();
                    let steps = 1 + routings % 3;
                    assert_eq!(run(&mut vm, steps).unwrap(), expected(&x), "{first:?} {second:?} {mode:?} {queues}");
                    routings += 1;
                }
            }
        }
    }
    assert_eq!(routings, 36 * 12);
}

#[test]
fn a_table_that_breaks_its_contract_ends_the_step() {
    for (routes, row, column, value, breach, words) in [
        ([[0.0, 1.0], [2.0, 3.0]], 1, 1, 3.0, Breach::Range { values: 3 }, "which is not a whole number below 3"),
        ([[0.5, 1.0], [2.0, 1.0]], 0, 0, 0.5, Breach::Range { values: 3 }, "which is not a whole number below 3"),
        ([[-1.0, 1.0], [2.0, 1.0]], 0, 0, -1.0, Breach::Range { values: 3 }, "which is not a whole number below 3"),
        (
            [[0.0, 1.0], [2.0, 2.0]],
            1,
            1,
            2.0,
            Breach::Repeated,
            "which is in the row already; entries of a row are distinct",
        ),
    ] {
        for mode in [Mode::Threads, Mode::Shuffled { seed: 1 }] {
            let mut vm = vm(PROGRAM, QUEUES[0], mode);
            vm.set_input("x", &input(routes)).unwrap();
            let error = run(&mut vm, 1).unwrap_err();
            assert_eq!(error, VmError::Table { table: "topk".into(), row, column, value, breach });
            assert_eq!(error.to_string(), format!("table `topk`, row {row}, entry {column} is {value}, {words}"));
            assert_eq!(run(&mut vm, 1), Err(VmError::Poisoned));
        }
    }
    let mut vm = vm(PROGRAM, QUEUES[0], Mode::Threads);
    vm.set_input("x", &Tensor::new(&[2, 3], vec![0.0, f32::NAN, 0.0, 1.0, 2.0, 0.0]).unwrap()).unwrap();
    assert!(matches!(run(&mut vm, 1), Err(VmError::Table { row: 0, column: 1, .. })));
}

/// Where splits start: they stand in the input.
#[instruction(op = "split", shape = "x: [N] -> y: [N]", task = "y[..] <- x[..]")]
fn split(x: &Tensor) -> Tensor {
    x.clone()
}

/// Each row, and how many there are.
#[instruction(op = "tell", shape = "x: [N], splits: [M] -> y: [N]", task = "y[..] <- x[..], splits[..]")]
fn tell(x: &Tensor, splits: &Tensor) -> Tensor {
    assert_eq!(splits.len(), 4);
    x.data().iter().map(|value| value + 10.0 * x.len() as f32).collect()
}

const RAGGED: &str = r#"
program @ragged
instruction i0 "all::split" split(x) -> (y)
instruction i1 "all::tell" tell(x, splits) -> (y)
buffer b0 @indptr input f32[4]
buffer b1 @splits activation f32[4]
buffer b2 @x input f32[5]
buffer b3 @out output f32[5]
table r0 @splits b1 splits 5
event e0 @split
task t0: split(b0[..]) -> (b1[..]) signal e0
task t1: tell(b2[rows r0[0]], b1[..]) -> (b3[rows r0[0]]) wait e0 >= 1
task t2: tell(b2[rows r0[1]], b1[..]) -> (b3[rows r0[1]]) wait e0 >= 1
task t3: tell(b2[rows r0[2]], b1[..]) -> (b3[rows r0[2]]) wait e0 >= 1
worker w0: t0 t1
worker w1: t2 t3
"#;

#[test]
fn rows_between_splits() {
    let mut vm = vm(RAGGED, "", Mode::Threads);
    vm.set_input("x", &Tensor::from([0.0, 1.0, 2.0, 3.0, 4.0])).unwrap();
    for (splits, counts) in [([0, 2, 2, 5], [2, 2, 3, 3, 3]), ([0, 0, 0, 5], [5; 5]), ([0, 1, 4, 5], [1, 3, 3, 3, 1])] {
        vm.set_input("indptr", &Tensor::from(splits.map(|n| n as f32))).unwrap();
        let found = run(&mut vm, 2).unwrap();
        assert!(found.iter().zip(counts).enumerate().all(|(n, (found, count))| *found == (10 * count + n) as f32));
    }
}

#[test]
fn splits_start_at_zero_go_up_and_end_at_the_total() {
    for (splits, row, least, words) in [
        ([1.0, 2.0, 3.0, 5.0], 0, 0, "which is not a whole number from 0 to 5; splits start at 0 and go up"),
        ([0.0, 3.0, 2.0, 5.0], 2, 3, "which is not a whole number from 3 to 5; splits start at 0 and go up"),
        ([0.0, 3.0, 6.0, 5.0], 2, 3, "which is not a whole number from 3 to 5; splits start at 0 and go up"),
        ([0.0, 3.0, 4.0, 4.0], 3, 5, "which is not 5, where splits end"),
        ([0.0, 2.5, 4.0, 5.0], 1, 0, "which is not a whole number from 0 to 5; splits start at 0 and go up"),
    ] {
        let mut vm = vm(RAGGED, "", Mode::Threads);
        vm.set_input("x", &Tensor::from([0.0; 5])).unwrap();
        vm.set_input("indptr", &Tensor::from(splits)).unwrap();
        let error = run(&mut vm, 1).unwrap_err();
        let (table, value) = ("splits".into(), splits[row]);
        assert_eq!(error, VmError::Table { table, row, column: 0, value, breach: Breach::Order { least, total: 5 } });
        assert_eq!(error.to_string(), format!("table `splits`, row {row}, entry 0 is {value}, {words}"));
    }
}

/// The entry, twice, after a while.
#[instruction(op = "late", shape = "x: [N] -> (y: [N], z: [N])", task = "y[..], z[..] <- x[..]")]
fn late(x: &Tensor) -> (Tensor, Tensor) {
    sleep(Duration::from_millis(2));
    (x.clone(), x.clone())
}

/// The same, later.
#[instruction(op = "later", shape = "x: [N] -> y: [N]", task = "y[..] <- x[..]")]
fn later(x: &Tensor) -> Tensor {
    sleep(Duration::from_millis(6));
    x.clone()
}

/// Compares the plain value of the entry with the value that came as a packet.
#[instruction(op = "named", shape = "z: [N], entry: [N], x: [N] -> y: [N]", task = "y[..] <- z[..], entry[..], x[..]")]
fn named(z: &Tensor, entry: &Tensor, x: &Tensor) -> Tensor {
    assert_eq!(z.data(), entry.data());
    x.clone()
}

/// Only the packet of `t0` orders `t3` after the table that its wait depends on.
const BY_PACKET: &str = r#"
program @by_packet
instruction i0 "all::late" late(x) -> (y, z)
instruction i1 "all::split" split(x) -> (y)
instruction i2 "all::named" named(z, entry, x) -> (y)
instruction i3 "all::later" later(x) -> (y)
buffer b0 @entry input f32[1]
buffer b1 @table activation f32[1]
buffer b2 @passed activation f32[1] packet 1
buffer b3 @x input f32[2]
buffer b4 @made activation f32[2]
buffer b5 @out output f32[1]
table r0 @table b1 routes 2
event e0 @made[2]
task t0: late(b0[..]) -> (b1[..], b2[..])
task t1: split(b3[0]) -> (b4[0]) signal e0[0]
task t2: later(b3[1]) -> (b4[1]) signal e0[1]
task t3: named(b2[..], b1[..], b4[r0[0]]) -> (b5[..]) wait e0[r0[0]] >= 1
worker w0: t0
worker w1: t1
worker w2: t2
worker w3: t3
"#;

#[test]
fn packets_are_there_before_a_table_is_read_for_waits() {
    let mut vm = vm(BY_PACKET, "", Mode::Threads);
    for step in 0..6 {
        let entry = step % 2;
        vm.set_input("entry", &Tensor::from([entry as f32])).unwrap();
        vm.set_input("x", &Tensor::from([step as f32, 100.0 + step as f32])).unwrap();
        assert_eq!(run(&mut vm, 1).unwrap(), [(100 * entry + step) as f32]);
    }
}

//! A schedule decides how fast a kernel is, never what it computes: the CPU VM gives what the
//! function gives, by any.

use amk::ir::expr::Expr;
use amk::ir::graph::{Arg, CallNode, Graph, Node, Value};
use amk::ir::layout::{FieldPath, PathStep};
use amk::ir::lower::lower_with;
use amk::ir::schedule::{Assign, FuseInto, Fusion, QueuePolicy, Schedule, Tile};
use amk::ir::verify::{Verified, verify};
use amk::ir::{DType, ValueId};
use amk::layout::zeroed;
use amk::prelude::*;
use amk::registry::{Output, Registry};
use amk::vm::Bindings;
use amk::vm::cpu::{Mode, Options, Step, Vm};
use amk_kernels::{add, attention, kv_append};

/// `a = x + 1`, `b = x / 2`.
#[instruction(
    op = "split",
    shape = "x: [N] -> (a: [N], b: [N])",
    tile = "T = 2",
    task = "n in 0..N step T: a[n..n+T], b[n..n+T] <- x[n..n+T]"
)]
fn split(x: &Tensor) -> (Tensor, Tensor) {
    (x.data().iter().map(|x| x + 1.0).collect(), x.data().iter().map(|x| x * 0.5).collect())
}

/// `z = x + y / 2`.
#[instruction(
    op = "mix",
    shape = "x: [N], y: [N] -> z: [N]",
    tile = "T = 3",
    task = "n in 0..N step T: z[n..n+T] <- x[n..n+T], y[n..n+T]"
)]
fn mix(x: &Tensor, y: &Tensor) -> Tensor {
    x.data().iter().zip(y.data()).map(|(x, y)| x + 0.5 * y).collect()
}

/// `y = x`, last element first.
#[instruction(
    op = "turn",
    shape = "x: [N] -> y: [N]",
    tile = "T = 2",
    task = "n in 0..N step T: y[n..n+T] <- x[N-n-T..N-n]"
)]
fn turn(x: &Tensor) -> Tensor {
    x.data().iter().rev().copied().collect()
}

/// `y = x` in tiles that no schedule changes.
#[instruction(
    op = "pass",
    shape = "x: [N] -> y: [N]",
    task = "n in 0..N step 2: y[n..n+2] <- x[n..n+2]",
    multiples = "N % 2"
)]
fn pass(x: &Tensor) -> Tensor {
    x.clone()
}

/// `y = x / 2 + mean of x`.
#[instruction(op = "centre", shape = "x: [N] -> y: [N]", task = "y[..] <- x[..]")]
fn centre(x: &Tensor) -> Tensor {
    let mean = x.data().iter().sum::<f32>() / x.data().len() as f32;
    x.data().iter().map(|x| 0.5 * x + mean).collect()
}

/// `y = x + s`.
#[instruction(
    op = "peek",
    shape = "x: [N], s: [N] -> y: [N]",
    tile = "T = 4",
    task = "n in 0..N step T: y[n..n+T] <- x[n..n+T], s[n..n+T]"
)]
fn peek(x: &Tensor, s: &State) -> Tensor {
    x.data().iter().zip(s.row([])).map(|(x, s)| x + s).collect()
}

/// `y = x + mean of s`.
#[instruction(
    op = "survey",
    shape = "x: [N], s: [N] -> y: [N]",
    tile = "T = 4",
    task = "n in 0..N step T: y[n..n+T] <- x[n..n+T], s[..]"
)]
fn survey(x: &Tensor, s: &State) -> Tensor {
    let mean = s.row([]).iter().sum::<f32>() / s.row([]).len() as f32;
    x.data().iter().map(|x| x + mean).collect()
}

/// `s = x`.
#[instruction(op = "poke", shape = "s: [N], x: [N]", tile = "T = 4", task = "n in 0..N step T: s[n..n+T] <- x[n..n+T]")]
fn poke(s: &mut State, x: &Tensor) {
    s.row_mut([]).copy_from_slice(x.data());
}

/// `s = s / 2 + x`, `y = s`.
#[instruction(
    op = "bump",
    shape = "s: [N], x: [N] -> y: [N]",
    tile = "T = 2",
    task = "n in 0..N step T: s[n..n+T], y[n..n+T] <- s[n..n+T], x[n..n+T]"
)]
fn bump(s: &mut State, x: &Tensor) -> Tensor {
    let mut row = s.row_mut([]);
    row.iter_mut().zip(x.data()).for_each(|(s, x)| *s = 0.5 * *s + x);
    row.iter().copied().collect()
}

/// Two states.
#[derive(WeightLayout)]
struct States {
    #[state([N])]
    a: State,
    #[state([N])]
    b: State,
}

/// Every instruction, for their signatures: the random kernels are made of them.
#[expect(dead_code, reason = "its graph is used")]
#[megakernel(dims(N), where(N % 2), inputs(x: [N]), instances(small(N = 12)))]
fn every(x: &Tensor, s: &mut States) -> Tensor {
    let (a, b) = split(&centre(&turn(&pass(x))));
    poke(&mut s.a, &mix(&a, &b));
    survey(&peek(&bump(&mut s.b, x), &s.a), &s.b)
}

/// SplitMix64: small, and the same on every machine.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

/// The instructions with their numbers of tensors.
const INSTRUCTIONS: [(&str, usize); 9] = [
    ("split", 1),
    ("mix", 2),
    ("turn", 1),
    ("pass", 1),
    ("centre", 1),
    ("peek", 1),
    ("survey", 1),
    ("poke", 1),
    ("bump", 1),
];

/// A call of a random kernel, on values by number; 0 is the input.
struct Random {
    instruction: &'static str,
    tensors: Vec<usize>,
    second_state: bool,
}

/// A random kernel. Most values are read soon after they are made, and by one call.
fn random_kernel(draw: &mut Draw) -> Vec<Random> {
    let mut values = 1;
    let mut kernel = Vec::new();
    for _ in 0..4 + draw.below(8) {
        let (instruction, count) = draw.one_of(&INSTRUCTIONS);
        let tensors = (0..count).map(|_| values - 1 - draw.below(values.min(4))).collect();
        kernel.push(Random { instruction, tensors, second_state: draw.below(3) == 0 });
        values += results(instruction);
    }
    // The last value is the result, so there is one.
    kernel.push(Random { instruction: "mix", tensors: vec![values - 1, draw.below(values)], second_state: false });
    kernel
}

fn results(instruction: &str) -> usize {
    match instruction {
        "poke" => 0,
        "split" => 2,
        _ => 1,
    }
}

impl Random {
    /// Calls the instruction itself, as the annotated function does.
    fn call(&self, values: &mut Vec<Tensor>, states: &mut States) {
        let x = values[self.tensors[0]].clone();
        let state = if self.second_state { &mut states.b } else { &mut states.a };
        match self.instruction {
            "split" => values.extend(<[Tensor; 2]>::from(split(&x))),
            "mix" => values.push(mix(&x, &values[self.tensors[1]])),
            "turn" => values.push(turn(&x)),
            "pass" => values.push(pass(&x)),
            "centre" => values.push(centre(&x)),
            "peek" => values.push(peek(&x, state)),
            "survey" => values.push(survey(&x, state)),
            "bump" => values.push(bump(state, &x)),
            _ => poke(state, &x),
        }
    }

    fn node(&self, graph: &Graph, site: usize, next: usize) -> Node {
        let signature = graph.signatures.iter().position(|known| known.name == self.instruction).unwrap();
        let tensors = self.tensors.iter().map(|&value| Arg::Value(ValueId::from(value)));
        let field = if self.second_state { "b" } else { "a" };
        let steps = vec![PathStep { field: field.into(), index: None }];
        let state = Arg::Field(FieldPath { root: "s".into(), steps });
        let args = match self.instruction {
            "poke" | "bump" => std::iter::once(state).chain(tensors).collect(),
            "peek" | "survey" => tensors.chain([state]).collect(),
            _ => tensors.collect(),
        };
        let results = (next..next + results(self.instruction)).map(ValueId::from).collect();
        let (site, signature) = (site as u32, signature as u32);
        Node::Call(CallNode { site, signature, args, results, signals: Vec::new(), waits: Vec::new() })
    }
}

fn graph_of(kernel: &[Random]) -> Graph {
    let mut graph = EVERY.graph().unwrap().clone();
    graph.values.truncate(1);
    let mut body = Vec::new();
    for (site, random) in kernel.iter().enumerate() {
        let next = graph.values.len();
        body.push(random.node(&graph, site, next));
        let value = |number| Value { name: format!("v{number}"), dtype: DType::F32, shape: Vec::<Expr>::new() };
        graph.values.extend((next..next + results(random.instruction)).map(value));
    }
    graph.body = body;
    graph.results = vec![ValueId::from(graph.values.len() - 1)];
    assert_eq!(amk::ir::shapes::check(&mut graph), []);
    graph
}

fn random_schedule(draw: &mut Draw) -> Schedule {
    let mut schedule = Schedule { workers: 1 + draw.below(6) as u32, ..Schedule::default() };
    for (name, _) in INSTRUCTIONS {
        let into = draw.one_of(&[None, Some(FuseInto::Producer), Some(FuseInto::Producer), Some(FuseInto::Consumers)]);
        // A call in tiles of its own cannot be repeated whole.
        let into = into.filter(|into| name != "pass" || *into == FuseInto::Producer);
        schedule.fuse.extend(into.map(|into| Fusion { op: name.to_owned(), into }));
        let tile = draw.one_of(&[None, None, Some(Tile::Whole), Some(Tile::Size(3)), Some(Tile::Size(4))]);
        let tile = tile.filter(|_| !["pass", "centre"].contains(&name));
        schedule.tiles.extend(tile.map(|tile| (name.to_owned(), tile)));
    }
    schedule.queue = draw.one_of(&[QueuePolicy::Static, QueuePolicy::Static, QueuePolicy::Ticket]);
    schedule.assign = draw.one_of(&[Assign::RoundRobin, Assign::Balanced]);
    schedule
}

fn shuffled(verified: Verified, seed: u64) -> Vm {
    let options = Options { mode: Mode::Shuffled { seed }, ..Options::default() };
    Vm::with(verified, &Bindings::new(), &Registry::linked().unwrap(), options).unwrap()
}

fn first(outputs: &[Output]) -> &[f32] {
    match outputs.first() {
        Some(Output::Tensor(tensor)) => tensor.data(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn random_kernels_compute_the_same_by_random_schedules() {
    let x: Tensor = (0..12).map(|n| (n as f32 * 0.37).sin()).collect();
    let instance = EVERY.instance("small").unwrap();
    let mut fused = 0;
    for seed in 0..400 {
        let mut draw = Draw(seed);
        let kernel = random_kernel(&mut draw);
        let graph = graph_of(&kernel);
        let schedule = random_schedule(&mut draw);
        let program = lower_with(&graph, instance, &schedule).unwrap().program;
        fused += usize::from(program.ops.iter().any(|op| op.contains(" then ")));
        let text = amk::ir::text::print(&program);
        let verified = verify(program).unwrap_or_else(|rejected| panic!("{seed}: {schedule:?}\n{rejected}\n{text}"));
        let mut vm = shuffled(verified, seed);
        vm.set_input("x", &x).unwrap();
        let mut states: States = zeroed(&instance.dims).unwrap();
        for _ in 0..3 {
            let mut values = vec![x.clone()];
            kernel.iter().for_each(|call| call.call(&mut values, &mut states));
            let outputs = vm.run(vec![Step { pos: Pos(0), tokens: Vec::new() }]).unwrap();
            assert_eq!(first(outputs), values.last().unwrap().data(), "{seed}: {schedule:?}\n{text}");
        }
        for (name, state) in [("s.a", &states.a), ("s.b", &states.b)] {
            let found = vm.state(name).map(|state| state.to_vec());
            assert!(found.is_none_or(|found| found == state.to_vec()), "{seed}: {name} by {schedule:?}\n{text}");
        }
    }
    assert!(fused > 100, "calls are fused in {fused} programs");
}

/// A cache.
#[derive(WeightLayout)]
struct Cache {
    #[state([G, C, D])]
    k: State,
}

#[megakernel(
    dims(G, C, D),
    inputs(x: [G * D]),
    instances(tiny(G = 2, C = 8, D = 4)),
    schedule(workers = 2, fuse(add = producer))
)]
fn attend_before_append(x: &Tensor, c: &mut Cache, pos: Pos) -> Tensor {
    let a = attention(x, &c.k, &c.k, 1.0, pos);
    kv_append(&mut c.k, x, pos);
    add(&a, x)
}

#[test]
fn a_call_is_not_fused_past_one_that_writes_what_it_reads() {
    let instance = ATTEND_BEFORE_APPEND.instance("tiny").unwrap();
    let x: Tensor = (0..8).map(|n| n as f32).collect();
    let mut cache: Cache = zeroed(&instance.dims).unwrap();
    for seed in 0..20 {
        let mut vm = shuffled(ATTEND_BEFORE_APPEND.verified(instance, None).unwrap(), seed);
        vm.set_input("x", &x).unwrap();
        cache.k.row_mut([0, 0]).fill(0.0);
        cache.k.row_mut([1, 0]).fill(0.0);
        assert_eq!(vm.step(Token(0), Pos(0)).unwrap().data(), attend_before_append(&x, &mut cache, Pos(0)).data());
    }
}

#[megakernel(
    dims(N),
    inputs(x: [N]),
    instances(tiny(N = 12)),
    schedule(workers = 2, fuse(mix = producer))
)]
fn halves(x: &Tensor) -> Tensor {
    let (a, b) = split(x);
    let c = turn(&b);
    mix(&a, &c)
}

#[test]
fn a_call_is_fused_with_those_producers_alone_that_have_its_tiles() {
    let verified = HALVES.verified(HALVES.instance("tiny").unwrap(), None).unwrap();
    assert!(verified.program().ops.iter().any(|op| op.contains("turn(b) then")), "{:?}", verified.program().ops);
    let x: Tensor = (0..12).map(|n| n as f32).collect();
    let mut vm = shuffled(verified, 1);
    vm.set_input("x", &x).unwrap();
    assert_eq!(vm.step(Token(0), Pos(0)).unwrap().data(), halves(&x).data());
}

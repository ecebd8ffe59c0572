//! Speed of the verifier: small programs a second, and growth with the number of tasks.
//!
//! `cargo bench -p amk-ir --bench verify`, or with `-- PROGRAM.amk ..` for programs of one's own.
//! One thread; the best of several runs.

use amk_ir::verify::{Verifier, check};
use amk_ir::{
    Access, Buffer, BufferId, BufferKind, Call, DType, Element, EventId, EventTensor, Exchange, Instruction,
    InstructionId, Interval, Limits, Operand, OperandSpec, Program, Queues, Region, Steps, Task, TaskId, Wait,
};
use std::time::{Duration, Instant};

/// A decoder-like program: each layer has phases of tiles, each tile reads all of the phase before
/// and its weights.
struct Shape {
    layers: u32,
    /// Tiles of each phase.
    phases: Vec<u32>,
    workers: usize,
    exchange: Exchange,
    steps: Steps,
    tickets: bool,
}

fn program(shape: &Shape) -> Program {
    let operands = [("x", Access::Read), ("w", Access::Read), ("y", Access::Write)];
    let operands = operands.map(|(name, access)| OperandSpec { name: name.into(), access });
    let mut p = Program {
        name: "bench".into(),
        positions: 1,
        steps: shape.steps,
        limits: Limits::default(),
        instructions: vec![Instruction {
            name: "linear".into(),
            path: "bench::linear".into(),
            operands: operands.into(),
            params: vec![],
        }],
        ..Program::default()
    };
    const ROWS: u32 = 16;
    let buffer = |name: String, kind, rows, exchange| Buffer {
        name,
        kind,
        dtype: DType::F32,
        shape: vec![rows],
        exchange,
        place: None,
    };
    p.buffers.push(buffer("token".into(), BufferKind::Input, ROWS, Exchange::Counter));
    let mut queues = vec![Vec::new(); shape.workers];
    let mut source = (BufferId(0), ROWS, None::<(EventId, u32)>);
    for (n, &tiles) in (0..shape.layers).flat_map(|_| &shape.phases).enumerate() {
        let weight = BufferId::from(p.buffers.len());
        p.buffers.push(buffer(format!("w{n}"), BufferKind::Weight, tiles * ROWS, Exchange::Counter));
        let to = BufferId::from(p.buffers.len());
        p.buffers.push(buffer(format!("x{n}"), BufferKind::Activation, tiles * ROWS, shape.exchange));
        let event = EventId::from(p.events.len());
        let counted = shape.exchange == Exchange::Counter;
        if counted {
            p.events.push(EventTensor { name: format!("done{n}"), shape: vec![] });
        }
        for tile in 0..tiles {
            let region = |lo, hi| Region::new(&[Interval::fixed(lo, hi)]).unwrap_or(Region::full(&[]));
            let (lo, hi) = (tile * ROWS, tile * ROWS + ROWS);
            let operand = |buffer, region, access, early| Operand { buffer, region, access, early, routed: None };
            let operands = vec![
                operand(source.0, region(0, source.1), Access::Read, false),
                operand(weight, region(lo, hi), Access::Read, true),
                operand(to, region(lo, hi), Access::Write, false),
            ];
            let on = |event| Element { event, index: 0 };
            let id = TaskId::from(p.tasks.len());
            p.tasks.push(Task {
                op: None,
                calls: vec![Call { instruction: InstructionId(0), operands, params: vec![], rows: None }],
                waits: source.2.iter().map(|&(event, threshold)| Wait { on: on(event), threshold }).collect(),
                signals: if counted { vec![on(event)] } else { vec![] },
                ..Task::default()
            });
            queues[tile as usize % shape.workers].push(id);
        }
        source = (to, tiles * ROWS, counted.then_some((event, tiles)));
    }
    p.queues = match shape.tickets {
        true => Queues::Ticket { workers: shape.workers as u32, order: (0..p.tasks.len()).map(TaskId::from).collect() },
        false => Queues::Static(queues),
    };
    p
}

fn best(mut run: impl FnMut()) -> Duration {
    let budget = Instant::now();
    let mut best = Duration::MAX;
    while budget.elapsed() < Duration::from_millis(1500) || best == Duration::MAX {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed());
    }
    best
}

fn report(name: &str, program: &Program) {
    let mut count = 0;
    let time = best(|| count = check(program).len());
    let per_task = time.as_nanos() / program.tasks.len().max(1) as u128;
    println!("{name}: {} tasks, {time:.1?}, {per_task} ns a task, {count} violations", program.tasks.len());
}

fn main() {
    let files: Vec<String> = std::env::args().skip(1).filter(|arg| arg.ends_with(".amk")).collect();
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{file}: {error}"));
        report(file, &amk_ir::text::parse(&text).unwrap_or_else(|error| panic!("{file}:{error}")));
    }
    if files.is_empty() {
        synthetic();
    }
}

fn synthetic() {
    let counter = Exchange::Counter;
    let barrier = |layers, phases: &[u32], workers| Shape {
        layers,
        phases: phases.to_vec(),
        workers,
        exchange: counter,
        steps: Steps::Barrier,
        tickets: false,
    };
    let small: Vec<Program> = (1..=8).map(|n| program(&barrier(3, &[n % 4 + 1, 1, n % 3 + 2, 4], 4))).collect();
    let tasks: usize = small.iter().map(|p| p.tasks.len()).sum();
    let mut verifier = Verifier::default();
    let time =
        best(|| small.iter().for_each(|p| assert!(verifier.check(p).is_empty(), "the program should be accepted")));
    let each = time / small.len() as u32;
    println!(
        "small: {} tasks on average, {:?} each, {:.0} a second",
        tasks / small.len(),
        each,
        1.0 / each.as_secs_f64()
    );

    // 32 layers of an 8B decoder in tiles of 16 rows of a worker's share.
    let decoder = [384, 132, 256, 896, 256];
    let large = |layers| barrier(layers, &decoder, 132);
    let packets = Shape { exchange: Exchange::Packet { slots: 2 }, steps: Steps::Pipelined, ..large(32) };
    let tickets = Shape { tickets: true, ..large(32) };
    let pipelined = Shape { steps: Steps::Pipelined, ..large(32) };
    let cases = [
        ("decoder, barrier", large(32)),
        ("decoder, pipelined", pipelined),
        ("decoder, packets", packets),
        ("decoder, tickets", tickets),
        ("1k tasks", barrier(2, &[100, 100, 100, 100, 100], 132)),
        ("10k tasks", barrier(20, &[100, 100, 100, 100, 100], 132)),
        ("100k tasks", barrier(200, &[100, 100, 100, 100, 100], 132)),
        ("1M tasks", barrier(2000, &[100, 100, 100, 100, 100], 132)),
    ];
    for (name, shape) in cases {
        report(name, &program(&shape));
    }
}

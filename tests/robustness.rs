//! Nothing that comes from outside makes the readers or the verifier panic.
//!
//! Each test takes some tens of thousands of inputs;
//! `AMK_RUNS=1000000 cargo test --release -p amk-tests robustness::` takes as many as it says.

use amk_ir::dot;
use amk_ir::text::{parse, print};
use amk_ir::verify::{Rejected, Verifier, verify};
use amk_ir::{
    Access, Bound, Buffer, BufferId, BufferKind, Call, CallRows, DType, Element, EventId, EventTensor, Exchange, Holds,
    Instruction, InstructionId, Interval, Limits, OpId, Operand, OperandSpec, Param, Program, Queues, Region, Routed,
    RoutedSignal, RoutedWait, Steps, Table, TableId, Task, TaskId, Wait,
};
use amk_tests::damage::{Draw, keeps_to_its_line, mutate, runs};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

fn corpus() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests");
    let folders = fs::read_dir(root).unwrap().map(|folder| folder.unwrap().path());
    let mut files: Vec<_> =
        folders.flat_map(|folder| fs::read_dir(folder).unwrap()).map(|file| file.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| fs::read_to_string(file).unwrap()).collect()
}

fn settles(program: Program, verifier: &mut Verifier) {
    let printed = print(&program);
    let again = parse(&printed).unwrap_or_else(|error| panic!("{error}\n{printed}"));
    // Parameters that are not numbers are not equal to themselves.
    assert!(again == program || printed.contains("nan"), "{printed}");
    assert_eq!(print(&again), printed);
    let violations = verifier.check(&program);
    for violation in &violations {
        let message = violation.message(&program);
        assert!(!message.headline.is_empty() && !message.help.is_empty(), "{violation:?}");
        for line in message.notes.iter().chain([&message.headline, &message.help]) {
            assert!(keeps_to_its_line(line), "{line:?}");
        }
    }
    if let Ok(json) = program.to_json() {
        assert!(keeps_to_its_line(&json), "{json:?}");
        assert_eq!(Program::from_json(&json).unwrap(), program, "{json}");
    }
    assert!(printed.lines().all(keeps_to_its_line), "{printed:?}");
    assert!(dot::dot(&program).lines().all(keeps_to_its_line), "{:?}", dot::dot(&program));
    if !violations.is_empty() {
        let rejected = Rejected { program: Box::new(program), violations };
        let report = rejected.to_string();
        assert!(report.contains("error: AMK0") && report.lines().all(keeps_to_its_line), "{report:?}");
    }
}

#[test]
fn arbitrary_bytes_are_read_or_refused() {
    let mut draw = Draw(1);
    for _ in 0..runs(50_000) {
        let length = draw.below(80);
        let bytes: Vec<u8> = (0..length).map(|_| draw.bits() as u8).collect();
        let text = String::from_utf8_lossy(&bytes);
        assert!(parse(&text).is_err());
        assert!(Program::from_json(&text).is_err());
    }
}

#[test]
fn damaged_texts_are_read_or_refused() {
    let corpus = corpus();
    let (mut draw, mut verifier, mut read) = (Draw(2), Verifier::default(), 0);
    let runs = runs(20_000);
    for _ in 0..runs {
        let text = draw.below(corpus.len());
        if let Ok(program) = parse(&mutate(&corpus[text], &mut draw)) {
            read += 1;
            settles(program, &mut verifier);
        }
    }
    assert!(read * 20 > runs, "too few of the texts could be read: {read} of {runs}");
}

#[test]
fn damaged_json_is_read_or_refused() {
    let corpus: Vec<String> = corpus().iter().filter_map(|text| parse(text).ok()?.to_json().ok()).collect();
    let (mut draw, mut verifier, mut read) = (Draw(3), Verifier::default(), 0);
    let runs = runs(20_000);
    for _ in 0..runs {
        let text = draw.below(corpus.len());
        if let Ok(program) = Program::from_json(&mutate(&corpus[text], &mut draw)) {
            read += 1;
            settles(program, &mut verifier);
        }
    }
    // Most damage is to names of fields, and unknown ones are refused.
    assert!(read * 30 > runs, "too few of the texts could be read: {read} of {runs}");
}

#[test]
fn arbitrary_programs_are_decided() {
    let (mut draw, mut verifier) = (Draw(4), Verifier::default());
    for _ in 0..runs(20_000) {
        settles(program(&mut draw), &mut verifier);
    }
}

/// Texts that would take minutes or gigabytes if a reader scanned something twice per item, or
/// trusted a declared size.
#[test]
fn what_is_long_or_deep_is_read_at_once_or_refused() {
    const MANY: usize = 200_000;
    let start = Instant::now();
    let many = |item: &str| vec![item; MANY].join(", ");
    let name = "\\u001b".repeat(MANY);
    let long = format!(
        "program @\"{name}\"\ninstruction i0 \"f\" f()\nbuffer b0 @x activation f32[{}]\nevent e0 @e[{}]\n\
         task t0: f({}) {{{}}} wait {} signal {}\nworker w0: {}\n",
        many("4000000000"),
        many("1"),
        many("early b0[pos]"),
        many("1.5"),
        many("e0[0] >= 1"),
        many("e0[0]"),
        "t0 ".repeat(MANY),
    );
    let program = parse(&long).unwrap();
    assert_eq!(program.name.chars().count(), MANY);
    assert_eq!(program.tasks[0].calls[0].operands.len(), MANY);
    assert_eq!(parse(&print(&program)).unwrap(), program);
    assert_eq!(Program::from_json(&program.to_json().unwrap()).unwrap(), program);

    let instructions: String = (0..MANY).map(|n| format!("instruction i{n} \"f\" f{n}()\n")).collect();
    let tasks: String = (0..MANY).map(|n| format!("task t{n}: f{n}()\n")).collect();
    let program = parse(&format!("program @p\n{instructions}{tasks}")).unwrap();
    assert_eq!(parse(&print(&program)).unwrap(), program);

    let word = "x".repeat(10 * MANY);
    let texts = [
        word.clone(),
        format!("program @p\ntask t0: {word}()"),
        format!("program @p\ndim \"{word}\" = 1\ndim \"{word}\" = 1"),
        format!("program @p\npositions {}", "9".repeat(10 * MANY)),
        format!("program @\"{word}"),
        format!("program @p\nevent e0 @x[{}", "[".repeat(MANY)),
        "program @p\nworker w4294967295: t0".to_owned(),
    ];
    for text in texts {
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.len() < 400, "{} bytes: {}", error.len(), &error[..200]);
    }
    let deep = [
        "[".repeat(MANY),
        "{\"version\":1,\"program\":".repeat(MANY),
        format!("{{\"version\":1,\"{word}\":{}", "[".repeat(MANY)),
        format!("{{\"version\":1,\"program\":{{\"{word}\":1}}}}"),
    ];
    for text in deep {
        let error = Program::from_json(&text).unwrap_err();
        let why = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!((1..500).contains(&why.len()), "{} bytes", why.len());
    }
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}

#[test]
fn the_memory_of_a_verifier_is_no_part_of_its_opinion() {
    let (mut draw, mut verifier) = (Draw(5), Verifier::default());
    for text in corpus().iter().cycle().take(2_000) {
        let Ok(program) = parse(&mutate(text, &mut draw)) else { continue };
        let mut violations = verifier.check(&program);
        let fresh = verify(program).err().map_or_else(Vec::new, |rejected| rejected.violations);
        violations.truncate(fresh.len().max(violations.len()));
        assert_eq!(violations, fresh);
    }
}

fn name(draw: &mut Draw) -> String {
    match draw.below(3) {
        0 => draw.list(6, character).into_iter().collect(),
        1 => draw
            .one_of(&["x\nerror: AMK0302", "\u{1b}[2K\r", "\u{202e}x", "x` is `y", "\\", "\u{9b}0m", "x\u{301}"])
            .to_owned(),
        _ => draw.one_of(&["x", "w.layers[3].wq", "", "a b", "\"", "wait", "i3", "mut", ";", "\u{e9}\n"]).to_owned(),
    }
}

/// Any character there is, each second one of the first thousand.
fn character(draw: &mut Draw) -> char {
    let below = draw.one_of(&[0x400, 0x11_0000]);
    char::from_u32(draw.below(below) as u32).unwrap_or('\u{fffd}')
}

fn bound(draw: &mut Draw) -> Bound {
    match draw.below(8) {
        0 => Bound::at_pos(draw.number()),
        1 => Bound::behind(draw.number()),
        _ => Bound::fixed(draw.number()),
    }
}

fn region(draw: &mut Draw) -> Region {
    let intervals = draw.list(4, |draw| {
        let lo = bound(draw);
        let hi = if draw.chance(3) { bound(draw) } else { Bound { base: lo.base.saturating_add(draw.number()), ..lo } };
        Interval { lo, hi }
    });
    Region::new(&intervals).unwrap()
}

fn access(draw: &mut Draw) -> Access {
    draw.one_of(&[Access::Read, Access::Write, Access::Update])
}

fn buffer(draw: &mut Draw) -> Buffer {
    use BufferKind::{Activation, Input, Local, Output, State, Weight};
    Buffer {
        name: name(draw),
        kind: draw.one_of(&[Activation, Activation, Activation, Output, State, Local, Weight, Input]),
        dtype: draw.one_of(&DType::ALL),
        shape: draw.list(5, Draw::number),
        exchange: if draw.chance(4) { Exchange::Packet { slots: draw.below(4) as u8 } } else { Exchange::Counter },
        place: draw
            .chance(4)
            .then(|| if draw.chance(8) { u64::MAX - draw.below(9) as u64 } else { draw.below(64) as u64 }),
    }
}

fn task(draw: &mut Draw) -> Task {
    let element = |draw: &mut Draw| Element { event: EventId(draw.below(4) as u32), index: draw.number() };
    Task {
        op: draw.chance(3).then(|| OpId(draw.number())),
        calls: draw.list(2, |draw| Call {
            instruction: InstructionId(draw.below(4) as u32),
            operands: draw.list(4, |draw| Operand {
                buffer: BufferId(draw.below(7) as u32),
                region: region(draw),
                access: access(draw),
                early: draw.chance(8),
                routed: draw.chance(6).then(|| routed(draw)),
            }),
            params: draw.list(2, |draw| match draw.below(3) {
                0 => Param::F32(draw.one_of(&[0.5, -0.0, f32::INFINITY, f32::NAN, 1e-38, f32::MAX])),
                1 => Param::U32(draw.number()),
                _ => Param::Pos,
            }),
            rows: draw.chance(4).then(|| CallRows {
                first: draw.below(3) as u32,
                end: draw.number(),
                wanted: draw.chance(3),
            }),
        }),
        waits: draw.list(3, |draw| Wait { on: element(draw), threshold: draw.number() }),
        signals: draw.list(3, element),
        routed_waits: draw.list(1, |draw| {
            let (event, table) = (EventId(draw.below(4) as u32), TableId(draw.below(3) as u32));
            match draw.chance(2) {
                true => RoutedWait::Count { event, table, value: draw.number() },
                false => RoutedWait::Pick { event, table, entry: draw.number(), threshold: draw.number() },
            }
        }),
        routed_signals: draw.list(2, |draw| RoutedSignal {
            event: EventId(draw.below(4) as u32),
            table: TableId(draw.below(3) as u32),
            entry: draw.number(),
        }),
    }
}

fn routed(draw: &mut Draw) -> Routed {
    let (table, number) = (TableId(draw.below(3) as u32), draw.number());
    match draw.below(3) {
        0 => Routed::Pick { table, entry: number },
        1 => Routed::Row { table, entry: number },
        _ => Routed::Group { table, group: number },
    }
}

fn table(draw: &mut Draw) -> Table {
    let holds = match draw.chance(2) {
        true => Holds::Routes { values: draw.number(), distinct: draw.chance(2) },
        false => Holds::Splits { total: draw.number() },
    };
    Table { name: name(draw), buffer: BufferId(draw.below(7) as u32), holds }
}

/// A program of any form that the types allow; the more tame ones get past the first checks.
fn program(draw: &mut Draw) -> Program {
    let tame = draw.chance(2);
    let tasks = draw.list(6, task);
    let order: Vec<TaskId> = match tame {
        true => (0..tasks.len()).map(TaskId::from).collect(),
        false => draw.list(8, |draw| TaskId(draw.below(8) as u32)),
    };
    let mut program = Program {
        name: name(draw),
        dims: draw.list(2, |draw| (name(draw), draw.number())).into_iter().collect(),
        positions: draw.number(),
        rows: draw.chance(4).then(|| draw.number()),
        steps: draw.one_of(&[Steps::Barrier, Steps::Pipelined]),
        limits: Limits { workers: draw.number(), local_bytes: u64::MAX, memory_bytes: draw.bits() },
        instructions: draw.list(4, |draw| Instruction {
            name: name(draw),
            path: name(draw),
            operands: draw.list(3, |draw| OperandSpec { name: name(draw), access: access(draw) }),
            params: draw.list(2, name),
        }),
        ops: draw.list(2, name),
        buffers: draw.list(6, buffer),
        tables: if draw.chance(3) { draw.list(2, table) } else { Vec::new() },
        events: draw.list(3, |draw| EventTensor { name: name(draw), shape: draw.list(3, Draw::number) }),
        tasks,
        queues: match draw.chance(2) {
            true => Queues::Ticket { workers: draw.number(), order },
            false => Queues::Static(order.chunks(1 + draw.below(4)).map(<[TaskId]>::to_vec).collect()),
        },
    };
    if tame {
        make_tame(&mut program, draw);
    }
    program
}

/// Makes references, shapes and tiles valid, so that only the order of tasks is left to judge.
fn make_tame(program: &mut Program, draw: &mut Draw) {
    program.positions = 1 + draw.below(3) as u32;
    program.limits = Limits::default();
    program.instructions.clear();
    program.ops.clear();
    program.buffers.push(buffer(draw));
    for buffer in &mut program.buffers {
        buffer.shape = vec![8; 1 + draw.below(4)];
        buffer.place = buffer.place.map(|place| (place % 64) * 4).filter(|_| buffer.kind != BufferKind::Local);
        buffer.exchange = match (buffer.exchange, buffer.kind) {
            (Exchange::Packet { slots }, BufferKind::Activation) => Exchange::Packet { slots: slots.max(1) },
            _ => Exchange::Counter,
        };
    }
    program.events = vec![EventTensor { name: "e".into(), shape: vec![3] }];
    let buffers = program.buffers.clone();
    for task in &mut program.tasks {
        task.op = None;
        for call in &mut task.calls {
            call.params.clear();
            for operand in &mut call.operands {
                let buffer = draw.below(buffers.len());
                operand.buffer = BufferId::from(buffer);
                let intervals: Vec<Interval> = buffers[buffer].shape.iter().map(|_| tame_interval(draw)).collect();
                operand.region = Region::new(&intervals).unwrap();
                if matches!(buffers[buffer].kind, BufferKind::Weight | BufferKind::Input) {
                    operand.access = Access::Read;
                }
            }
            let operands = call.operands.iter().map(|o| OperandSpec { name: "x".into(), access: o.access }).collect();
            call.instruction = InstructionId::from(program.instructions.len());
            program.instructions.push(Instruction { name: "f".into(), path: "f".into(), operands, params: vec![] });
        }
        for (n, element) in task.signals.iter_mut().chain(task.waits.iter_mut().map(|wait| &mut wait.on)).enumerate() {
            *element = Element { event: EventId(0), index: n as u32 % 3 };
        }
        task.waits.iter_mut().for_each(|wait| wait.threshold = 1);
    }
}

fn tame_interval(draw: &mut Draw) -> Interval {
    let lo = draw.below(5) as u32;
    let pos = draw.chance(4);
    let hi = lo + 1 + draw.below(1 + 4 - lo as usize) as u32;
    match pos {
        true if draw.chance(3) => Interval { lo: Bound::behind(lo), hi: Bound::at_pos(hi) },
        true => Interval { lo: Bound::at_pos(lo), hi: Bound::at_pos(hi) },
        false => Interval::fixed(lo, hi),
    }
}

/// A worker that has done all its copies may signal a counter without end: however many of its
/// tasks do, that is enough for any wait.
#[test]
fn signals_without_end_are_enough_however_many_they_are() {
    const MANY: usize = 1 << 16;
    let signallers: String = (1..=MANY).map(|n| format!("task t{n}: signal e0\n")).collect();
    let queue: String = (1..=MANY).map(|n| format!("t{n} ")).collect();
    let (read, end) = (MANY + 1, MANY + 2);
    let text = format!(
        "program @forever\npositions 1\nsteps pipelined\n\
         instruction i0 \"o::fill\" fill() -> (y)\ninstruction i1 \"o::use\" use(x)\n\
         buffer b0 @x activation f32[4]\nevent e0 @e\nevent e1 @used\n\
         task t0: fill() -> (b0[..]) signal e0\n{signallers}\
         task t{read}: use(b0[..]) wait e0 >= {read} signal e1\ntask t{end}: wait e1 >= 1\n\
         worker w0: {queue}\nworker w1: t0 t{end}\nworker w2: t{read}\n"
    );
    let rejected = verify(parse(&text).unwrap()).expect_err("a signal of the next step stands in for the one of t0");
    assert!(rejected.to_string().contains("error: AMK0302"), "{rejected}");
}

/// Waiters of a counter are woken when it has come to what they wait for, not at every signal.
#[test]
fn many_waits_for_one_counter_are_decided_soon() {
    const WAITERS: usize = 3000;
    const TILES: usize = 600;
    let mut tasks: Vec<String> = (1..=WAITERS).map(|n| format!("wait e0 >= {n}")).collect();
    tasks.extend((0..WAITERS).map(|_| "signal e0".to_owned()));
    tasks.extend((0..TILES).map(|n| format!("w() -> (b0[{n}]) signal e1")));
    tasks.extend((0..TILES).map(|n| format!("r(b0[{n}]) wait e1 >= {}", n + 1)));
    let alone = (0..2 * WAITERS).map(|n| format!("worker w{n}: t{n}\n"));
    let queue = |first: usize| (first..first + TILES).map(|n| format!(" t{n}")).collect::<String>();
    let text = format!(
        "program @wake\ninstruction i0 \"o::w\" w() -> (y)\ninstruction i1 \"o::r\" r(x)\n\
         buffer b0 @x activation f32[{TILES}]\nevent e0 @e\nevent e1 @f\n{}{}worker w{}:{}\nworker w{}:{}\n",
        tasks.iter().zip(0..).map(|(task, n)| format!("task t{n}: {task}\n")).collect::<String>(),
        alone.collect::<String>(),
        2 * WAITERS,
        queue(2 * WAITERS),
        2 * WAITERS + 1,
        queue(2 * WAITERS + TILES),
    );
    let (program, start) = (parse(&text).unwrap(), Instant::now());
    verify(program).unwrap_or_else(|rejected| panic!("{rejected}"));
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

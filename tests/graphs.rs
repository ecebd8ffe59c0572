//! The text of graphs: printed text reads back, and no text makes the reader panic.

use amk::ir::expr::{Expr, Op};
use amk::ir::graph::{
    Arg, CallNode, EventDecl, Graph, Instance, KernelParam, KernelParamKind, Node, SignalMap, Value, WaitMap,
};
use amk::ir::layout::{Field, FieldKind, FieldPath, Layout, PathStep};
use amk::ir::lower::{Lowered, lower_with};
use amk::ir::schedule::{
    Assign, ExchangeBy, FuseInto, Fusion, PartialRing, PartialSchedule, QueuePolicy, RowSchedule, Schedule, Tile,
};
use amk::ir::shapes;
use amk::ir::signature::{GridSig, ParamKind, ParamSig, ResultSig, Signature, Span, TensorClass, TileSig};
use amk::ir::text::{is_graph, parse, parse_graph, parse_graph_with_lines};
use amk::ir::verify::{Verifier, Violation};
use amk::ir::{Access, DType, Limits, Steps, ValueId};
use amk_models::model::FAMILIES;
use amk_tests::damage::{Draw, keeps_to_its_line, mutate, runs};
use std::fs;
use std::path::Path;

fn models() -> Vec<Graph> {
    let families = FAMILIES.iter().map(|family| family.kernel);
    let kernels = families.chain([&amk_user_instruction::DECODE]);
    kernels.map(|kernel| kernel.graph().expect("the graph should parse").clone()).collect()
}

/// Fails where the graph's text does not read back.
fn settles(graph: &Graph) {
    let printed = graph.to_string();
    let again = parse_graph(&printed).unwrap_or_else(|error| panic!("{error}\n{printed}"));
    // Numbers that are none are not equal to themselves.
    assert!(again == *graph || printed.contains("nan"), "{printed}\n{graph:#?}\n{again:#?}");
    assert_eq!(again.to_string(), printed);
    assert!(printed.lines().all(keeps_to_its_line), "{printed:?}");
}

#[test]
fn graphs_of_models_read_back() {
    for graph in models() {
        settles(&graph);
        let text = graph.to_string();
        assert!(is_graph(&text) && parse(&text).is_err());
        assert!(!text.contains('%') || text.lines().all(|line| !line.starts_with("value")), "{text}");
        let (mut again, lines) = parse_graph_with_lines(&text).unwrap();
        assert_eq!(shapes::check(&mut again), []);
        let line = |site: u32| text.lines().nth(lines.sites[&site] as usize - 1).unwrap();
        assert!(line(0).contains("embed("), "{}", line(0));
    }
}

#[test]
fn arbitrary_graphs_read_back() {
    let mut draw = Draw(11);
    for _ in 0..runs(20_000) {
        settles(&graph(&mut draw));
    }
}

#[test]
fn damaged_texts_are_read_or_refused() {
    let corpus: Vec<String> = models().iter().map(Graph::to_string).collect();
    let (mut draw, mut read) = (Draw(12), 0);
    let runs = runs(4_000);
    for _ in 0..runs {
        let text = draw.below(corpus.len());
        match parse_graph(&mutate(&corpus[text], &mut draw)) {
            Ok(mut graph) => {
                read += 1;
                settles(&graph);
                for error in shapes::check(&mut graph) {
                    assert!(error.to_string().lines().all(keeps_to_its_line), "{error}");
                }
            }
            Err(error) => {
                assert!(error.to_string().lines().all(keeps_to_its_line), "{error}");
                assert!(error.to_string().len() < 600, "{error}");
            }
        }
    }
    assert!(read * 40 > runs, "too few of the texts could be read: {read} of {runs}");
}

/// Small graphs of the file tests.
fn small() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests");
    let files = ["lower", "schedule"].map(|folder| fs::read_dir(root.join(folder)).unwrap());
    let mut files: Vec<_> = files.into_iter().flatten().map(|file| file.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| fs::read_to_string(file).unwrap()).collect()
}

/// Damaged graphs, by schedules with rows and without: waits that are derived are enough.
#[test]
fn damaged_graphs_are_lowered_to_safe_programs_or_refused() {
    let corpus = small();
    let (mut draw, mut verifier, mut lowered) = (Draw(13), Verifier::default(), 0);
    let runs = runs(4_000);
    for _ in 0..runs {
        let text = mutate(&corpus[draw.below(corpus.len())], &mut draw);
        let Ok(mut graph) = parse_graph(&text) else { continue };
        if !shapes::check(&mut graph).is_empty() {
            continue;
        }
        let by_hand = text.contains("signal") || text.contains("wait");
        for instance in &graph.instances {
            let mut schedule = instance.schedule_in(&graph).over(Schedule::default());
            if draw.chance(4) {
                let block = draw.chance(2).then(|| draw.number());
                schedule.rows = Some(RowSchedule { most: draw.number(), block });
            }
            match lower_with(&graph, instance, &schedule) {
                Ok(Lowered { program, .. }) => {
                    lowered += 1;
                    let found = verifier.check(&program);
                    let unsafe_order = |violation: &&Violation| matches!(violation.code().0, 200..300 | 302..305);
                    let derived = !by_hand && program.steps == Steps::Barrier;
                    let wrong = found.iter().find(|violation| derived && unsafe_order(violation));
                    assert!(wrong.is_none(), "{wrong:?}\n{schedule:?}\n{text}");
                }
                Err(errors) => assert!(!errors.is_empty()),
            }
        }
    }
    assert!(lowered * 10 > runs, "too few of the graphs could be lowered: {lowered} of {runs}");
}

#[test]
fn what_is_long_or_deep_is_read_at_once_or_refused() {
    const MANY: usize = 100_000;
    let word = "x".repeat(MANY);
    for text in [
        format!("graph @g\nfn () {{\n{}", "for i in 0..2 {\n".repeat(MANY)),
        format!("graph @g\nlayout w: W {{\n{}", "a: struct A {\n".repeat(MANY)),
        format!("graph @g\nwhere {}", "(".repeat(MANY)),
        format!("graph @g\nfn () {{\n{word}"),
        format!("graph @g\nfn () {{\n{word}()\n}}"),
        format!("graph @\"{word}"),
        format!("graph @g\ndims {}\u{1b}", "A, ".repeat(MANY)),
        format!("graph @g\ninstance a({word} = 99999999999)"),
        String::new(),
    ] {
        let error = parse_graph(&text).unwrap_err().to_string();
        assert!(error.len() < 600 && error.lines().all(keeps_to_its_line), "{error:?}");
    }
    let calls = "y: f32[4] = f(y)\n".repeat(MANY);
    let text =
        format!("graph @g\ninstruction f(x: tensor[N]) -> (y: f32[N]) {{\n}}\nfn (y: tensor f32[4]) {{\n{calls}}}");
    let graph = parse_graph(&text).unwrap();
    assert_eq!(graph.body.len(), MANY);
    settles(&graph);
}

#[test]
fn fields_of_schedules_are_given_once() {
    let fields = [
        "workers = 2",
        "tile(f = whole)",
        "queue = ticket",
        "rows(most = 2)",
        "fuse(f = producer)",
        "ring(slots = 4)",
        "limits(workers = 3)",
    ];
    let read = |schedule: &str| parse_graph(&format!("graph @g\nschedule({schedule})\nfn () {{\n}}"));
    for field in fields {
        read(field).unwrap();
        let error = read(&format!("{field}, late = 1, {field}")).unwrap_err().to_string();
        assert!(error.contains("is given twice"), "{error}");
    }
    for (group, name) in [("rows(most = 2, most = 2)", "most"), ("ring(slots = 1, pace = 1, slots = 1)", "slots")] {
        assert!(read(group).unwrap_err().to_string().contains(&format!("`{name}` is given twice")), "{group}");
    }
    assert!(read("tiles = 3").unwrap_err().to_string().contains("expected `workers`, `tile`"));
}

#[test]
fn a_multiple_to_declare_is_written_as_it_is_read() {
    let text = "graph @g\ndims H\ninstruction halve(x: tensor[K]) -> (y: f32[K]) {\n    where K % (K + 1) == 0\n}\n\
                fn (x: tensor f32[H]) {\n    y: f32[H] = halve(x)\n    return y\n}";
    let mut graph = parse_graph(text).unwrap();
    let [error] = &shapes::check(&mut graph)[..] else { panic!("one error is expected") };
    assert_eq!(error.help, "declare it: `where(H % (H + 1))`");
}

/// Names that are taken for each other, are words of the text, or must be in quotes.
fn name(draw: &mut Draw) -> String {
    const NAMES: [&str; 32] = [
        "x",
        "y",
        "h",
        "linear.2",
        "x.2",
        "x.2.3",
        "l",
        "N",
        "H",
        "pos",
        "for",
        "if",
        "return",
        "value",
        "inf",
        "NaN",
        "infinity",
        "i7",
        "v2",
        "x.a",
        "x.",
        "2x",
        "",
        "a b",
        "mut",
        "token",
        "tensor",
        "schedule",
        "%1",
        "\u{1b}[2K\n`\"\\",
        "gr\u{f6}\u{df}e",
        "true",
    ];
    if draw.chance(3) { draw.one_of(&NAMES).to_owned() } else { draw.one_of(&NAMES[..9]).to_owned() }
}

/// A name that can stand in an expression.
fn symbol(draw: &mut Draw) -> String {
    draw.one_of(&["x", "y", "l", "N", "H", "T", "pos", "inf", "step", "gr\u{f6}\u{df}e", "signal", "i7"]).to_owned()
}

fn expr(draw: &mut Draw) -> Expr {
    expr_within(draw, 3)
}

fn expr_within(draw: &mut Draw, depth: usize) -> Expr {
    match draw.below(if depth == 0 { 4 } else { 7 }) {
        0 => Expr::Const(i64::from(draw.number())),
        1 if draw.chance(4) => Expr::Const(-i64::from(draw.number())),
        1..4 => Expr::Name(symbol(draw)),
        _ => {
            let op = draw.one_of(&[Op::Add, Op::Sub, Op::Mul, Op::Div, Op::CeilDiv, Op::Rem, Op::Max]);
            let (left, right) = (expr_within(draw, depth - 1), expr_within(draw, depth - 1));
            Expr::Binary(op, Box::new(left), Box::new(right))
        }
    }
}

fn exprs(draw: &mut Draw) -> Vec<Expr> {
    draw.list(3, expr)
}

fn span(draw: &mut Draw) -> Span {
    match draw.below(4) {
        0 => Span::Full,
        1 => {
            let lo = expr(draw);
            Span::Range { hi: Expr::binary(Op::Add, lo.clone(), Expr::Const(1)), lo }
        }
        _ => Span::Range { lo: expr(draw), hi: expr(draw) },
    }
}

fn access(draw: &mut Draw) -> Access {
    draw.one_of(&[Access::Read, Access::Read, Access::Write, Access::Update])
}

fn signature(draw: &mut Draw) -> Signature {
    let param = |draw: &mut Draw| {
        let class = draw.one_of(&[TensorClass::Tensor, TensorClass::Weight, TensorClass::State, TensorClass::Token]);
        let kind = match draw.below(6) {
            0 => ParamKind::Float,
            1 => ParamKind::Dim(expr(draw)),
            2 => ParamKind::Pos,
            _ => ParamKind::Tensor { class, access: access(draw), shape: exprs(draw), region: draw.list(3, span) },
        };
        ParamSig { name: name(draw), kind }
    };
    let result = |draw: &mut Draw| {
        let dtype = draw.one_of(&DType::ALL);
        ResultSig { name: name(draw), dtype, shape: exprs(draw), region: draw.list(3, span) }
    };
    let own = name(draw);
    Signature {
        path: if draw.chance(2) { own.clone() } else { name(draw) },
        op: if draw.chance(2) { own.clone() } else { name(draw) },
        declared_at: if draw.chance(2) { String::new() } else { name(draw) },
        params: draw.list(4, param),
        results: draw.list(2, result),
        tiles: draw.list(2, |draw| TileSig { name: name(draw), default: expr(draw) }),
        grid: draw.list(2, |draw| GridSig { var: name(draw), extent: expr(draw), step: expr(draw) }),
        multiples: draw.list(2, |draw| (expr(draw), expr(draw))),
        cuda: draw.chance(2).then(|| name(draw)),
        name: own,
    }
}

fn layout(draw: &mut Draw, depth: usize) -> Layout {
    let field = |draw: &mut Draw| {
        let kind = match draw.below(if depth == 0 { 6 } else { 8 }) {
            0 => FieldKind::Weight {
                source: name(draw),
                fallback: draw.chance(2).then(|| name(draw)),
                shape: exprs(draw),
            },
            1 => FieldKind::State { shape: exprs(draw) },
            2 => FieldKind::Table { shape: exprs(draw) },
            3 => FieldKind::Param,
            4 => FieldKind::Dim(expr(draw)),
            5 => FieldKind::Flag,
            6 => FieldKind::Struct(layout(draw, depth - 1)),
            _ => FieldKind::List { layout: layout(draw, depth - 1), length: expr(draw) },
        };
        Field { name: name(draw), kind }
    };
    let declared_at = if draw.chance(2) { String::new() } else { name(draw) };
    Layout { name: name(draw), declared_at, fields: draw.list(3, field) }
}

/// One of them, or none.
fn maybe<T: Copy>(draw: &mut Draw, choices: &[T]) -> Option<T> {
    draw.chance(2).then(|| draw.one_of(choices))
}

fn schedule(draw: &mut Draw) -> PartialSchedule {
    let tile = |draw: &mut Draw| match draw.below(3) {
        0 => Tile::Size(draw.number()),
        1 => Tile::PerWorker,
        _ => Tile::Whole,
    };
    let some = |draw: &mut Draw| if draw.chance(2) { u64::MAX } else { u64::from(draw.number()) };
    let number = |draw: &mut Draw| draw.chance(2).then(|| draw.number());
    PartialSchedule {
        workers: number(draw),
        tiles: draw.list(3, |draw| (name(draw), tile(draw))).into_iter().collect(),
        queue: maybe(draw, &[QueuePolicy::Static, QueuePolicy::Ticket]),
        assign: maybe(draw, &[Assign::RoundRobin, Assign::Balanced]),
        steps: maybe(draw, &[Steps::Barrier, Steps::Pipelined]),
        rows: draw.chance(3).then(|| RowSchedule { most: draw.number(), block: number(draw) }),
        weights: maybe(draw, &DType::ALL),
        cache: maybe(draw, &DType::ALL),
        fusion: maybe(draw, &[true, false]),
        fuse: draw
            .list(2, |draw| Fusion { op: name(draw), into: draw.one_of(&[FuseInto::Producer, FuseInto::Consumers]) }),
        splits: number(draw),
        run: number(draw),
        late: number(draw),
        split_k: number(draw),
        ring: PartialRing { slots: number(draw), in_flight: number(draw), pace: number(draw), lookahead: number(draw) },
        exchange: maybe(draw, &[ExchangeBy::Packets, ExchangeBy::Counters, ExchangeBy::Barrier]),
        limits: draw.chance(2).then(|| Limits {
            workers: draw.number(),
            local_bytes: some(draw),
            memory_bytes: some(draw),
        }),
    }
}

fn instance(draw: &mut Draw) -> Instance {
    Instance {
        name: name(draw),
        dims: draw.list(3, |draw| (name(draw), draw.number())).into_iter().collect(),
        flags: draw.list(2, |draw| (name(draw), draw.chance(2))).into_iter().collect(),
        floats: draw.list(2, |draw| (name(draw), float(draw))).into_iter().collect(),
        schedule: draw.chance(2).then(|| if draw.chance(2) { PartialSchedule::default() } else { schedule(draw) }),
    }
}

fn float(draw: &mut Draw) -> f32 {
    if draw.chance(2) { f32::from_bits(draw.bits() as u32) } else { draw.one_of(&[0.0, -0.0, 1.0, 1e-5, 1e20]) }
}

fn path(draw: &mut Draw) -> FieldPath {
    let step = |draw: &mut Draw| PathStep { field: name(draw), index: draw.chance(3).then(|| expr(draw)) };
    FieldPath { root: name(draw), steps: draw.list(3, step) }
}

/// A value of the graph's, or rarely one that there is not.
fn value(draw: &mut Draw, values: usize) -> ValueId {
    if draw.chance(40) { ValueId(draw.number()) } else { ValueId::from(draw.below(values)) }
}

fn arg(draw: &mut Draw, values: usize) -> Arg {
    match draw.below(8) {
        0 => Arg::Float(float(draw)),
        1 => Arg::Int(expr(draw)),
        2 => Arg::Pos,
        3 => Arg::Field(path(draw)),
        _ => Arg::Value(value(draw, values)),
    }
}

fn nodes(draw: &mut Draw, values: usize, depth: usize, site: &mut u32) -> Vec<Node> {
    draw.list(4, |draw| {
        let own = if draw.chance(5) { draw.number() } else { *site };
        match draw.below(if depth == 0 { 4 } else { 6 }) {
            0 => {
                *site = own.wrapping_add(1);
                Node::Bind { site: own, to: value(draw, values), from: value(draw, values) }
            }
            1..4 => {
                *site = own.wrapping_add(1);
                Node::Call(CallNode {
                    site: own,
                    signature: draw.below(3) as u32,
                    args: draw.list(3, |draw| arg(draw, values)),
                    results: draw.list(2, |draw| value(draw, values)),
                    signals: draw.list(1, |draw| SignalMap { event: name(draw), coordinates: exprs(draw) }),
                    waits: draw.list(1, |draw| WaitMap {
                        event: name(draw),
                        coordinates: exprs(draw),
                        threshold: expr(draw),
                    }),
                })
            }
            4 => Node::Loop { index: name(draw), extent: expr(draw), body: nodes(draw, values, depth - 1, site) },
            _ => Node::If {
                flag: path(draw),
                then: nodes(draw, values, depth - 1, site),
                otherwise: nodes(draw, values, depth - 1, site),
            },
        }
    })
}

/// Any graph that can be written down, sensible or not.
fn graph(draw: &mut Draw) -> Graph {
    let values = draw.list(5, |draw| Value {
        name: name(draw),
        dtype: draw.one_of(&[DType::F32, DType::U32]),
        shape: exprs(draw),
    });
    let count = values.len();
    let param = |draw: &mut Draw| {
        let of = value(draw, count);
        let own = values.get(of.index()).map(|value| value.name.clone());
        let kind = match draw.below(4) {
            0 => KernelParamKind::Token(of),
            1 => KernelParamKind::Tensor(of),
            2 => KernelParamKind::Pos,
            _ => KernelParamKind::Layout(layout(draw, 2)),
        };
        KernelParam { name: own.filter(|_| !draw.chance(4)).unwrap_or_else(|| name(draw)), kind }
    };
    Graph {
        name: name(draw),
        dims: draw.list(4, name),
        multiples: draw.list(2, |draw| (expr(draw), expr(draw))),
        equalities: draw.list(1, |draw| (name(draw), expr(draw))),
        signatures: draw.list(3, signature),
        params: draw.list(3, param),
        events: draw.list(2, |draw| EventDecl { name: name(draw), shape: exprs(draw) }),
        body: nodes(draw, count, 2, &mut 0),
        results: draw.list(2, |draw| value(draw, count)),
        instances: draw.list(2, instance),
        schedule: if draw.chance(3) { schedule(draw) } else { PartialSchedule::default() },
        values,
    }
}

//! Lowering of small graphs by several schedules: the text of the program is the expectation.

use amk_ir::Access;
use amk_ir::expr::Expr;
use amk_ir::graph::{Arg, CallNode, Graph, Instance, KernelParam, KernelParamKind, Node, Value};
use amk_ir::graph_error::GraphError;
use amk_ir::layout::{Field, FieldKind, FieldPath, Layout, PathStep};
use amk_ir::lower::lower_with;
use amk_ir::schedule::{Assign, ExchangeBy, FuseInto, Fusion, PartialSchedule, Ring, RowSchedule, Schedule, Tile};
use amk_ir::signature::{GridSig, ParamKind, ParamSig, ResultSig, Signature, Span, TensorClass, TileSig};
use amk_ir::{DType, Param, Program, Queues, ValueId};
use std::collections::BTreeMap;
use std::time::Instant;

fn expr(text: &str) -> Expr {
    Expr::parse(text).expect(text)
}

fn span(text: &str) -> Span {
    match text.split_once("..") {
        Some(("", "")) => Span::Full,
        Some((lo, hi)) => Span::Range { lo: expr(lo), hi: expr(hi) },
        None => panic!("`{text}` should be a span"),
    }
}

fn tensor(name: &str, class: TensorClass, shape: &[&str], region: &[&str]) -> ParamSig {
    let shape = shape.iter().map(|e| expr(e)).collect();
    let region = region.iter().map(|s| span(s)).collect();
    ParamSig { name: name.into(), kind: ParamKind::Tensor { class, access: Access::Read, shape, region } }
}

fn signature(name: &str, params: Vec<ParamSig>, result: (&str, &str), tiled: bool) -> Signature {
    let grid = GridSig { var: "n".into(), extent: expr(result.0), step: expr("T") };
    Signature {
        name: name.into(),
        path: format!("ops::{name}"),
        op: name.into(),
        declared_at: "ops.rs:1".into(),
        params,
        results: vec![ResultSig {
            name: "y".into(),
            dtype: DType::F32,
            shape: vec![expr(result.0)],
            region: vec![span(result.1)],
        }],
        tiles: if tiled { vec![TileSig { name: "T".into(), default: Expr::Const(16) }] } else { Vec::new() },
        grid: if tiled { vec![grid] } else { Vec::new() },
        multiples: Vec::new(),
        cuda: None,
    }
}

fn weight(field: &str) -> Arg {
    let step = |field: &str, index| PathStep { field: field.into(), index };
    Arg::Field(FieldPath { root: "w".into(), steps: vec![step("layers", Some(expr("l"))), step(field, None)] })
}

/// `for l in layers { h = norm(x, layers[l].g); x = add(x, linear(h, layers[l].w)) }`
fn graph() -> Graph {
    use TensorClass::{Tensor, Weight};
    let field = |name: &str, shape: &[&str]| Field {
        name: name.into(),
        kind: FieldKind::Weight {
            source: format!("{{l}}.{name}"),
            fallback: None,
            shape: shape.iter().map(|e| expr(e)).collect(),
        },
    };
    let layer = Layout {
        name: "Layer".into(),
        declared_at: String::new(),
        fields: vec![field("g", &["H"]), field("w", &["H", "H"])],
    };
    let layers = Field { name: "layers".into(), kind: FieldKind::List { layout: layer, length: expr("L") } };
    let layout = Layout { name: "W".into(), declared_at: String::new(), fields: vec![layers] };
    let value = |name: &str| Value { name: name.into(), dtype: DType::F32, shape: Vec::new() };
    let mut values = vec![value("x"), value("h"), value("y")];
    values[0].shape = vec![expr("H")];
    let call = |site, signature, args, to| {
        let results = vec![ValueId(to)];
        Node::Call(CallNode { site, signature, args, results, signals: Vec::new(), waits: Vec::new() })
    };
    let v = |id| Arg::Value(ValueId(id));
    Graph {
        name: "mini".into(),
        dims: vec!["H".into(), "L".into()],
        multiples: Vec::new(),
        equalities: Vec::new(),
        signatures: vec![
            signature(
                "norm",
                vec![tensor("x", Tensor, &["N"], &[".."]), tensor("g", Weight, &["N"], &[".."])],
                ("N", ".."),
                false,
            ),
            signature(
                "linear",
                vec![tensor("x", Tensor, &["K"], &[".."]), tensor("w", Weight, &["N", "K"], &["n..n+T", ".."])],
                ("N", "n..n+T"),
                true,
            ),
            signature(
                "add",
                vec![tensor("x", Tensor, &["N"], &["n..n+T"]), tensor("z", Tensor, &["N"], &["n..n+T"])],
                ("N", "n..n+T"),
                true,
            ),
        ],
        params: vec![
            KernelParam { name: "x".into(), kind: KernelParamKind::Tensor(ValueId(0)) },
            KernelParam { name: "w".into(), kind: KernelParamKind::Layout(layout) },
        ],
        events: Vec::new(),
        values,
        body: vec![Node::Loop {
            index: "l".into(),
            extent: expr("L"),
            body: vec![
                call(0, 0, vec![v(0), weight("g")], 1),
                call(1, 1, vec![v(1), weight("w")], 2),
                call(2, 2, vec![v(0), v(2)], 0),
            ],
        }],
        results: vec![ValueId(0)],
        instances: Vec::new(),
        schedule: PartialSchedule::default(),
    }
}

fn lower(mut graph: Graph, schedule: &Schedule) -> Result<Program, Vec<GraphError>> {
    assert_eq!(amk_ir::shapes::check(&mut graph), []);
    let dims = BTreeMap::from([("H".to_owned(), 64), ("L".to_owned(), 2)]);
    let instance = Instance { name: "tiny".into(), dims, ..Instance::default() };
    lower_with(&graph, &instance, schedule).map(|lowered| lowered.program)
}

/// The first finding.
fn refused(graph: Graph, schedule: &Schedule) -> GraphError {
    lower(graph, schedule).expect_err("it should be refused").swap_remove(0)
}

fn lowered(schedule: &Schedule) -> String {
    let program = lower(graph(), schedule).expect("it should lower");
    let violations = amk_ir::verify::check(&program);
    assert!(violations.is_empty(), "{violations:#?}");
    amk_ir::text::print(&program)
}

/// The calls of the loop.
fn calls(graph: &mut Graph) -> &mut Vec<Node> {
    match graph.body.first_mut() {
        Some(Node::Loop { body, .. }) => body,
        other => panic!("{other:?}"),
    }
}

#[test]
fn tiles_are_spread_over_workers_and_connected_by_counters() {
    let text = lowered(&Schedule { workers: 2, ..Schedule::default() });
    insta::assert_snapshot!(text);
}

#[test]
fn a_norm_is_repeated_in_its_consumers_and_the_residual_stays_in_its_row_owner() {
    let fuse = vec![
        Fusion { op: "norm".into(), into: FuseInto::Consumers },
        Fusion { op: "add".into(), into: FuseInto::Producer },
    ];
    let text = lowered(&Schedule { workers: 2, fuse, ..Schedule::default() });
    insta::assert_snapshot!(text);
}

#[test]
fn a_tile_that_does_not_divide_is_refused_with_one_that_does() {
    let schedule = Schedule { tiles: BTreeMap::from([("linear".to_owned(), Tile::Size(48))]), ..Schedule::default() };
    let error = refused(graph(), &schedule);
    assert_eq!(error.headline, "tile 48 of `linear` does not divide 64");
    assert_eq!(error.notes, ["64 is cut in `y = linear(h.0, w.layers[0].w)`"]);
    assert_eq!(error.help, "write `linear = 32`, which divides every extent that `linear` cuts here");
    assert_eq!(error.site, None, "it is about the schedule");
}

/// The finding for these dims, which has to come at once.
fn refused_at_once(mut graph: Graph, hidden: u32, layers: u32, schedule: &Schedule) -> GraphError {
    assert_eq!(amk_ir::shapes::check(&mut graph), []);
    let dims = BTreeMap::from([("H".to_owned(), hidden), ("L".to_owned(), layers)]);
    let instance = Instance { name: "large".into(), dims, ..Instance::default() };
    let start = Instant::now();
    let error = lower_with(&graph, &instance, schedule).expect_err("it should be refused").swap_remove(0);
    assert!(start.elapsed().as_secs_f64() < 1.0, "{error} after {:?}", start.elapsed());
    assert_eq!(error.code, "AMK0616");
    error
}

#[test]
fn more_rounds_than_a_program_may_have_are_refused_before_they_are_made() {
    let deep = refused_at_once(graph(), 64, 3_000_000, &Schedule::default());
    assert_eq!(deep.headline, "instance `large` unrolls to 9000000 calls and assignments, the limit is 65536");
    assert_eq!(deep.notes, ["`for l in 0..L` runs 3000000 times"]);
}

#[test]
fn more_tasks_than_a_program_may_have_are_refused_before_they_are_made() {
    let of_one = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), Tile::Size(1))).collect();
    let wide = Schedule { tiles: of_one(&["linear"]), ..Schedule::default() };
    let wide = refused_at_once(graph(), 2_000_000_000, 1, &wide);
    assert_eq!(wide.headline, "the tasks of `mini` make 2000000009 calls, the limit is 524288");
    assert_eq!(wide.notes, ["`y = linear(h.0, w.layers[0].w)` is cut into 2000000000 tasks"]);
    let workers = Schedule { workers: 65_536, ..Schedule::default() };
    refused_at_once(graph(), 1 << 20, 100, &workers);
    let pairs = Schedule { tiles: of_one(&["linear", "add"]), ..Schedule::default() };
    let pairs = refused_at_once(graph(), 16_384, 1, &pairs);
    assert_eq!(pairs.headline, "finding what tasks depend on takes over 134217728 comparisons of tiles");
    let rows = Schedule { rows: Some(RowSchedule { most: 65_536, block: Some(1) }), ..Schedule::default() };
    let rows = refused_at_once(graph(), 64, 100, &rows);
    assert_eq!(rows.headline, "the tasks of `mini` make 32768400 calls, the limit is 524288");
    assert!(rows.help.starts_with("choose larger blocks of rows"), "{}", rows.help);
    assert!(rows.help.contains("`--threads`") && rows.help.contains("`--rows`"), "{}", rows.help);
}

/// Each result is twice as long as its argument, so its extent is an expression twice as long.
#[test]
fn an_extent_that_grows_with_each_call_is_refused() {
    let mut grown = graph();
    grown.signatures =
        vec![signature("double", vec![tensor("x", TensorClass::Tensor, &["N"], &[".."])], ("N + N", ".."), false)];
    let value =
        |n: u32| Value { name: format!("x{n}"), dtype: DType::F32, shape: vec![expr("H"); usize::from(n == 0)] };
    grown.values = (0..=40).map(value).collect();
    let call = |n: u32| {
        let (args, results) = (vec![Arg::Value(ValueId(n))], vec![ValueId(n + 1)]);
        Node::Call(CallNode { site: n, signature: 0, args, results, signals: Vec::new(), waits: Vec::new() })
    };
    grown.body = (0..40).map(call).collect();
    let found = amk_ir::shapes::check(&mut grown);
    // Behind each of them the shape is not known, and grows anew.
    assert_eq!(found.iter().map(|error| error.site).collect::<Vec<_>>(), [Some(11), Some(23), Some(35)]);
    assert!(found.iter().all(|error| error.code == "AMK0616"), "{found:?}");
}

#[test]
fn more_repeated_calls_than_a_task_may_have_are_refused() {
    let mut chain = graph();
    let norm = Node::Call(CallNode {
        site: 0,
        signature: 0,
        args: vec![Arg::Value(ValueId(0)), weight("g")],
        results: vec![ValueId(0)],
        signals: Vec::new(),
        waits: Vec::new(),
    });
    *calls(&mut chain) = vec![norm];
    let fuse = vec![Fusion { op: "norm".into(), into: FuseInto::Consumers }];
    let error = refused_at_once(chain, 64, 1_000, &Schedule { fuse, ..Schedule::default() });
    assert_eq!(error.headline, "a task of `mini` would repeat 257 calls, the limit is 256");
}

#[test]
fn balanced_tasks_go_to_the_worker_with_the_fewest_bytes() {
    let schedule = Schedule { workers: 3, assign: Assign::Balanced, ..Schedule::default() };
    let program = lower(graph(), &schedule).expect("it should lower");
    let Queues::Static(queues) = &program.queues else { panic!("{:?}", program.queues) };
    let counts: Vec<usize> = queues.iter().map(Vec::len).collect();
    assert_eq!(counts.iter().sum::<usize>(), program.tasks.len());
    assert!(counts.iter().all(|count| *count >= 4), "{counts:?}");
}

#[test]
fn a_tile_of_what_has_none_is_refused() {
    let schedule = Schedule { tiles: BTreeMap::from([("norm".to_owned(), Tile::Size(4))]), ..Schedule::default() };
    let error = refused(graph(), &schedule);
    assert_eq!(
        (error.code, error.headline.as_str()),
        ("AMK0611", "the schedule gives a tile to `norm`, which has none to set")
    );
    assert_eq!(error.help, "leave it out; a tile can be set of: linear, add");
}

#[test]
fn more_workers_than_queues_can_be_made_for_are_refused() {
    let error = refused(graph(), &Schedule { workers: 4_000_000_000, ..Schedule::default() });
    assert_eq!((error.code, error.headline.as_str()), ("AMK0611", "the schedule has 4000000000 workers"));
    assert!(lower(graph(), &Schedule { workers: 65_536, ..Schedule::default() }).is_ok());
}

#[test]
fn what_a_device_alone_honours_is_refused_by_name() {
    let own = Schedule::default;
    for (field, schedule) in [
        ("exchange` = packets", Schedule { exchange: ExchangeBy::Packets, ..own() }),
        ("splits` = 4", Schedule { splits: 4, ..own() }),
        ("run` = 4", Schedule { run: 4, ..own() }),
        ("ring.pace` = 205", Schedule { ring: Ring { pace: 205, ..Ring::default() }, ..own() }),
    ] {
        let error = refused(graph(), &schedule);
        let headline = format!("the CPU VM cannot honour `{field} of the schedule");
        assert_eq!((error.code, error.headline.as_str()), ("AMK0611", headline.as_str()));
    }
}

#[test]
fn without_fusion_every_call_is_an_op() {
    let fuse = vec![Fusion { op: "add".to_owned(), into: FuseInto::Producer }];
    let fused = Schedule { workers: 2, fuse, ..Schedule::default() };
    assert_ne!(lowered(&fused), lowered(&Schedule { workers: 2, ..Schedule::default() }));
    let apart = lowered(&Schedule { fusion: false, ..fused });
    assert_eq!(apart, lowered(&Schedule { workers: 2, ..Schedule::default() }));
}

#[test]
fn an_index_outside_of_its_list_is_refused() {
    let with = |index: &str| {
        let mut graph = graph();
        if let Node::Call(CallNode { args, .. }) = &mut calls(&mut graph)[1]
            && let Arg::Field(path) = &mut args[1]
        {
            path.steps[0].index = Some(expr(index));
        }
        graph
    };
    for (index, value) in [("l + 1", 2), ("L - l", 2), ("0 - l", -1), ("5", 5)] {
        let error = refused(with(index), &Schedule::default());
        let headline = format!("`w.layers[{index}].w` has index {value} in instance `tiny`, the list has 2 elements");
        assert_eq!((error.code, error.headline, error.site), ("AMK0614", headline, Some(1)));
    }
    assert!(lower(with("L - 1 - l"), &Schedule::default()).is_ok());
}

#[test]
fn results_that_are_no_outputs_of_their_own_are_refused() {
    let give = |results: &[u32]| Graph { results: results.iter().copied().map(ValueId).collect(), ..graph() };
    let error = refused(give(&[0, 1, 0]), &Schedule::default());
    assert_eq!((error.code, error.headline.as_str()), ("AMK0615", "results 1 and 3 of `mini` are one value, `x.1`"));
    let mut input = give(&[0]);
    input.body.clear();
    let error = refused(input, &Schedule::default());
    assert_eq!((error.code, error.headline.as_str()), ("AMK0615", "result 1 of `mini` is its input `x`"));
    let mut nothing = give(&[1]);
    nothing.body.clear();
    let error = refused(nothing, &Schedule::default());
    assert_eq!(
        (error.code, error.headline.as_str()),
        ("AMK0615", "result 1 of `mini`, `h`, has no value in instance `tiny`")
    );
}

#[test]
fn a_loop_index_is_a_size_from_0_on() {
    let mut graph = graph();
    graph.signatures[0].params[1] = ParamSig { name: "by".into(), kind: ParamKind::Dim(expr("B")) };
    if let Node::Call(CallNode { args, .. }) = &mut calls(&mut graph)[0] {
        args[1] = Arg::Int(expr("l"));
    }
    let program = lower(graph, &Schedule::default()).expect("it should lower");
    let params: Vec<Param> =
        program.tasks.iter().flat_map(|task| &task.calls).flat_map(|call| call.params.clone()).collect();
    assert_eq!(params, [Param::U32(0), Param::U32(1)]);
}

#[test]
fn a_bound_moves_with_the_position_at_every_position() {
    let with = |lo: &str, hi: &str| {
        let mut graph = graph();
        let span = Span::Range { lo: expr(lo), hi: expr(hi) };
        if let ParamKind::Tensor { region, .. } = &mut graph.signatures[0].params[0].kind {
            *region = vec![span];
        }
        graph
    };
    for (lo, hi) in
        [("pos % 2048", "pos % 2048 + 1"), ("0", "pos / 1500 + 1"), ("0", "2 * pos + 1"), ("0", "pos * pos + 1")]
    {
        let error = refused(with(lo, hi), &Schedule::default());
        assert!(error.code == "AMK0612" && error.headline.contains("is not `pos + constant`"), "{error}");
    }
    for (lo, hi) in [("pos", "pos + 1"), ("0", "1 + (2 * pos - pos)"), ("pos - pos", "N"), ("N / 2 % 3", "N")] {
        assert!(lower(with(lo, hi), &Schedule::default()).is_ok(), "{lo}..{hi}");
    }
}

#[test]
fn lowering_takes_time_in_proportion_to_the_ops() {
    let mut graph = graph();
    assert_eq!(amk_ir::shapes::check(&mut graph), []);
    let time = |layers: u32| {
        let dims = BTreeMap::from([("H".to_owned(), 16), ("L".to_owned(), layers)]);
        let instance = Instance { name: "deep".into(), dims, ..Instance::default() };
        let schedule = Schedule { workers: 1, ..Schedule::default() };
        let start = Instant::now();
        lower_with(&graph, &instance, &schedule).expect("it should lower");
        start.elapsed().as_secs_f64()
    };
    let few = time(200).max(time(200));
    let many = time(4000).min(time(4000));
    assert!(many < 100.0 * few, "20 times the layers take {:.0} times as long", many / few);
}

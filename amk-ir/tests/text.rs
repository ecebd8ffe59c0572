//! The text format: what is printed reads back, and errors name the place.

use amk_ir::text::{ParseCause, parse, print};
use amk_ir::{Access, EventId, Exchange, Holds, Limits, Param, Queues, Routed, RoutedWait, Steps, TableId};

const EVERYTHING: &str = r#"program @decode.tiny
positions 32
steps pipelined
limits workers 8 local 232448 memory 1000000000
dim HIDDEN = 64
instruction i0 "amk_kernels::linear" linear(x, w) -> (y)
instruction i1 "amk_kernels::kv_append" kv_append(x, mut cache) { pos }
instruction i2 "amk_kernels::rms_norm" rms_norm(x, w) -> (y) { eps }
instruction i3 "odd" "a name"(out y, x, mut "mut") { "p q" }
op o0 "layers[0].wq: \"linear\"; first"
buffer b0 @x activation f32[64]
buffer b1 @w.layers[0].wq weight bf16[64, 64]
buffer b2 @q activation f32[64] packet 2
buffer b3 @cache state f32[2, 32, 16]
buffer b4 @"h of ;" local f32[64]
buffer b5 @y activation f32[64] at 4096
event e0 @x_done[4]
event e1 @q_done
event e2 @"tiles[0]"[2, 3]
task t0 o0: linear(b0[..], early b1[0..16, ..]) -> (b2[0..16]) wait e0[0] >= 4, e1 >= 1 signal e0[1]
task t1: rms_norm(b0[..], b9[1..2]) -> (b4[..]) {1e-5} then linear(b4[..], b1[16..32, ..]) -> (b2[16..32]) signal e1, e2[1, 2]
task t2: kv_append(b2[0..16], mut b3[0, pos, ..]) {pos} wait e2[99] >= 7
task t3: i3(out b0[0..1], b0[pos+2..pos+4], early mut b0[]) {7, inf, -0.0}
task t4:
worker w0: t0 t2
worker w1: t1
"#;

#[test]
fn every_construct_reads_back() {
    let program = parse(EVERYTHING).unwrap();
    let printed = print(&program);
    assert_eq!(program.to_string(), printed);
    assert_eq!(parse(&printed).unwrap(), program);
    assert_eq!(print(&parse(&printed).unwrap()), printed);
    assert_eq!(printed, EVERYTHING.replace("b9[1..2]", "b9[1]").replace("out b0[0..1]", "out b0[0]"));
    assert_eq!(program.steps, Steps::Pipelined);
    assert_eq!(program.buffers[2].exchange, Exchange::Packet { slots: 2 });
    assert_eq!(program.tasks[3].calls[0].operands[0].access, Access::Write);
    assert_eq!(program.tasks[1].signals[1].index, 5);
    assert!(matches!(program.tasks[1].calls[0].params[..], [Param::F32(x)] if x == 1e-5));
}

const TABLES: &str = r#"program @routed
instruction i0 "f" f(x) -> (y)
buffer b0 @topk activation u32[2, 3]
buffer b1 @rows activation f32[6, 8]
buffer b2 @w weight f32[4, 8]
table r0 @topk b0 routes 4 distinct
table r1 @"by hand" b9 splits 6
event e0 @packed[4]
event e1 @done[4]
task t0: f(b1[row r0[1, 2], ..]) -> (b1[rows r0[3], ..]) wait e0[1] >= 2, e1[2] >= count r0, e1[r0[0, 1]] >= 3 signal e1[0], e0[r0[1, 0]], e0[r1[7]]
task t1: f(b2[r0[0, 0], 2..4], early b1[row r1[9], 0]) -> (b1[0..2, ..] by rows r0[3]) wait e0[0] >= count r1
task t2: f(b7[] by r0[6], mut b1[rows r0[1], pos]) signal e0[r0[6]]
worker w0: t0
"#;

#[test]
fn tables_read_back() {
    let program = parse(TABLES).unwrap();
    assert_eq!(print(&program), TABLES);
    assert_eq!(parse(&print(&program)).unwrap(), program);
    assert_eq!(amk_ir::Program::from_json(&program.to_json().unwrap()).unwrap(), program);
    assert_eq!(program.tables[0].holds, Holds::Routes { values: 4, distinct: true });
    assert_eq!(program.tasks[0].calls[0].operands[0].routed, Some(Routed::Row { table: TableId(0), entry: 5 }));
    let count = RoutedWait::Count { event: EventId(1), value: 2, table: TableId(0) };
    assert_eq!(program.tasks[0].routed_waits[0], count);
    assert_eq!((program.tasks[0].waits.len(), program.tasks[0].routed_signals[0].entry), (1, 3));
    let outside = TABLES.replace("r0[1, 2]", "r0[1, 3]");
    assert_eq!(parse(&outside).unwrap_err().to_string().lines().next(), Some("10:21: index 3 is outside of extent 3"));
}

#[test]
fn json_reads_back() {
    let mut program = parse(EVERYTHING).unwrap();
    assert!(program.to_json().is_err(), "infinity has no JSON");
    program.tasks[3].calls[0].params[1] = Param::F32(0.1);
    let json = program.to_json().unwrap();
    assert_eq!(amk_ir::Program::from_json(&json).unwrap(), program);
    assert!(amk_ir::Program::from_json(&json.replacen("\"version\":1", "\"version\":2", 1)).is_err());
}

#[test]
fn limits_that_are_not_given_are_none() {
    let json = parse("program @t\ntask t0:\nworker w0: t0\n").unwrap().to_json().unwrap();
    let mut value: serde_json::Value = serde_json::from_str(&json).unwrap();
    let read = |value: &serde_json::Value| amk_ir::Program::from_json(&value.to_string());
    value["program"]["limits"] = serde_json::json!({ "workers": 2 });
    assert_eq!(read(&value).unwrap().limits, Limits { workers: 2, ..Limits::default() });
    value["program"]["limits"] = serde_json::json!({ "worker": 2 });
    assert!(read(&value).is_err(), "no limit has this name");
}

#[test]
fn tickets_read_back() {
    let program = parse("program @t\ntask t0:\nticket 3: t0 ; the order\n").unwrap();
    assert!(matches!(&program.queues, Queues::Ticket { workers: 3, order } if order.len() == 1));
    assert_eq!(parse(&print(&program)).unwrap(), program);
}

#[test]
fn errors_name_the_place() {
    let error = |text: &str| parse(text).unwrap_err();
    let at = |text: &str| (error(text).line, error(text).column);
    assert_eq!(error("").cause, ParseCause::NoProgram);
    assert_eq!(at("program @x\nbuffer b1 @x activation f32[4]"), (2, 8));
    assert_eq!(at("program @x\n\n  frob"), (3, 3));
    assert_eq!(at("program @x\ntask t0: f()"), (2, 10));
    assert_eq!(at("program @x\nticket 99999999999: t0"), (2, 8));
    assert_eq!(at("program @x\nworker w0: t0 x"), (2, 15));
    let text = error("program @x\ninstruction i0 \"f\" f() -> (y\n").to_string();
    assert_eq!(text, "2:29: expected `,` or `)`, found the end of the line");
}

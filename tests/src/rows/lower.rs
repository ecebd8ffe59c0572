//! Programs lowered from random graphs with rows in their schedule.

use crate::generate::Rng;
use amk_ir::lower::lower_with;
use amk_ir::schedule::{Assign, FuseInto, Fusion, QueuePolicy, RowSchedule, Schedule, Tile};
use amk_ir::{DType, Program, shapes, text::parse_graph};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The instructions that the graphs call. Each state has an axis of positions.
const INSTRUCTIONS: &str = "\
instruction linear(x: tensor[K], w: weight[N, K]) -> (y: f32[N]) {
    tile T = 1
    task n in 0..N step T: y[n..n + T] <- x[..], w[n..n + T, ..]
}
instruction add(a: tensor[N], b: tensor[N]) -> (y: f32[N]) {
    tile T = 1
    task n in 0..N step T: y[n..n + T] <- a[n..n + T], b[n..n + T]
}
instruction norm(x: tensor[N]) -> (y: f32[N]) {
}
instruction rotate(x: tensor[N], table: weight[C, N], pos: pos) -> (y: f32[N]) {
    task y[..] <- x[..], table[pos, ..]
}
instruction append(cache: out state[C, D], x: tensor[D], pos: pos) {
    task cache[pos, ..] <- x[..]
}
instruction attend(q: tensor[D], cache: state[C, D], pos: pos) -> (y: f32[D]) {
    task y[..] <- q[..], cache[0..pos + 1, ..]
}
instruction recall(q: tensor[D], cache: state[C, D], pos: pos) -> (y: f32[D]) {
    task y[..] <- q[..], cache[pos, ..]
}
";

/// A random program that lowering makes; `None` where it refuses the schedule.
pub fn program(rng: &mut Rng) -> Option<Program> {
    let text = graph(rng);
    let mut graph = parse_graph(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let errors = shapes::check(&mut graph);
    assert!(errors.is_empty(), "{errors:?}\n{text}");
    let schedule = schedule(rng);
    lower_with(&graph, &graph.instances[0], &schedule).ok().map(|lowered| lowered.program)
}

/// The text of a graph: a few ops, most of them on what the op before has made.
fn graph(rng: &mut Rng) -> String {
    let (width, context) = (rng.between(1, 2), rng.between(2, 4));
    let mut text = format!("graph @lowered\ndims H, C\ninstance one(H = {width}, C = {context})\n");
    text.push_str("layout w: W {\n    m: weight[H, H] \"m\"\n    t: weight[C, H] \"t\"\n");
    text.push_str("    k: state[C, H]\n    v: state[C, H]\n}\n");
    text.push_str(INSTRUCTIONS);
    text.push_str("fn (x: tensor f32[H], pos: pos, w: W) {\n");
    let mut values = vec!["x".to_owned()];
    for n in 0..rng.between(1, 4) {
        let last = values.last().cloned().unwrap_or_default();
        let read = if rng.chance(70) { last } else { rng.pick(&values).cloned().unwrap_or_default() };
        let state = if rng.chance(70) { "k" } else { "v" };
        let call = match rng.below(100) {
            0..15 => format!("linear({read}, w.m)"),
            15..32 => format!("add({read}, {})", rng.pick(&values).map_or("x", String::as_str)),
            32..45 => format!("norm({read})"),
            45..52 => format!("rotate({read}, w.t, pos)"),
            52..80 => {
                let _ = writeln!(text, "    append(w.{state}, {read}, pos)");
                format!("attend({read}, w.{state}, pos)")
            }
            80..90 => format!("attend({read}, w.{state}, pos)"),
            _ => format!("recall({read}, w.{state}, pos)"),
        };
        let _ = writeln!(text, "    v{n}: f32[H] = {call}");
        values.push(format!("v{n}"));
        if rng.chance(20) {
            let _ = writeln!(text, "    append(w.{state}, v{n}, pos)");
        }
    }
    let last = values.last().map_or("x", String::as_str);
    let _ = writeln!(text, "    return {last}\n}}");
    text
}

fn schedule(rng: &mut Rng) -> Schedule {
    let most = rng.between(1, 4);
    let block = rng.chance(75).then(|| rng.between(1, most));
    let fusions = [
        ("norm", FuseInto::Consumers),
        ("rotate", FuseInto::Consumers),
        ("add", FuseInto::Producer),
        ("append", FuseInto::Producer),
        ("attend", FuseInto::Producer),
        ("norm", FuseInto::Producer),
        ("linear", FuseInto::Producer),
    ];
    let mut fuse: Vec<Fusion> = Vec::new();
    for (op, into) in fusions {
        if rng.chance(30) && !fuse.iter().any(|fusion| fusion.op == op) {
            fuse.push(Fusion { op: op.to_owned(), into });
        }
    }
    let tile = |rng: &mut Rng| if rng.chance(50) { Tile::Size(1) } else { Tile::Whole };
    let tiled: BTreeMap<String, Tile> = ["linear", "add"].iter().map(|op| ((*op).to_owned(), tile(rng))).collect();
    Schedule {
        workers: rng.between(1, 3),
        tiles: tiled,
        queue: if rng.chance(20) { QueuePolicy::Ticket } else { QueuePolicy::Static },
        assign: if rng.chance(30) { Assign::Balanced } else { Assign::RoundRobin },
        rows: Some(RowSchedule { most, block }),
        weights: DType::F32,
        fuse,
        ..Schedule::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soundness::codes;

    /// Random graphs reach what lowering does with rows.
    #[test]
    fn most_graphs_lower() {
        let drawn = (0..300).filter_map(|n| program(&mut Rng::new(7, n)));
        let (mut programs, mut accepted, mut fused, mut wanted) = (0, 0, 0, 0);
        for program in drawn {
            let calls = || program.tasks.iter().flat_map(|task| &task.calls);
            programs += 1;
            accepted += u32::from(codes(&program).is_empty());
            fused += u32::from(program.tasks.iter().any(|task| task.calls.len() > 1));
            wanted += u32::from(calls().any(|call| call.rows.is_some_and(|rows| rows.wanted)));
        }
        assert!(
            programs > 150 && accepted > 100 && fused > 30 && wanted > 50,
            "{programs} {accepted} {fused} {wanted}"
        );
    }
}

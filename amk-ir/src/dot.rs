//! A program as a Graphviz graph: one node per op, one edge per dependency between ops.

use crate::text::Shown;
use crate::{BufferKind, EventId, Exchange, Program, Task, TaskId};
use core::fmt::Write;
use std::collections::{BTreeMap, BTreeSet};

/// The program's ops and their dependencies in the DOT language.
///
/// An op's node names its tasks; solid edges are waits on events, dashed ones are packets.
pub fn dot(program: &Program) -> String {
    let mut out =
        String::from("digraph program {\n    rankdir = TB;\n    node [shape = box, fontname = \"monospace\"];\n");
    let mut tasks: BTreeMap<u32, Vec<TaskId>> = BTreeMap::new();
    for (index, task) in program.tasks.iter().enumerate() {
        tasks.entry(op(task)).or_default().push(TaskId::from(index));
    }
    for (number, members) in &tasks {
        let label = program.ops.get(*number as usize).map_or("tasks without an op", String::as_str);
        // Graphviz has escape sequences inside strings.
        let label = Shown(label).to_string().replace('\\', "\\\\").replace('"', "\\\"");
        let plural = if members.len() == 1 { "" } else { "s" };
        let _ = writeln!(out, "    o{number} [label = \"{label}\\n{} task{plural}\"];", members.len());
    }
    for (from, to) in event_edges(program) {
        let _ = writeln!(out, "    o{from} -> o{to};");
    }
    for (from, to) in packet_edges(program) {
        let _ = writeln!(out, "    o{from} -> o{to} [style = dashed];");
    }
    out.push_str("}\n");
    out
}

fn op(task: &Task) -> u32 {
    task.op.map_or(u32::MAX, |op| op.0)
}

fn event_edges(program: &Program) -> BTreeSet<(u32, u32)> {
    let mut signalling: BTreeMap<_, BTreeSet<u32>> = BTreeMap::new();
    for task in &program.tasks {
        for signal in &task.signals {
            signalling.entry(*signal).or_default().insert(op(task));
        }
    }
    let waits = program.tasks.iter().flat_map(|task| task.waits.iter().map(move |wait| (task, wait.on)));
    let fixed =
        waits.flat_map(|(task, on)| signalling.get(&on).into_iter().flatten().map(move |&from| (from, op(task))));
    fixed.chain(routed_edges(program)).collect()
}

/// Only the run determines which element a table names: an edge from every task that signals the
/// event tensor.
fn routed_edges(program: &Program) -> BTreeSet<(u32, u32)> {
    let mut signalling: BTreeMap<EventId, BTreeSet<u32>> = BTreeMap::new();
    let mut waiting = BTreeSet::new();
    for task in &program.tasks {
        let routed = task.routed_signals.iter().map(|signal| signal.event);
        for event in task.signals.iter().map(|signal| signal.event).chain(routed) {
            signalling.entry(event).or_default().insert(op(task));
        }
        waiting.extend(task.routed_waits.iter().map(|wait| (wait.event(), op(task))));
    }
    let from = |event| signalling.get(&event).into_iter().flatten();
    waiting.into_iter().flat_map(|(event, to)| from(event).map(move |&from| (from, to))).collect()
}

fn packet_edges(program: &Program) -> BTreeSet<(u32, u32)> {
    let mut writers: BTreeMap<_, BTreeSet<u32>> = BTreeMap::new();
    let mut edges = BTreeSet::new();
    for task in &program.tasks {
        for operand in task.calls.iter().flat_map(|call| &call.operands) {
            let Some(buffer) = program.buffers.get(operand.buffer.index()) else { continue };
            if buffer.kind == BufferKind::Local || buffer.exchange == Exchange::Counter {
                continue;
            }
            if operand.access.reads() {
                edges.extend(writers.get(&operand.buffer).into_iter().flatten().map(|&from| (from, op(task))));
            }
            if operand.access.writes() {
                writers.entry(operand.buffer).or_default().insert(op(task));
            }
        }
    }
    edges
}

//! Graph and program of one layer of each model, as text: a change of lowering shows as a
//! difference of these files.

use amk::ir::graph::Instance;
use amk::ir::schedule::Schedule;
use amk::ir::text;
use amk_bench::kernel_check::fused_as_a_whole;
use amk_cuda::{Precision, TARGETS, plan_for};
use amk_kernels::fused::Decoder;
use amk_models::model::FAMILIES;

#[test]
fn graphs_of_the_models() {
    for family in FAMILIES {
        let graph = family.kernel.graph().expect("the graph should parse");
        insta::assert_snapshot!(format!("graph_{}", family.name), without_places(&graph.to_string()));
    }
}

/// The text without the places of the sources, which move with every line above them.
fn without_places(text: &str) -> String {
    let without = |line: &str| match line.split_once(" at \"") {
        Some((before, place)) => format!("{before}{}\n", place.split_once('"').map_or("", |(_, after)| after)),
        None => format!("{line}\n"),
    };
    text.lines().map(without).collect()
}

#[test]
fn programs_of_one_layer() {
    for family in FAMILIES {
        let graph = family.kernel.graph().expect("the graph should parse");
        let dims = [
            ("VOCAB", 64),
            ("HIDDEN", 32),
            ("LAYERS", 1),
            ("HEADS", 4),
            ("KV_HEADS", 2),
            ("HEAD_DIM", 8),
            ("ROTARY", 8),
            ("FFN", 48),
            ("WINDOW", 8),
            ("TAPS", 3),
            ("CONTEXT", 16),
        ];
        let dims = dims.into_iter().filter(|(name, _)| graph.dims.iter().any(|dim| dim == name));
        let dims = dims.map(|(name, value)| (name.to_owned(), value)).collect();
        let instance = Instance { name: "one_layer".into(), dims, ..graph.instances[0].clone() };
        let schedule = Schedule { workers: 2, ..Schedule::default() };
        let program = family.kernel.lower(&instance, Some(&schedule)).expect("it should lower").program;
        insta::assert_snapshot!(format!("program_{}", family.name), text::print(&program));
    }
}

/// The program of a GPU whose fused bodies compute all of it: on two workers, with two layers, the
/// least for which attention is split; the second layer repeats the first.
#[test]
fn device_programs_of_a_layer() {
    for family in FAMILIES.into_iter().filter(|&family| fused_as_a_whole(family).expect("a plan")) {
        let graph = family.kernel.graph().expect("the graph should parse");
        let dims = [
            ("VOCAB", 32),
            ("HIDDEN", 32),
            ("LAYERS", 2),
            ("HEADS", 2),
            ("KV_HEADS", 1),
            ("HEAD_DIM", 64),
            ("ROTARY", 64),
            ("FFN", 64),
            ("WINDOW", 100),
            ("TAPS", 3),
            ("CONTEXT", 256),
        ];
        let dims = dims.into_iter().filter(|(name, _)| graph.dims.iter().any(|dim| dim == name));
        let dims = dims.map(|(name, value)| (name.to_owned(), value)).collect();
        let floats = [("w.eps", 1e-5), ("w.score_scale", 0.125), ("w.rotary.scale", 1.0)];
        let floats = floats.map(|(path, value)| (path.to_owned(), value)).into();
        let instance = Instance { name: "two_layers".into(), dims, floats, ..graph.instances[0].clone() };
        let schedule = Schedule { workers: 2, run: 2, ..TARGETS[5].schedule() };
        let plan = plan_for(family.kernel, &instance, &schedule, Precision::BF16).expect("a plan");
        let fused = plan.shared.get::<Decoder>().expect("fused bodies");
        assert_eq!(fused.layers.len() + fused.convolutions.len(), 2, "attention in splits, or convolutions");
        insta::assert_snapshot!(format!("device_program_{}", family.name), one_layer(&text::print(&plan.program)));
    }
}

/// Why the calls of a decoder are not fused or streamed on a GPU: with heads of a size that no
/// fused body computes, and without fusion.
#[test]
fn reasons_of_generic_tasks() {
    let family = FAMILIES.iter().find(|family| family.name == "qwen3").expect("a family");
    let dims = [
        ("VOCAB", 64),
        ("HIDDEN", 32),
        ("LAYERS", 2),
        ("HEADS", 4),
        ("KV_HEADS", 1),
        ("HEAD_DIM", 40),
        ("ROTARY", 40),
        ("FFN", 52),
        ("CONTEXT", 256),
    ];
    let dims = dims.map(|(name, value)| (name.to_owned(), value)).into_iter().collect();
    let graph = family.kernel.graph().expect("the graph should parse");
    let instance = Instance { name: "odd".into(), dims, ..graph.instances[0].clone() };
    let mut text = String::new();
    for (what, fusion) in [("by its own schedule", true), ("without fusion", false)] {
        let schedule = Schedule { workers: 2, fusion, ..TARGETS[5].schedule() };
        let plan = plan_for(family.kernel, &instance, &schedule, Precision::BF16).expect("a plan");
        text.push_str(&format!("{what}:\n{}\n\n", amk_cuda::plan::lines(&plan.missed).join("\n")));
    }
    insta::assert_snapshot!("reasons_qwen3", text);
}

/// A program's text without the tasks of the second layer, and its queues.
fn one_layer(text: &str) -> String {
    let ops: Vec<&str> = text.lines().filter(|line| line.starts_with("op ")).collect();
    let begins = |op: &&str| op.contains("\"project\"");
    let second = ops.iter().skip_while(|op| !begins(op)).skip(1).skip_while(|op| !begins(op));
    let second = second.take_while(|op| !op.contains("\"head\"")).filter_map(|op| op.split(' ').nth(1));
    let second: Vec<String> = second.map(|op| format!(" {op}: ")).collect();
    let kept = |line: &&str| {
        !(line.starts_with("worker ") || line.starts_with("task ") && second.iter().any(|op| line.contains(op)))
    };
    text.lines().filter(kept).map(|line| format!("{line}\n")).collect()
}

//! Graph and program of one layer of each model, as text: a change of lowering shows as a difference of these files.

use amk::ir::graph::Instance;
use amk::ir::schedule::Schedule;
use amk::ir::text;
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
            ("CONTEXT", 16),
        ];
        let dims = dims.map(|(name, value)| (name.to_owned(), value)).into_iter().collect();
        let instance = Instance { name: "one_layer".into(), dims, ..graph.instances[0].clone() };
        let schedule = Schedule { workers: 2, ..Schedule::default() };
        let program = family.kernel.lower(&instance, Some(&schedule)).expect("it should lower").program;
        insta::assert_snapshot!(format!("program_{}", family.name), text::print(&program));
    }
}

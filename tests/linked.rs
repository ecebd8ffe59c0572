//! Lowered programs call functions with the operands that they take, whatever the schedule.

use amk::Megakernel;
use amk::registry::Registry;
use amk_ir::schedule::{FuseInto, Fusion, QueuePolicy, Schedule, Tile};
use amk_models::model::FAMILIES;

fn schedules() -> [Schedule; 4] {
    let tiles = |tile| ["linear", "add", "silu_mul"].map(|name| (name.to_owned(), tile)).into();
    let fuse = |op: &str, into| Fusion { op: op.to_owned(), into };
    [
        Schedule::default(),
        Schedule { workers: 3, queue: QueuePolicy::Ticket, ..Schedule::default() },
        Schedule { workers: 5, tiles: tiles(Tile::Whole), ..Schedule::default() },
        Schedule {
            fuse: vec![fuse("rms_norm", FuseInto::Consumers), fuse("silu_mul", FuseInto::Producer)],
            ..Schedule::default()
        },
    ]
}

/// Ways in which the functions of a kernel's first instance are called, over all schedules.
fn links(kernel: &Megakernel) -> usize {
    let mut instance = kernel.graph().unwrap().instances[0].clone();
    if let Some(layers) = instance.dims.get_mut("LAYERS") {
        *layers = 2;
    }
    let graph = kernel.graph().unwrap();
    let calls = |name: &str| graph.signatures.iter().any(|called| called.name == name);
    let mut functions = 0;
    for mut schedule in schedules() {
        schedule.fuse.retain(|fuse| calls(&fuse.op));
        schedule.tiles.retain(|name, _| calls(name));
        let program = kernel.lower(&instance, Some(&schedule)).unwrap_or_else(|error| panic!("{error}")).program;
        let linked = Registry::linked().unwrap().link(&program);
        assert!(linked.missing.is_empty(), "{:?}", linked.missing);
        if let Some(unfit) = linked.unfit.first() {
            panic!("{}: {}", program.name, unfit.message(&program));
        }
        functions += linked.functions.len();
    }
    functions
}

#[test]
fn lowered_programs_call_functions_as_they_are() {
    for family in FAMILIES {
        let functions = links(family.kernel);
        assert!(functions > 25, "{}: {functions}", family.name);
    }
}

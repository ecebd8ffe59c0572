//! Programs for steps of rows on machines of any number of cores.

use amk::ir::Program;
use amk::ir::schedule::{RowSchedule, Schedule};
use amk::ir::verify::verify;
use amk_models::model::find_instance;

/// The program of a model of 36 layers.
fn program(workers: u32) -> Program {
    let (family, instance) = find_instance("qwen3.qwen3_8b").expect("a declared instance");
    assert_eq!(instance.dims["LAYERS"], 36);
    let rows = Some(RowSchedule { most: 128, block: None });
    let schedule = Schedule { workers, rows, ..Schedule::default() };
    let lowered = family.kernel.lower(&instance, Some(&schedule));
    lowered.unwrap_or_else(|error| panic!("{workers} workers: {error}")).program
}

#[test]
fn a_deep_model_is_lowered_for_any_number_of_workers() {
    for workers in [8, 16, 32, 64, 128, 256] {
        let program = program(workers);
        let mut tasks = vec![0; program.ops.len()];
        program.tasks.iter().filter_map(|task| task.op).for_each(|op| tasks[op.index()] += 1);
        // No op is cut into tiles and rows at once beyond what keeps all workers busy.
        let most = workers.max(128) as usize;
        let largest = tasks.into_iter().max().expect("ops");
        assert!((workers as usize..=most).contains(&largest), "{largest} tasks for {workers} workers");
    }
}

#[test]
fn a_deep_model_is_verified_for_many_workers() {
    verify(program(128)).unwrap_or_else(|rejected| panic!("{rejected}"));
}

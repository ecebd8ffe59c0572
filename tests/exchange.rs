//! How tasks wait for one another: the events of counters and barriers are part of the program, so
//! the verifier decides that they are safe, and the device code has one way to wait for them.

use crate::compiled::compiles;
use crate::gpu;
use amk::ir::schedule::{ExchangeBy, Schedule};
use amk::ir::verify::verify;
use amk::ir::{OpId, Program};
use amk_cuda::plan::Plan;
use amk_cuda::{CudaError, GpuTarget, Image, Precision, TARGETS, VmOptions, plan_for, source};
use amk_models::model::FAMILIES;
use std::collections::BTreeSet;

const EXCHANGES: [ExchangeBy; 2] = [ExchangeBy::Counters, ExchangeBy::Barrier];

fn plan_of(target: &GpuTarget, exchange: ExchangeBy, fusion: bool) -> Plan {
    let kernel = FAMILIES[0].kernel;
    let instance = kernel.instance("smollm2_135m").expect("it is declared");
    let schedule = Schedule { exchange, fusion, ..target.schedule() };
    plan_for(kernel, instance, &schedule, Precision::BF16).expect("it should be planned")
}

fn h200() -> &'static GpuTarget {
    TARGETS.iter().find(|target| target.name == "h200").expect("the target should have a record")
}

/// The label of an op, without its layer.
fn label(program: &Program, op: OpId) -> &str {
    program.ops[op.index()].split(' ').next().unwrap_or_default()
}

/// The ops whose tasks signal each event.
fn signallers(program: &Program) -> Vec<BTreeSet<OpId>> {
    let mut ops = vec![BTreeSet::new(); program.events.len()];
    for task in &program.tasks {
        task.signals.iter().for_each(|signal| ops[signal.event.index()].extend(task.op));
    }
    ops
}

#[test]
fn packets_need_no_events() {
    let plan = plan_of(h200(), ExchangeBy::Packets, true);
    assert!(plan.program.events.is_empty());
    assert!(plan.program.tasks.iter().all(|task| task.waits.is_empty() && task.signals.is_empty()));
}

#[test]
fn a_decoders_events_are_its_publishing_phases() {
    for exchange in EXCHANGES {
        for fusion in [true, false] {
            let plan = plan_of(h200(), exchange, fusion);
            let program = &plan.program;
            let verified = verify(program.clone()).unwrap_or_else(|rejected| panic!("{exchange:?}: {rejected}"));
            let image = Image::build(&verified, &plan).expect("the image should be the program");
            assert_eq!(image.events.len(), program.events.len());
            let ops = signallers(program);
            // Generic phases that read the same values share one.
            let neighbours = |ops: &BTreeSet<OpId>| ops.iter().zip(ops.iter().skip(1)).all(|(a, b)| b.0 == a.0 + 1);
            assert!(ops.iter().all(|ops| ops.len() == 1 || (!fusion && neighbours(ops))), "{ops:?}");
            let events: Vec<&str> = ops.iter().flatten().map(|&op| label(program, op)).collect();
            if fusion {
                let layer = ["project", "attend", "combine", "residual", "gated", "residual"];
                let expected: Vec<&str> = layer.repeat(30).into_iter().chain(["best"]).collect();
                assert_eq!(events, expected);
            }
            let waits = program.tasks.iter().filter(|task| !task.waits.is_empty()).count();
            let waiting = image.records.iter().filter(|record| record.wait != 0).count();
            let all = plan.tasks.len();
            println!("{exchange:?}, fusion {fusion}: {} events, {waits} of {all} tasks wait", events.len());
            assert_eq!(waits, waiting);
            let probes = |&(at, ..): &&(usize, u32, _)| plan.phases[*at].kind().skipped();
            assert!(waits > 0 && waits + plan.tasks.iter().filter(probes).count() < all);
            if !fusion {
                continue;
            }
            // No task waits before the first event, and no probe does. With counters neither does a
            // task that reads its own worker's data.
            let first = ops[0].iter().next().copied().expect("an op");
            let own: &[&str] = if exchange == ExchangeBy::Counters { &["best"] } else { &[] };
            for task in &program.tasks {
                let op = task.op.expect("every task has an op");
                let alone = op <= first || label(program, op) == "probe" || own.contains(&label(program, op));
                assert_eq!(task.waits.is_empty(), alone, "{exchange:?}: {}", program.ops[op.index()]);
            }
        }
    }
}

#[test]
fn the_verifier_decides_on_the_waits() {
    for exchange in EXCHANGES {
        let whole = plan_of(h200(), exchange, true).program;
        let signals = (0..whole.tasks.len()).find(|&task| !whole.tasks[task].signals.is_empty()).expect("a signal");
        let mut program = whole.clone();
        program.tasks[signals].signals.clear();
        assert!(verify(program).is_err(), "{exchange:?}: a wait for more signals than there are");
        // A task that waits for its own phase never runs.
        let both = |task: &&amk::ir::Task| !task.signals.is_empty() && !task.waits.is_empty();
        let mut program = whole;
        let at = program.tasks.iter().position(|task| both(&task)).expect("a task that waits and signals");
        program.tasks[at].waits[0].on = program.tasks[at].signals[0];
        program.tasks[at].waits[0].threshold = 1;
        let lone = program.tasks.iter().filter(|task| task.signals == program.tasks[at].signals).count();
        program.tasks[at].waits[0].threshold = lone as u32;
        assert!(verify(program).is_err(), "{exchange:?}: a wait for the task's own signal");
    }
}

#[test]
fn an_image_keeps_the_waits_of_the_program() {
    for exchange in EXCHANGES {
        let plan = plan_of(h200(), exchange, true);
        let verified = verify(plan.program.clone()).expect("it should be safe");
        let mut other = plan_of(h200(), ExchangeBy::Packets, true);
        assert!(matches!(Image::build(&verified, &other), Err(CudaError::Image { .. })));
        other.program = plan.program.clone();
        // The schedule does not matter: the program has the events.
        Image::build(&verified, &other).expect("the image should be the program");
    }
}

#[test]
fn the_device_code_compiles_for_every_architecture_and_exchange() {
    let mut known = BTreeSet::new();
    let targets = gpu::of_each_architecture().into_iter();
    let fused = targets.flat_map(|target| EXCHANGES.map(|exchange| (target, exchange, true)));
    for (target, exchange, fusion) in fused.chain([(h200(), ExchangeBy::Counters, false)]) {
        let code = source::generate(&plan_of(target, exchange, fusion), &VmOptions::default());
        if !known.insert((code.clone(), target.architecture)) {
            continue; // the exchange is in the records alone
        }
        if !compiles(&code, target.architecture, target.name) {
            return;
        }
    }
    println!("{} programs", known.len());
}

//! Measurements on a GPU: traces, exchanged schedules, the read ceiling. Prints "skipped" without
//! one.

use crate::gpu;
use amk::ir::schedule::{ExchangeBy, Ring, Schedule};
use amk_bench::relative_error;
use amk_cuda::{Ceiling, CudaError, RunOptions, Vm, VmOptions, probe};
use amk_kernels::fused::{Decoder, Draw};
use amk_models::model::{FAMILIES, Model};

/// Four layers of SmolLM2's shapes over random weights.
fn model() -> Model {
    let mut instance = FAMILIES[0].kernel.instance("smollm2_135m").expect("it is declared").clone();
    instance.dims.insert("LAYERS".into(), 4);
    Model::random(FAMILIES[0], &instance, 1024, &amk::encoding::BF16, amk::tensor::Inputs::F32).expect("a model")
}

/// A GPU's VM, or why there is none.
fn vm(model: &Model, options: VmOptions) -> Result<Vm, String> {
    let (kernel, instance) = (model.family.kernel, &model.instance);
    match Vm::new(kernel, instance, &model.bindings, &gpu::cubins(), &options, &mut |_| {}) {
        Ok(vm) => Ok(vm),
        Err(error @ (CudaError::NoDriver | CudaError::NoDevice)) => Err(error.to_string()),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_critical_path_of_a_traced_step_is_the_step() {
    let _alone = gpu::alone();
    let model = model();
    let mut vm = match vm(&model, VmOptions { trace: true, ..VmOptions::default() }) {
        Ok(vm) => vm,
        Err(why) => return println!("skipped: {why}"),
    };
    let trace = vm.trace(48, 16).expect("a trace");
    assert_eq!((trace.position, trace.tasks.len()), (63, vm.verified().program().tasks.len()));
    let summary = trace.summary(vm.verified().program());
    let critical: f64 = summary.ops.iter().map(|op| op.critical.total()).sum();
    println!("step {:.1} us, critical path {:.1} us", summary.step / 1e3, critical / 1e3);
    // The path begins where the step does; clocks of two workers differ by some nanoseconds.
    assert!((critical / summary.step - 1.0).abs() < 0.05, "{critical} of {}", summary.step);
    for task in &trace.tasks {
        let times = [task.start, task.ready(), task.product, task.gathered, task.end];
        assert!(times.is_sorted() && task.end <= summary.step, "{task:?}");
    }
    let share: f64 = summary.ops.iter().map(|op| op.share).sum();
    assert!(share > 0.5 && share <= 1.01, "tasks fill the step: {share}");
}

#[test]
fn a_vm_without_time_stamps_has_no_trace() {
    let _alone = gpu::alone();
    let model = model();
    match vm(&model, VmOptions::default()) {
        Ok(mut vm) => assert!(matches!(vm.trace(0, 4), Err(CudaError::Trace(_)))),
        Err(why) => println!("skipped: {why}"),
    }
}

#[test]
fn another_schedule_gives_the_same_logits() {
    let _alone = gpu::alone();
    let model = model();
    let mut vm = match vm(&model, VmOptions::default()) {
        Ok(vm) => vm,
        Err(why) => return println!("skipped: {why}"),
    };
    let (kernel, instance, own) = (model.family.kernel, &model.instance, vm.schedule().clone());
    let tokens: Vec<u32> = (0..600).map(|n| 17 + 91 * n % 40_000).collect();
    let logits = |vm: &mut Vm| {
        vm.run(&tokens[..596], 0, 596, &RunOptions::default(), &mut |_| {}).expect("the launch should end");
        let options = RunOptions { logits: true, ..RunOptions::default() };
        vm.run(&tokens[596..], 596, 4, &options, &mut |_| {}).expect("the launch should end").logits
    };
    let expected = logits(&mut vm);
    for schedule in [
        Schedule { ring: Ring { pace: 0, in_flight: 1, ..own.ring }, ..own.clone() },
        Schedule { ring: Ring { slots: 3, pace: 230, ..own.ring }, ..own.clone() },
        Schedule { ring: Ring { lookahead: 64, ..own.ring }, ..own.clone() },
        Schedule { exchange: ExchangeBy::Counters, ..own.clone() },
        Schedule { exchange: ExchangeBy::Barrier, ..own.clone() },
    ] {
        let shared = vm.with_schedule(kernel, instance, &gpu::cubins(), &schedule).expect("it should compile");
        let mut shared = shared.expect("the weights stay where they are");
        assert_eq!(shared.schedule(), &schedule);
        // Again with counters that have counted, after a launch that ended early.
        for _ in 0..2 {
            assert!(logits(&mut shared) == expected, "{schedule:?} changes no bit");
            let first = shared.run(&[1], 0, 1, &RunOptions::default(), &mut |_| {}).expect("the launch should end");
            let stops = RunOptions { stops: first.tokens, ..RunOptions::default() };
            assert_eq!(shared.run(&[1], 0, 9, &stops, &mut |_| {}).expect("the launch should end").tokens.len(), 1);
        }
        let draw = Draw { temperature: 1.0, top_k: 40, top_p: 0.9, seed: 7, ..Draw::default() };
        let draws = RunOptions::default().sampled(draw);
        let draw = |vm: &mut Vm| vm.run(&[1], 0, 50, &draws, &mut |_| {}).expect("the launch should end").tokens;
        assert_eq!(draw(&mut shared), draw(&mut vm), "{schedule:?}: filtered draws");
    }
    let split = Schedule { splits: 2, ..own.clone() };
    let other = vm.with_schedule(kernel, instance, &gpu::cubins(), &split).expect("it should compile");
    let mut other = other.expect("splits move no weights");
    let plain = Schedule { fusion: false, ..own.clone() };
    assert!(vm.with_schedule(kernel, instance, &gpu::cubins(), &plain).expect("it should compile").is_none());
    let error = relative_error(&logits(&mut other), &expected);
    println!(
        "two splits instead of {}: logits {error:.2e} away",
        Decoder::of(vm.plan()).expect("fused attention").splits()
    );
    assert!(error < 0.03, "{error}");
}

#[test]
fn the_read_ceiling_is_near_the_datasheet() {
    let _alone = gpu::alone();
    let ceiling = match Ceiling::new(&gpu::cubins()) {
        Ok(ceiling) => ceiling,
        Err(error @ (CudaError::NoDriver | CudaError::NoDevice)) => return println!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    };
    let rate = ceiling.sample().expect("a launch") / 1e9;
    let share = rate / f64::from(probe().expect("a GPU").datasheet_gb_per_s);
    println!("bare ring: {rate:.0} GB/s, {:.1}% of the datasheet's", 100.0 * share);
    assert!((0.7..1.02).contains(&share), "{share}");
}

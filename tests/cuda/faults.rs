//! The VM under faults: each ends in an error that names the cause, and the next launch or the next
//! VM works.

use super::smollm2;
use crate::gpu;
use amk::ir::schedule::{ExchangeBy, PartialSchedule, Schedule};
use amk::ir::{Access, Exchange, TaskId};
use amk_cuda::{CudaError, Faults, RunOptions, Stuck, Vm, VmOptions, compile};
use cudarc::driver::LaunchConfig;
use std::time::Duration;

/// A launch of 8 steps from position 0.
fn eight(vm: &mut Vm, deadline: Duration) -> Result<Vec<u32>, CudaError> {
    let options = RunOptions { deadline: Some(deadline), ..RunOptions::default() };
    vm.run(&[1, 504, 260], 0, 8, &options, &mut |_| {}).map(|run| run.tokens)
}

/// A task of the op that publishes, its worker, and the buffer.
fn publisher(vm: &Vm, op: &str) -> (TaskId, u32, String) {
    let program = vm.verified().program();
    let written = |id: &usize| {
        let task = &program.tasks[*id];
        let named = task.op.is_some_and(|label| program.ops[label.index()] == op);
        let operands = task.calls.iter().flat_map(|call| &call.operands).filter(|_| named);
        let to = operands.filter(|operand| operand.access == Access::Write).map(|operand| operand.buffer.index());
        to.map(|id| &program.buffers[id]).find(|buffer| buffer.exchange != Exchange::Counter)
    };
    let task = (0..program.tasks.len()).filter(|id| written(id).is_some()).nth(5).expect("a task that publishes");
    let buffer = written(&task).expect("it publishes").name.clone();
    let amk::ir::Queues::Static(queues) = &program.queues else { panic!("static queues") };
    let worker = queues.iter().position(|queue| queue.contains(&TaskId(task as u32))).expect("a worker");
    (TaskId(task as u32), worker as u32, buffer)
}

#[test]
fn a_packet_that_never_comes_is_named_at_the_deadline_and_the_next_launch_works() {
    let _alone = gpu::alone();
    let Ok((_, model)) = smollm2::load(64) else { return println!("skipped: no checkpoint") };
    let mut vm = match smollm2::vm(64, Faults::default()) {
        Ok(vm) => vm,
        Err(why) => return println!("skipped: {why}"),
    };
    let expected = eight(&mut vm, Duration::from_secs(5)).expect("nothing is wrong");
    for op in ["project", "residual", "best"] {
        let (task, worker, buffer) = publisher(&vm, op);
        let faults = Faults { drop: Some((task, 4)), delay_ns: 0 };
        let mut faulty =
            smollm2::start(&model, &VmOptions { faults, ..VmOptions::default() }).expect("it should start");
        let error = eight(&mut faulty, Duration::from_millis(300)).expect_err("a packet is missing");
        println!("t{} ({op}) of worker {worker} publishes nothing: {error}", task.0);
        let CudaError::Stuck(Stuck { event, wanted, found, step, .. }) = error else { panic!("{error}") };
        assert!(event.starts_with(&format!("`{buffer}[")), "{event}");
        // Epochs start at 1, one a step; `best` has two slots, so its last value is two steps old.
        let age = if buffer == "best" { 2 } else { 1 };
        assert_eq!((step, wanted, found), (4, 5, 5 - age));
        // The fault is in the step at position 4 alone: a launch that ends before it, and one that
        // begins after it, go through.
        let run = faulty.run(&[1, 504, 260], 0, 4, &RunOptions::default(), &mut |_| {}).expect("it should end");
        assert_eq!(run.tokens, expected[..4]);
        let run = faulty.run(&[7], 5, 3, &RunOptions::default(), &mut |_| {}).expect("it should end");
        assert_eq!(run.tokens.len(), 3);
    }
}

#[test]
fn a_counter_that_is_never_full_is_named_at_the_deadline_and_the_next_launch_works() {
    let _alone = gpu::alone();
    let Ok((_, model)) = smollm2::load(64) else { return println!("skipped: no checkpoint") };
    let vm = match smollm2::vm(64, Faults::default()) {
        Ok(vm) => vm,
        Err(why) => return println!("skipped: {why}"),
    };
    let counters = Schedule { exchange: ExchangeBy::Counters, ..vm.schedule().clone() };
    let schedule = Some(PartialSchedule::from(counters));
    for op in ["project", "residual", "best"] {
        let (task, worker, _) = publisher(&vm, op);
        let faults = Faults { drop: Some((task, 4)), delay_ns: 0 };
        let options = VmOptions { schedule: schedule.clone(), faults, ..VmOptions::default() };
        let mut faulty = smollm2::start(&model, &options).expect("it should start");
        let error = eight(&mut faulty, Duration::from_millis(300)).expect_err("an arrival is missing");
        println!("t{} ({op}) of worker {worker} does not arrive: {error}", task.0);
        let CudaError::Stuck(Stuck { event, wanted, found, step, .. }) = error else { panic!("{error}") };
        assert!(event.starts_with("the counter of `"), "{event}");
        // Five steps of arrivals but one.
        assert_eq!((step, wanted % 5, found), (4, 0, wanted - 1));
        let run = faulty.run(&[7], 5, 3, &RunOptions::default(), &mut |_| {}).expect("it should end");
        assert_eq!(run.tokens.len(), 3);
    }
}

#[test]
fn random_delays_change_no_bit() {
    let _alone = gpu::alone();
    let mut vm = match smollm2::vm(512, Faults::default()) {
        Ok(vm) => vm,
        Err(why) => return println!("skipped: {why}"),
    };
    let options = RunOptions { logits: true, ..RunOptions::default() };
    let run = |vm: &mut Vm| {
        let run = vm.run(&[1, 504, 260], 0, 20, &options, &mut |_| {}).expect("the launch should end");
        (run.logits.iter().map(|x| x.to_bits()).collect::<Vec<u32>>(), run.tokens, run.time)
    };
    let (logits, tokens, fast) = run(&mut vm);
    let repeats = std::env::var("AMK_REPEATS").ok().and_then(|text| text.parse().ok()).unwrap_or(25);
    for delay_ns in [5000, 50_000] {
        let mut late = smollm2::vm(512, Faults { drop: None, delay_ns }).expect("there is a GPU");
        let mut slowest = Duration::ZERO;
        for repeat in 0..repeats {
            let (again, chosen, time) = run(&mut late);
            assert!(again == logits && chosen == tokens, "{delay_ns} ns, repeat {repeat}");
            slowest = slowest.max(time);
        }
        println!(
            "{repeats} repeats with delays below {delay_ns} ns: the same bits, up to {slowest:?} instead of {fast:?}"
        );
    }
}

/// Set in the process that kills its context.
const KILL: &str = "AMK_KILL_CONTEXT";

/// The driver refuses every new context to a process that lost one: so the test runs in a separate
/// process, and this one goes on.
#[test]
fn a_dead_context_is_reported_and_another_process_goes_on() {
    let _alone = gpu::alone();
    if std::env::var_os(KILL).is_some() {
        return kill_context();
    }
    let mut vm = match smollm2::vm(64, Faults::default()) {
        Ok(vm) => vm,
        Err(why) => return println!("skipped: {why}"),
    };
    // The name of a test has no crate in front.
    let (_, module) = module_path!().split_once("::").expect("a module of the tests");
    let test = format!("{module}::a_dead_context_is_reported_and_another_process_goes_on");
    let process = std::env::current_exe().expect("this program");
    let mut process = std::process::Command::new(process);
    process.args(["--exact", &test, "--nocapture"]).env(KILL, "1");
    let killed = process.output().expect("it should start");
    let text = String::from_utf8_lossy(&killed.stdout);
    assert!(text.contains("1 passed") || !killed.status.success(), "no test has this name: {text}");
    text.lines().filter(|line| line.contains("context died")).for_each(|line| println!("{line}"));
    assert!(killed.status.success(), "{text}{}", String::from_utf8_lossy(&killed.stderr));
    assert_eq!(eight(&mut vm, Duration::from_secs(5)).expect("it should work").len(), 8);
}

fn kill_context() {
    let mut vm = smollm2::vm(64, Faults::default()).expect("there is a GPU");
    eight(&mut vm, Duration::from_secs(5)).expect("nothing is wrong");
    let code = "extern \"C\" __global__ void die() { *(volatile int*)8 = 1; }";
    let cubin = compile(code, vm.target().architecture).expect("it should compile");
    {
        let module = vm.context().load_module(cudarc::nvrtc::Ptx::from_binary(cubin.bytes)).expect("a module");
        let die = module.load_function("die").expect("the kernel");
        let stream = vm.context().default_stream();
        // SAFETY: it is meant to fault: the address is in no allocation.
        unsafe { stream.launch_builder(&die).launch(LaunchConfig::for_num_elems(1)) }.expect("the launch");
        stream.synchronize().expect_err("the address is illegal");
    }
    let error = eight(&mut vm, Duration::from_secs(5)).expect_err("the context is dead");
    println!("{error}");
    assert!(matches!(error, CudaError::Dead(_)), "{error}");
    drop(vm);
    let (_, model) = smollm2::load(64).expect("it was there");
    let error = smollm2::start(&model, &VmOptions::default()).err().expect("no new context in this process");
    assert!(matches!(error, CudaError::Dead(_)), "{error}");
}

#[test]
fn too_little_memory_is_an_error_that_says_how_much() {
    let _alone = gpu::alone();
    let vm = match smollm2::vm(64, Faults::default()) {
        Ok(vm) => vm,
        Err(why) => return println!("skipped: {why}"),
    };
    let (_, model) = smollm2::load(64).expect("it was there");
    let stream = vm.context().default_stream();
    let (free, _) = vm.context().mem_get_info().expect("the memory");
    // SAFETY: never read.
    let _most = unsafe { stream.alloc::<u8>(free - (100 << 20)) }.expect("nearly all of it");
    let error = smollm2::start(&model, &VmOptions::default()).err().expect("100 MiB are too few");
    println!("{error}");
    assert!(matches!(error, CudaError::Memory { needed, free, .. } if needed > free), "{error}");
}

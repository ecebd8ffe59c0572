//! The decoder with fast instructions of its own, wherever it can run.

use amk::ir::graph::Instance;
use amk::ir::schedule::Schedule;
use amk::ir::verify::verify;
use amk::ir::{Program, Queues, TaskId};
use amk::layout::{Source, SourceError, WeightRequest, build, zeroed};
use amk::prelude::*;
use amk::registry::Registry;
use amk::vm::Bindings;
use amk::vm::cpu;
use amk_cuda::plan::{Phase, Plan};
use amk_cuda::{CudaError, Faults, Image, Precision, RunOptions, TARGETS, Vm, VmOptions, compile, plan_for, source};
use amk_fast_instruction::{CAPPED_CHAIN, Caches, DECODE, Decoder, decode, squared_relu};
use amk_kernels::fused::Decoder as Fused;
use amk_kernels::{embed, linear};
use half::bf16;

/// Weights that depend on their names only.
struct Random;

impl Source for Random {
    fn weight(&mut self, request: &WeightRequest<'_>) -> Result<Weight, SourceError> {
        let mut state = request
            .name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
            | 1;
        let vector = request.shape.len() == 1;
        let mut draw = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let even = (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
            bf16::from_f32(if vector { 1.0 + 0.25 * even } else { 0.1 * even })
        };
        Ok(Weight::bf16(request.shape, (0..request.shape.iter().product()).map(|_| draw()).collect())?)
    }

    fn table(&mut self, _: &str, shape: &[usize]) -> Result<Weight, SourceError> {
        let len = shape[0];
        Ok(Weight::f32(shape, (0..len).map(|j| 10_000f32.powf(-(j as f32) / len as f32)).collect())?)
    }

    fn param(&mut self, path: &str) -> Result<f32, SourceError> {
        Ok(if path == "eps" {
            1e-5
        } else if path == "cap" {
            20.0
        } else {
            0.125
        })
    }

    fn flag(&mut self, _: &str) -> Result<bool, SourceError> {
        Ok(false)
    }
}

/// The function over random weights, and what a VM needs to run it.
struct Model {
    instance: Instance,
    weights: Decoder,
    cache: Caches,
    bindings: Bindings,
}

impl Model {
    fn new(name: &str) -> Self {
        let instance = DECODE.instance(name).expect("a declared instance");
        let weights: Decoder = build(&instance.dims, &mut Random).expect("weights");
        let bindings = Bindings::new().layout("w", &weights);
        let cache = zeroed(&instance.dims).expect("a cache");
        Self { instance: bindings.complete(instance), weights, cache, bindings }
    }

    fn eager(&mut self, token: u32, pos: u32) -> Tensor {
        decode(Token(token), Pos(pos), &self.weights, &mut self.cache)
    }

    fn token(&self, pos: u32) -> u32 {
        (17 + 91 * pos) % self.instance.dims["VOCAB"]
    }

    fn plan(&self, precision: Precision) -> Plan {
        let target = TARGETS.iter().find(|target| target.name == "h200").expect("a record");
        plan_for(&DECODE, &self.instance, &target.schedule(), precision).expect("it should be planned")
    }
}

/// The phases of `small` by generic bodies.
const OWN: [&str; 6] = [
    "rms_norm 0",
    "capped_linear+squared_relu 0",
    "rms_norm 1",
    "capped_linear+squared_relu 1",
    "rms_norm",
    "capped_linear",
];

fn generic<'p>(plan: &'p Plan) -> Vec<&'p str> {
    let label = |phase: &'p Phase| phase.generic().map(|generic| generic.label.as_str());
    plan.phases.iter().filter_map(label).collect()
}

#[test]
fn the_cpu_vm_gives_the_bits_of_the_function() {
    let mut model = Model::new("tiny");
    for workers in [1, 3] {
        let schedule = Schedule { workers, ..Schedule::default() };
        let program = DECODE.lower(&model.instance, Some(&schedule)).expect("a program").program;
        let mut vm = cpu::Vm::new(verify(program).expect("it should be safe"), &model.bindings).expect("a VM");
        for pos in 0..6 {
            let token = model.token(pos);
            let expected = model.eager(token, pos);
            assert_eq!(vm.step(Token(token), Pos(pos)).expect("a step").data(), expected.data());
        }
    }
}

#[test]
fn on_the_gpu_the_projection_streams_and_the_rectifier_joins_it() {
    let plan = Model::new("small").plan(Precision::BF16);
    assert_eq!(generic(&plan), OWN);
    assert_eq!(Fused::layers(&plan).len(), 2, "attention stays fused");
    let streams =
        |phase: &Phase| phase.generic().is_some_and(|generic| plan.sequences[generic.sequence].stream.is_some());
    let tiles: Vec<usize> = plan
        .phases
        .iter()
        .filter(|phase| streams(phase))
        .map(|phase| phase.generic().map_or(0, |generic| generic.tiles.len()))
        .collect();
    // Units of 16 rows: 160 on 132 workers, and 128.
    assert_eq!(tiles, [132, 132, 128]);
}

/// A network with built-in projections.
#[derive(WeightLayout)]
struct Plain {
    #[weight("table", [VOCAB, HIDDEN])]
    table: Weight,
    #[weight("up", [FFN, HIDDEN])]
    up: Weight,
    #[weight("down", [VOCAB, FFN])]
    down: Weight,
}

#[megakernel(dims(VOCAB, HIDDEN, FFN), instances(small(VOCAB = 2048, HIDDEN = 64, FFN = 2048)))]
#[expect(dead_code, reason = "only its plan is looked at")]
fn plain(token: Token, w: &Plain) -> Tensor {
    let x = embed(&w.table, token);
    linear(&squared_relu(&linear(&x, &w.up)), &w.down)
}

#[test]
fn behind_a_built_in_projection_the_rectifier_is_a_function_of_its_results() {
    let target = TARGETS.iter().find(|target| target.name == "h200").expect("a record");
    let instance = PLAIN.instance("small").expect("the instance");
    // ANCHOR: JOINED
    let plan = plan_for(&PLAIN, instance, &target.schedule(), Precision::BF16).expect("a plan");
    let name = |call: &amk::ir::Call| plan.program.instructions[call.instruction.index()].name.clone();
    let calls = |task: &amk::ir::Task| task.calls.iter().map(name).collect::<Vec<_>>();
    assert!(plan.program.tasks.iter().any(|task| calls(task).ends_with(&["linear".into(), "squared_relu".into()])));
    // ANCHOR_END: JOINED
    assert!(plan.bodies.is_empty(), "{:?}", plan.bodies);
    let code = source::generate(&plan, &VmOptions::default());
    assert!(code.contains("squared_relu_of(x)"), "the projections call it");
    match compile(&code, target.architecture) {
        Ok(cubin) => println!("{} bytes", cubin.bytes.len()),
        Err(CudaError::NoNvrtc) => println!("skipped: no NVRTC"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_matrix_that_the_stream_does_not_take_keeps_to_plain_loads_and_says_so() {
    let target = TARGETS.iter().find(|target| target.name == "h200").expect("a record");
    let mut instance = CAPPED_CHAIN.instance("small").expect("the instance").clone();
    instance.dims.insert("FFN".to_owned(), 290);
    // ANCHOR: WHY
    let plan = plan_for(&CAPPED_CHAIN, &instance, &target.schedule(), Precision::BF16).expect("a plan");
    let lines = amk_cuda::plan::lines(&plan.missed);
    let why = "the weight of `capped_linear` does not stream: its stream does not take `w.layers[l].up`, \
               which is 290 x 128 (l in 0..2)";
    assert!(lines.iter().any(|line| line == why), "{lines:#?}");
    // ANCHOR_END: WHY
    assert!(!lines.iter().any(|line| line.contains("square")), "what streams needs no reason: {lines:#?}");
}

#[test]
fn rows_are_dealt_in_whole_units_that_keep_the_tapes_level() {
    let target = TARGETS.iter().find(|target| target.name == "h200").expect("a record");
    let instance = CAPPED_CHAIN.instance("of_8b").expect("the instance");
    let instance = Instance {
        dims: [instance.dims.clone(), [("LAYERS".to_owned(), 2)].into()].into_iter().flatten().collect(),
        ..instance.clone()
    };
    let plan = plan_for(&CAPPED_CHAIN, &instance, &target.schedule(), Precision::BF16).expect("a plan");
    let verified = verify(plan.program.clone()).unwrap_or_else(|rejected| panic!("{rejected}"));
    let image = Image::build(&verified, &plan).expect("the image should be the program");
    let bytes: Vec<u64> = image.tape_at.windows(2).map(|ends| ends[1] - ends[0]).collect();
    let (least, most) = (bytes.iter().min().expect("workers"), bytes.iter().max().expect("workers"));
    // A unit of the widest rows is 448 KiB.
    assert!(most - least <= 448 << 10, "{least}..{most}");
    assert_eq!(bytes.iter().sum::<u64>(), 2 * (2 * (4096 * 4096 + 2 * 4096 * 14336) + (2048 + 8) * 4096));
}

#[test]
fn every_plan_is_safe_and_its_image_means_the_same_tasks() {
    for (name, precision) in
        [("tiny", Precision::BF16), ("small", Precision::BF16), ("tiny", Precision::F32), ("small", Precision::F32)]
    {
        let plan = Model::new(name).plan(precision);
        let verified = verify(plan.program.clone()).unwrap_or_else(|rejected| panic!("{name}: {rejected}"));
        let image = Image::build(&verified, &plan).expect("the image should be the program");
        println!("{name} {precision:?}: {} tasks, generic: {}", image.records.len(), generic(&plan).join(", "));
    }
}

/// The logits of a program on the CPU at the first positions.
fn on_cpu(model: &Model, program: Program, mode: cpu::Mode) -> Vec<Vec<f32>> {
    let token = program.buffers.iter().find(|buffer| buffer.name == "token").expect("tokens").clone();
    let options = cpu::Options { mode, ..cpu::Options::default() };
    let registry = Registry::linked().expect("the registry");
    let verified = verify(program).unwrap_or_else(|rejected| panic!("{rejected}"));
    let mut vm = cpu::Vm::with(verified, &model.bindings, &registry, options).expect("a VM");
    let step = |pos| {
        let given = Token(model.token(pos));
        vm.set_tokens(&token.name, &vec![given; token.len() as usize]).expect("tokens");
        vm.step(given, Pos(pos)).expect("a step").data().to_vec()
    };
    (0..6).map(step).collect()
}

fn bits(logits: &[Vec<f32>]) -> Vec<Vec<u32>> {
    logits.iter().map(|row| row.iter().map(|x| x.to_bits()).collect()).collect()
}

/// The device program's calls one after the other, in any order that it allows, and the function.
#[test]
fn the_device_program_computes_the_function_in_any_order() {
    for (name, precision, tolerance) in
        [("tiny", Precision::BF16, 0.05), ("small", Precision::BF16, 0.05), ("tiny", Precision::F32, 0.0)]
    {
        let mut model = Model::new(name);
        let program = model.plan(precision).program;
        let mut eager = program.clone();
        eager.queues = Queues::Static(vec![(0..program.tasks.len()).map(TaskId::from).collect()]);
        eager.limits.workers = 1;
        let expected = on_cpu(&model, eager, cpu::Mode::Threads);
        for mode in [cpu::Mode::Shuffled { seed: 1 }, cpu::Mode::Delayed { seed: 2 }] {
            assert_eq!(bits(&on_cpu(&model, program.clone(), mode)), bits(&expected), "{name} {precision:?} {mode:?}");
        }
        for (pos, found) in (0..).zip(&expected) {
            let token = model.token(pos);
            let function = model.eager(token, pos);
            let error = relative_error(found, function.data());
            assert!(error <= tolerance, "{name} {precision:?}: {error} at {pos}");
        }
    }
}

fn relative_error(found: &[f32], expected: &[f32]) -> f64 {
    let sums = found.iter().zip(expected).fold((0f64, 0f64), |(difference, norm), (a, b)| {
        (difference + f64::from(a - b).powi(2), norm + f64::from(*b).powi(2))
    });
    (sums.0 / sums.1).sqrt()
}

#[test]
fn the_device_code_compiles_for_every_target() {
    for (name, precision) in [("small", Precision::BF16), ("tiny", Precision::BF16), ("tiny", Precision::F32)] {
        let code =
            source::generate(&Model::new(name).plan(precision), &VmOptions { precision, ..VmOptions::default() });
        let every = if name == "small" { &TARGETS[..] } else { &TARGETS[..1] };
        for target in every {
            match compile(&code, target.architecture) {
                Ok(cubin) => {
                    println!("{name} {precision:?} on {}: {} bytes", target.name, cubin.bytes.len());
                    if std::env::var_os("AMK_LOG").is_some() {
                        println!("{}", cubin.log)
                    }
                }
                Err(CudaError::NoNvrtc) => return println!("skipped: no NVRTC"),
                Err(error) => panic!("{}: {error}", target.name),
            }
        }
    }
}

/// A VM on the GPU, or why there is none.
fn vm(model: &Model, options: &VmOptions) -> Result<Vm, CudaError> {
    let cubins = std::env::temp_dir().join("amk-test-cubins");
    match Vm::new(&DECODE, &model.instance, &model.bindings, &cubins, options, &mut |_| {}) {
        Err(error @ (CudaError::NoDriver | CudaError::NoDevice)) => Err(error),
        made => Ok(made.expect("a VM")),
    }
}

#[test]
fn the_gpu_gives_the_logits_of_the_function() {
    for (name, precision, tolerance) in [
        ("tiny", Precision::F32, 1e-4),
        ("small", Precision::F32, 1e-4),
        ("tiny", Precision::BF16, 0.05),
        ("small", Precision::BF16, 0.05),
    ] {
        let mut model = Model::new(name);
        let mut vm = match vm(&model, &VmOptions { precision, ..VmOptions::default() }) {
            Ok(vm) => vm,
            Err(why) => return println!("skipped: {why}"),
        };
        let mut worst = 0f64;
        for pos in 0..70 {
            let token = model.token(pos);
            let expected = model.eager(token, pos);
            let found = vm.step(token, pos).expect("a step");
            worst = worst.max(relative_error(found, expected.data()));
        }
        println!("{name} {precision:?}: relative error {worst:.2e} at most in 70 steps");
        assert!(worst < tolerance, "{name} {precision:?}: {worst}");
    }
}

#[test]
fn the_gpu_gives_the_same_bits_whenever_packets_come() {
    let model = Model::new("small");
    for precision in [Precision::BF16, Precision::F32] {
        let calm = VmOptions { precision, ..VmOptions::default() };
        let delayed = VmOptions { faults: Faults { delay_ns: 5000, ..Faults::default() }, ..calm.clone() };
        let mut expected = None;
        for (options, repeats) in [(calm, 50), (delayed, 10)] {
            let mut vm = match vm(&model, &options) {
                Ok(vm) => vm,
                Err(why) => return println!("skipped: {why}"),
            };
            let run = RunOptions { logits: true, ..RunOptions::default() };
            for repeat in 0..repeats {
                let found = vm.run(&[1, 5, 9], 0, 40, &run, &mut |_| {}).expect("a launch");
                let expected = expected.get_or_insert_with(|| (found.tokens.clone(), found.logits.clone()));
                assert!(
                    (found.tokens, found.logits) == *expected,
                    "repeat {repeat}, {precision:?}, {:?}",
                    options.faults
                );
            }
        }
        println!("{precision:?}: 50 repeats of 40 steps and 10 with delays of up to 5 us: the same bits");
    }
}

//! The decoder with instructions of its own, wherever it can run.

use amk::ir::graph::Instance;
use amk::ir::schedule::Schedule;
use amk::ir::verify::verify;
use amk::layout::{Source, SourceError, WeightRequest, build, zeroed};
use amk::prelude::*;
use amk::vm::Bindings;
use amk::vm::cpu;
use amk_cuda::plan::{Phase, Plan};
use amk_cuda::{CudaError, Faults, Image, Precision, RunOptions, TARGETS, Vm, VmOptions, compile, plan_for, source};
use amk_kernels::fused::{Adopt, Decoder as Fused};
use amk_user_instruction::{Caches, DECODE, Decoder, decode};
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
        Ok(if path == "eps" { 1e-5 } else { 0.125 })
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
fn on_the_gpu_its_own_calls_are_tasks_of_their_own_among_the_fast_ones() {
    let plan = Model::new("small").plan(Precision::BF16);
    let own = ["relu_squared_mul 0", "scale_by 0", "relu_squared_mul 1", "scale_by 1"];
    assert_eq!(generic(&plan), own);
    // The residual that `scale_by` made comes back to the workers that own its rows.
    let adopted = plan.phases.iter().filter(|phase| phase.as_kind::<Adopt>().is_some()).count();
    assert_eq!((Fused::layers(&plan).len(), adopted), (2, 1));
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

#[test]
fn the_device_code_compiles() {
    for (name, precision) in [("small", Precision::BF16), ("tiny", Precision::BF16), ("tiny", Precision::F32)] {
        let code =
            source::generate(&Model::new(name).plan(precision), &VmOptions { precision, ..VmOptions::default() });
        assert!(code.contains("AMK_DEVICE void scale_by(Task& t, In x, Weight w, Out y)"));
        match compile(&code, "sm_90a") {
            Ok(cubin) => println!("{name} {precision:?}: {} bytes", cubin.bytes.len()),
            Err(CudaError::NoNvrtc) => return println!("skipped: no NVRTC"),
            Err(error) => panic!("{error}"),
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
            let sums = found.iter().zip(expected.data()).fold((0f64, 0f64), |(difference, norm), (a, b)| {
                (difference + f64::from(a - b).powi(2), norm + f64::from(*b).powi(2))
            });
            worst = worst.max((sums.0 / sums.1).sqrt());
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

//! Generic tasks on the GPU: every call by its instruction's own device body. Plans, images and
//! device code need no GPU; the rest says "skipped" without one.

use crate::compiled::{self, compile};
use crate::gpu;
use amk::ir::EventId;
use amk::ir::graph::Instance;
use amk::ir::schedule::{ExchangeBy, Schedule};
use amk::ir::verify::verify;
use amk::layout::{Source, SourceError, WeightRequest, build};
use amk::prelude::*;
use amk::vm::Bindings;
use amk::vm::cpu;
use amk_bench::kernel_check::fused_as_a_whole;
use amk_cuda::plan::{Phase, Plan};
use amk_cuda::{CudaError, GpuTarget, Image, Precision, RunOptions, TARGETS, Vm, VmOptions, plan_for, source};
use amk_kernels::fused::{Decoder, Gemv};
use amk_kernels::{add, append, argmax, attention, embed, gelu_mul, kv_append, linear, rms_norm, rope, short_conv};
use amk_models::cache::{Cache, SMOLLM2_135M_INSTRUCT};
use amk_models::chain::Chain;
use amk_models::checkpoint::Checkpoint;
use amk_models::model::{FAMILIES, Family, Model, WeightFormat};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn target(name: &str) -> &'static GpuTarget {
    TARGETS.iter().find(|target| target.name == name).expect("the target should have a record")
}

/// Families of which the device's fused bodies compute every call.
fn fused() -> impl Iterator<Item = Family> {
    FAMILIES.into_iter().filter(|&family| fused_as_a_whole(family).expect("a plan"))
}

fn plans(families: impl Iterator<Item = Family>, precision: Precision) -> impl Iterator<Item = (String, Plan)> {
    families.flat_map(move |family| {
        let graph = family.kernel.graph().expect("a graph");
        graph.instances.iter().map(move |instance| {
            let plan = plan_for(family.kernel, instance, &target("h200").schedule(), precision);
            let name = format!("{}.{}", family.name, instance.name);
            let plan = plan.unwrap_or_else(|error| panic!("{name} should be planned: {error}"));
            (name, plan)
        })
    })
}

#[test]
fn plans_of_all_declared_instances_are_safe_and_their_images_mean_the_same_tasks() {
    let fused: BTreeSet<&str> = fused().map(|family| family.name).collect();
    let others: Vec<&str> = FAMILIES.iter().map(|family| family.name).filter(|name| !fused.contains(name)).collect();
    assert_eq!(others, ["phi"], "its head has a bias; the others are fused where sizes allow");
    // No fused body has heads with norms and without a rotation.
    let partly = ["exaone4.exaone4_32b"];
    for precision in [Precision::BF16, Precision::F32] {
        for (name, plan) in plans(FAMILIES.into_iter(), precision) {
            let generic = plan.phases.iter().filter(|phase| phase.generic().is_some()).count();
            println!(
                "{name} {precision:?}: {} tasks, {generic} of {} phases generic",
                plan.tasks.len(),
                plan.phases.len()
            );
            let family = name.split('.').next().unwrap_or_default();
            let slow = precision == Precision::F32 || others.contains(&family) || partly.contains(&name.as_str());
            assert_eq!(generic > 0, slow, "{name}: some calls are separate tasks");
            let verified = verify(plan.program.clone()).unwrap_or_else(|rejected| panic!("{name}: {rejected}"));
            let image = Image::build(&verified, &plan).expect("the image should be the program");
            assert_eq!(image.records.len(), plan.program.tasks.len());
        }
    }
}

#[test]
fn an_image_with_another_tile_is_refused() {
    let (_, mut plan) = plans(fused(), Precision::F32).next().expect("an instance");
    let verified = verify(plan.program.clone()).expect("it should be safe");
    for phase in &mut plan.phases {
        if let Some(generic) = phase.generic().filter(|generic| generic.tiles.len() > 1) {
            let mut swapped = generic.clone();
            swapped.tiles.swap(0, 1);
            *phase = Phase::new(swapped);
            break;
        }
    }
    assert!(matches!(Image::build(&verified, &plan), Err(CudaError::Image { .. })));
}

#[test]
fn generic_device_code_compiles_for_every_architecture() {
    compiles("qwen3", &gpu::of_each_architecture());
}

#[test]
fn device_code_of_a_convolution_compiles() {
    compiles("lfm2", &[&TARGETS[0]]);
}

#[test]
fn device_code_of_an_mlp_without_a_gate_compiles() {
    compiles("nemotron", &[&TARGETS[0]]);
    compiles("gpt_neox", &[&TARGETS[0]]);
}

/// Every call of a family has a generic body in f32.
fn compiles(family: &str, targets: &[&GpuTarget]) {
    let family = FAMILIES.into_iter().filter(|known| known.name == family);
    let (name, plan) = plans(family, Precision::F32).next().expect("an instance");
    let code = source::generate(&plan, &VmOptions { precision: Precision::F32, ..VmOptions::default() });
    for target in targets {
        if !compiled::compiles(&code, target.architecture, format_args!("{name} on {}", target.name)) {
            return;
        }
    }
}

/// Messages of the compiler name the file that somebody wrote, and its line there.
#[test]
fn an_error_in_a_body_names_its_file_and_line() {
    let (_, plan) = plans(fused(), Precision::F32).next().expect("an instance");
    let code = source::generate(&plan, &VmOptions { precision: Precision::F32, ..VmOptions::default() });
    let file = "amk-kernels/src/linear/body.cuh";
    let start = format!("#line 1 \"{file}\"\n");
    let (before, after) = code.split_once(&start).expect("the body of `linear`");
    let broken = format!("{before}{start}int broken = in_the_body; {after}int other = behind_all;\n");
    match compile(&broken, target("h200").architecture) {
        Err(CudaError::NoNvrtc) => println!("skipped: no NVRTC"),
        Err(CudaError::Compile { log }) => {
            assert!(log.contains(&format!("{file}(1): error: identifier \"in_the_body\"")), "{log}");
            let last = broken.lines().count();
            assert!(log.contains(&format!("vm.cu({last}): error: identifier \"behind_all\"")), "{last}: {log}");
        }
        other => panic!("{other:?}"),
    }
}

/// The labels of a plan's generic phases, without layers, each once.
fn generic(plan: &Plan) -> Vec<&str> {
    let mut labels: Vec<&str> = Vec::new();
    for phase in &plan.phases {
        if let Some(generic) = phase.generic() {
            let name = generic.label.split(' ').next().unwrap_or_default();
            if !labels.contains(&name) {
                labels.push(name);
            }
        }
    }
    labels
}

/// An instance of a model with some dims changed.
fn changed(family: &str, instance: &str, dims: &[(&str, u32)]) -> (&'static Megakernel, Instance) {
    let family = FAMILIES.iter().find(|known| known.name == family).expect("the family");
    let mut instance = family.kernel.instance(instance).expect("the instance").clone();
    instance.dims.extend(dims.iter().map(|&(dim, value)| (dim.to_owned(), value)));
    (family.kernel, instance)
}

#[test]
fn what_the_fast_code_does_not_compute_becomes_generic_tasks_and_the_rest_stays_fast() {
    let plan = |family, instance, dims: &[(&str, u32)]| {
        let (kernel, instance) = changed(family, instance, dims);
        plan_for(kernel, &instance, &target("h200").schedule(), Precision::BF16).expect("it should be planned")
    };
    let fast = |plan: &Plan| plan.phases.iter().filter(|phase| phase.as_kind::<Gemv>().is_some()).count();
    // Heads that are not whole tiles: the projections do not know of heads.
    let heads = plan("llama", "llama_3_2_1b", &[("HEAD_DIM", 72), ("ROTARY", 72), ("LAYERS", 2)]);
    assert_eq!(generic(&heads), ["rope+kv_append", "kv_append", "rope+attention"]);
    assert_eq!((Decoder::layers(&heads).len(), fast(&heads)), (0, 2 * 6 + 1));
    // Two elements of a head are turned.
    let partial = plan("qwen3", "qwen3_0_6b", &[("ROTARY", 2), ("LAYERS", 2)]);
    assert_eq!(generic(&partial), ["head_norm+rope+kv_append", "kv_append", "head_norm+rope+attention"]);
    let partial = plan("llama", "llama_3_2_1b", &[("ROTARY", 32), ("LAYERS", 2)]);
    assert_eq!((generic(&partial).len(), Decoder::layers(&partial).len()), (0, 2));
    let windows = plan("mistral", "mistral_7b", &[("LAYERS", 2), ("WINDOW", 100)]);
    assert_eq!((generic(&windows).len(), Decoder::layers(&windows).len()), (0, 2));
    // The number of rows is not a multiple of 32: only calls that read other rows are fused.
    let rows = plan("llama", "llama_3_2_1b", &[("FFN", 8200), ("LAYERS", 2)]);
    assert_eq!(generic(&rows), ["linear+add"]);
    assert_eq!((Decoder::layers(&rows).len(), fast(&rows)), (2, 2 * 3 + 1));
}

#[test]
fn no_projection_waits_for_the_state_of_a_convolution() {
    let (kernel, instance) = changed("lfm2", "lfm2_1_2b", &[("LAYERS", 3)]);
    let schedule = Schedule { exchange: ExchangeBy::Counters, ..target("h200").row_schedule(8) };
    let plan = plan_for(kernel, &instance, &schedule, Precision::BF16).expect("a plan");
    let labels: Vec<String> = plan.phases.iter().take(5).map(|phase| phase.kind().label()).collect();
    assert_eq!(labels, ["embed", "project", "gated", "convolve 0", "residual"]);
    let events = |phase: usize| -> BTreeSet<EventId> {
        let of_phase = plan.program.tasks.iter().zip(&plan.tasks).filter(|(_, (of, ..))| *of == phase);
        of_phase.flat_map(|(task, _)| &task.signals).map(|signal| signal.event).collect()
    };
    assert_eq!(events(1).len(), 1);
    assert_eq!(events(1), events(2), "all projections of a convolution are one wait");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    #[test]
    fn plans_of_any_dims_are_safe(
        family in 0..3usize,
        workers in 1..33u32,
        layers in 1..3u32,
        hidden in 1..80u32,
        (kv_heads, group) in (1..4u32, 1..5u32),
        half in prop_oneof![Just(32u32), Just(64), 1..20u32],
        ffn in 1..90u32,
        vocab in 1..40u32,
        f32 in any::<bool>(),
        exchange in prop_oneof![Just(ExchangeBy::Packets), Just(ExchangeBy::Counters), Just(ExchangeBy::Barrier)],
    ) {
        let family = &FAMILIES[family];
        let dims = [
            ("VOCAB", 8 * vocab), ("HIDDEN", 4 * hidden), ("LAYERS", layers),
            ("HEADS", kv_heads * group), ("KV_HEADS", kv_heads),
            ("HEAD_DIM", 2 * half), ("ROTARY", 2 * half), ("FFN", 4 * ffn), ("CONTEXT", 200),
        ];
        let mut instance = family.kernel.graph().expect("a graph").instances[0].clone();
        instance.dims.extend(dims.map(|(dim, value)| (dim.to_owned(), value)));
        let schedule = Schedule { workers, exchange, ..target("h200").schedule() };
        let precision = if f32 { Precision::F32 } else { Precision::BF16 };
        let plan = plan_for(family.kernel, &instance, &schedule, precision).expect("it should be planned");
        let verified = verify(plan.program.clone()).unwrap_or_else(|rejected| panic!("{rejected}"));
        prop_assert!(Image::build(&verified, &plan).is_ok());
    }
}

/// An instruction without a device body.
#[instruction(op = "negate", shape = "x: [N] -> y: [N]", task = "y[..] <- x[..]")]
fn negate(x: &Tensor) -> Tensor {
    x.data().iter().map(|x| -x).collect()
}

/// A table that is also the head.
#[derive(WeightLayout)]
struct Table {
    /// `[VOCAB, HIDDEN]`.
    #[weight("table", [VOCAB, HIDDEN])]
    table: Weight,
}

/// Calls it.
#[megakernel(dims(VOCAB, HIDDEN), instances(small(VOCAB = 64, HIDDEN = 32)))]
#[expect(dead_code, reason = "only its graph is planned")]
fn negated(token: Token, w: &Table) -> Tensor {
    linear(&negate(&embed(&w.table, token)), &w.table)
}

/// Gives two results.
#[megakernel(dims(VOCAB, HIDDEN), instances(small(VOCAB = 64, HIDDEN = 32)))]
#[expect(dead_code, reason = "only its graph is planned")]
fn chosen(token: Token, w: &Table) -> (Tensor, Token) {
    let logits = linear(&embed(&w.table, token), &w.table);
    let next = argmax(&logits);
    (logits, next)
}

/// Gives a number of logits that is not a multiple of 8.
#[megakernel(dims(VOCAB, HIDDEN), instances(odd(VOCAB = 63, HIDDEN = 32)))]
#[expect(dead_code, reason = "only its graph is planned")]
fn uneven(token: Token, w: &Table) -> Tensor {
    linear(&embed(&w.table, token), &w.table)
}

/// Embeds a token that it has chosen itself.
#[megakernel(dims(VOCAB, HIDDEN), instances(small(VOCAB = 1024, HIDDEN = 48)))]
fn twice(token: Token, w: &Table) -> Tensor {
    let x = embed(&w.table, token);
    let next = argmax(&linear(&x, &w.table));
    linear(&gelu_mul(&embed(&w.table, next), &x), &w.table)
}

/// A table, and what changes its rows.
#[derive(WeightLayout)]
struct Mixed {
    /// `[VOCAB, HIDDEN]`.
    #[weight("table", [VOCAB, HIDDEN])]
    table: Weight,
    /// `[HIDDEN, HIDDEN]`.
    #[weight("mix", [HIDDEN, HIDDEN])]
    mix: Weight,
    /// `[HIDDEN]`.
    #[weight("norm", [HIDDEN])]
    norm: Weight,
    /// `[HIDDEN, 3]`.
    #[weight("taps", [HIDDEN, 3])]
    taps: Weight,
}

/// A table, a matrix, and the frequencies by which keys turn.
#[derive(WeightLayout)]
struct Turned {
    /// `[VOCAB, HIDDEN]`.
    #[weight("table", [VOCAB, HIDDEN])]
    table: Weight,
    /// `[HIDDEN, HIDDEN]`.
    #[weight("mix", [HIDDEN, HIDDEN])]
    mix: Weight,
    /// `[HALF]`.
    #[weight("freqs", [HALF])]
    freqs: Weight,
    /// Elements of a head.
    #[dim(HIDDEN)]
    head_dim: usize,
}

/// Keys that are the values, too.
#[derive(WeightLayout)]
struct Keys {
    /// `[1, CONTEXT, HIDDEN]`.
    #[state([1, CONTEXT, HIDDEN])]
    keys: State,
}

/// Inputs of a convolution.
#[derive(WeightLayout)]
struct Convolved {
    /// `[CONTEXT, HIDDEN]`.
    #[state([CONTEXT, HIDDEN])]
    inputs: State,
}

/// Adds a product to itself.
#[megakernel(dims(VOCAB, HIDDEN), instances(small(VOCAB = 64, HIDDEN = 64)))]
#[expect(dead_code, reason = "only its graph is planned")]
fn doubled(token: Token, w: &Mixed) -> Tensor {
    let y = linear(&embed(&w.table, token), &w.mix);
    linear(&add(&y, &y), &w.table)
}

/// Adds a product to the norm that it is of.
#[megakernel(dims(VOCAB, HIDDEN), instances(small(VOCAB = 64, HIDDEN = 64)))]
#[expect(dead_code, reason = "only its graph is planned")]
fn added_to_a_norm(token: Token, w: &Mixed) -> Tensor {
    let h = rms_norm(&embed(&w.table, token), &w.norm, 1e-5);
    linear(&add(&h, &linear(&h, &w.mix)), &w.table)
}

/// Writes a position twice.
#[megakernel(dims(VOCAB, HIDDEN, CONTEXT), instances(small(VOCAB = 64, HIDDEN = 64, CONTEXT = 128)))]
#[expect(dead_code, reason = "only its graph is planned")]
fn rewritten(token: Token, pos: Pos, w: &Mixed, kept: &mut Convolved) -> Tensor {
    let x = embed(&w.table, token);
    append(&mut kept.inputs, &x, pos);
    append(&mut kept.inputs, &add(&x, &x), pos);
    linear(&short_conv(&kept.inputs, &w.taps, pos), &w.table)
}

/// Adds a norm of one product to the residual twice, the second time behind another norm.
#[megakernel(dims(VOCAB, HIDDEN), instances(small(VOCAB = 64, HIDDEN = 64)))]
#[expect(dead_code, reason = "only its graph is planned")]
fn normed_twice(token: Token, w: &Mixed) -> Tensor {
    let x = embed(&w.table, token);
    let y = linear(&rms_norm(&x, &w.norm, 1e-5), &w.mix);
    let x = add(&x, &rms_norm(&y, &w.norm, 1e-5));
    let z = linear(&rms_norm(&x, &w.norm, 1e-5), &w.mix);
    let x = add(&x, &rms_norm(&y, &w.norm, 1e-5));
    let x = add(&x, &rms_norm(&z, &w.norm, 1e-5));
    linear(&rms_norm(&x, &w.norm, 1e-5), &w.table)
}

/// Attends to keys that are the values, too.
#[megakernel(dims(VOCAB, HIDDEN, HALF, CONTEXT), instances(small(VOCAB = 64, HIDDEN = 64, HALF = 32, CONTEXT = 128)))]
#[expect(dead_code, reason = "only its graph is planned")]
fn keys_as_values(token: Token, pos: Pos, w: &Turned, cache: &mut Keys) -> Tensor {
    let x = embed(&w.table, token);
    kv_append(&mut cache.keys, &rope(&linear(&x, &w.mix), &w.freqs, w.head_dim, 1.0, pos), pos);
    let q = rope(&linear(&x, &w.mix), &w.freqs, w.head_dim, 1.0, pos);
    linear(&add(&x, &linear(&attention(&q, &cache.keys, &cache.keys, 0.125, pos), &w.mix)), &w.table)
}

/// A table whose rows differ.
pub(crate) struct Rows;

impl Source for Rows {
    fn weight(&mut self, request: &WeightRequest<'_>) -> Result<Weight, SourceError> {
        let value = |i: usize| ((i * 2_654_435_761) % 1009) as f32 / 504.0 - 1.0;
        Ok(Weight::f32(request.shape, (0..request.shape.iter().product()).map(value).collect())?)
    }

    fn table(&mut self, _: &str, _: &[usize]) -> Result<Weight, SourceError> {
        unreachable!("the layout has no table")
    }

    fn param(&mut self, _: &str) -> Result<f32, SourceError> {
        Ok(0.0)
    }

    fn flag(&mut self, _: &str) -> Result<bool, SourceError> {
        Ok(false)
    }
}

#[test]
fn a_token_chosen_within_the_function_is_a_packet_like_any_other() {
    let instance = TWICE.instance("small").expect("the instance");
    let plan = plan_for(&TWICE, instance, &target("h200").schedule(), Precision::F32).expect("it should be planned");
    assert_eq!(generic(&plan), ["embed", "linear", "argmax", "gelu_mul"]);
    let verified = verify(plan.program.clone()).unwrap_or_else(|rejected| panic!("{rejected}"));
    Image::build(&verified, &plan).expect("the image should be the program");
    let options = VmOptions { precision: Precision::F32, ..VmOptions::default() };
    match compile(&source::generate(&plan, &options), "sm_90a") {
        Ok(_) => {}
        Err(CudaError::NoNvrtc) => println!("not compiled: no NVRTC"),
        Err(error) => panic!("{error}"),
    }
    let weights: Table = build(&instance.dims, &mut Rows).expect("weights");
    let bindings = Bindings::new().layout("w", &weights);
    let _alone = gpu::alone();
    let cubins = gpu::cubins();
    let mut vm = match Vm::new(&TWICE, instance, &bindings, &cubins, &options, &mut |_| {}) {
        Ok(vm) => vm,
        Err(error @ (CudaError::NoDriver | CudaError::NoDevice)) => return println!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    };
    for token in [0, 3, 1023] {
        let expected = twice(Token(token), &weights);
        let found = vm.step(token, 0).expect("a step");
        let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-3 * (1.0 + b.abs());
        assert!(found.iter().zip(expected.data()).all(close), "token {token}");
    }
}

#[test]
fn what_cannot_run_is_named_with_the_call() {
    let refused = |kernel: &Megakernel| {
        let instance = &kernel.graph().expect("a graph").instances[0];
        let plan = plan_for(kernel, instance, &target("h200").schedule(), Precision::BF16);
        plan.expect_err("it should be refused").to_string()
    };
    let error = refused(&NEGATED);
    assert!(error.contains("`all::negate` has no device body") && error.contains("= negate("), "{error}");
    let error = refused(&CHOSEN);
    assert!(error.contains("one result, the logits"), "{error}");
}

#[test]
fn logits_of_any_number_have_a_plan_by_fused_and_by_generic_tasks() {
    let instance = UNEVEN.instance("odd").expect("the instance");
    for (precision, generic) in [(Precision::BF16, 0), (Precision::F32, 2)] {
        let plan = plan_for(&UNEVEN, instance, &target("h200").schedule(), precision).expect("a plan");
        assert_eq!(plan.phases.iter().filter(|phase| phase.generic().is_some()).count(), generic);
        assert_eq!((plan.schedule.workers, plan.shape(plan.logits)), (8, &[63][..]));
        let verified = verify(plan.program.clone()).unwrap_or_else(|rejected| panic!("{rejected}"));
        Image::build(&verified, &plan).expect("the image should be the program");
    }
}

#[test]
fn what_no_fused_body_finds_its_values_for_is_planned_by_generic_tasks() {
    let target = target("h200");
    for kernel in [&DOUBLED, &ADDED_TO_A_NORM, &REWRITTEN] {
        let instance = kernel.instance("small").expect("the instance");
        for schedule in [target.schedule(), target.row_schedule(4), target.row_schedule(40)] {
            let schedule = Schedule { workers: 4, ..schedule };
            let plan = plan_for(kernel, instance, &schedule, Precision::BF16).expect("it should be planned");
            assert!(generic(&plan).iter().any(|label| label.contains("add")));
            let verified = verify(plan.program.clone()).unwrap_or_else(|rejected| panic!("{rejected}"));
            Image::build(&verified, &plan).expect("the image should be the program");
        }
    }
}

#[test]
fn values_that_are_read_twice_as_the_fast_code_reads_them_once_have_a_plan() {
    let target = target("h200");
    for kernel in [&NORMED_TWICE, &KEYS_AS_VALUES] {
        let instance = kernel.instance("small").expect("the instance");
        for schedule in [target.schedule(), target.row_schedule(4), target.row_schedule(40)] {
            let schedule = Schedule { workers: 4, ..schedule };
            let plan = plan_for(kernel, instance, &schedule, Precision::BF16).expect("it should be planned");
            let verified = verify(plan.program.clone()).unwrap_or_else(|rejected| panic!("{rejected}"));
            Image::build(&verified, &plan).expect("the image should be the program");
        }
    }
}

/// SmolLM2 in f32, from `AMK_SMOLLM2` or the cache.
fn smollm2(context: usize) -> Result<Model, String> {
    let cached = || Cache::from_env().and_then(|cache| cache.resolve(&SMOLLM2_135M_INSTRUCT));
    let path = match std::env::var_os("AMK_SMOLLM2") {
        Some(path) => path.into(),
        None => cached().map_err(|error| Chain(&error).to_string())?,
    };
    let checkpoint = Checkpoint::open(&path).expect("the checkpoint should open");
    let model = Model::load(&checkpoint.config, checkpoint.tensors, context, WeightFormat::F32, &mut |_| {});
    Ok(model.expect("it should load"))
}

#[test]
fn smollm2_in_f32_gives_the_tokens_of_the_cpu_vm() {
    let _alone = gpu::alone();
    if let Err(why) = gpu::present() {
        return println!("skipped: {why}");
    }
    let model = match smollm2(512) {
        Ok(model) => model,
        Err(why) => return println!("skipped: {why}"),
    };
    let options = VmOptions { precision: Precision::F32, ..VmOptions::default() };
    let cubins = gpu::cubins();
    let mut vm =
        Vm::new(model.family.kernel, &model.instance, &model.bindings, &cubins, &options, &mut |_| {}).expect("a VM");
    let mut tokens = vec![504, 2365, 282, 260];
    let prompt = tokens.len();
    let steps = prompt - 1 + 256;
    let options = RunOptions { logits: true, ..RunOptions::default() };
    let run = vm.run(&tokens, 0, steps as u32, &options, &mut |_| {}).expect("the launch should end");
    let verified = model.family.kernel.verified(&model.instance, None).expect("it should be safe");
    let mut cpu = cpu::Vm::new(verified, &model.bindings).expect("a VM");
    let mut worst = 0f32;
    for (pos, found) in run.logits.chunks(49152).enumerate() {
        let expected = cpu.step(Token(tokens[pos]), Pos(pos as u32)).expect("a step");
        let norm = |values: &mut dyn Iterator<Item = f32>| values.map(|x| x * x).sum::<f32>().sqrt();
        let difference = norm(&mut found.iter().zip(expected.data()).map(|(a, b)| a - b));
        worst = worst.max(difference / norm(&mut expected.data().iter().copied()));
        if pos + 1 >= prompt {
            tokens.push(argmax(expected).0);
        }
    }
    println!("relative error of the logits {worst:.2e} at most in {steps} steps");
    assert_eq!(run.tokens[prompt - 1..], tokens[prompt..]);
    assert!(worst < 1e-4, "{worst}");
}

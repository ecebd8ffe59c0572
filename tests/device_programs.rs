//! Device programs on the CPU: the work of a GPU's workers, task by task, without a GPU.
//!
//! A plan is right if its program agrees with the annotated function, within the error of rounding
//! its packets to bf16; and if any order that its waits and packets allow agrees bit for bit with
//! its calls one after the other.

use crate::gpu;
use amk::ir::schedule::{ExchangeBy, Schedule};
use amk::ir::verify::verify;
use amk::ir::{Access, BufferKind, DType, Interval, Param, Program, Queues, TaskId};
use amk::registry::Registry;
use amk::vm::cpu::Mode;
use amk_bench::kernel_check::{Decoder, MOST_DEVIATIONS, Oracle, on_cpu};
use amk_cuda::plan::Plan;
use amk_cuda::{Image, Precision, TARGETS};
use amk_kernels::fused::{Addends, Decoder as Fused};
use amk_models::chain::Chain;
use amk_models::model::{FAMILIES, Family};
use proptest::prelude::*;
use std::collections::BTreeMap;

type Dims = BTreeMap<String, u32>;

fn dims(values: &[(&str, u32)]) -> Dims {
    values.iter().map(|&(name, value)| (name.to_owned(), value)).collect()
}

/// A decoder of two layers, in which the device fuses every call.
pub(crate) fn tiny() -> Dims {
    dims(&[
        ("VOCAB", 96),
        ("HIDDEN", 96),
        ("LAYERS", 2),
        ("HEADS", 4),
        ("KV_HEADS", 2),
        ("HEAD_DIM", 64),
        ("ROTARY", 64),
        ("FFN", 160),
        ("CONTEXT", 400),
    ])
}

/// The dims of a family's function among some, with those that only some families have.
pub(crate) fn sized(family: Family, dims: &Dims) -> Dims {
    let further = self::dims(&[("WINDOW", 50), ("TAPS", 3)]);
    let graph = family.kernel.graph().expect("a graph");
    further.into_iter().chain(dims.clone()).filter(|(name, _)| graph.dims.contains(name)).collect()
}

/// Six workers, three splits of a key head's cache, in runs of two blocks: the first split ends at
/// position 128.
fn schedule() -> Schedule {
    let target = TARGETS.iter().find(|target| target.name == "h200").expect("a record");
    Schedule { workers: 6, run: 2, ..target.schedule() }
}

/// The same calls by one worker, one after the other in eager order.
pub(crate) fn eager(program: &Program) -> Program {
    let mut eager = program.clone();
    eager.queues = Queues::Static(vec![(0..program.tasks.len()).map(TaskId::from).collect()]);
    eager.limits.workers = 1;
    eager
}

pub(crate) fn bits(logits: &[Vec<f32>]) -> Vec<Vec<u32>> {
    logits.iter().map(|row| row.iter().map(|x| x.to_bits()).collect()).collect()
}

/// The logits of a decoder's device program, which are the same in all of these orders.
fn in_any_order(decoder: &Decoder, plan: &Plan, modes: &[Mode]) -> Vec<Vec<f32>> {
    let expected = decoder.on_program(eager(&plan.program), Mode::Threads).expect("the calls one after the other");
    for &mode in modes {
        let found = decoder.on_program(plan.program.clone(), mode).expect("the device program");
        assert_eq!(bits(&found), bits(&expected), "{mode:?}");
    }
    expected
}

/// The largest error, in deviations caused by rounding every value to bf16.
pub(crate) fn error(decoder: &Decoder, logits: &[Vec<f32>]) -> f64 {
    let expected = decoder.expected(1).expect("bindings").expect("formulas");
    let (error, step) = expected.error(&logits.to_vec());
    println!("{error:.2} deviations at step {step}");
    error
}

fn decoder(family: Family, steps: u32) -> Decoder {
    Decoder::new(family, tiny(), schedule(), steps, 3).expect("a decoder")
}

fn check_family(family: Family) {
    check(decoder(family, 270));
}

/// A decoder with a window of so many positions, which turns so many elements of a head.
pub(crate) fn windowed(window: u32, rotary: u32) -> (Family, Dims) {
    let family = FAMILIES.into_iter().find(|family| family.name == "mistral").expect("the family");
    (family, tiny().into_iter().chain(dims(&[("WINDOW", window), ("ROTARY", rotary)])).collect())
}

/// A decoder of another family, with some dims that [`tiny`] lacks.
pub(crate) fn with(family: &str, more: &[(&str, u32)]) -> (Family, Dims) {
    let family = FAMILIES.into_iter().find(|known| known.name == family).expect("the family");
    (family, tiny().into_iter().chain(dims(more)).collect())
}

/// Families whose layers have none of the features below.
pub(crate) fn plain() -> [(Family, Dims); 3] {
    ["llama", "qwen2", "qwen3"].map(|family| with(family, &[]))
}

/// Families with norms behind projections or a scaled embedding. Layers of two kinds differ in
/// window, frequencies and scale.
pub(crate) fn normed() -> [(Family, Dims); 5] {
    [
        with("gemma3", &[("WINDOW", 50)]),
        with("gemma2", &[("WINDOW", 130)]),
        with("gemma", &[]),
        with("olmo2", &[]),
        with("olmo3", &[("WINDOW", 20)]),
    ]
}

/// The same with heads of 256 elements.
pub(crate) fn long_heads() -> [(Family, Dims); 2] {
    let heads = [("HEAD_DIM", 256), ("ROTARY", 256)];
    [with("gemma3", &[("WINDOW", 50), heads[0], heads[1]]), with("gemma2", &[("WINDOW", 130), heads[0], heads[1]])]
}

/// Decoders whose heads are not whole vectors of a warp: of which a part is rotated, with norms of
/// heads, with bounded scores and a window.
pub(crate) fn odd_heads() -> [(Family, Dims); 3] {
    let of = |family, dim, rotary, more: &[(&str, u32)]| {
        let heads = [("HEADS", 8), ("KV_HEADS", 4), ("HEAD_DIM", dim), ("ROTARY", rotary)];
        with(family, &[&heads, more].concat())
    };
    [of("stablelm", 80, 20, &[]), of("qwen3", 48, 48, &[]), of("gemma2", 112, 112, &[("WINDOW", 130)])]
}

/// Families of which one layer rotates heads and the other does not.
pub(crate) fn partly_turned() -> [(Family, Dims); 1] {
    [with("smollm3", &[])]
}

/// Families with norms by the distance from the mean: with biases, and without in a block whose
/// attention and MLP are parallel.
pub(crate) fn centred() -> [(Family, Dims); 4] {
    [
        with("stablelm", &[]),
        with("nemotron", &[]),
        with("starcoder2", &[("WINDOW", 50)]),
        with("cohere2", &[("WINDOW", 50)]),
    ]
}

/// Decoders of which more query heads share a key head than an attention computes together: heads
/// are copied.
pub(crate) fn copied() -> [(Family, Dims); 2] {
    [with("glm4", &[("HEADS", 12), ("KV_HEADS", 1), ("ROTARY", 32)]), with("qwen3", &[("HEADS", 18), ("KV_HEADS", 2)])]
}

/// Families with short convolutions.
pub(crate) fn convolved() -> (Family, Dims) {
    let (family, dims) = with("lfm2", &[]);
    (family, sized(family, &dims))
}

/// Families that add more than products to the residual: multiplied ones.
pub(crate) fn summands() -> [(Family, Dims); 1] {
    [with("granite", &[])]
}

/// Decoders whose layers' last projections have units that do not divide over so many workers, and
/// columns in two and in five passes: with one and with three helpers, with a bias, with a norm
/// behind the projection.
fn left_over() -> [(u32, (Family, Dims)); 4] {
    let wide = [("FFN", 8224)];
    [
        (5, with("llama", &[("FFN", 4096)])),
        (11, with("starcoder2", &[wide[0], ("WINDOW", 50)])),
        (11, with("gemma3", &[wide[0], ("WINDOW", 50)])),
        (5, with("granite", &wide)),
    ]
}

/// A schedule for so many workers that splits the columns of left-over units.
fn splitting(workers: u32) -> Schedule {
    Schedule { workers, split_k: 1, ..schedule() }
}

fn check(decoder: Decoder) {
    let plan = decoder.plan(Precision::BF16).expect("a plan");
    assert!(plan.bodies.is_empty() && Fused::layers(&plan).len() == 2, "the device fuses all of it");
    let modes = [Mode::Shuffled { seed: 1 }, Mode::Shuffled { seed: 2 }, Mode::Delayed { seed: 3 }];
    let logits = in_any_order(&decoder, &plan, &modes);
    let error = error(&decoder, &logits);
    assert!(error < MOST_DEVIATIONS, "{error} deviations");
}

/// Decoders of one kind of layers and of two, with norms of heads and with windows.
pub(crate) fn cached() -> [(Family, Dims); 4] {
    [(FAMILIES[0], tiny()), with("qwen3", &[]), windowed(50, 48), with("gemma2", &[("WINDOW", 130)])]
}

#[test]
fn programs_with_caches_in_e4m3_compute_the_function_that_rounds_them() {
    for (family, dims) in cached() {
        println!("{}", family.name);
        let schedule = Schedule { cache: Some(DType::E4M3), ..schedule() };
        let narrow = Decoder::new(family, dims.clone(), schedule, 150, 3).expect("a decoder");
        let plan = narrow.plan(Precision::BF16).expect("a plan");
        let caches = plan.program.buffers.iter().filter(|buffer| buffer.dtype == DType::E4M3);
        assert_eq!(caches.map(|cache| cache.kind).collect::<Vec<_>>(), [BufferKind::State; 4]);
        let modes = [Mode::Shuffled { seed: 1 }, Mode::Delayed { seed: 3 }];
        let logits = in_any_order(&narrow, &plan, &modes);
        let of_narrow = error(&narrow, &logits);
        assert!(of_narrow < MOST_DEVIATIONS, "{of_narrow} deviations");
        let wide = Decoder::new(family, dims, self::schedule(), 150, 3).expect("a decoder");
        let of_wide = error(&wide, &logits);
        assert!(of_wide > MOST_DEVIATIONS, "{of_wide} deviations of the function with other caches");
    }
}

#[test]
fn caches_that_no_fused_body_computes_are_refused_by_name() {
    let plan = |dims: &Dims, cache, precision| {
        let schedule = Schedule { cache: Some(cache), ..schedule() };
        let decoder = Decoder::new(FAMILIES[0], dims.clone(), schedule, 1, 3).expect("a decoder");
        let found = decoder.plan(precision).map_err(|error| Chain(&error).to_string())?;
        let states = found.program.buffers.into_iter().filter(|buffer| buffer.kind == BufferKind::State);
        Ok::<_, String>(states.filter(|state| state.dtype != DType::U32).map(|cache| cache.dtype).collect::<Vec<_>>())
    };
    let (tiny, short) = (tiny(), with("llama", &[("HEAD_DIM", 40), ("ROTARY", 40)]).1);
    let heads = "its heads have 40 elements";
    for (dims, cache, precision, why) in [
        (&short, DType::E4M3, Precision::BF16, heads),
        (&short, DType::BF16, Precision::BF16, heads),
        (&tiny, DType::E4M3, Precision::F32, "in f32 every call does"),
    ] {
        let refused = plan(dims, cache, precision).expect_err("states of generic tasks");
        assert!(refused.contains(&format!("`kv.layers[0].k` is kept in {cache}")), "{refused}");
        assert!(refused.contains(&format!("runs by its generic body: {why}")), "{refused}");
    }
    for dims in [&short, &tiny] {
        assert_eq!(plan(dims, DType::F32, Precision::BF16), Ok(vec![DType::F32; 4]));
    }
}

#[test]
fn a_gpus_steps_over_caches_in_e4m3_compute_the_function_that_rounds_them() {
    let Some(_gpu) = gpu::alone() else { return println!("skipped: no GPU") };
    let target = TARGETS.iter().find(|target| target.name == "h200").expect("a record");
    for (family, dims) in cached().into_iter().chain(long_heads()).chain(odd_heads()) {
        println!("{}", family.name);
        let schedule = Schedule { workers: 40, run: 2, cache: Some(DType::E4M3), ..target.schedule() };
        let decoder = Decoder::new(family, dims, schedule, 270, 3).expect("a decoder");
        let error = error(&decoder, &decoder.on_cuda(&gpu::cubins()).expect("logits"));
        assert!(error < MOST_DEVIATIONS, "{error} deviations");
    }
}

#[test]
fn a_gpus_steps_compute_the_function() {
    let Some(_gpu) = gpu::alone() else { return println!("skipped: no GPU") };
    let target = TARGETS.iter().find(|target| target.name == "h200").expect("a record");
    let others = normed().into_iter().chain(long_heads()).chain(partly_turned()).chain(summands());
    let others = others.chain(centred()).chain(copied()).chain(odd_heads()).chain([convolved(), windowed(50, 48)]);
    let whole = plain().into_iter().chain(others).map(|decoder| (44, 0, decoder));
    let split = left_over().into_iter().map(|(workers, decoder)| (workers, 1, decoder));
    for (workers, split_k, (family, dims)) in whole.chain(split) {
        let schedule = Schedule { workers, run: 2, split_k, ..target.schedule() };
        let decoder = Decoder::new(family, dims, schedule, 270, 3).expect("a decoder");
        let error = error(&decoder, &decoder.on_cuda(&gpu::cubins()).expect("logits"));
        println!("{}: {error:.2} deviations", family.name);
        assert!(error < MOST_DEVIATIONS, "{error} deviations");
    }
}

#[test]
fn llamas_device_program_computes_the_function() {
    check_family(FAMILIES[0]);
}

#[test]
fn qwen2s_device_program_computes_the_function() {
    check_family(FAMILIES[1]);
}

#[test]
fn qwen3s_device_program_computes_the_function() {
    check_family(FAMILIES[2]);
}

#[test]
fn windows_and_heads_turned_in_part_compute_the_function() {
    for (window, rotary) in [(50, 48), (130, 16)] {
        let (family, dims) = windowed(window, rotary);
        check(Decoder::new(family, dims, schedule(), 270, 3).expect("a decoder"));
    }
}

#[test]
fn norms_behind_projections_and_layers_of_two_kinds_compute_the_function() {
    for (family, dims) in normed() {
        println!("{}", family.name);
        check(Decoder::new(family, dims, schedule(), 150, 3).expect("a decoder"));
    }
}

#[test]
fn layers_that_rotate_no_heads_compute_the_function() {
    for (family, dims) in partly_turned() {
        println!("{}", family.name);
        check(Decoder::new(family, dims, schedule(), 270, 3).expect("a decoder"));
    }
}

#[test]
fn products_that_change_before_they_are_added_compute_the_function() {
    for (family, dims) in summands() {
        println!("{}", family.name);
        check(Decoder::new(family, dims, schedule(), 150, 3).expect("a decoder"));
    }
}

#[test]
fn units_whose_columns_are_split_compute_the_function() {
    for (workers, (family, dims)) in left_over() {
        println!("{}", family.name);
        let split = Decoder::new(family, dims.clone(), splitting(workers), 70, 3).expect("a decoder");
        let plan = split.plan(Precision::BF16).expect("a plan");
        assert!(plan.phases_of::<Addends>().count() >= 2, "a split unit in each layer");
        check(split);
        let whole = Schedule { split_k: 0, ..splitting(workers) };
        let whole = Decoder::new(family, dims, whole, 70, 3).expect("a decoder").plan(Precision::BF16).expect("a plan");
        assert_eq!(whole.phases_of::<Addends>().count(), 0);
    }
}

#[test]
fn norms_by_the_distance_from_the_mean_compute_the_function() {
    for (family, dims) in centred() {
        println!("{}", family.name);
        check(Decoder::new(family, dims, schedule(), 150, 3).expect("a decoder"));
    }
}

#[test]
fn key_heads_that_many_queries_share_compute_the_function() {
    for (family, dims) in copied() {
        println!("{}", family.name);
        check(Decoder::new(family, dims, schedule(), 150, 3).expect("a decoder"));
    }
}

#[test]
fn short_convolutions_compute_the_function() {
    let (family, dims) = convolved();
    let decoder = Decoder::new(family, dims, schedule(), 150, 3).expect("a decoder");
    let plan = decoder.plan(Precision::BF16).expect("a plan");
    let fused = plan.shared.get::<Fused>().expect("fused bodies");
    assert!(plan.bodies.is_empty() && (fused.convolutions.len(), fused.layers.len()) == (1, 1), "the device fuses all");
    let modes = [Mode::Shuffled { seed: 1 }, Mode::Delayed { seed: 3 }];
    let error = error(&decoder, &in_any_order(&decoder, &plan, &modes));
    assert!(error < MOST_DEVIATIONS, "{error} deviations");
}

#[test]
fn heads_of_256_elements_compute_the_function() {
    for (family, dims) in long_heads() {
        check(Decoder::new(family, dims, schedule(), 150, 3).expect("a decoder"));
    }
}

#[test]
fn heads_of_any_number_of_tiles_compute_the_function() {
    for (family, dims) in odd_heads() {
        let schedule = Schedule { workers: 12, ..schedule() };
        check(Decoder::new(family, dims, schedule, 270, 3).expect("a decoder"));
    }
}

/// Of the first position: nothing bounds the others where an instruction is called by itself.
#[test]
fn what_only_device_programs_call_keeps_to_its_formulas() {
    let registry = Registry::linked().expect("the registry");
    let splits = ["attention_split", "normed_attention_split", "capped_attention_split", "unturned_attention_split"];
    let parts = ["attention_part", "capped_attention_part", "combine_splits"];
    const OTHERS: [&str; 6] = ["adopt", "best", "choose", "weigh", "sum_squares", "scale_by_squares"];
    for name in splits.into_iter().chain(parts).chain(OTHERS) {
        let entry = registry.get(&format!("amk_kernels::{name}")).expect("the instruction");
        let checked = on_cpu(entry, DType::BF16, 4, 5).unwrap_or_else(|error| panic!("{name}: {error}"));
        println!("{name}: {:.2} epsilons with {}", checked.error, checked.worst);
        assert!(checked.ok && checked.oracle == Oracle::F64, "{checked:?}");
    }
}

/// The plans of declared instances for every target only call linked functions, with matching
/// signatures.
#[test]
fn device_programs_call_linked_functions_as_they_are() {
    let registry = Registry::linked().expect("the registry");
    for family in FAMILIES {
        for instance in &family.kernel.graph().expect("a graph").instances {
            for precision in [Precision::BF16, Precision::F32] {
                let plan = amk_cuda::plan_for(family.kernel, instance, &TARGETS[5].schedule(), precision);
                let program = plan.expect("a plan").program;
                let linked = registry.link(&program);
                assert!(linked.missing.is_empty(), "{:?}", linked.missing);
                let unfit: Vec<String> = linked.unfit.iter().map(|unfit| unfit.message(&program).to_string()).collect();
                assert!(unfit.is_empty(), "{}.{}: {}", family.name, instance.name, unfit[0]);
            }
        }
    }
}

/// A fault that a planner might have, injected into every task where it can occur.
type Fault = (&'static str, fn(&mut Program));

/// Calls `change` on the operands and parameters of each call of an instruction.
fn change(program: &mut Program, name: &str, change: impl Fn(&mut amk::ir::Call)) {
    let names: Vec<String> = program.instructions.iter().map(|instruction| instruction.name.clone()).collect();
    let calls = program.tasks.iter_mut().flat_map(|task| &mut task.calls);
    let mut changed = 0;
    for call in calls.filter(|call| names[call.instruction.index()] == name) {
        change(call);
        changed += 1;
    }
    assert!(changed > 0, "the program calls `{name}`");
}

/// Moves the first interval of an operand.
fn moved(operand: &mut amk::ir::Operand, by: i64) {
    let first = &mut operand.region.intervals_mut()[0];
    let add = |base: u32| (i64::from(base) + by) as u32;
    *first = Interval::fixed(add(first.lo.base), add(first.hi.base));
}

const FAULTS: [Fault; 10] = [
    ("keys and values exchanged", |p| change(p, "attention_split", |call| call.operands.swap(1, 2))),
    ("two workers keep the same part of a cache", |p| {
        change(p, "attention_split", |call| {
            call.operands[3..6].iter_mut().filter(|operand| operand.access == Access::Update).for_each(|operand| {
                operand.region.intervals_mut()[1] = Interval::fixed(0, 1);
            });
        });
    }),
    ("a split is left out of the sum", |p| {
        change(p, "combine_splits", |call| {
            call.operands[..2].iter_mut().for_each(|operand| {
                operand.region.intervals_mut()[1] = Interval::fixed(1, 3);
            });
        });
    }),
    ("a split has runs of another length", |p| {
        change(p, "attention_split", |call| {
            if call.params[3] == Param::U32(1) {
                call.params[1] = Param::U32(64);
            }
        });
    }),
    ("two splits have one split's positions", |p| {
        change(p, "attention_split", |call| {
            if call.params[3] == Param::U32(1) {
                call.params[3] = Param::U32(0);
            }
        });
    }),
    ("another scale", |p| change(p, "attention_split", |call| call.params[5] = Param::F32(0.3))),
    ("rows of a weight off by one", |p| {
        change(p, "linear", |call| {
            let w = &mut call.operands[1];
            if w.region.intervals()[0].lo.base > 0 {
                moved(w, -1);
            }
        });
    }),
    ("a key head's queries are another's", |p| {
        change(p, "attention_split", |call| {
            let lo = call.operands[0].region.intervals()[0].lo.base;
            moved(&mut call.operands[0], if lo == 0 { 128 } else { -128 });
        });
    }),
    ("gate and up exchanged", |p| change(p, "silu_mul", |call| call.operands.swap(0, 1))),
    ("tokens counted from another row", |p| {
        change(p, "best", |call| {
            if let Param::U32(first @ 1..) = call.params[0] {
                call.params[0] = Param::U32(first - 1);
            }
        });
    }),
];

/// The same where layers are of two kinds and norms lie behind projections. The parameters of a
/// split are those of `capped_attention_split`.
const FAULTS_OF_KINDS: [Fault; 6] = [
    ("no window", |p| change(p, "capped_attention_split", |call| call.params[7] = Param::U32(400))),
    ("another bound", |p| change(p, "capped_attention_split", |call| call.params[6] = Param::F32(1e4))),
    ("another scale of rotated values", |p| {
        change(p, "capped_attention_split", |call| call.params[4] = Param::F32(1.1))
    }),
    ("the embedding is not scaled", |p| change(p, "scale", |call| call.params[0] = Param::F32(1.0))),
    ("logits without a bound", |p| change(p, "soft_cap", |call| call.params[0] = Param::F32(1e4))),
    ("a norm's part off by a packet", |p| {
        change(p, "add", |call| {
            let x = &mut call.operands[1];
            if x.region.intervals()[0].lo.base > 0 {
                moved(x, -2);
            }
        });
    }),
];

/// Whether a program is refused, or gives something else than the function.
fn found(decoder: &Decoder, program: Program) -> bool {
    let registry = Registry::linked().expect("the registry");
    if verify(program.clone()).is_err() || !registry.link(&program).unfit.is_empty() {
        return true;
    }
    let logits = decoder.on_program(program, Mode::Shuffled { seed: 5 }).expect("it should run");
    let error = error(decoder, &logits);
    error.is_nan() || error >= MOST_DEVIATIONS
}

#[test]
fn wrong_plans_are_found_without_a_gpu() {
    let (family, dims) = with("gemma2", &[("WINDOW", 50)]);
    let of_kinds = Decoder::new(family, dims, schedule(), 100, 3).expect("a decoder");
    find(&decoder(FAMILIES[0], 200), &FAULTS);
    find(&of_kinds, &FAULTS_OF_KINDS);
}

fn find(decoder: &Decoder, faults: &[Fault]) {
    let plan = decoder.plan(Precision::BF16).expect("a plan");
    assert!(!found(decoder, plan.program.clone()), "the right one");
    for (fault, change) in faults {
        let mut program = plan.program.clone();
        change(&mut program);
        assert_ne!(program, plan.program);
        println!("{fault}:");
        assert!(found(decoder, program), "{fault}");
    }
}

#[test]
fn a_dropped_write_is_refused() {
    let decoder = decoder(FAMILIES[0], 1);
    let plan = decoder.plan(Precision::BF16).expect("a plan");
    let is_published = |program: &Program, buffer: amk::ir::BufferId| {
        let buffer = &program.buffers[buffer.index()];
        buffer.kind == BufferKind::Activation && buffer.dtype == DType::BF16
    };
    let mut dropped = 0;
    for task in 0..plan.program.tasks.len() {
        let mut program = plan.program.clone();
        let calls = program.tasks[task].calls.clone();
        let writes = |call: &amk::ir::Call| {
            let published = |o: &amk::ir::Operand| o.access == Access::Write && is_published(&plan.program, o.buffer);
            call.operands.iter().any(published)
        };
        program.tasks[task].calls.retain(|call| !writes(call));
        if program.tasks[task].calls.len() == calls.len() || program.tasks[task].calls.is_empty() {
            continue;
        }
        assert!(verify(program).is_err(), "task {task} publishes nothing");
        dropped += 1;
    }
    assert!(dropped > 10, "{dropped}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(12) })]

    #[test]
    fn random_decoders_by_random_schedules(
        family in 0..3usize,
        (workers, run, splits) in (1..9u32, prop_oneof![Just(2u32), Just(4)], 1..6u32),
        (fusion, f32) in (prop::bool::weighted(0.8), prop::bool::weighted(0.2)),
        exchange in prop_oneof![Just(ExchangeBy::Packets), Just(ExchangeBy::Counters), Just(ExchangeBy::Barrier)],
        (kv_heads, group) in (1..3u32, 1..4u32),
        head in prop_oneof![8 => Just(64u32), 2 => Just(128), 2 => Just(40), 1 => Just(80), 1 => Just(96)],
        partial in prop::bool::weighted(0.15),
        (hidden, ffn, vocab, layers) in (4..8u32, 4..9u32, 12..20u32, prop_oneof![1 => Just(1u32), 4 => Just(2)]),
        (odd, short, seed) in (prop::bool::weighted(0.2), prop_oneof![3 => Just(0u32), 1 => 1..8u32], any::<u64>()),
    ) {
        let rotary = if partial { head / 2 } else { head };
        let dims = dims(&[
            ("VOCAB", 8 * vocab - short), ("HIDDEN", 32 * hidden), ("LAYERS", layers),
            ("HEADS", kv_heads * group), ("KV_HEADS", kv_heads),
            ("HEAD_DIM", head), ("ROTARY", rotary), ("FFN", 32 * ffn + if odd { 8 } else { 0 }), ("CONTEXT", 400),
        ]);
        let schedule = Schedule { workers, run, splits, fusion, exchange, ..schedule() };
        let precision = if f32 { Precision::F32 } else { Precision::BF16 };
        let mut decoder = Decoder::new(FAMILIES[family], dims, schedule, 140, seed).expect("a decoder");
        let plan = decoder.plan(precision).expect("a plan");
        let generic = plan.phases.iter().filter(|phase| phase.generic().is_some()).count();
        let (name, phases, layers) = (FAMILIES[family].name, plan.phases.len(), Fused::layers(&plan).len());
        println!("{name} {precision:?} {workers} workers: \
             {generic} of {phases} phases generic, {layers} layers of splits");
        let verified = verify(plan.program.clone()).unwrap_or_else(|rejected| panic!("{rejected}"));
        prop_assert!(Image::build(&verified, &plan).is_ok());
        let logits = in_any_order(&decoder, &plan, &[Mode::Shuffled { seed }]);
        if f32 {
            let function = decoder.eager();
            prop_assert_eq!(bits(&logits[..function.len()]), bits(&function), "nothing is rounded");
        } else {
            let error = error(&decoder, &logits);
            prop_assert!(error < MOST_DEVIATIONS, "{} deviations", error);
        }
    }

    /// With sizes that no model has, so that some calls are fused, and the others generic.
    #[test]
    fn random_decoders_of_every_family_with_odd_sizes(
        family in 0..FAMILIES.len(),
        (workers, run, splits) in (1..40u32, prop_oneof![Just(2u32), Just(4), Just(6)], 1..40u32),
        (late, split_k, exchange) in (
            0..64u32, 0..3u32,
            prop_oneof![Just(ExchangeBy::Packets), Just(ExchangeBy::Counters), Just(ExchangeBy::Barrier)],
        ),
        (f32, cache) in (prop::bool::weighted(0.1), prop_oneof![3 => Just(None), 1 => Just(Some(DType::E4M3))]),
        (kv_heads, group) in (1..5u32, 1..17u32),
        head in prop::sample::select(vec![16u32, 32, 40, 48, 64, 80, 96, 112, 128, 256]),
        turned in 1..5u32,
        (hidden, ffn, vocab, layers) in (1..10u32, 1..300u32, 1..200u32, 1..3u32),
        (whole, window, taps, seed) in (prop::bool::weighted(0.7), 1..120u32, 2..5u32, any::<u64>()),
    ) {
        let (hidden, ffn) = if whole { (hidden * 32, ffn.next_multiple_of(32)) } else { (hidden * 20, ffn) };
        let (kv_heads, group) = (kv_heads, group.min((1024 / head / kv_heads).max(1)));
        let dims = dims(&[
            ("VOCAB", vocab), ("HIDDEN", hidden), ("LAYERS", layers), ("HEADS", kv_heads * group),
            ("KV_HEADS", kv_heads), ("HEAD_DIM", head), ("ROTARY", head / 4 * turned.min(4)), ("FFN", ffn),
            ("WINDOW", window), ("TAPS", taps), ("CONTEXT", 150),
        ]);
        let family = FAMILIES[family];
        let schedule = Schedule { workers, run, splits, late, split_k, exchange, cache, ..schedule() };
        let precision = if f32 { Precision::F32 } else { Precision::BF16 };
        let mut decoder = Decoder::new(family, sized(family, &dims), schedule, 70, seed).expect("a decoder");
        let plan = match decoder.plan(precision) {
            Ok(plan) => plan,
            Err(error) => {
                let refused = Chain(&error).to_string();
                prop_assert!(cache.is_some() && refused.contains("is kept in e4m3"), "{}", refused);
                return Ok(());
            }
        };
        let generic = plan.phases.iter().filter(|phase| phase.generic().is_some()).count();
        println!("{} {dims:?} {precision:?}: {generic} of {} phases generic", family.name, plan.phases.len());
        let verified = verify(plan.program.clone()).unwrap_or_else(|rejected| panic!("{rejected}"));
        prop_assert!(Image::build(&verified, &plan).is_ok());
        let logits = in_any_order(&decoder, &plan, &[Mode::Shuffled { seed }, Mode::Delayed { seed }]);
        if f32 {
            let function = decoder.eager();
            prop_assert_eq!(bits(&logits[..function.len()]), bits(&function), "nothing is rounded");
        } else {
            let error = error(&decoder, &logits);
            prop_assert!(error < MOST_DEVIATIONS, "{} deviations", error);
        }
    }
}

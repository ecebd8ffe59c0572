//! Steps of exactly one row over pages: their program finds weights, caches and pages where that of
//! several rows has them. On a GPU it computes the function, and its bits depend on the row's own
//! sequence alone.

use crate::compiled::compile;
use crate::cuda::yields;
use crate::device_programs::{bits, long_heads, normed, odd_heads, sized, tiny, windowed};
use crate::gpu;
use crate::image::in_blocks;
use amk::Token;
use amk::ir::schedule::Schedule;
use amk::ir::verify::verify;
use amk::rows::{RowVm as _, SequenceId};
use amk::session::Session;
use amk_bench::kernel_check::{Decoder, MOST_DEVIATIONS, fused_as_a_whole};
use amk_cuda::plan::Plan;
use amk_cuda::{CudaError, GpuTarget, Image, Precision, RowsVm, TARGETS, VmOptions, WeightForms, plan_for, source};
use amk_kernels::fused::Addends;
use amk_models::model::{FAMILIES, Family};
use std::collections::BTreeMap;

/// Pages of the caches.
const PAGES: usize = 60;
/// Rows of the widest steps beside them.
const ROWS: u32 = 24;
/// Workers of the decoders, each of which has some of every weight.
const WORKERS: u32 = 6;

fn h200() -> &'static GpuTarget {
    TARGETS.iter().find(|target| target.name == "h200").expect("a record")
}

fn image(mut plan: Plan) -> Image {
    plan.set_pages(&PAGES.into(), ROWS);
    let verified = verify(plan.program.clone()).unwrap_or_else(|rejected| panic!("{rejected}"));
    Image::build(&verified, &plan).expect("the image should be the program")
}

/// Decoders of all families, and those with windows, long and odd heads and norms behind
/// projections.
fn decoders() -> impl Iterator<Item = (Family, BTreeMap<String, u32>)> {
    let all = FAMILIES.into_iter().map(|family| (family, sized(family, &tiny())));
    all.chain([windowed(50, 48)]).chain(normed()).chain(long_heads()).chain(odd_heads())
}

fn decoder((family, dims): (Family, BTreeMap<String, u32>), schedule: &Schedule, steps: u32) -> Decoder {
    let schedule = Schedule { workers: WORKERS, run: 2, ..schedule.clone() };
    Decoder::new(family, dims, schedule, steps, 3).expect("a decoder")
}

#[test]
fn weights_and_pages_of_one_row_are_those_of_several() {
    let mut alike = 0;
    for (family, dims) in decoders() {
        let image_of = |schedule: Schedule| {
            let decoder = decoder((family, dims.clone()), &schedule, 1);
            image(decoder.plan(Precision::BF16).expect("a plan"))
        };
        let (one, several) = (image_of(h200().schedule()), image_of(h200().row_schedule(8)));
        let shares = one.places_as(&several);
        println!("{}: {shares}", family.name);
        assert!(shares || !fused_as_a_whole(family).expect("a plan"), "{}", family.name);
        for rows in [24, 48] {
            assert!(!shares || one.places_as(&image_of(h200().row_schedule(rows))), "{}", family.name);
        }
        alike += u32::from(shares);
    }
    println!("{alike} decoders");
}

#[test]
fn weights_in_blocks_of_one_row_lie_as_those_of_several() {
    let family = FAMILIES.iter().find(|family| family.name == "llama").expect("the family");
    let instance = family.kernel.instance("smollm2_135m").expect("the instance");
    for encodings in [&[][..], &["Q4_K", "Q4_K", "Q6_K"], &["Q8_0", "int4:128", "MXFP4"]] {
        let of = |schedule: &Schedule| {
            let plan = plan_for(family.kernel, instance, schedule, WeightForms::from(Precision::BF16)).expect("a plan");
            let forms = in_blocks(&plan, encodings);
            image(plan_for(family.kernel, instance, schedule, forms).expect("a plan"))
        };
        assert!(of(&h200().schedule()).places_as(&of(&h200().row_schedule(8))), "{encodings:?}");
    }
}

/// Helpers read their owners' tapes; with rows nobody helps.
#[test]
fn weights_of_split_units_lie_as_those_of_several_rows() {
    for (family, instance) in [("llama", "llama_3_2_1b"), ("gemma2", "gemma_2_2b")] {
        let family = FAMILIES.iter().find(|known| known.name == family).expect("the family");
        let mut instance = family.kernel.instance(instance).expect("the instance").clone();
        instance.dims.extend([("LAYERS", 3), ("VOCAB", 4096)].map(|(dim, value)| (dim.to_owned(), value)));
        let of = |schedule: Schedule| {
            let schedule = Schedule { workers: 40, ..schedule };
            plan_for(family.kernel, &instance, &schedule, Precision::BF16).expect("a plan")
        };
        let [one, several, wide] = [h200().schedule(), h200().row_schedule(8), h200().row_schedule(24)].map(of);
        assert_eq!(one.phases_of::<Addends>().count(), 3);
        assert_eq!(several.phases_of::<Addends>().count(), 0);
        let [one, several, wide] = [one, several, wide].map(image);
        assert!(one.places_as(&several) && one.places_as(&wide), "{}", instance.name);
    }
}

/// Caches of one sequence, other pages and a f32 plan's states lie elsewhere.
#[test]
fn caches_without_pages_are_not_shared() {
    let of = (FAMILIES[0], tiny());
    let several = image(decoder(of.clone(), &h200().row_schedule(8), 1).plan(Precision::BF16).expect("a plan"));
    let one = decoder(of, &h200().schedule(), 1);
    let plan = one.plan(Precision::BF16).expect("a plan");
    let of_pages = |pages: usize| {
        let mut plan = plan.clone();
        plan.groups.clear();
        if pages > 0 {
            plan.set_pages(&pages.into(), ROWS);
        }
        let verified = verify(plan.program.clone()).expect("a safe program");
        Image::build(&verified, &plan).expect("an image").places_as(&several)
    };
    assert_eq!([0, PAGES - 1, PAGES, PAGES + 1].map(of_pages), [false, false, true, false]);
    assert!(!image(one.plan(Precision::F32).expect("a plan")).places_as(&several));
}

/// The compiler sees that the lanes of a warp stay together as well as in the code without pages.
#[test]
fn code_for_one_row_over_pages_compiles() {
    const MODELS: [(&str, &str); 4] =
        [("llama", "smollm2_135m"), ("llama", "llama_3_1_8b"), ("qwen3", "qwen3_0_6b"), ("gemma3", "gemma_3_4b")];
    // All models for one target, and half of them for each of two others.
    for (target, models) in [("h200", &MODELS[..]), ("a100", &MODELS[..2]), ("rtx5090", &MODELS[2..])] {
        let target = GpuTarget::named(target).expect("a record");
        for (family, name) in models {
            let kernel = FAMILIES.iter().find(|known| known.name == *family).expect("the family").kernel;
            let instance = kernel.instance(name).expect("the instance");
            let plan = plan_for(kernel, instance, &target.schedule(), Precision::default()).expect("a plan");
            let yields = [0, PAGES].map(|pages| {
                let mut plan = plan.clone();
                if pages > 0 {
                    plan.set_pages(&pages.into(), ROWS);
                }
                match compile(&source::generate_for(&plan, target, &VmOptions::default()), target.architecture) {
                    Ok(cubin) => {
                        let log = cubin.log.lines().filter(|line| line.contains("bytes")).collect::<Vec<_>>().join(" ");
                        println!("{} {name} {pages}: {log}", target.name);
                        Some(yields(&cubin.bytes))
                    }
                    Err(CudaError::NoNvrtc) => None,
                    Err(error) => panic!("{} {name}: {error}", target.name),
                }
            });
            let [Some(without), Some(with)] = yields else { return println!("skipped: no NVRTC") };
            assert!(with <= without, "{} {name}: {with} yields instead of {without}", target.name);
        }
    }
}

/// A session, and whether its steps have to run the program of one row.
struct Steps {
    session: Session<RowsVm>,
    alone: bool,
}

impl Steps {
    /// The logits after each of some tokens of a sequence, one a step.
    fn run(&mut self, id: SequenceId, tokens: &[Token]) -> Vec<Vec<f32>> {
        let logits = |&token: &Token| {
            self.session.push(id, &[token]).expect("there is room");
            self.session.step().expect("a step");
            let ran = self.session.vm().ran().program();
            assert_eq!(ran.rows.is_none(), self.alone, "the program of the step");
            self.session.logits(id).expect("a wanted row").to_vec()
        };
        tokens.iter().map(logits).collect()
    }
}

#[test]
fn a_gpus_steps_of_one_row_compute_the_function_and_depend_on_their_sequence_alone() {
    let Some(_gpu) = gpu::alone() else { return println!("skipped: no GPU") };
    let cache = gpu::cubins();
    for of in decoders() {
        let (family, name) = (of.0, of.0.name);
        let decoder = decoder(of, &h200().row_schedule(8), 270);
        let start = || decoder.rows_on_cuda(&cache, PAGES).expect("a VM");
        let mut steps = Steps { session: Session::new(start()), alone: true };
        let text = |seed: u32| (0..200).map(|n| Token((seed + n * n * 7 + n) % 96)).collect::<Vec<Token>>();
        let (first, second) = (text(1), text(40));
        let a = steps.session.add();
        steps.session.push(a, &first[..1]).expect("there is room");
        steps.session.step().expect("a step");
        steps.alone = steps.session.vm().ran().program().rows.is_none();
        println!("{name}: {}", if steps.alone { "a program of its own" } else { "the program of 8 rows" });
        assert!(steps.alone || !fused_as_a_whole(family).expect("a plan"), "{name}");
        steps.session.rollback(a, 0).expect("it exists");
        let expected = [&first, &second].map(|text| {
            let id = steps.session.add();
            let logits = steps.run(id, text);
            steps.session.drop(id).expect("it exists");
            bits(&logits)
        });
        let b = steps.session.add();
        for n in 0..first.len() {
            assert_eq!(bits(&steps.run(a, &first[n..=n])), expected[0][n..=n], "{name}: the first text at {n}");
            assert_eq!(bits(&steps.run(b, &second[n..=n])), expected[1][n..=n], "{name}: the second text at {n}");
        }
        // Within a page and at its end, where a window of 50 still has its pages.
        for at in [180, 192] {
            let fork = steps.session.fork(a, at).expect("there are pages");
            let other = steps.run(fork, &second[at..]);
            assert_ne!(bits(&other), expected[0][at..], "{name}: another text from {at} on");
            steps.session.rollback(a, at).expect("it exists");
            assert_eq!(bits(&steps.run(a, &first[at..])), expected[0][at..], "{name}: rolled back to {at}");
            steps.session.rollback(fork, at).expect("it exists");
            assert_eq!(bits(&steps.run(fork, &first[at..])), expected[0][at..], "{name}: forked at {at}");
            steps.session.drop(fork).expect("it exists");
        }
        // Alone, beside another row in every second step, and in chunks of eight rows.
        let exact = decoder.expected(1).expect("bindings").expect("formulas");
        for (chunk, company) in [(1, 0), (1, 1), (8, 0)] {
            let (error, step) = exact.error(&decoder.on_rows(start(), chunk, company).expect("logits"));
            println!("{name}, {chunk} rows and {company}: {error:.2} deviations at step {step}");
            assert!(error < MOST_DEVIATIONS, "{name}, {chunk} rows and {company}: {error} deviations");
        }
        let mut alike = start();
        alike.keep_alike(true);
        let mut alike = Steps { session: Session::new(alike), alone: false };
        let id = alike.session.add();
        alike.run(id, &first[..3]);
    }
}

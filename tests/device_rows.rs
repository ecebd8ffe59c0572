//! Device programs with rows: without a GPU on the CPU VM, whose logits are those of the program's
//! calls one after the other, and within what rounding to bf16 does of the annotated function; on a
//! GPU the same bound, and bits that do not depend on the other rows of a step.

use crate::compiled;
use crate::device_programs::{
    bits, cached, centred, convolved, copied, eager, error, long_heads, normed, odd_heads, partly_turned, plain, sized,
    summands, tiny, windowed, with,
};
use crate::gpu;
use crate::image::in_blocks;
use amk::ir::graph::Instance;
use amk::ir::rows::PageGroups;
use amk::ir::schedule::{ExchangeBy, PartialSchedule, Ring, RowSchedule, Schedule};
use amk::ir::verify::verify;
use amk::ir::{Call, DType, Interval, Program, Task};
use amk::rows::{PoolSize, RowLimits, RowVm, SequenceId};
use amk::session::Session;
use amk::vm::cpu::Mode;
use amk::{Megakernel, Tensor, Token};
use amk_bench::kernel_check::{Decoder, MOST_DEVIATIONS};
use amk_cuda::plan::Plan;
use amk_cuda::{GpuTarget, Image, Precision, TARGETS, VmOptions, is_wide, source, with_exchange};
use amk_kernels::argmax;
use amk_kernels::fused::PartialSums;
use amk_models::model::{FAMILIES, Family};
use std::collections::BTreeMap;

pub(crate) fn h200() -> &'static GpuTarget {
    TARGETS.iter().find(|target| target.name == "h200").expect("a record")
}

/// The schedule of steps of so many rows, which are narrow where they may be.
fn row_schedule(target: &GpuTarget, rows: u32) -> Schedule {
    let exchange = (rows <= 16).then_some(ExchangeBy::Packets);
    let rows = Some(RowSchedule { most: rows, block: None });
    target.complete(&PartialSchedule { rows, exchange, ..PartialSchedule::default() })
}

/// A decoder of two layers, with three splits of 128 positions.
pub(crate) fn decoder((family, dims): (Family, BTreeMap<String, u32>), rows: u32, workers: u32, steps: u32) -> Decoder {
    let schedule = Schedule { workers, run: 2, ..row_schedule(h200(), rows) };
    Decoder::new(family, dims, schedule, steps, 3).expect("a decoder")
}

fn check_family(family: Family) {
    check_rows((family, tiny()), 6, 6);
    check_rows((family, tiny()), 20, 24);
}

fn check_rows(of: (Family, BTreeMap<String, u32>), rows: u32, workers: u32) {
    check_steps(of, rows, workers, 150);
}

fn check_steps(of: (Family, BTreeMap<String, u32>), rows: u32, workers: u32, steps: u32) {
    check_decoder(&decoder(of, rows, workers, steps), rows);
}

/// The program of a plan is verified, and its image is this program.
fn check_image(plan: &Plan, what: &str) {
    let verified = verify(plan.program.clone()).unwrap_or_else(|rejected| panic!("{what}: {rejected}"));
    Image::build(&verified, plan).unwrap_or_else(|error| panic!("{what}: {error}"));
}

pub(crate) fn check_decoder(decoder: &Decoder, rows: u32) {
    let plan = decoder.plan(Precision::BF16).expect("a plan");
    check_image(&plan, &plan.program.name);
    let run = |program: Program, mode, chunk, company| {
        let vm = decoder.rows_on_cpu(program, mode, 40).expect("a VM");
        decoder.on_rows(vm, chunk, company).expect("logits")
    };
    let expected = run(eager(&plan.program), Mode::Threads, 1, 0);
    for (mode, chunk, company) in
        [(Mode::Shuffled { seed: 1 }, 5, 0), (Mode::Shuffled { seed: 2 }, 3, 2), (Mode::Delayed { seed: 3 }, rows, 1)]
    {
        let found = run(plan.program.clone(), mode, chunk as usize, company);
        assert_eq!(bits(&found), bits(&expected), "{mode:?}, {chunk} rows and {company}");
    }
    let error = error(decoder, &expected);
    assert!(error < MOST_DEVIATIONS, "{error} deviations");
}

/// With few workers the blocks of a long step's rows are attended to in more rounds.
#[test]
fn long_steps_of_few_workers_attend_in_more_rounds() {
    for (of, rounds) in odd_heads().into_iter().zip([3, 3, 3]) {
        let name = of.0.name;
        let plan = decoder(of, 512, 12, 4).plan(Precision::BF16).expect("a plan");
        check_image(&plan, name);
        let attends = plan.phases.iter().filter(|phase| phase.kind().label() == "attend 0").count();
        assert_eq!(attends, rounds, "{name}");
        let code = source::generate(&plan, &VmOptions::default());
        assert!(code.contains("attend_long<"), "{name}");
    }
}

/// Decoders whose long steps have the positions in parts: of all positions and of windows, with
/// norms of heads, and with layers of two kinds.
fn in_parts() -> impl Iterator<Item = (Family, BTreeMap<String, u32>)> {
    let context =
        |name, more: &[_]| with(name, &[&[("CONTEXT", 1100), ("HIDDEN", 128), ("VOCAB", 128)], more].concat());
    let heads = [("HEAD_DIM", 128), ("ROTARY", 128)];
    [context("qwen3", &[]), context("mistral", &[("WINDOW", 70)]), context("gemma2", &[("WINDOW", 130)])]
        .into_iter()
        .chain([context("llama", &heads)])
}

/// Few workers, which have several rounds of tasks.
fn decoder_in_parts(of: (Family, BTreeMap<String, u32>), steps: u32) -> Decoder {
    let decoder = decoder(of, 300, 16, steps);
    let plan = decoder.plan(Precision::BF16).expect("a plan");
    let phases = |label| plan.phases.iter().filter(|phase| phase.kind().label() == label).count();
    assert_eq!(["attend 0", "combine 0"].map(phases), [2, 1], "{}", plan.program.name);
    decoder
}

#[test]
fn long_steps_with_positions_in_parts_compute_the_function() {
    for of in in_parts() {
        println!("{}", of.0.name);
        check_decoder(&decoder_in_parts(of, 330), 300);
    }
}

#[test]
fn rows_over_caches_in_e4m3_compute_the_function_that_rounds_them() {
    for (family, dims) in cached() {
        for (rows, workers) in [(6, 6), (20, 24)] {
            println!("{}, {rows} rows", family.name);
            let schedule = h200().row_schedule(rows);
            let schedule = Schedule { workers, run: 2, cache: Some(DType::E4M3), ..schedule };
            check_decoder(&Decoder::new(family, dims.clone(), schedule, 80, 3).expect("a decoder"), rows);
        }
    }
}

/// Decoders of whose calls the device fuses a part: heads of their size are not computed.
fn partly_fused() -> impl Iterator<Item = (Family, BTreeMap<String, u32>)> {
    const NAMES: [&str; 4] = ["granite", "starcoder2", "cohere2", "lfm2"];
    NAMES.into_iter().map(|name| {
        let (family, dims) = with(name, &[("HEAD_DIM", 40), ("ROTARY", 40)]);
        (family, sized(family, &dims))
    })
}

/// Steps of more than 8 rows that are narrow.
#[test]
fn narrow_steps_of_up_to_16_rows_compute_the_function() {
    for (of, rows) in plain().into_iter().chain([windowed(20, 16)]).zip([16, 12, 9, 16]) {
        println!("{}, {rows} rows", of.0.name);
        assert!(!decoder(of.clone(), rows, 9, 150).plan(Precision::BF16).expect("a plan").is_wide());
        check_rows(of, rows, 9);
    }
}

/// Steps of 16 rows are narrow where no task reads its inputs more than once.
#[test]
fn steps_of_16_rows_are_narrow_where_inputs_are_short() {
    let is_narrow = |name: &str, rows: u32| {
        let (kernel, instance) = declared(("llama", name));
        let fields =
            PartialSchedule { rows: Some(RowSchedule { most: rows, block: None }), ..PartialSchedule::default() };
        let fields = with_exchange(kernel, &instance, h200(), &fields, Precision::default());
        !is_wide(&h200().complete(&fields))
    };
    for (rows, narrow) in [(8, [true; 3]), (16, [true, true, false]), (17, [false; 3])] {
        assert_eq!(
            ["smollm2_135m", "llama_3_2_1b", "llama_3_1_8b"].map(|name| is_narrow(name, rows)),
            narrow,
            "{rows}"
        );
    }
}

#[test]
fn rows_of_families_with_generic_tasks_compute_the_function() {
    for of in partly_fused() {
        println!("{}:", of.0.name);
        check_steps(of, 6, 6, 80);
    }
}

#[test]
fn wide_rows_of_families_with_generic_tasks_compute_the_function() {
    for (of, rows) in partly_fused().zip([20, 250, 20, 250]) {
        println!("{}:", of.0.name);
        check_steps(of, rows, 24, 80);
    }
}

#[test]
fn rows_with_windows_and_heads_turned_in_part_compute_the_function() {
    check_rows(windowed(50, 48), 6, 6);
    check_rows(windowed(20, 16), 20, 24);
}

/// How many positions rows read of each group of states, and so few pages of each that a sequence
/// leaves some behind, but where it reads all.
type Few = Vec<(Option<u32>, usize)>;
/// A decoder, and the groups of its states.
type Grouped = ((Family, BTreeMap<String, u32>), Few);

/// The bits of rows of a program, in any order, with so few pages that most of a sequence's are
/// given back, are those where all are kept.
fn check_pages(decoder: &Decoder, program: &Program, few: &Few) {
    let reaches: Vec<Option<u32>> = few.iter().map(|&(reach, _)| reach).collect();
    assert_eq!(PageGroups::of(program).reaches(), reaches, "{}", program.name);
    for (&(reach, pages), number) in few.iter().zip(0..) {
        let all = RowLimits::pages_of(SHORT_STEPS as usize);
        assert!(pages < all && reach.is_some() || pages == all, "group {number}");
    }
    let run = |mode, chunk, company, pages: PoolSize| {
        let vm = decoder.rows_on_cpu(program.clone(), mode, pages).expect("a VM");
        decoder.on_rows(vm, chunk, company)
    };
    let expected = run(Mode::Threads, 1, 0, AMPLE.into()).expect("logits");
    for (mode, chunk, company) in [
        (Mode::Threads, 6, 0),
        (Mode::Shuffled { seed: 1 }, 5, 0),
        (Mode::Shuffled { seed: 2 }, 3, 2),
        (Mode::Delayed { seed: 3 }, 4, 1),
    ] {
        // Sequences beside it have few positions, of which they keep all.
        let room = few.iter().map(|&(_, pages)| pages + 2 * company).collect();
        let found = run(mode, chunk, company, PoolSize::Groups(room)).expect("logits");
        assert_eq!(bits(&found), bits(&expected), "{mode:?}, {chunk} rows and {company}");
    }
    for group in 0..few.len() {
        let mut pages: Vec<usize> = few.iter().map(|&(_, pages)| pages).collect();
        pages[group] = 1;
        let refused = run(Mode::Threads, 6, 0, PoolSize::Groups(pages)).expect_err("too few pages").to_string();
        let name = if few.len() > 1 { format!(" of group {group} ") } else { String::new() };
        assert!(refused.starts_with(&format!("out of pages{name}")), "{refused}");
        assert!(refused.ends_with("the step needs 1 of 64 positions, 0 of 1 are free"), "{refused}");
    }
}

/// Pages for all positions of several sequences.
const AMPLE: usize = 40;
/// Positions of a sequence that takes more pages than there are.
const STEPS: u32 = 330;
/// Pages of so many positions.
const ALL: usize = 6;
/// The same of steps of fewer rows, on the CPU.
const SHORT_STEPS: u32 = 200;

/// Decoders with windows, and the groups of their states: all pages of a sequence, and those of a
/// window of 50 positions.
fn with_windows(all: usize, long: usize) -> [Grouped; 4] {
    let (lfm2, dims) = convolved();
    let taps = dims["TAPS"];
    [
        (windowed(50, 48), vec![(Some(50), long)]),
        (with("gemma3", &[("WINDOW", 50)]), vec![(None, all), (Some(50), long)]),
        (with("olmo3", &[("WINDOW", 20)]), vec![(None, all), (Some(20), 3)]),
        ((lfm2, dims), vec![(None, all), (Some(taps), 3)]),
    ]
}

#[test]
fn sequences_longer_than_the_pages_have_the_bits_of_those_that_keep_theirs() {
    for (of, few) in with_windows(4, 3) {
        println!("{}", of.0.name);
        for (rows, workers, precision) in [(6, 6, Precision::BF16), (6, 6, Precision::F32), (20, 24, Precision::BF16)] {
            let decoder = decoder(of.clone(), rows, workers, SHORT_STEPS);
            check_pages(&decoder, &decoder.plan(precision).expect("a plan").program, &few);
        }
    }
}

#[test]
fn rows_on_a_cpu_longer_than_the_pages_have_the_bits_of_those_that_keep_theirs() {
    for ((family, dims), few) in with_windows(4, 3) {
        println!("{}", family.name);
        let decoder = decoder((family, dims.clone()), 6, 6, SHORT_STEPS);
        let (flags, floats) = (BTreeMap::new(), BTreeMap::new());
        let instance = Instance { name: "decoder".into(), dims, flags, floats, schedule: None };
        let instance = decoder.bindings().complete(&instance);
        for (most, block) in [(6, Some(1)), (6, Some(4)), (70, None)] {
            let schedule = Schedule { workers: 3, rows: Some(RowSchedule { most, block }), ..Schedule::default() };
            let verified = family.kernel.verified(&instance, Some(&schedule)).expect("a safe program");
            check_pages(&decoder, verified.program(), &few);
        }
    }
}

/// The same on a GPU: narrow steps, wide ones and steps of exactly one row.
#[test]
fn sequences_longer_than_the_pages_have_their_bits_on_a_gpu() {
    let Some(_gpu) = gpu::alone() else { return println!("skipped: no GPU") };
    let long = long_heads().map(|of| (of.1["WINDOW"], of)).map(|(window, of)| {
        let few = if window == 50 { 4 } else { 5 };
        (of, vec![(None, ALL), (Some(window), few)])
    });
    for (of, few) in with_windows(ALL, 4).into_iter().chain(long) {
        for (rows, chunk, alike) in [(8, 5, true), (24, 20, true), (8, 1, false)] {
            println!("{}, {chunk} of {rows} rows", of.0.name);
            let decoder = decoder(of.clone(), rows, 44, STEPS);
            let run = |pages: PoolSize| {
                let mut vm = decoder.rows_on_cuda(&gpu::cubins(), pages).expect("a VM");
                let reaches = vm.limits().groups.into_iter().map(|group| group.reach.map(|reach| reach as u32));
                assert!(reaches.eq(few.iter().map(|&(reach, _)| reach)));
                vm.keep_alike(alike);
                decoder.on_rows(vm, chunk, 0).expect("logits")
            };
            let found = run(PoolSize::Groups(few.iter().map(|&(_, pages)| pages).collect()));
            assert_eq!(bits(&found), bits(&run(AMPLE.into())), "{chunk} of {rows} rows");
            within_the_bound(&decoder, &found, rows);
        }
    }
}

/// Forks and rollbacks of a sequence that has left pages of the second group behind: what goes on
/// has the logits of a sequence that has run nothing else, and what would read them is refused.
fn check_forks<V: RowVm>(start: impl Fn(PoolSize) -> V) {
    let text = |seed: u32| (0..STEPS).map(|n| Token((seed + n * n * 7 + n) % 96)).collect::<Vec<Token>>();
    let (first, second) = (text(1), text(40));
    let run = |session: &mut Session<V>, id: SequenceId, tokens: &[Token]| -> Vec<Vec<f32>> {
        let mut logits = Vec::new();
        for chunk in tokens.chunks(4) {
            session.push_draft(id, chunk).expect("there is room");
            session.step().expect("a step");
            logits.extend(session.all_logits(id).map(<[f32]>::to_vec));
        }
        logits
    };
    let alone = |from: usize| {
        let mut session = Session::new(start(AMPLE.into()));
        let id = session.add();
        run(&mut session, id, &[&first[..from], &second[from..]].concat()).split_off(from)
    };
    let mut session = Session::new(start(PoolSize::Groups(vec![3 * ALL, 12])));
    let a = session.add();
    run(&mut session, a, &first[..300]);
    let gone = session.fork(a, 150).expect_err("a page that is gone").to_string();
    assert!(gone.contains("pages of group 1 (the last 50 positions) before position 128"), "{gone}");
    for at in [290, 252] {
        let fork = session.fork(a, at).expect("its pages are there");
        assert_eq!(bits(&run(&mut session, fork, &second[at..])), bits(&alone(at)), "forked at {at}");
        session.drop(fork).expect("it exists");
    }
    session.rollback(a, 256).expect("its pages are there");
    assert_eq!(bits(&run(&mut session, a, &second[256..])), bits(&alone(256)), "rolled back");
    session.rollback(a, 0).expect("it starts anew");
    assert_eq!(session.free_pages(), [3 * ALL, 12]);
}

#[test]
fn forks_and_rollbacks_keep_the_pages_of_both_groups() {
    let decoder = decoder(with("gemma3", &[("WINDOW", 50)]), 6, 6, STEPS);
    let program = decoder.plan(Precision::BF16).expect("a plan").program;
    check_forks(|pages| decoder.rows_on_cpu(program.clone(), Mode::Threads, pages).expect("a VM"));
}

#[test]
fn forks_and_rollbacks_keep_the_pages_of_both_groups_on_a_gpu() {
    let Some(_gpu) = gpu::alone() else { return println!("skipped: no GPU") };
    let decoder = decoder(with("gemma3", &[("WINDOW", 50)]), 8, 44, STEPS);
    check_forks(|pages| {
        let mut vm = decoder.rows_on_cuda(&gpu::cubins(), pages).expect("a VM");
        vm.keep_alike(true);
        vm
    });
}

/// Checks narrow and wide steps of decoders, each by so many workers.
fn check_narrow_and_wide(
    decoders: impl IntoIterator<Item = (Family, BTreeMap<String, u32>)>,
    [narrow, wide]: [u32; 2],
) {
    for of in decoders {
        println!("{}", of.0.name);
        check_rows(of.clone(), 6, narrow);
        check_rows(of, 20, wide);
    }
}

#[test]
fn rows_with_norms_behind_projections_and_layers_of_two_kinds_compute_the_function() {
    check_narrow_and_wide(normed(), [6, 24]);
}

#[test]
fn rows_with_layers_that_rotate_no_heads_compute_the_function() {
    check_narrow_and_wide(partly_turned(), [6, 24]);
}

#[test]
fn rows_with_products_that_change_before_they_are_added_compute_the_function() {
    check_narrow_and_wide(summands(), [6, 24]);
}

#[test]
fn rows_with_norms_by_the_distance_from_the_mean_compute_the_function() {
    check_narrow_and_wide(centred(), [6, 24]);
}

#[test]
fn rows_of_key_heads_that_many_queries_share_compute_the_function() {
    check_narrow_and_wide(copied(), [6, 44]);
}

#[test]
fn rows_with_short_convolutions_compute_the_function() {
    check_narrow_and_wide([convolved()], [6, 24]);
}

#[test]
fn rows_of_heads_of_256_elements_compute_the_function() {
    check_narrow_and_wide(long_heads(), [6, 24]);
}

#[test]
fn rows_of_heads_of_any_number_of_tiles_compute_the_function() {
    check_narrow_and_wide(odd_heads(), [12, 24]);
}

/// Steps of three blocks of rows, of which neighbours share out their weights. The shares of 11
/// workers begin and end within what is on a tape, and two workers have none.
#[test]
fn blocks_of_rows_compute_the_function() {
    for of in [with("llama", &[]), with("qwen2", &[]), with("gemma3", &[("WINDOW", 50)])] {
        println!("{}", of.0.name);
        check_steps(of.clone(), 300, 24, 280);
        check_steps(of, 300, 11, 280);
    }
}

/// A decoder whose projections are as long as their columns can be shared out in.
pub(crate) fn long_rows(family: &str, more: &[(&str, u32)]) -> (Family, BTreeMap<String, u32>) {
    with(family, &[&[("VOCAB", 512), ("HIDDEN", 512), ("FFN", 3104)], more].concat())
}

/// Decoders of all kinds of deliveries: stored, with biases, added, added after a function.
fn all_deliveries() -> [(Family, BTreeMap<String, u32>); 4] {
    let windowed = long_rows("gemma3", &[("WINDOW", 50)]);
    [long_rows("llama", &[]), long_rows("qwen2", &[]), long_rows("granite", &[]), windowed]
}

/// A decoder whose schedule shares out columns where that saves a few KiB.
pub(crate) fn columns_for_bytes(of: (Family, BTreeMap<String, u32>), rows: u32, workers: u32, steps: u32) -> Decoder {
    let schedule = Schedule { workers, run: 2, split_k: 1, ..h200().row_schedule(rows) };
    Decoder::new(of.0, of.1, schedule, steps, 3).expect("a decoder")
}

/// The same, of which some projections do.
fn sharing_columns(of: (Family, BTreeMap<String, u32>), rows: u32, workers: u32, steps: u32) -> Decoder {
    let decoder = columns_for_bytes(of, rows, workers, steps);
    let plan = decoder.plan(Precision::BF16).expect("a plan");
    assert!(plan.phases_of::<PartialSums>().count() >= 2, "a projection of each layer");
    decoder
}

/// Wide steps in which a few neighbours share out the columns of their weights: of 24 workers, of
/// some that do not come out even, and with norms in the projections and before them.
#[test]
fn columns_shared_out_over_neighbours_compute_the_function() {
    for (of, (rows, workers)) in all_deliveries().into_iter().zip([(20, 64), (100, 23), (28, 63), (100, 24)]) {
        println!("{}, {rows} rows on {workers} workers", of.0.name);
        check_decoder(&sharing_columns(of, rows, workers, 120), rows);
    }
}

/// The same in steps of several blocks of rows, whose neighbours share them out block by block: of
/// 45 workers for three blocks, and of 47 for two.
#[test]
fn columns_shared_out_within_blocks_of_rows_compute_the_function() {
    for (of, (rows, workers)) in all_deliveries().into_iter().step_by(2).zip([(300, 45), (150, 47)]) {
        println!("{}, {rows} rows on {workers} workers", of.0.name);
        check_decoder(&sharing_columns(of, rows, workers, 280), rows);
    }
}

/// Rows and workers of the steps that a GPU runs with columns shared out.
const SHARED_ON_A_GPU: [(u32, u32); 6] = [(24, 64), (128, 44), (48, 44), (100, 44), (256, 88), (200, 97)];

#[test]
fn steps_for_a_gpu_share_out_columns() {
    for (of, (rows, workers)) in all_deliveries().into_iter().cycle().zip(SHARED_ON_A_GPU) {
        println!("{}, {rows} rows on {workers} workers", of.0.name);
        sharing_columns(of, rows, workers, WIDE_STEPS);
    }
}

/// No more neighbours than there are workers, where the columns are long and rows few.
#[test]
fn few_workers_share_out_columns() {
    let of = with("llama", &[("HIDDEN", 32), ("FFN", 4096)]);
    let mut sharing = 0;
    for workers in 1..=12 {
        let plan = columns_for_bytes(of.clone(), 64, workers, 4).plan(Precision::BF16).expect("a plan");
        check_image(&plan, &format!("{workers} workers"));
        sharing += plan.phases_of::<PartialSums>().count();
    }
    assert!(sharing > 12, "{sharing}");
}

/// Of few tokens only few workers are planned: with many blocks of rows, one may have to hold the
/// whole residual of a block, which is not fused then.
#[test]
fn residuals_that_few_workers_cannot_hold_are_not_fused() {
    for (hidden, vocab, rows) in [(1280, 232, 2048), (960, 142, 1500), (1024, 232, 2048)] {
        let dims = [("LAYERS", 2), ("HIDDEN", hidden), ("FFN", 320), ("VOCAB", vocab)];
        let (kernel, mut instance) = declared(("llama", "llama_3_2_1b"));
        instance.dims.extend(dims.map(|(dim, value)| (dim.to_owned(), value)));
        let plan = amk_cuda::plan_for(kernel, &instance, &h200().row_schedule(rows), Precision::default());
        check_image(&plan.expect("a plan"), &format!("{hidden} {vocab} {rows}"));
    }
}

/// Programs of every declared shape, of three layers, are planned, verified and encoded.
#[test]
fn every_instance_has_steps_of_many_rows() {
    for (family, rows) in FAMILIES.into_iter().flat_map(|family| [(family, 64), (family, 2048)]) {
        for mut instance in family.kernel.graph().expect("a graph").instances.clone() {
            instance.dims.insert("LAYERS".to_owned(), 3);
            let name = format!("{} {rows} rows", instance.name);
            let schedule = h200().row_schedule(rows);
            let plan = amk_cuda::plan_for(family.kernel, &instance, &schedule, Precision::default()).expect(&name);
            check_image(&plan, &name);
        }
    }
}

#[test]
fn llamas_rows_compute_the_function() {
    check_family(FAMILIES[0]);
}

#[test]
fn qwen2s_rows_compute_the_function() {
    check_family(FAMILIES[1]);
}

#[test]
fn qwen3s_rows_compute_the_function() {
    check_family(FAMILIES[2]);
}

/// The tokens after rows that a step of the program has beside their logits.
#[test]
fn tokens_after_rows_are_those_of_the_highest_logits() {
    for (rows, workers) in [(6, 6), (20, 9)] {
        let decoder = decoder((FAMILIES[0], tiny()), rows, workers, 10);
        let plan = decoder.plan(Precision::BF16).expect("a plan");
        let vm = decoder.rows_on_cpu(plan.program, Mode::Shuffled { seed: 4 }, 10).expect("a VM");
        let mut session = Session::new(vm);
        let id = session.add();
        for step in 0..3 {
            let tokens: Vec<Token> = (0..rows).map(|n| Token(11 * (n + step) % 96)).collect();
            session.push_draft(id, &tokens).expect("there is room");
            session.step().expect("a step");
            let expected: Vec<Vec<Token>> =
                session.all_logits(id).map(|logits| vec![argmax(&Tensor::from(logits))]).collect();
            let found: Vec<Vec<Token>> = (0..rows as usize).map(|row| session.vm().row_tokens(row)).collect();
            assert_eq!(found, expected);
        }
    }
}

/// Faults of a plan's choice of tokens, none of which the verifier accepts.
#[test]
fn tokens_chosen_too_early_for_other_rows_or_without_wanting_them_are_refused() {
    let plan = decoder((FAMILIES[0], tiny()), 20, 9, 1).plan(Precision::BF16).expect("a plan");
    let chooses = |task: &Task| {
        let name = |call: &Call| plan.program.instructions[call.instruction.index()].name == "argmax";
        task.calls.iter().any(name)
    };
    let faults: [fn(&mut Task); 4] = [
        |task| task.waits.clear(),
        |task| task.calls[0].rows.iter_mut().for_each(|rows| rows.wanted = false),
        |task| task.calls[0].operands[0].region.intervals_mut()[0] = Interval::fixed(19, 20),
        |task| task.calls[0].operands[1].region.intervals_mut()[0] = Interval::fixed(19, 20),
    ];
    let choosing: Vec<usize> = (0..plan.program.tasks.len()).filter(|&at| chooses(&plan.program.tasks[at])).collect();
    assert_eq!(choosing.len(), 9);
    for (number, fault) in faults.iter().enumerate() {
        let mut program = plan.program.clone();
        fault(&mut program.tasks[choosing[0]]);
        assert!(verify(program).is_err(), "fault {number}");
    }
}

#[test]
fn code_for_rows_compiles_for_every_architecture() {
    const MODELS: [(&str, &str); 5] = [
        ("llama", "smollm2_135m"),
        ("llama", "llama_3_1_8b"),
        ("qwen3", "qwen3_0_6b"),
        ("mistral", "mistral_7b"),
        ("llama", "phi_4_mini"),
    ];
    const NARROW: [u32; 3] = [4, 8, 16];
    const WIDE: [u32; 4] = [24, 40, 128, 512];
    for (number, target) in gpu::of_each_architecture().into_iter().enumerate() {
        for (at, model) in (number..).zip(MODELS) {
            // Every other width for one target; for each other one a narrow and a wide one of each
            // model.
            let widths = match target.name {
                "h200" => NARROW.into_iter().chain(WIDE).skip(at % 2).step_by(2).collect(),
                _ => vec![NARROW[at % NARROW.len()], WIDE[at % WIDE.len()]],
            };
            for rows in widths {
                if !compiles(target, model, rows, &[]) {
                    return;
                }
            }
        }
    }
}

/// `down` of Gemma 2 27B takes 18 passes over its columns, and fits the smallest memory as well.
#[test]
fn wide_steps_of_long_rows_are_planned_and_compile() {
    let model = ("gemma2", "gemma_2_27b");
    let (kernel, instance) = declared(model);
    for target in TARGETS.iter().filter(|target| ["h200", "l40s"].contains(&target.name)) {
        for rows in [24, 512] {
            let schedule = row_schedule(target, rows);
            let plan = amk_cuda::plan_for(kernel, &instance, &schedule, Precision::default()).expect("a plan");
            check_image(&plan, &format!("{} {rows}", target.name));
            if !compiles(target, model, rows, &[]) {
                return;
            }
        }
    }
}

#[test]
fn code_for_rows_of_generic_tasks_convolutions_and_odd_heads_compiles() {
    let of = |family, name| declared((family, name));
    let (kernel, mut generic) = of("stablelm", "stablelm_3b_4e1t");
    generic.dims.insert("HEAD_DIM".to_owned(), 72); // which no fused body computes
    let cases = [(kernel, generic), of("lfm2", "lfm2_1_2b"), of("stablelm", "stablelm_3b_4e1t")];
    for target in TARGETS.iter().filter(|target| ["a100", "h200", "rtx5090"].contains(&target.name)) {
        // No block of rows bounds a step without fused attention.
        let long = cases.first().filter(|_| target.name == "h200").map(|case| (case, 512));
        for (case, rows) in cases.iter().flat_map(|case| [(case, 8), (case, 40)]).chain(long) {
            if !instance_compiles(target, case, rows, &[]) {
                return;
            }
        }
    }
}

#[test]
fn code_for_rows_of_weights_in_blocks_compiles() {
    let h200 = TARGETS.iter().find(|target| target.name == "h200").expect("a record");
    // Of q, k, v, o, gate, up and down; gate and up are alike.
    for (instance, rows, encodings) in [
        ("llama_3_1_8b", 32, ["Q4_0"; 7]),
        ("llama_3_1_8b", 128, ["Q4_K", "Q4_K", "Q6_K", "Q4_K", "Q4_K", "Q4_K", "Q6_K"]),
        ("smollm2_135m", 128, ["Q4_1", "IQ4_NL", "Q5_0", "Q5_1", "Q8_0", "Q8_0", "MXFP4"]),
        ("llama_3_2_1b", 64, ["int4:128", "int4:128", "int8:64:zero", "fp8:128", "Q5_K", "Q5_K", "fp8:128"]),
    ] {
        if !compiles(h200, ("llama", instance), rows, &encodings) {
            return;
        }
    }
}

/// An instance of a family, as declared.
fn declared((family, name): (&str, &str)) -> (&'static Megakernel, Instance) {
    let kernel = FAMILIES.iter().find(|known| known.name == family).expect("the family").kernel;
    (kernel, kernel.instance(name).expect("the instance").clone())
}

/// Compiles the code of a model for steps of so many rows, if a ring fits beside them, its matrices
/// in these encodings by turns. Returns whether there is an NVRTC.
fn compiles(target: &GpuTarget, model: (&str, &str), rows: u32, encodings: &[&str]) -> bool {
    instance_compiles(target, &declared(model), rows, encodings)
}

/// The same of an instance.
fn instance_compiles(
    target: &GpuTarget,
    (kernel, instance): &(&'static Megakernel, Instance),
    rows: u32,
    encodings: &[&str],
) -> bool {
    let schedule = row_schedule(target, rows);
    if target.check(&schedule).is_err() {
        return true;
    }
    let mut plan = amk_cuda::plan_for(kernel, instance, &schedule, Precision::default()).expect("a plan");
    if !encodings.is_empty() {
        let forms = in_blocks(&plan, encodings);
        plan = amk_cuda::plan_for(kernel, instance, &schedule, forms).expect("a plan");
    }
    let what = format!("{} {} {rows} {encodings:?}", target.name, instance.name);
    println!("{what}");
    compiled::compiles(&source::generate_for(&plan, target, &VmOptions::default()), target.architecture, what)
}

#[test]
fn code_of_norms_behind_projections_and_long_heads_compiles() {
    for target in TARGETS.iter().filter(|target| ["h200", "l40s"].contains(&target.name)) {
        for (family, instance) in [("gemma3", "gemma_3_4b"), ("gemma2", "gemma_2_2b"), ("olmo2", "olmo2_7b")] {
            let kernel = FAMILIES.iter().find(|known| known.name == family).expect("the family").kernel;
            let instance = kernel.instance(instance).expect("the instance");
            let of_rows = [8, 40].map(|rows| target.row_schedule(rows));
            for schedule in [target.schedule()].into_iter().chain(of_rows) {
                if target.check(&schedule).is_err() {
                    continue; // no room for a ring
                }
                let plan = amk_cuda::plan_for(kernel, instance, &schedule, Precision::default()).expect("a plan");
                let what = format!("{} {} {:?}", target.name, instance.name, schedule.rows);
                println!("{what}");
                let code = source::generate(&plan, &VmOptions::default());
                if !compiled::compiles(&code, target.architecture, what) {
                    return;
                }
            }
        }
    }
}

/// Rows of wide steps by turns, some of several blocks.
const WIDE: [u32; 6] = [24, 250, 32, 384, 48, 128];
/// The same beside few workers: more rows would have more blocks than these.
const COPIED_WIDE: [u32; 4] = [24, 48, 20, 128];
/// Positions that are whole chunks of as many rows as only a wide step takes, see `wide_on_gpu`.
pub(crate) const WIDE_STEPS: u32 = 340;

/// Checks narrow steps on a GPU, alone and in company, and wide ones.
fn check_on_gpu(decoders: impl IntoIterator<Item = (Family, BTreeMap<String, u32>)>) {
    check_widths_on_gpu(decoders, &WIDE);
}

fn check_widths_on_gpu(decoders: impl IntoIterator<Item = (Family, BTreeMap<String, u32>)>, wide: &[u32]) {
    let Some(_gpu) = gpu::alone() else { return println!("skipped: no GPU") };
    for (at, of) in decoders.into_iter().enumerate() {
        println!("{}", of.0.name);
        narrow_on_gpu(of.clone(), [8, 4, 16, 6, 12][at % 5]);
        let rows = wide[at % wide.len()];
        wide_on_gpu(&decoder(of, rows, 44, WIDE_STEPS), rows);
    }
}

fn within_the_bound(decoder: &Decoder, logits: &[Vec<f32>], rows: u32) {
    let error = error(decoder, logits);
    println!("{rows} rows: {error:.2} deviations");
    assert!(error < MOST_DEVIATIONS, "{error} deviations");
}

fn narrow_on_gpu(of: (Family, BTreeMap<String, u32>), rows: u32) {
    narrow_decoder_on_gpu(&decoder(of, rows, 44, 270), rows);
}

fn narrow_decoder_on_gpu(decoder: &Decoder, rows: u32) {
    let run = |chunk, company| {
        let mut vm = decoder.rows_on_cuda(&gpu::cubins(), 60).expect("a VM");
        vm.keep_alike(true);
        decoder.on_rows(vm, chunk, company).expect("logits")
    };
    let expected = run(1, 0);
    for (chunk, company) in [(1, 3), (4, 0), (3, 1), (rows as usize, 2)] {
        assert_eq!(bits(&run(chunk, company)), bits(&expected), "{chunk} of {rows} rows and {company}");
    }
    within_the_bound(decoder, &expected, rows);
}

/// Rows beside a ring of two slots, as GPUs with little shared memory have it: units are reduced
/// one by one.
fn beside_a_short_ring(of: (Family, BTreeMap<String, u32>), rows: u32, workers: u32) -> Decoder {
    let own = row_schedule(h200(), rows);
    let schedule = Schedule { workers, run: 2, ring: Ring { slots: 2, ..own.ring }, ..own };
    let decoder = Decoder::new(of.0, of.1, schedule, 270, 3).expect("a decoder");
    assert_eq!(decoder.plan(Precision::BF16).expect("a plan").row_units(), 1);
    decoder
}

#[test]
fn rows_beside_a_short_ring_compute_the_function() {
    for of in plain().into_iter().chain(long_heads()) {
        println!("{}", of.0.name);
        check_decoder(&beside_a_short_ring(of, 6, 12), 6);
    }
}

#[test]
fn a_gpus_rows_beside_a_short_ring_compute_the_function_whatever_the_company() {
    let Some(_gpu) = gpu::alone() else { return println!("skipped: no GPU") };
    for of in plain().into_iter().chain(long_heads()) {
        println!("{}", of.0.name);
        narrow_decoder_on_gpu(&beside_a_short_ring(of, 8, 44), 8);
    }
}

/// The fewest and the most tokens of a chunk beside which three more rows fit, so that no chunk of
/// `tokens` is for a narrower program than the one of `rows` rows.
pub(crate) fn wide_chunks(tokens: usize, rows: usize) -> Option<[usize; 2]> {
    let narrower = [512, 272, 128, 64, 32, 16, 8].into_iter().find(|&narrower| narrower < rows)?;
    let wide = |chunk: &usize| tokens.is_multiple_of(*chunk) || tokens % chunk > narrower;
    let mut chunks = (narrower + 1..=rows - 3).filter(wide);
    let least = chunks.next()?;
    Some([least, chunks.next_back().unwrap_or(least)])
}

#[test]
fn steps_on_gpus_are_cut_into_wide_chunks() {
    for rows in WIDE.into_iter().chain(COPIED_WIDE).chain([100]) {
        assert!(wide_chunks(WIDE_STEPS as usize, rows as usize).is_some(), "{rows} rows");
    }
}

pub(crate) fn wide_on_gpu(decoder: &Decoder, rows: u32) {
    let run = |chunk, company| {
        let vm = decoder.rows_on_cuda(&gpu::cubins(), 100).expect("a VM");
        decoder.on_rows(vm, chunk, company).expect("logits")
    };
    let [least, most] = wide_chunks(decoder.near(), rows as usize).expect("chunks");
    let expected = run(least, 0);
    for (chunk, company) in [(least, 0), (least, 3), (most, 0), (most, 3)] {
        assert_eq!(bits(&run(chunk, company)), bits(&expected), "{chunk} of {rows} rows and {company}");
    }
    within_the_bound(decoder, &expected, rows);
}

#[test]
fn a_gpus_rows_compute_llama_and_qwen_whatever_the_company() {
    check_on_gpu(plain().into_iter().chain([windowed(20, 16), windowed(50, 48)]));
}

#[test]
fn a_gpus_shared_columns_compute_the_function_whatever_the_company() {
    let Some(_gpu) = gpu::alone() else { return println!("skipped: no GPU") };
    for (of, (rows, workers)) in all_deliveries().into_iter().cycle().zip(SHARED_ON_A_GPU) {
        println!("{}", of.0.name);
        wide_on_gpu(&sharing_columns(of, rows, workers, WIDE_STEPS), rows);
    }
}

#[test]
fn a_gpus_rows_compute_norms_behind_projections_whatever_the_company() {
    check_on_gpu(normed());
}

#[test]
fn a_gpus_rows_compute_long_heads_whatever_the_company() {
    check_on_gpu(long_heads());
}

#[test]
fn a_gpus_rows_compute_heads_of_any_number_of_tiles_whatever_the_company() {
    check_on_gpu(odd_heads());
}

#[test]
fn a_gpus_rows_compute_products_of_all_kinds_whatever_the_company() {
    check_on_gpu(partly_turned().into_iter().chain(summands()));
}

#[test]
fn a_gpus_rows_compute_norms_by_the_distance_from_the_mean_whatever_the_company() {
    check_on_gpu(centred());
}

#[test]
fn a_gpus_rows_compute_key_heads_of_many_queries_whatever_the_company() {
    check_widths_on_gpu(copied(), &COPIED_WIDE);
}

/// Steps whose rows have their own attention: see `prompts.cuh`.
fn check_long_steps_on_gpu(of: impl IntoIterator<Item = (Family, BTreeMap<String, u32>)>) {
    let Some(_gpu) = gpu::alone() else { return println!("skipped: no GPU") };
    for of in of {
        println!("{}", of.0.name);
        let decoder = decoder(of, 512, 44, 290);
        let plan = decoder.plan(Precision::BF16).expect("a plan");
        assert!(source::generate(&plan, &VmOptions::default()).contains("attend_long<"));
        wide_on_gpu(&decoder, 512);
    }
}

#[test]
fn a_gpus_long_steps_compute_attention_of_all_kinds_whatever_the_company() {
    check_long_steps_on_gpu(plain().into_iter().chain([windowed(20, 16), windowed(50, 48)]).chain(partly_turned()));
}

#[test]
fn a_gpus_long_steps_compute_heads_of_all_lengths_whatever_the_company() {
    let heads = with("llama", &[("HEAD_DIM", 128), ("ROTARY", 128)]);
    check_long_steps_on_gpu([heads].into_iter().chain(long_heads()).chain(odd_heads()));
}

#[test]
fn a_gpus_long_steps_compute_positions_in_parts_whatever_the_company() {
    let Some(_gpu) = gpu::alone() else { return println!("skipped: no GPU") };
    for of in in_parts() {
        println!("{}", of.0.name);
        wide_on_gpu(&decoder_in_parts(of, 577), 300);
    }
}

/// Steps of so many rows that these are not in the shared memory, and that their workers have early
/// and late ones. Then programs of three widths in turn, which have one memory for their values.
#[test]
fn a_gpus_very_long_steps_compute_the_function_whatever_the_company() {
    let Some(_gpu) = gpu::alone() else { return println!("skipped: no GPU") };
    let of_context = |family, dims: &[_]| with(family, &[&[("CONTEXT", 1200)], dims].concat());
    for of in [of_context("llama", &[("HEAD_DIM", 128), ("ROTARY", 128)]), of_context("gemma3", &[("WINDOW", 50)])] {
        println!("{}", of.0.name);
        let decoder = decoder(of, 640, 44, 1100);
        wide_on_gpu(&decoder, 640);
        let vm = decoder.rows_on_cuda(&gpu::cubins(), 100).expect("a VM");
        within_the_bound(&decoder, &decoder.on_rows(vm, 530, 1).expect("logits"), 640);
    }
}

#[test]
fn a_gpus_rows_compute_short_convolutions_whatever_the_company() {
    check_on_gpu([convolved()]);
}

#[test]
fn a_gpus_rows_compute_generic_tasks_whatever_the_company() {
    let Some(_gpu) = gpu::alone() else { return println!("skipped: no GPU") };
    for of in partly_fused() {
        println!("{}", of.0.name);
        narrow_on_gpu(of.clone(), 6);
        wide_on_gpu(&decoder(of, 24, 44, WIDE_STEPS), 24);
    }
}

/// Narrow and wide steps, and steps of one row, which have a program of their own.
#[test]
fn a_gpus_rows_over_caches_in_e4m3_compute_the_function_that_rounds_them() {
    let Some(_gpu) = gpu::alone() else { return println!("skipped: no GPU") };
    for (family, dims) in cached().into_iter().chain(long_heads()).chain(odd_heads()) {
        let is_long = dims.get("HEAD_DIM").is_some_and(|&dim| dim > 128);
        let widths = [(8, [1, 8]), (16, [9, 16]), (24, [17, 24]), (512, [280, 290])];
        for (rows, chunks) in widths.into_iter().take(if is_long { 3 } else { 4 }) {
            println!("{}, {rows} rows", family.name);
            let schedule = row_schedule(h200(), rows);
            let schedule = Schedule { workers: 40, run: 2, cache: Some(DType::E4M3), ..schedule };
            let decoder = Decoder::new(family, dims.clone(), schedule, 290, 3).expect("a decoder");
            for chunk in chunks {
                let vm = decoder.rows_on_cuda(&gpu::cubins(), 100).expect("a VM");
                let error = error(&decoder, &decoder.on_rows(vm, chunk, 2).expect("logits"));
                assert!(error < MOST_DEVIATIONS, "{error} deviations, {chunk} tokens a step");
            }
        }
    }
}

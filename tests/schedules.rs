//! Device schedules: every legal one yields a safe program, and the cost model obeys its
//! invariants.

use crate::compiled::compiles;
use crate::image::in_blocks;
use amk::ir::schedule::{Ring, Schedule};
use amk::ir::verify::verify;
use amk_bench::tune::neighbours;
use amk_cuda::plan::{Plan, Work};
use amk_cuda::{CostModel, GpuTarget, Image, Precision, TARGETS, VmOptions, plan_for, source};
use amk_kernels::fused::{Attend, Combine, Decoder, SLICE};
use amk_models::model::FAMILIES;

fn h200() -> &'static GpuTarget {
    TARGETS.iter().find(|target| target.name == "h200").expect("the target should have a record")
}

fn decoder(plan: &Plan) -> Decoder {
    Decoder::of(plan).cloned().unwrap_or_default()
}

fn plan_of(family: &str, instance: &str, schedule: &Schedule) -> Plan {
    let kernel = FAMILIES.iter().find(|known| known.name == family).expect("the family").kernel;
    let mut instance = kernel.instance(instance).expect("the instance").clone();
    instance.dims.insert("CONTEXT".into(), 33_000);
    plan_for(kernel, &instance, schedule, Precision::BF16).expect("it should be planned")
}

/// The step at a position by a schedule, microseconds, and its floor.
fn predict(plan: &mut Plan, schedule: &Schedule, position: u32) -> (f64, f64) {
    plan.schedule = schedule.clone();
    let found = h200().cost.predict(plan, position);
    (found.step / 1e3, found.floor / 1e3)
}

#[test]
fn schedules_that_make_another_program_are_safe_too() {
    let own = h200().schedule();
    let plans = [
        Schedule { run: 2, ..own.clone() },
        Schedule { run: 8, splits: 5, ..own.clone() },
        Schedule { workers: 100, splits: 1, ..own.clone() },
        Schedule { fusion: false, ..own.clone() },
    ];
    for schedule in plans {
        let plan = plan_of("llama", "smollm2_135m", &schedule);
        let verified = verify(plan.program.clone()).unwrap_or_else(|rejected| panic!("{schedule:?}: {rejected}"));
        Image::build(&verified, &plan).unwrap_or_else(|error| panic!("{schedule:?}: {error}"));
        let generic = plan.phases.iter().any(|phase| phase.generic().is_some());
        assert_eq!(generic, !schedule.fusion, "without fusion every call is a task of its own");
        assert_eq!(
            decoder(&plan).splits(),
            if schedule.fusion { schedule.splits.min(schedule.workers / 3) } else { 0 }
        );
    }
}

#[test]
fn a_plan_has_the_constants_that_it_was_made_with() {
    let plan = plan_of("llama", "smollm2_135m", &h200().schedule());
    assert!(plan.constants.floats.contains_key("w.eps"), "{:?}", plan.constants.floats);
}

#[test]
fn tokens_are_below_the_rows_of_the_table() {
    let own = h200().schedule();
    for schedule in [own.clone(), Schedule { fusion: false, ..own.clone() }] {
        assert_eq!(plan_of("llama", "smollm2_135m", &schedule).sizes.tokens, 49_152);
    }
}

#[test]
fn a_ring_that_runs_low_keeps_no_pace_unless_it_holds_phases_or_steps_have_rows() {
    let own = h200().schedule();
    let low = |family, instance, schedule: &Schedule| {
        let source = source::generate(&plan_of(family, instance, schedule), &VmOptions::default());
        let line = source.lines().find_map(|line| line.strip_prefix("#define AMK_LOW "));
        line.expect("a number of slots").parse::<u32>().expect("a number")
    };
    assert_eq!(low("llama", "llama_3_1_8b", &own), own.ring.in_flight);
    assert_eq!(low("qwen3", "qwen3_0_6b", &own), own.ring.in_flight - 1, "two phases fit a ring");
    assert_eq!(low("llama", "llama_3_1_8b", &h200().row_schedule(8)), 0);
}

/// The plan of an instance with weights in an encoding.
fn coded((family, instance): (&str, &str), encoding: &str, schedule: &Schedule) -> Plan {
    let plain = plan_of(family, instance, schedule);
    let kernel = FAMILIES.iter().find(|known| known.name == family).expect("the family").kernel;
    let instance = kernel.instance(instance).expect("the instance");
    plan_for(kernel, instance, schedule, in_blocks(&plain, &[encoding])).expect("a plan")
}

#[test]
fn slots_are_longer_where_they_then_have_two_or_four_blocks_of_codes() {
    let of = |plan: &Plan| {
        let source = source::generate(plan, &VmOptions::default());
        ["AMK_SLOTS", "AMK_SLOT_BYTES"].map(|name| {
            let line = source.lines().find_map(|line| line.strip_prefix(&format!("#define {name} ")));
            line.expect("a number").parse::<u32>().expect("a number")
        })
    };
    let (own, rows) = (h200().schedule(), h200().row_schedule(8));
    let (large, small) = (("llama", "llama_3_1_8b"), ("llama", "smollm2_135m"));
    assert_eq!(of(&plan_of(large.0, large.1, &own)), [6, 32_768]);
    for (model, encoding, schedule, slots) in [
        (large, "Q8_0", &own, [5, 34_816]), // two blocks instead of one
        (large, "Q4_0", &own, [5, 36_864]), // four instead of three
        (large, "Q8_0", &rows, [3, 34_816]),
        (large, "Q4_K", &own, [6, 32_768]), // with a shift
        (large, "Q6_K", &own, [6, 32_768]), // three of 13 KiB are too long
        (small, "Q8_0", &own, [6, 32_768]), // more than four
    ] {
        assert_eq!(of(&coded(model, encoding, schedule)), slots, "{model:?} in {encoding}");
    }
    let short = Schedule { ring: Ring { slots: 3, ..own.ring }, ..own };
    assert_eq!(of(&coded(large, "Q8_0", &short)), [3, 32_768], "two slots would both be in flight");
}

#[test]
fn the_first_splits_go_to_workers_that_have_least_to_do_before() {
    for (family, instance) in [("llama", "smollm2_135m"), ("qwen3", "qwen3_0_6b")] {
        let plan = plan_of(family, instance, &h200().schedule());
        for attend in (0..plan.phases.len()).filter(|&at| plan.phases[at].as_kind::<Attend>().is_some()) {
            let mut rows = vec![0; plan.schedule.workers as usize];
            let mut attending = vec![false; rows.len()];
            for (phase, worker, work) in &plan.tasks {
                match work {
                    Work::Rows(of) if phase + 1 == attend => rows[*worker as usize] += of.end - of.start,
                    Work::Cell { column: 0, .. } if *phase == attend => attending[*worker as usize] = true,
                    _ => {}
                }
            }
            let all = || rows.iter().zip(&attending);
            assert_eq!(all().filter(|(_, attends)| **attends).count(), decoder(&plan).heads()[0] as usize);
            let busiest = all().filter(|(_, attends)| **attends).map(|(rows, _)| rows).max();
            let idlest = all().filter(|(_, attends)| !**attends).map(|(rows, _)| rows).min();
            assert!(busiest <= idlest, "{instance}, phase {attend}: {busiest:?} rows, others have {idlest:?}");
        }
    }
}

#[test]
fn a_worker_with_a_first_split_has_no_rows_of_the_residual_where_others_can_have_them() {
    let plan = plan_of("llama", "smollm2_135m", &h200().schedule()); // 72 units of 8 rows, 132 workers
    for attend in (0..plan.phases.len()).filter(|&at| plan.phases[at].as_kind::<Attend>().is_some()) {
        let residual = attend + 2; // behind the merge
        let has = |at: usize, of: u32| plan.tasks.iter().any(|(phase, worker, _)| *phase == at && *worker == of);
        for (_, worker, work) in plan.tasks.iter().filter(|(phase, ..)| *phase == attend) {
            let first = matches!(work, Work::Cell { column: 0, .. });
            assert!(!first || !has(residual, *worker), "phase {attend}: worker {worker}");
        }
    }
}

#[test]
fn who_merges_does_not_attend_while_others_can_merge() {
    let plan = plan_of("llama", "smollm2_135m", &h200().schedule());
    let active = 8192 / (64 * plan.schedule.run) + 1; // of 44 splits
    for combine in (0..plan.phases.len()).filter(|&at| plan.phases[at].as_kind::<Combine>().is_some()) {
        let of = |at: usize| plan.tasks.iter().filter(move |(phase, ..)| *phase == at);
        for (_, worker, _) in of(combine) {
            let attends = |work: &Work| matches!(work, Work::Cell { column, .. } if *column < active);
            let busy = of(combine - 1).any(|(_, other, work)| other == worker && attends(work));
            assert!(!busy, "phase {combine}: worker {worker} merges and attends at 8192");
        }
    }
}

#[test]
fn workers_with_the_first_splits_merge_nothing() {
    for (family, instance) in [("llama", "smollm2_135m"), ("qwen3", "qwen3_0_6b")] {
        let plan = plan_of(family, instance, &h200().schedule());
        for combine in (0..plan.phases.len()).filter(|&at| plan.phases[at].as_kind::<Combine>().is_some()) {
            let mut slices = 0;
            for (_, worker, work) in plan.tasks.iter().filter(|(phase, ..)| *phase == combine) {
                let Work::Rows(part) = work else { panic!("{work:?} in a merge") };
                slices += part.end - part.start;
                let early = |(phase, of, work): &(usize, u32, Work)| {
                    let first = matches!(work, Work::Cell { column, .. } if column < &(decoder(&plan).splits() / 4));
                    phase + 1 == combine && of == worker && first
                };
                assert!(!plan.tasks.iter().any(early), "{instance}: worker {worker} attends early and merges");
            }
            assert_eq!(slices, decoder(&plan).heads()[1] * decoder(&plan).heads()[2] / SLICE);
        }
    }
}

#[test]
fn the_device_code_compiles_by_other_schedules() {
    let own = h200().schedule();
    for schedule in [
        Schedule { run: 8, splits: 5, ring: Ring { slots: 4, in_flight: 1, pace: 0, lookahead: 128 }, ..own.clone() },
        Schedule { fusion: false, ..own.clone() },
    ] {
        let code = source::generate(&plan_of("llama", "smollm2_135m", &schedule), &VmOptions::default());
        if !compiles(&code, h200().architecture, format_args!("{schedule:?}")) {
            return;
        }
    }
}

#[test]
fn no_step_is_predicted_below_its_floor() {
    let own = h200().schedule();
    for (family, instance) in [("llama", "smollm2_135m"), ("qwen3", "qwen3_0_6b"), ("llama", "llama_3_2_1b")] {
        let mut plan = plan_of(family, instance, &own);
        let planned = |of: &Schedule| (of.workers, of.run, of.splits);
        for next in neighbours(&own, h200()).into_iter().filter(|next| planned(next) == planned(&own)) {
            for position in [0, 4096, 32_000] {
                let (step, floor) = predict(&mut plan, &next, position);
                assert!(floor > 0.0 && step >= floor, "{instance} at {position}: {step} is below {floor}, {next:?}");
            }
        }
    }
}

/// Up to a picosecond, which sums of other order differ by.
fn rising(us: &[f64]) -> bool {
    us.windows(2).all(|pair| pair[0] <= pair[1] + 1e-6)
}

fn falling(us: &[f64]) -> bool {
    us.windows(2).all(|pair| pair[0] + 1e-6 >= pair[1])
}

#[test]
fn more_work_takes_longer_and_more_room_does_not() {
    let own = h200().schedule();
    let ringed = |ring| Schedule { ring, ..own.clone() };
    let mut small = plan_of("llama", "smollm2_135m", &own);
    let mut large = plan_of("llama", "llama_3_2_1b", &own);
    assert!(predict(&mut small, &own, 0).0 < predict(&mut large, &own, 0).0);
    for plan in [&mut small, &mut large] {
        let at: Vec<f64> = [0, 256, 4096, 16_384, 32_000].map(|position| predict(plan, &own, position).0).to_vec();
        assert!(rising(&at) && at[0] < at[4], "a longer cache takes longer: {at:?}");
        let deep: Vec<f64> = [2, 3, 4, 6].map(|slots| predict(plan, &ringed(Ring { slots, ..own.ring }), 0).0).to_vec();
        assert!(falling(&deep), "a deeper ring does not cost time: {deep:?}");
        let ahead: Vec<f64> =
            [0, 64, 256].map(|lookahead| predict(plan, &ringed(Ring { lookahead, ..own.ring }), 0).0).to_vec();
        assert!(falling(&ahead), "more lookahead does not cost time: {ahead:?}");
        let slow: Vec<f64> =
            [230, 460, 920].map(|pace| predict(plan, &ringed(Ring { pace, ..own.ring }), 0).0).to_vec();
        assert!(rising(&slow), "a pace below the memory's rate holds the streams back: {slow:?}");
    }
    let paced = predict(&mut large, &ringed(Ring { pace: 920, ..own.ring }), 0).0;
    assert!(paced > 3.0 * predict(&mut large, &own, 0).0, "at a quarter of the rate");
}

/// GB/s of an H200's bare ring, and microseconds a token in launches of 64 steps from positions 0,
/// 128, 8192 and 32768, by one run of `amk bench` on the ninth round's code.
const MEASURED: [(&str, &str, f64, &[f64]); 4] = [
    ("llama", "smollm2_135m", 4583.0, &[181.0, 188.0, 257.9, 362.2]),
    ("qwen3", "qwen3_0_6b", 4583.0, &[314.2, 329.2, 533.9, 1169.8]),
    ("llama", "llama_3_2_1b", 4583.0, &[561.6, 563.6, 624.4, 802.4]),
    ("llama", "llama_3_1_8b", 4583.0, &[3323.9, 3331.6, 3638.5, 4350.8]),
];

#[test]
fn predictions_are_near_what_was_measured() {
    for (family, instance, read, measured) in MEASURED {
        let cost = CostModel { read, ..h200().cost };
        let plan = plan_of(family, instance, &h200().schedule());
        for (position, measured) in [0, 128, 8192, 32_768].into_iter().zip(measured) {
            let predicted = cost.predict(&plan, position + 32).step / 1e3;
            let error = 100.0 * (predicted / measured - 1.0);
            println!("{instance} at {position}: {predicted:.0} us predicted, {measured:.0} measured, {error:+.1}%");
            assert!(error.abs() < 6.0, "{instance} at {position}: {predicted} us, not {measured}");
        }
    }
}

/// Positions, and microseconds of a step there.
type Times = &'static [(u32, f64)];

/// GB/s of the bare ring of the process or its card, and microseconds a token at positions; the
/// costs were fitted to none of them.
const HELD_OUT: [(&str, &str, &str, f64, Times); 14] = [
    ("h200", "llama", "smollm2_135m", 4579.0, &[(512, 215.0), (2048, 230.2), (4096, 232.9), (16_384, 291.9)]),
    ("h200", "qwen3", "qwen3_0_6b", 4579.0, &[(256, 376.8), (2048, 408.1), (4096, 435.3)]),
    ("h200", "qwen2", "qwen2_5_0_5b", 4579.0, &[(0, 296.2), (1024, 319.6), (32_768, 404.0)]),
    ("h200", "qwen2", "qwen2_5_7b", 4569.0, &[(0, 3132.3), (128, 3161.6)]),
    ("h200", "qwen3", "qwen3_4b", 4588.0, &[(0, 1837.7), (128, 1871.3)]),
    ("h200", "gemma3", "gemma_3_1b", 4653.0, &[(0, 623.7), (128, 666.8)]),
    ("h200", "gemma3", "gemma_3_4b", 4628.0, &[(0, 1823.1), (128, 1876.9)]),
    ("h200", "smollm3", "smollm3_3b", 4596.0, &[(0, 1370.2), (128, 1394.8)]),
    ("h200", "stablelm", "stablelm_3b_4e1t", 4608.0, &[(0, 1343.3), (128, 1350.2)]),
    ("h200", "starcoder2", "starcoder2_3b", 4586.0, &[(0, 1475.4), (128, 1509.1)]),
    ("h100", "llama", "smollm2_135m", 3090.0, &[(0, 185.4), (1024, 223.3), (4096, 240.2), (32_768, 415.6)]),
    ("h100", "qwen3", "qwen3_0_6b", 3090.0, &[(0, 425.8), (1024, 482.1), (8192, 729.8)]),
    ("h100", "qwen2", "qwen2_5_0_5b", 3090.0, &[(0, 368.0), (128, 391.6), (32_768, 522.8)]),
    ("h100", "glm4", "glm4_9b", 3065.0, &[(0, 5734.0), (128, 5771.0)]),
];

#[test]
fn predictions_hold_where_nothing_was_fitted() {
    for (gpu, family, instance, read, measured) in HELD_OUT {
        let target = GpuTarget::named(gpu).expect("the target should have a record");
        let cost = CostModel { read, ..target.cost };
        let plan = plan_of(family, instance, &target.schedule());
        for &(position, measured) in measured {
            let predicted = cost.predict(&plan, position + 32).step / 1e3;
            let error = 100.0 * (predicted / measured - 1.0);
            println!(
                "{gpu}, {instance} at {position}: {predicted:.0} us predicted, {measured:.0} measured, {error:+.1}%"
            );
            assert!(error.abs() < 10.0, "{gpu}, {instance} at {position}: {predicted} us, not {measured}");
        }
    }
}

#[test]
fn predictions_hold_for_codes() {
    for (instance, encoding, read, measured) in [
        ("llama_3_1_8b", "Q4_0", 4525.0, [1153.3, 1185.3]),
        ("llama_3_1_8b", "Q8_0", 4496.0, [1887.8, 1911.7]),
        ("llama_3_2_1b", "Q4_0", 4500.0, [252.0, 254.4]),
    ] {
        let cost = CostModel { read, ..h200().cost };
        let plan = coded(("llama", instance), encoding, &h200().schedule());
        for (position, measured) in [0, 128].into_iter().zip(measured) {
            let predicted = cost.predict(&plan, position + 32).step / 1e3;
            let error = 100.0 * (predicted / measured - 1.0);
            assert!(error.abs() < 10.0, "{instance} in {encoding} at {position}: {predicted} us, not {measured}");
        }
    }
}

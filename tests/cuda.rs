//! The CUDA VM. Tests without a GPU run everywhere: plans of the declared models pass the verifier,
//! their images mean the same tasks, and the device code compiles for every target where NVRTC is
//! there. The rest says "skipped" without a GPU.

mod faults;
mod perplexity;
mod rows;
mod sampling;
mod smollm2;

use crate::compiled::{compile, compiles};
use crate::gpu;
use crate::image::in_blocks;
use amk::ir::schedule::Schedule;
use amk::ir::verify::verify;
use amk::ir::{DType, TaskId};
use amk_cuda::plan::{Plan, lines};
use amk_cuda::{
    CudaError, Faults, GpuTarget, Image, Precision, RunOptions, TARGETS, VmOptions, nvrtc, plan_for, source,
};
use amk_models::model::FAMILIES;
use object::{Object as _, ObjectSection as _};
use std::time::Duration;

const KNOWN: [(&str, &str); 5] = [
    ("llama", "smollm2_135m"),
    ("llama", "tinyllama_1_1b"),
    ("llama", "llama_3_2_1b"),
    ("llama", "llama_3_1_8b"),
    ("qwen3", "qwen3_0_6b"),
];

fn target(name: &str) -> &'static GpuTarget {
    TARGETS.iter().find(|target| target.name == name).expect("the target should have a record")
}

fn plan_of(family: &str, instance: &str, target: &GpuTarget) -> Plan {
    let kernel = FAMILIES.iter().find(|known| known.name == family).expect("the family").kernel;
    let instance = kernel.instance(instance).expect("the instance");
    plan_for(kernel, instance, &target.schedule(), Precision::default()).expect("it should be planned")
}

#[test]
fn plans_of_declared_models_are_safe_and_their_images_mean_the_same_tasks() {
    for (family, instance) in KNOWN {
        let plan = plan_of(family, instance, target("h200"));
        let verified =
            verify(plan.program.clone()).unwrap_or_else(|rejected| panic!("{instance} should be safe: {rejected}"));
        let image = Image::build(&verified, &plan).expect("the image should be the program");
        assert_eq!(image.records.len(), plan.program.tasks.len());
    }
}

#[test]
fn an_image_of_another_program_is_refused() {
    let mut plan = plan_of("llama", "smollm2_135m", target("h200"));
    let verified = verify(plan.program.clone()).expect("it should be safe");
    // The task's record would compute other rows than the verified task.
    let at =
        plan.tasks.iter().position(|(_, _, work)| matches!(work, amk_cuda::plan::Work::Rows(_))).expect("a projection");
    if let amk_cuda::plan::Work::Rows(rows) = &mut plan.tasks[at].2 {
        *rows = rows.start + 8..rows.end + 8;
    }
    assert!(matches!(Image::build(&verified, &plan), Err(CudaError::Image { .. })));
}

/// Registers, spills, shared memory and yields on each target are frozen for one version of the
/// compiler: `INSTA_UPDATE=always` and this test write them anew.
#[test]
fn the_device_code_compiles_for_every_architecture() {
    let mut table = String::new();
    for target in gpu::of_each_architecture() {
        // The shape of the work depends on the model: heads of 64 and of 128 elements, 3, 8 and 2
        // queries a key head.
        for (family, instance) in [KNOWN[0], KNOWN[1], KNOWN[4]] {
            let code = source::generate(&plan_of(family, instance, target), &VmOptions::default());
            match compile(&code, target.architecture) {
                Ok(cubin) => {
                    let (resources, yields) = (resources(&cubin.log), yields(&cubin.bytes));
                    table.push_str(&format!("{} {instance}: {resources}, {yields} yields\n", target.name));
                }
                Err(CudaError::NoNvrtc) => return println!("skipped: no NVRTC"),
                Err(error) => panic!("{}: {error}", target.name),
            }
        }
    }
    println!("{table}");
    match nvrtc::version() {
        Some((13, 0)) => insta::assert_snapshot!("resources_nvrtc_13_0", table),
        version => println!("skipped: the frozen table is of NVRTC 13.0, this is {version:?}"),
    }
}

/// Steps of one row, of several and of many, with caches in e4m3. The lanes of a warp stay together
/// as well as with those in bf16.
#[test]
fn code_for_caches_in_e4m3_compiles() {
    const ROWS: [u32; 3] = [0, 8, 24];
    for (number, target) in gpu::of_each_architecture().into_iter().enumerate() {
        // Optimised code takes long to compile: all widths for one target, one for each other.
        let widths = if target.name == "h200" { &ROWS[..] } else { &ROWS[number % 3..][..1] };
        for &rows in widths {
            let own = if rows == 0 { target.schedule() } else { target.row_schedule(rows) };
            if target.check(&own).is_err() {
                continue; // no room for a ring
            }
            let (family, instance) = if rows == 0 { KNOWN[4] } else { KNOWN[0] };
            let kernel = FAMILIES.iter().find(|known| known.name == family).expect("the family").kernel;
            let instance = kernel.instance(instance).expect("the instance");
            let yields = [DType::BF16, DType::E4M3].map(|cache| {
                let schedule = Schedule { cache: Some(cache), ..own.clone() };
                let plan = plan_for(kernel, instance, &schedule, Precision::default()).expect("a plan");
                match compile(&source::generate_for(&plan, target, &VmOptions::default()), target.architecture) {
                    Ok(cubin) => {
                        println!("{} {rows} rows, {cache}: {}", target.name, resources(&cubin.log));
                        Some(yields(&cubin.bytes))
                    }
                    Err(CudaError::NoNvrtc) => None,
                    Err(error) => panic!("{} {rows} rows, {cache}: {error}", target.name),
                }
            });
            let [Some(of_bf16), Some(of_e4m3)] = yields else { return println!("skipped: no NVRTC") };
            assert!(of_e4m3 <= of_bf16, "{} {rows} rows: {of_e4m3} yields instead of {of_bf16}", target.name);
        }
    }
}

/// In long steps attention has sets of 64 queries where that leaves most workers a task, and where
/// the ring's memory has room.
#[test]
fn long_steps_attend_by_larger_sets_where_these_occupy_the_workers_and_fit() {
    let target = target("h200");
    let kernel = FAMILIES.iter().find(|known| known.name == "llama").expect("the family").kernel;
    let cases = [
        ("llama_3_1_8b", 512, 6, 132, true),
        ("llama_3_1_8b", 512, 3, 132, false),
        ("smollm2_135m", 512, 6, 1, false),
        ("smollm2_135m", 512, 6, 132, true),
        ("smollm2_135m", 2048, 6, 1, true),
        ("smollm2_135m", 2048, 6, 132, true),
    ];
    for (instance, rows, slots, splits, larger) in cases {
        let mut schedule = Schedule { splits, ..target.row_schedule(rows) };
        schedule.ring.slots = slots;
        let declared = kernel.instance(instance).expect("the instance");
        let plan = plan_for(kernel, declared, &schedule, Precision::default()).expect("a plan");
        let code = source::generate(&plan, &VmOptions::default());
        let calls = ["attend_block<", "attend_long<"].map(|call| code.contains(call));
        assert_eq!(calls, [!larger, larger], "{instance}, {rows} rows, {slots} slots, {splits} splits");
        assert_eq!(code.contains("join_blocks<"), larger && instance == "smollm2_135m" && splits > 1, "{instance}");
        compiles(&code, target.architecture, format_args!("{instance}, {rows} rows, {slots} slots"));
    }
}

/// 58 workers have 4,521 of 262,144 tokens each, more than their scratch has room for.
#[test]
fn long_vocabularies_are_planned_for_few_workers() {
    let target = target("l4");
    let kernel = FAMILIES.iter().find(|known| known.name == "gemma3").expect("the family").kernel;
    let instance = kernel.instance("gemma_3_1b").expect("the instance");
    for schedule in [target.schedule(), target.row_schedule(8)] {
        let plan = plan_for(kernel, instance, &schedule, Precision::default()).expect("a plan");
        let code = source::generate_for(&plan, target, &VmOptions::default());
        compiles(&code, target.architecture, "a long vocabulary");
    }
}

/// Workers that blocks of rows leave over pass by what is on their tapes, and pieces of tapes are
/// cut where the shares of the others are even.
#[test]
fn the_longest_steps_are_planned_for_any_number_of_workers() {
    let kernel = FAMILIES.iter().find(|known| known.name == "llama").expect("the family").kernel;
    let instance = kernel.instance("smollm2_135m").expect("the instance");
    for (rows, workers) in [(2048, 132), (2048, 114), (1024, 78), (600, 33)] {
        let schedule = Schedule { workers, ..target("h200").row_schedule(rows) };
        let plan = plan_for(kernel, instance, &schedule, Precision::default()).expect("a plan");
        let verified = verify(plan.program.clone()).unwrap_or_else(|rejected| panic!("{rows}, {workers}: {rejected}"));
        Image::build(&verified, &plan).unwrap_or_else(|error| panic!("{rows}, {workers}: {error}"));
    }
    let schedule = Schedule { workers: 15, ..target("h200").row_schedule(2048) };
    let error = plan_for(kernel, instance, &schedule, Precision::default()).expect_err("too few workers");
    assert!(error.to_string().contains("16 blocks of 128 rows are too many for 15 workers"), "{error}");
}

/// The plan of one layer of a Llama with other dims, for so few workers that each has a large part.
fn plan_by(workers: u32, dims: &[(&str, u32)]) -> Result<Plan, CudaError> {
    let kernel = FAMILIES.iter().find(|known| known.name == "llama").expect("the family").kernel;
    let mut instance = kernel.instance("llama_3_2_1b").expect("the instance").clone();
    instance.dims.extend(dims.iter().chain(&[("LAYERS", 1)]).map(|&(name, value)| (name.to_owned(), value)));
    plan_for(kernel, &instance, &Schedule { workers, ..target("h200").schedule() }, Precision::default())
}

#[test]
fn tasks_with_more_rows_or_bytes_than_a_record_can_state_are_refused() {
    let wide = [("VOCAB", 256_000), ("HIDDEN", 12_288)];
    let long = [("VOCAB", 1_000_003), ("HIDDEN", 128)];
    for (dims, part) in [(wide, "256000 rows of 6000 MiB"), (long, "1000003 rows of 244 MiB")] {
        let refused = plan_by(1, &dims).expect_err("a task that is too large").to_string();
        let expected =
            format!("with `workers` = 1 a task has {part}; up to 524280 rows and 4095 MiB fit in one, at `head`");
        assert!(refused.contains(&expected), "{refused}");
        let plan = plan_by(2, &dims).expect("a plan");
        let verified = verify(plan.program.clone()).unwrap_or_else(|rejected| panic!("{rejected}"));
        Image::build(&verified, &plan).expect("the image should be the program");
    }
}

/// The states of generic tasks: seven workers are too few for the fused attention of eight key
/// heads.
#[test]
fn states_are_as_large_as_tiles_can_address() {
    let plan = plan_by(7, &[("CONTEXT", 1 << 24)]).expect("a plan");
    let verified = verify(plan.program.clone()).unwrap_or_else(|rejected| panic!("{rejected}"));
    Image::build(&verified, &plan).expect("the image should be the program");
    let refused = plan_by(7, &[("CONTEXT", 1 << 26)]).expect_err("a head of 2^32 elements").to_string();
    assert!(refused.contains("is [8, 67108864, 64], too large to be addressed"), "{refused}");
}

#[test]
fn what_too_few_workers_or_too_wide_steps_rule_out_is_named() {
    let kernel = |name: &str| FAMILIES.iter().find(|known| known.name == name).expect("the family").kernel;
    for (family, instance, target, workers, most, has) in [
        ("llama", "llama_3_1_8b", target("l4"), 58, 3712, 4096),
        ("gemma2", "gemma_2_9b", target("h200"), 50, 3200, 3584),
    ] {
        let instance = kernel(family).instance(instance).expect("the instance");
        let schedule = Schedule { workers, ..target.row_schedule(8) };
        let plan = plan_for(kernel(family), instance, &schedule, Precision::default()).expect("a plan");
        let because = format!("its residual has {has} elements, and {workers} workers hold up to {most}");
        let lines = lines(&plan.missed);
        assert!(lines.iter().any(|line| line.starts_with("`add` runs") && line.contains(&because)), "{lines:?}");
    }
    let mut instance = kernel("gemma2").instance("gemma_2_9b").expect("the instance").clone();
    instance.dims.extend([("FFN".to_owned(), 59392), ("LAYERS".to_owned(), 2)]);
    let refused = plan_for(kernel("gemma2"), &instance, &target("h200").row_schedule(24), Precision::default());
    let refused = refused.expect_err("too many passes").to_string();
    assert!(refused.contains("a row of weights has 59392 elements, and steps of over 8 rows take 57344"), "{refused}");
}

/// Steps of several rows have their registers filled: a pointer to a row's residual, in code that
/// runs once a step, was enough for 144 bytes of spills all over the code for 8 rows of Q4_0. Where
/// long steps stored four of attention's sums at once, these were moved at each product.
#[test]
fn steps_of_several_rows_spill_no_registers() {
    let target = target("h200");
    let kernel = FAMILIES.iter().find(|known| known.name == "llama").expect("the family").kernel;
    for (instance, rows, encodings) in [
        ("llama_3_1_8b", 8, &["Q4_0"][..]),
        ("llama_3_1_8b", 8, &["Q4_K"]),
        ("llama_3_1_8b", 16, &["Q4_0"]),
        ("llama_3_1_8b", 16, &["Q4_K"]),
        ("llama_3_1_8b", 32, &["Q4_0"]),
        ("llama_3_2_1b", 8, &[]),
        ("llama_3_2_1b", 32, &[]),
        ("llama_3_2_1b", 64, &[]),
        ("llama_3_1_8b", 256, &[]),
        ("llama_3_1_8b", 2048, &[]),
    ] {
        let (instance, schedule) = (kernel.instance(instance).expect("the instance"), target.row_schedule(rows));
        let plain = plan_for(kernel, instance, &schedule, Precision::default()).expect("a plan");
        let forms = in_blocks(&plain, encodings);
        let plan = plan_for(kernel, instance, &schedule, forms).expect("a plan");
        match compile(&source::generate_for(&plan, target, &VmOptions::default()), target.architecture) {
            Ok(cubin) if nvrtc::version() == Some((13, 0)) => {
                let found = resources(&cubin.log);
                assert!(found.contains(", 0 bytes stored and 0 loaded in spills"), "{rows} {encodings:?}: {found}");
                assert!(!cubin.log.contains("instructions are serialized"), "{rows} {encodings:?}: {}", cubin.log);
            }
            Ok(_) => println!("skipped: other versions of NVRTC spill others"),
            Err(CudaError::NoNvrtc) => return println!("skipped: no NVRTC"),
            Err(error) => panic!("{rows} {encodings:?}: {error}"),
        }
    }
}

#[test]
fn faults_compile_into_the_device_code() {
    let target = target("h200");
    let plan = plan_of("llama", "smollm2_135m", target);
    let faults = Faults { drop: Some((TaskId(17), 3)), delay_ns: 5000 };
    let code = source::generate(&plan, &VmOptions { faults, ..VmOptions::default() });
    compiles(&code, target.architecture, "faults");
}

/// Instructions of the kernel that let diverged lanes proceed. Where there is one, the compiler
/// does not know that the lanes of a warp stay together, and the whole kernel is slower by a tenth
/// (see `any` in `amk/cuda/device/ptx.cuh`).
pub(crate) fn yields(cubin: &[u8]) -> usize {
    const YIELD: u64 = 0x946; // the low 12 bits, from Volta on
    let file = object::File::parse(cubin).expect("a cubin is an ELF file");
    let kernel = file.section_by_name(".text.amk_vm").expect("the kernel");
    let code = kernel.data().expect("its code");
    let opcode = |instruction: &[u8; 16]| u64::from_le_bytes(*instruction.first_chunk().expect("16 bytes")) & 0xfff;
    code.as_chunks().0.iter().filter(|instruction| opcode(instruction) == YIELD).count()
}

/// The registers and memory that ptxas reports for the kernel.
fn resources(log: &str) -> String {
    let kernel = log.split("Compiling entry function 'amk_vm'").nth(1).unwrap_or(log);
    let number = |before: &str| -> &str {
        let value = kernel.split(before).next().filter(|text| text.len() < kernel.len()).unwrap_or("? ");
        value.trim_end().rsplit(' ').next().unwrap_or("?")
    };
    format!(
        "{} registers, {} bytes stored and {} loaded in spills, {} bytes of shared memory",
        number(" registers"),
        number(" bytes spill stores"),
        number(" bytes spill loads"),
        number(" bytes smem")
    )
}

#[derive(serde::Deserialize)]
struct Golden {
    cases: Vec<Case>,
}

#[derive(serde::Deserialize)]
struct Case {
    prompt: Vec<u32>,
    tokens: Vec<u32>,
}

/// bf16 on the GPU against transformers in fp32: fed the golden tokens, the choice is the same but
/// where two logits are close.
#[test]
fn smollm2_on_the_gpu_gives_the_tokens_of_transformers() {
    let _alone = gpu::alone();
    let mut vm = match smollm2::vm(512, Faults::default()) {
        Ok(vm) => vm,
        Err(why) => return println!("skipped: {why}"),
    };
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/golden/smollm2_135m.json")).expect("golden file");
    let golden: Golden = serde_json::from_str(&text).expect("golden cases");
    for case in golden.cases {
        let fed: Vec<u32> = case.prompt.iter().chain(&case.tokens[..case.tokens.len() - 1]).copied().collect();
        let run =
            vm.run(&fed, 0, fed.len() as u32, &RunOptions::default(), &mut |_| {}).expect("the launch should end");
        let chosen = &run.tokens[case.prompt.len() - 1..];
        let same = chosen.iter().zip(&case.tokens).filter(|(a, b)| a == b).count();
        println!("{same} of {} choices as in fp32", case.tokens.len());
        assert!(same * 100 >= case.tokens.len() * 95, "{chosen:?} is not {:?}", case.tokens);
    }
}

#[test]
fn every_run_gives_the_same_bits_and_the_host_does_nothing_between_tokens() {
    let _alone = gpu::alone();
    let mut vm = match smollm2::vm(512, Faults::default()) {
        Ok(vm) => vm,
        Err(why) => return println!("skipped: {why}"),
    };
    let options = RunOptions { logits: true, ..RunOptions::default() };
    let mut seen = Vec::new();
    let first = vm.run(&[1, 504, 260], 0, 40, &options, &mut |token| seen.push(token)).expect("the launch should end");
    assert_eq!(seen, first.tokens, "tokens should arrive while they are made");
    assert_eq!(first.tokens.len(), 40);
    let bits = |logits: &[f32]| {
        logits.iter().map(|x| x.to_bits()).fold(0u64, |hash, x| (hash ^ u64::from(x)).wrapping_mul(0x100_0000_01b3))
    };
    let repeats = std::env::var("AMK_REPEATS").ok().and_then(|text| text.parse().ok()).unwrap_or(25);
    for repeat in 0..repeats {
        let again = vm.run(&[1, 504, 260], 0, 40, &options, &mut |_| {}).expect("the launch should end");
        assert_eq!((bits(&again.logits), &again.tokens), (bits(&first.logits), &first.tokens), "repeat {repeat}");
    }
    println!("{repeats} repeats of 40 steps: the same bits");
}

#[test]
fn a_launch_past_its_deadline_ends_with_an_error_and_the_next_one_works() {
    let _alone = gpu::alone();
    let mut vm = match smollm2::vm(512, Faults::default()) {
        Ok(vm) => vm,
        Err(why) => return println!("skipped: {why}"),
    };
    let late = RunOptions { deadline: Some(Duration::from_nanos(1)), ..RunOptions::default() };
    let error = vm.run(&[1], 0, 500, &late, &mut |_| {}).expect_err("the deadline should have passed");
    assert!(matches!(error, CudaError::Stuck(_)), "{error}");
    println!("{error}");
    let run = vm.run(&[1], 0, 8, &RunOptions::default(), &mut |_| {}).expect("the next launch should work");
    assert_eq!(run.tokens.len(), 8);
}

#[test]
fn positions_outside_the_context_are_refused() {
    let _alone = gpu::alone();
    let mut vm = match smollm2::vm(64, Faults::default()) {
        Ok(vm) => vm,
        Err(why) => return println!("skipped: {why}"),
    };
    assert!(matches!(
        vm.run(&[1], 60, 5, &RunOptions::default(), &mut |_| {}),
        Err(CudaError::Positions { to: 65, .. })
    ));
}

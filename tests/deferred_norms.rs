//! Norms of a residual in parts, in wide steps: which residuals have them, and that programs and a
//! GPU with them compute the function.

use crate::device_programs::{summands, with};
use crate::device_rows::{
    WIDE_STEPS, check_decoder, columns_for_bytes, decoder, h200, long_rows, wide_chunks, wide_on_gpu,
};
use crate::gpu;
use crate::image::in_blocks;
use amk_bench::kernel_check::Decoder;
use amk_cuda::plan::Plan;
use amk_cuda::{Image, Precision};
use amk_kernels::fused::{Gemv, Output, Published, Reduce};
use amk_models::model::{FAMILIES, Family};
use std::collections::BTreeMap;

/// The projections that deliver a residual or logits, or store, of a plan.
fn delivering(plan: &Plan) -> impl Iterator<Item = &Gemv> {
    plan.phases_of::<Gemv>().chain(plan.phases_of().map(|reduce: &Reduce| &reduce.of))
}

/// How many projections deliver a residual with a part of its norm, and how many lack a scale.
fn deferred(plan: &Plan) -> [usize; 2] {
    let weighted = |gemv: &&Gemv| matches!(gemv.output, Output::Residual { published: Published::Weighted(_), .. });
    [delivering(plan).filter(weighted).count(), delivering(plan).filter(|gemv| gemv.scale.is_some()).count()]
}

/// Decoders of two layers with deferred norms: plain ones, with biases, with norms of heads and
/// with functions of products; the last two have their columns shared out.
fn decoders(steps: u32) -> impl Iterator<Item = (Decoder, u32)> {
    let whole = |of: (Family, BTreeMap<String, u32>), rows| (decoder(of, rows, 24, steps), rows);
    let shared = |of, rows, workers| (columns_for_bytes(of, rows, workers, steps), rows);
    let [granite] = summands();
    let of = [
        whole(with("llama", &[]), 40),
        whole(with("qwen3", &[]), 64),
        whole(granite, 44),
        shared(long_rows("qwen2", &[]), 48, 44),
        shared(long_rows("granite", &[]), 48, 44),
    ];
    of.into_iter().inspect(|(decoder, rows)| {
        let plan = decoder.plan(Precision::BF16).expect("a plan");
        assert_eq!(deferred(&plan), [4, 4], "{} with {rows} rows", plan.program.name);
    })
}

#[test]
fn deferred_norms_are_the_functions() {
    for (decoder, rows) in decoders(120) {
        println!("{}, {rows} rows", decoder.plan(Precision::BF16).expect("a plan").program.name);
        check_decoder(&decoder, rows);
    }
}

/// A GPU's steps are cut into chunks that only these widths take.
#[test]
fn steps_with_deferred_norms_have_wide_chunks() {
    for (decoder, rows) in decoders(WIDE_STEPS) {
        assert!(wide_chunks(decoder.near(), rows as usize).is_some(), "{rows} rows");
    }
}

#[test]
fn a_gpus_deferred_norms_are_the_functions_whatever_the_company() {
    let Some(_gpu) = gpu::alone() else { return println!("skipped: no GPU") };
    for (decoder, rows) in decoders(WIDE_STEPS) {
        wide_on_gpu(&decoder, rows);
    }
}

/// Norms are deferred where only products read them, in steps whose products pay for the norm.
#[test]
fn norms_are_deferred_where_products_would_compute_them() {
    let of = |family: &str, rows: u32, encodings: &[&str]| {
        let family = FAMILIES.iter().find(|known| known.name == family).expect("the family");
        let graph = family.kernel.graph().expect("a graph");
        let mut instance = graph.instances[0].clone();
        instance.dims.insert("LAYERS".into(), 2);
        let schedule = h200().row_schedule(rows);
        let plain = amk_cuda::plan_for(family.kernel, &instance, &schedule, Precision::default()).expect("a plan");
        let forms = in_blocks(&plain, encodings);
        let plan = amk_cuda::plan_for(family.kernel, &instance, &schedule, forms).expect("a plan");
        let verified = amk::ir::verify::verify(plan.program.clone()).unwrap_or_else(|rejected| panic!("{rejected}"));
        Image::build(&verified, &plan).unwrap_or_else(|error| panic!("{}: {error}", family.name));
        deferred(&plan)
    };
    let mut found: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
    found.retain(|family| of(family, 64, &[]) != [0, 0]);
    let expected = ["llama", "qwen2", "qwen3", "granite", "mistral", "gemma", "smollm3", "lfm2", "arcee"];
    assert_eq!(found, expected);
    // Products of the first norm look up the embedding. The head has the last norm.
    for (rows, encodings, expected) in [
        (64, &[][..], [4, 4]),
        (32, &["Q4_0"], [4, 4]),
        (16, &["Q4_K"], [4, 4]),
        (32, &[], [0, 0]),
        (8, &["Q4_0"], [0, 0]),
        (128, &["Q4_0"], [0, 0]),
    ] {
        assert_eq!(of("llama", rows, encodings), expected, "{rows} rows, {encodings:?}");
    }
}

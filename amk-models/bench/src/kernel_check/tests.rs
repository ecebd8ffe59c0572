//! Tests of the checks: they find faults, and the programs for a GPU are planned, verified, encoded
//! and compiled.

use super::decoder::{Decoder, ROWS};
use super::*;
use amk::formula::Operands;
use amk::prelude::*;
use amk_cuda::{Image, TARGETS, compile, nvrtc, plan_for, source};
use amk_models::model::FAMILIES;

/// `y = 2 x`. Its device body rounds.
#[instruction(
    op = "narrowed",
    shape = "x: [N] -> y: [N]",
    tile = "T = 16",
    task = "n in 0..N step T: y[n..n+T] <- x[n..n+T]",
    cuda = "wrong.cuh"
)]
fn narrowed(x: &Tensor) -> Tensor {
    x.data().iter().map(|x| x + x).collect()
}

/// `kept[g, pos, d] = x[g * D + d]`. Its device body leaves out an element.
#[instruction(
    op = "cut_short",
    shape = "kept: [G, C, D], x: [G * D]",
    task = "g in 0..G step 1: kept[g..g+1, pos..pos+1, ..] <- x[g*D..(g+1)*D]",
    cuda = "wrong.cuh"
)]
fn cut_short(kept: &mut State, x: &Tensor, pos: Pos) {
    amk_kernels::kv_append(kept, x, pos);
}

/// `y = x^2 + x`. The function loses what follows the first 12 bits of its result.
#[instruction(op = "blurred", shape = "x: [N] -> y: [N]", task = "y[..] <- x[..]")]
fn blurred(x: &Tensor) -> Tensor {
    x.data().iter().map(|x| f32::from_bits((x * x + x).to_bits() & !0xfff)).collect()
}

/// `y = x - mean(x)`. Its `task` says that tiles of it are independent, which they are not.
#[instruction(
    op = "centred",
    shape = "x: [N] -> y: [N]",
    tile = "T = 8",
    task = "n in 0..N step T: y[n..n+T] <- x[n..n+T]"
)]
fn centred(x: &Tensor) -> Tensor {
    let mean = x.data().iter().sum::<f32>() / x.len() as f32;
    x.data().iter().map(|x| x - mean).collect()
}

amk::formula!("amk_bench::narrowed", |o: &mut Operands| {
    o.data(0).iter().map(|x| Exact::product(2.0 * x)).collect()
});
amk::formula!("amk_bench::blurred", |o: &mut Operands| { o.data(0).iter().map(|x| Exact::sum([x * x, *x])).collect() });

fn entry(name: &str) -> &'static Entry {
    let path = format!("amk_bench::{name}");
    Registry::linked().and_then(|registry| registry.get(&path)).expect("the instruction")
}

/// The instruction set, without the wrong ones above.
fn kernels() -> Vec<&'static Entry> {
    amk_kernels::link();
    let mut entries = instructions().expect("the registry");
    entries.retain(|entry| entry.path.starts_with("amk_kernels"));
    assert!(entries.len() >= 12);
    entries
}

fn target() -> &'static GpuTarget {
    TARGETS.iter().find(|target| target.name == "h200").expect("a record")
}

/// Whether there is no GPU; prints that the test is skipped.
fn no_gpu() -> bool {
    let missing = cuda::probe().err();
    missing.inspect(|error| println!("skipped: {error}")).is_some()
}

fn cubins() -> std::path::PathBuf {
    std::env::temp_dir().join("amk-test-cubins")
}

#[test]
fn tiles_give_the_bits_of_the_function_and_the_function_keeps_to_its_formula() {
    let check = |entry: &Entry, dtype| {
        let checked = on_cpu(entry, dtype, 60, 11).unwrap_or_else(|error| panic!("{}: {error}", entry.path));
        println!("{} {dtype:?}: {:.2} epsilons with {}", checked.path, checked.error, checked.worst);
        assert!(checked.ok && checked.oracle == Oracle::F64, "{checked:?}");
    };
    // The types at the same time: this test runs on when others have ended.
    std::thread::scope(|scope| {
        for dtype in DType::ALL {
            let with = move |entry: &&Entry| dtypes(entry, false).expect("a signature").contains(&dtype);
            scope.spawn(move || kernels().into_iter().filter(with).for_each(|entry| check(entry, dtype)));
        }
    });
}

#[test]
fn a_wrong_function_and_wrong_tiles_are_found() {
    let blurred = on_cpu(entry("blurred"), DType::F32, 8, 1).expect("cases");
    assert!(!blurred.ok && blurred.error.is_finite() && blurred.error > 100.0, "{blurred:?}");
    let against = |checked: &Checked| checked.difference.as_ref().map(|difference| difference.against);
    assert_eq!(against(&blurred), Some(Against::Formula), "{blurred:?}");
    let centred = on_cpu(entry("centred"), DType::F32, 8, 1).expect("cases");
    assert!(!centred.ok && centred.error.is_infinite() && centred.oracle == Oracle::Function, "{centred:?}");
    assert_eq!(against(&centred), Some(Against::Tiles), "{centred:?}");
}

#[test]
fn calls_are_made_around_the_first_block_and_far_beyond_it() {
    for name in ["rope", "attention", "kv_append"] {
        let entry = kernels().into_iter().find(|entry| entry.path.ends_with(name)).expect("the instruction");
        let mut draw = Draw::new(2);
        let mut seen = Vec::new();
        for _ in 0..16 {
            seen.extend(Case::random(entry, &mut draw, DType::F32, 1).expect("a case").positions);
        }
        assert!(
            [0, 63, 64].iter().all(|pos| seen.contains(pos)) && seen.iter().any(|&pos| pos > 128),
            "{name}: {seen:?}"
        );
    }
}

/// Every case that a GPU would run: planned, verified and encoded; one of each instruction compiled
/// for one target.
#[test]
fn cases_for_a_gpu_are_planned_and_compiled() {
    let wrong = ["narrowed", "cut_short"].map(entry);
    for entry in kernels().into_iter().filter(|entry| entry.cuda.is_some()).chain(wrong) {
        assert_eq!(not_on_device(entry).expect("a signature"), None, "{}", entry.path);
        for &dtype in dtypes(entry, true).expect("a signature") {
            let mut draw = Draw::new(3);
            for number in 0..6 {
                let case = Case::random(entry, &mut draw, dtype, 8).expect("a case");
                let options = device_options(target(), dtype, &mut draw);
                let schedule = options.schedule.clone().unwrap_or_default().over(target().schedule());
                let plan = plan_for(&case.kernel, &case.instance, &schedule, options.precision)
                    .unwrap_or_else(|error| panic!("{} with {}: {error}", entry.path, case.shapes()));
                let verified = verify(plan.program.clone()).unwrap_or_else(|report| panic!("{}: {report}", entry.path));
                Image::build(&verified, &plan).expect("the image should be the program");
                // The same code serves weights of both types.
                if number == 0 && dtype == DType::F32 {
                    compiles(entry.path, &source::generate(&plan, &options));
                }
            }
        }
    }
}

/// Beside a GPU the code is optimised, as is what then runs there.
fn compiles(what: &str, code: &str) {
    let compiled = match cuda::probe() {
        Ok(_) => compile(code, target().architecture).map(drop),
        Err(_) => nvrtc::check(code, target().architecture),
    };
    match compiled {
        Ok(()) => println!("{what} compiles"),
        Err(CudaError::NoNvrtc) => println!("{what} is not compiled: no NVRTC"),
        Err(error) => panic!("{what}: {error}"),
    }
}

#[test]
fn device_bodies_keep_to_the_formulas() {
    if no_gpu() {
        return;
    }
    for entry in kernels() {
        for &dtype in dtypes(entry, true).expect("a signature") {
            let checked =
                on_cuda(entry, dtype, 4, 5, &cubins()).unwrap_or_else(|error| panic!("{}: {error}", entry.path));
            println!("{} {dtype:?}: {:.2} epsilons with {}", checked.path, checked.error, checked.worst);
            assert!(checked.ok && checked.oracle == Oracle::F64, "{checked:?}");
        }
    }
}

#[test]
fn wrong_device_bodies_are_found() {
    if no_gpu() {
        return;
    }
    for name in ["narrowed", "cut_short"] {
        let checked = on_cuda(entry(name), DType::F32, 4, 1, &cubins()).expect("cases");
        println!("{}: {:.2e}", checked.path, checked.error);
        assert!(!checked.ok, "{checked:?}");
    }
}

#[test]
fn fused_bodies_keep_to_the_formulas() {
    if no_gpu() {
        return;
    }
    for family in FAMILIES {
        let checked = decoder_on_cuda(family, &[], 4, 7, &cubins(), &mut |_| {}).expect("cases");
        println!("{}: {:.2} deviations with {}", checked.path, checked.error, checked.worst);
        assert!(checked.ok, "{checked:?}");
    }
}

#[test]
fn fused_bodies_decode_every_encoding() {
    if no_gpu() {
        return;
    }
    for encodings in encodings_on_device() {
        let checked = decoder_on_cuda(FAMILIES[0], &encodings, 3, 7, &cubins(), &mut |_| {}).expect("cases");
        println!("{encodings:?}: {:.2} deviations with {}", checked.error, checked.worst);
        assert!(checked.ok, "{checked:?}");
    }
}

/// Without a GPU: decoders in blocks are planned, verified, encoded and decoded again, with one row
/// and with several, and compiled.
#[test]
fn decoders_in_blocks_are_planned_and_compiled() {
    let mut draw = Draw::new(11);
    for (number, encodings) in encodings_on_device().into_iter().enumerate() {
        let mut decoder = Decoder::random(FAMILIES[0], target(), true, &encodings, &mut draw).expect("a decoder");
        let check = |decoder: &Decoder, compiled: bool| {
            let plan = decoder.plan(Precision::BF16)?;
            let kinds = &amk_kernels::fused::Decoder::of(&plan).expect("projections").tiles;
            let in_blocks = kinds.iter().filter(|kind| encodings.contains(&kind.layout.encoding)).count();
            assert!(in_blocks >= encodings.len().min(4), "{kinds:?}");
            let verified = verify(plan.program.clone()).unwrap_or_else(|report| panic!("{report}"));
            Image::build(&verified, &plan).expect("the image should be the program");
            let code = source::generate(&plan, &VmOptions::default());
            if compiled {
                compiles(&format!("{encodings:?}"), &code);
            }
            Ok(())
        };
        check(&decoder, true).expect("a plan");
        let rows = |decoder: &Decoder| check(decoder, number % 2 == 0); // compiling takes long
        assert_eq!(decoder.in_rows(target(), ROWS[0], rows).expect("a plan"), Some(()), "{encodings:?}");
    }
}

#[test]
fn more_encodings_than_records_can_number_are_refused() {
    let sizes = [("VOCAB", 256), ("HIDDEN", 256), ("LAYERS", 8), ("HEADS", 4), ("KV_HEADS", 2), ("HEAD_DIM", 64)];
    let sizes = sizes.into_iter().chain([("ROTARY", 64), ("FFN", 256), ("CONTEXT", 128)]);
    let dims = sizes.map(|(name, value)| (name.to_owned(), value)).collect();
    let encodings = encodings_on_device().pop().expect("all encodings");
    let schedule = Schedule { workers: 6, run: 2, ..target().schedule() };
    let decoder = Decoder::drawn(FAMILIES[0], dims, schedule, 1, &encodings, &mut Draw::new(1)).expect("a decoder");
    let error = decoder.plan(Precision::BF16).expect_err("a plan of too many kinds").to_string();
    assert!(error.contains("weights in more than 32 encodings"), "{error}");
}

#[test]
fn annotated_functions_keep_to_the_formulas() {
    for family in FAMILIES {
        let mut runs = Vec::new();
        let checked = decoder_on_cpu(family, target(), 1, 7, &mut |run| runs.push(run)).expect("a case");
        println!("{}: {:.2} deviations with {}", checked.path, checked.error, checked.worst);
        assert!(checked.ok, "{checked:?}");
        let errors: Vec<Option<f64>> = runs.iter().map(|run| run.error).collect();
        assert_eq!(errors, [None, Some(checked.error)], "a run is seen when it begins and when it has ended");
    }
}

/// The formula that a fault changes.
fn right(path: &str, o: &mut Operands) -> Vec<Exact> {
    (amk::formula::Formula::of(path).expect("a formula").run)(o)
}

/// A fault of a fused body: the instruction, where it shows, and the fault.
type Fault = (&'static str, &'static str, fn(&mut Operands) -> Vec<Exact>);

const FAULTS: [Fault; 6] = [
    ("the position before", "amk_kernels::rope", |o| {
        o.pos = o.pos.saturating_sub(1);
        right("amk_kernels::rope", o)
    }),
    ("not the newest", "amk_kernels::attention", |o| {
        o.pos = o.pos.saturating_sub(1);
        right("amk_kernels::attention", o)
    }),
    ("the last of a block lost", "amk_kernels::kv_append", |o| {
        if o.pos != 63 { right("amk_kernels::kv_append", o) } else { Vec::new() }
    }),
    ("one row wrong", "amk_kernels::linear", |o| {
        let mut y = right("amk_kernels::linear", o);
        let last = y.len() - 1;
        y[last].value = y[last - 1].value;
        y
    }),
    ("weights of another head", "amk_kernels::head_norm", |o| {
        std::sync::Arc::make_mut(&mut o.tensors[1]).data.rotate_left(2);
        right("amk_kernels::head_norm", o)
    }),
    ("no residual for one element", "amk_kernels::add", |o| {
        let mut y = right("amk_kernels::add", o);
        y[5].value = o.data(1)[5];
        y
    }),
];

/// Without a GPU: what only rounds to bf16 is right, and a call that is wrong in one place is
/// found.
#[test]
fn roundings_are_told_from_faults() {
    let decoder = Decoder::random(FAMILIES[2], target(), true, &[], &mut Draw::new(4)).expect("a decoder");
    let machine = || decoder.machine().expect("bindings").expect("formulas");
    let expected = decoder.expected(1).expect("bindings").expect("formulas");
    let (error, _) = expected.error(&decoder.run(machine().rounding(100)));
    println!("roundings: {error:.2} deviations");
    assert!(error > 1.0 && error < MOST_DEVIATIONS, "{error}");
    for (fault, path, run) in FAULTS {
        let (error, step) = expected.error(&decoder.run(machine().with(path, run).rounding(100)));
        println!("{path}, {fault}: {error:.2} deviations at step {step}");
        assert!(error > MOST_DEVIATIONS, "{path}, {fault}: {error}");
    }
}

#[test]
fn decoders_for_a_gpu_are_planned_and_compiled() {
    for (number, family) in FAMILIES.into_iter().enumerate() {
        let mut draw = Draw::new(9);
        for whole in [true, false] {
            let decoder = Decoder::random(family, target(), whole, &[], &mut draw).expect("a decoder");
            let (instance, schedule) = (&decoder.model.instance, decoder.schedule.clone());
            target().check(&schedule).expect("a legal schedule");
            let plan = plan_for(family.kernel, instance, &schedule, Precision::BF16).expect("a plan");
            let verified = verify(plan.program.clone()).unwrap_or_else(|report| panic!("{report}"));
            Image::build(&verified, &plan).expect("the image should be the program");
            // Generic tasks call the same bodies in all families.
            if whole || number % 4 == 0 {
                compiles(family.name, &source::generate(&plan, &VmOptions::default()));
            }
        }
    }
}

#[test]
fn a_decoder_names_its_fused_bodies_and_their_instructions() {
    let decoder = Decoder::random(FAMILIES[0], target(), true, &[], &mut Draw::new(7)).expect("a decoder");
    let bodies = decoder.bodies().expect("a plan");
    let of = |body: &str| bodies[body].iter().map(|path| path.trim_start_matches("amk_kernels::")).collect::<Vec<_>>();
    assert_eq!(of("gated"), ["linear", "rms_norm", "silu_mul"]);
    assert_eq!(of("residual"), ["add", "linear"]);
    assert!(bodies.values().flatten().any(|path| path.ends_with("combine_splits")), "{bodies:?}");
}

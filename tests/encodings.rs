//! Weights in blocks: the function and the CPU VM compute with them what they compute with the
//! decoded weights in f32, bit for bit.

use crate::models::golden_folder;
use amk::ir::schedule::{RowSchedule, Schedule};
use amk::registry::Registry;
use amk::session::Session;
use amk::tensor::Inputs;
use amk::vm::Bindings;
use amk::vm::cpu::{Mode, Options, Vm};
use amk::{Encoding, Pos, Token, Weight};
use amk_kernels::encoding::{Blocks, GROUP, IntegerBlocks, integer_encoding};
use amk_models::checkpoint::Checkpoint;
use amk_models::model::{Model, ModelError, WeightFormat, WeightUse};
use std::path::Path;

const STEPS: u32 = 6;

// ANCHOR: wide
/// `scale: f32, quants: 32 signed bytes`.
struct Wide;

impl Blocks<36> for Wide {
    const GROUPS: usize = 1;

    #[inline(always)]
    fn group(block: &[u8; 36], _: usize) -> [f32; GROUP] {
        let scale = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
        let mut out = [0.0; GROUP];
        for (out, &quant) in out.iter_mut().zip(&block[4..]) {
            *out = f32::from(quant as i8) * scale;
        }
        out
    }

    fn check(block: &[u8; 36]) -> Result<(), &'static str> {
        match f32::from_le_bytes([block[0], block[1], block[2], block[3]]).is_finite() {
            true => Ok(()),
            false => Err("has a scale that is not finite"),
        }
    }
}

/// For `--activations q8`.
impl IntegerBlocks<36> for Wide {
    const MOST: u8 = 255;
    const BIAS: i32 = 128;

    #[inline(always)]
    fn codes(block: &[u8; 36], _: usize) -> [u8; GROUP] {
        let mut codes = [0; GROUP];
        for (code, &quant) in codes.iter_mut().zip(&block[4..]) {
            *code = quant ^ 0x80;
        }
        codes
    }

    #[inline(always)]
    fn scales(block: &[u8; 36], _: usize) -> [f32; 2] {
        [f32::from_le_bytes([block[0], block[1], block[2], block[3]]); 2]
    }
}

static WIDE: Encoding = Encoding { encode: Some(encode), ..integer_encoding::<36, Wide>("WIDE") };
amk::encoding!(WIDE);

fn encode(elements: &[f32], blocks: &mut [u8]) {
    for (elements, block) in elements.as_chunks::<GROUP>().0.iter().zip(blocks.as_chunks_mut::<36>().0) {
        let scale = elements.iter().fold(0.0, |most: f32, x| most.max(x.abs())) / 127.0;
        block[..4].copy_from_slice(&scale.to_le_bytes());
        for (quant, x) in block[4..].iter_mut().zip(elements) {
            *quant = (x / scale.max(f32::MIN_POSITIVE)).round() as i8 as u8;
        }
    }
}
// ANCHOR_END: wide

fn load(encoding: &'static Encoding) -> Model {
    load_with(encoding, Inputs::F32).unwrap_or_else(|error| panic!("{encoding}: {error}"))
}

fn load_with(encoding: &'static Encoding, inputs: Inputs) -> Result<Model, ModelError> {
    load_from(&golden_folder().join("tiny/llama"), encoding, inputs)
}

fn load_from(folder: &Path, encoding: &'static Encoding, inputs: Inputs) -> Result<Model, ModelError> {
    let checkpoint = Checkpoint::open(folder);
    let Checkpoint { config, tensors, .. } = checkpoint.expect("the checkpoint should open");
    Model::load(
        &config,
        tensors,
        16,
        WeightUse { format: WeightFormat::As(encoding), inputs, ..WeightUse::default() },
        &mut |_| {},
    )
}

/// The weights decoded to f32.
fn decoded(bindings: &Bindings) -> Bindings {
    let f32s = |weight: &Weight| Weight::f32(weight.shape(), weight.to_f32()).expect("a shape of a weight");
    bindings.weights().iter().fold(bindings.clone(), |all, (name, weight)| all.weight(name, f32s(weight)))
}

fn token(pos: u32) -> Token {
    Token(7 * pos + 3)
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

/// The logits of a few tokens, one after the other.
fn logits(model: &Model, bindings: &Bindings, mode: Mode) -> Vec<Vec<u32>> {
    let schedule = Schedule { workers: 3, ..Schedule::default() };
    let verified = model.family.kernel.verified(&model.instance, Some(&schedule)).expect("it should be safe");
    let registry = Registry::linked().expect("instructions should have unique paths");
    let options = Options { mode, ..Options::default() };
    let mut vm = Vm::with(verified, bindings, &registry, options).expect("the VM should start");
    let step = |pos| bits(vm.step(token(pos), Pos(pos)).expect("the step should run").data());
    (0..STEPS).map(step).collect()
}

#[test]
fn blocks_compute_the_same_as_decoded_weights() {
    let mut tried = 0;
    // Rows of these models have 32 or 48 elements: blocks of 256 are not whole.
    for encoding in Encoding::all().filter(|encoding| encoding.encode.is_some() && encoding.block <= 32) {
        let mut model = load(encoding);
        let has = |name: &str| model.bindings.weights()[name].encoding();
        assert_eq!(has("w.layers[0].attn.q"), encoding);
        // Norms are no matrices, and 48 columns are not whole blocks.
        let kept = if encoding.float.is_some() { encoding } else { &amk::encoding::F32 };
        assert_eq!((has("w.layers[0].mlp.down"), has("w.ends.norm")), (kept, kept));
        let expected: Vec<_> = (0..STEPS).map(|pos| bits((model.eager)(token(pos), Pos(pos)).data())).collect();
        assert_eq!(logits(&model, &decoded(&model.bindings), Mode::Threads), expected, "{encoding} decoded");
        for mode in [Mode::Threads, Mode::Shuffled { seed: 1 }] {
            assert_eq!(logits(&model, &model.bindings, mode), expected, "{encoding}, {mode:?}");
        }
        tried += 1;
    }
    // f32, f16, bf16, seven of GGML, 15 by groups and this file's.
    assert_eq!(tried, 26, "encodings");
}

/// The embeddings and every second matrix are in other blocks than the rest.
#[test]
fn every_family_computes_with_a_mixture_of_blocks_as_with_decoded_weights() {
    for folder in std::fs::read_dir(golden_folder().join("families")).expect("checkpoints").flatten() {
        let [model, other] = ["Q8_0", "Q4_0"].map(|name| {
            let encoding = Encoding::find(name).expect("it is registered");
            load_from(&folder.path(), encoding, Inputs::F32).unwrap_or_else(|error| panic!("{name}: {error}"))
        });
        let others = other.bindings.weights().iter().enumerate();
        let others = others.filter(|(at, (name, _))| at % 2 == 0 || *name == "w.ends.embed");
        let mixed = others.fold(model.bindings.clone(), |all, (_, (name, weight))| all.weight(name, weight.clone()));
        assert_eq!(mixed.weights()["w.ends.embed"].encoding().name, "Q4_0");
        let expected = logits(&model, &decoded(&mixed), Mode::Threads);
        assert_eq!(logits(&model, &mixed, Mode::Shuffled { seed: 1 }), expected, "{:?}", folder.file_name());
    }
}

#[test]
fn conversions_say_how_far_they_are_off() {
    let error = |name: &str| {
        let model = load(Encoding::find(name).expect("it is registered"));
        (model.conversion.tensors, model.conversion.deviation.relative())
    };
    // The file has f32.
    assert_eq!(error("f32"), (0, 0.0));
    let ((all, bf16), (matrices, q8), (_, q4)) = (error("bf16"), error("Q8_0"), error("Q4_0"));
    assert!(0 < matrices && matrices < all, "{matrices} of {all}");
    assert!(1e-4 < bf16 && bf16 < 3e-3 && 1e-3 < q8 && q8 < 1e-2 && 0.03 < q4 && q4 < 0.2, "{bf16} {q8} {q4}");
}

#[test]
fn rounded_inputs_compute_the_same_in_the_function_and_in_any_order() {
    let mut tried = 0;
    let has_products = |encoding: &&Encoding| encoding.dot_q8.is_some() && encoding.encode.is_some();
    for encoding in Encoding::all().filter(has_products).filter(|encoding| encoding.block == 32) {
        let mut model = load_with(encoding, Inputs::Q8).unwrap_or_else(|error| panic!("{encoding}: {error}"));
        // Those with 48 columns stay f32, and so do their inputs.
        assert!(model.rounding.matrices > 0 && model.rounding.others > 0, "{encoding}: {:?}", model.rounding);
        assert_eq!(Vec::from_iter(&model.rounding.encodings), [&"f32"]);
        let expected: Vec<_> = (0..STEPS).map(|pos| bits((model.eager)(token(pos), Pos(pos)).data())).collect();
        for mode in [Mode::Threads, Mode::Shuffled { seed: 1 }] {
            assert_eq!(logits(&model, &model.bindings, mode), expected, "{encoding}, {mode:?}");
        }
        let exact = logits(&load(encoding), &load(encoding).bindings, Mode::Threads);
        let (mut off, mut size) = (0.0f32, 0.0f32);
        for (found, exact) in expected.iter().flatten().zip(exact.iter().flatten()) {
            let (found, exact) = (f32::from_bits(*found), f32::from_bits(*exact));
            (off, size) = (off + (found - exact).powi(2), size + exact.powi(2));
        }
        let error = (off / size).sqrt();
        assert!(1e-4 < error && error < 0.05, "{encoding}: {error}");
        tried += 1;
    }
    // Five of GGML and this file's.
    assert_eq!(tried, 8, "encodings");
}

#[test]
fn rows_of_rounded_inputs_have_the_bits_of_single_steps() {
    let mut model = load_with(Encoding::find("Q4_0").expect("it is registered"), Inputs::Q8).expect("it has products");
    let expected: Vec<_> = (0..STEPS).map(|pos| bits((model.eager)(token(pos), Pos(pos)).data())).collect();
    let rows = RowSchedule { most: STEPS, block: None };
    let schedule = Schedule { workers: 2, rows: Some(rows), ..Schedule::default() };
    let verified = model.family.kernel.verified(&model.instance, Some(&schedule)).expect("it should be safe");
    let mut session = Session::new(Vm::new(verified, &model.bindings).expect("the VM should start"));
    let id = session.add();
    session.push(id, &(0..STEPS).map(token).collect::<Vec<_>>()).expect("tokens");
    session.step().expect("the step should run");
    assert_eq!(bits(session.logits(id).expect("logits")), expected[STEPS as usize - 1]);
}

#[test]
fn rounded_inputs_need_an_encoding_with_integers() {
    let error = load_with(&amk::encoding::BF16, Inputs::Q8).err().expect("bf16 has none").to_string();
    assert_eq!(error, "weights of bf16 have no products with inputs in q8; convert them, as to Q8_0");
}

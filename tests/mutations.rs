//! Mutations of the models' own lowerings: every mutant is rejected, or the oracle and the CPU VM
//! in adversarial orders find it harmless.
//!
//! The fast test draws some mutants of each class;
//! `cargo test --release -p amk-tests mutations:: -- --ignored` makes them all.

use amk::ir::schedule::{Assign, FuseInto, Fusion, QueuePolicy, Schedule};
use amk::ir::verify::verify;
use amk::ir::{Program, Queues, TaskId, text};
use amk::registry::{Output, Registry};
use amk::vm::cpu::{Mode, Options, Step, Vm};
use amk::{Pos, Token};
use amk_models::checkpoint::Checkpoint;
use amk_models::model::{Model, WeightFormat};
use amk_tests::generate::Rng;
use amk_tests::mutate::{Class, Mutation, sites};
use amk_tests::oracle::{Horizon, Verdict, read, withhold};
use amk_tests::soundness::codes;
use std::collections::BTreeMap;
use std::path::Path;

/// Positions of the programs; all are judged.
const CONTEXT: usize = 3;

fn load(name: &str) -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/tiny").join(name);
    let checkpoint = Checkpoint::open(&path).expect("the checkpoint should open");
    Model::load(&checkpoint.config, checkpoint.tensors, CONTEXT, WeightFormat::Native, &mut |_| {})
        .expect("it should load")
}

fn schedules() -> [Schedule; 3] {
    let fuse = [("rms_norm", FuseInto::Consumers), ("add", FuseInto::Producer), ("silu_mul", FuseInto::Producer)];
    let fuse = fuse.map(|(op, into)| Fusion { op: op.into(), into }).to_vec();
    [
        Schedule { workers: 3, assign: Assign::Balanced, ..Schedule::default() },
        Schedule { workers: 4, fuse, ..Schedule::default() },
        Schedule { workers: 3, queue: QueuePolicy::Ticket, ..Schedule::default() },
    ]
}

/// The outcomes of mutants.
#[derive(Default, Debug, Clone, Copy)]
struct Fates {
    rejected: u32,
    harmless: u32,
    /// Accepted as programs, but their calls do not fit the instructions' shapes, which the VM
    /// finds before it runs them.
    misshapen: u32,
}

/// Judges mutants of a model's program by a schedule, and counts their fates by class.
fn judge(
    model: &Model,
    schedule: &Schedule,
    pick: &mut dyn FnMut(Vec<Mutation>) -> Vec<Mutation>,
    fates: &mut BTreeMap<Class, Fates>,
) {
    let program = model.family.kernel.lower(&model.instance, Some(schedule)).expect("it should lower").program;
    assert_eq!(codes(&program), [""; 0], "{} is safe", program.name);
    for class in Class::ALL {
        for (n, mutation) in pick(sites(&program, class)).into_iter().enumerate() {
            let mutant = mutation.apply(&program);
            let rejected = !codes(&mutant).is_empty();
            let fate = fates.entry(class).or_default();
            if !rejected || n % 8 == 0 {
                let source = read::read(&text::print(&mutant)).expect("the printer's text can be read");
                let verdict = withhold::judge(&source, Horizon::default());
                assert_eq!(verdict == Verdict::Safe, !rejected, "{} {mutation}: {verdict}", program.name);
            }
            if rejected {
                fate.rejected += 1;
            } else if harmless(model, mutant, &mutation) {
                fate.harmless += 1;
            } else {
                fate.misshapen += 1;
            }
        }
    }
}

/// Runs a mutant in orders drawn at random, step by step and in one launch; every one must give the
/// bits of its eager order. False where no VM takes it.
fn harmless(model: &Model, mutant: Program, mutation: &Mutation) -> bool {
    let Some(expected) = logits(model, in_eager_order(mutant.clone()), 0, 1) else {
        assert!(logits(model, mutant, 0, 1).is_none(), "{mutation} runs, but not in eager order");
        return false;
    };
    for (seed, steps) in [(1, 1), (2, 1), (3, CONTEXT), (4, CONTEXT)] {
        let found = logits(model, mutant.clone(), seed, steps).unwrap_or_default();
        assert!(!found.is_empty() && expected.ends_with(&found), "{mutation}, seed {seed}, launches of {steps} steps");
    }
    true
}

/// One worker, and no counters: the meaning of the program.
fn in_eager_order(mut program: Program) -> Program {
    for task in &mut program.tasks {
        task.waits.clear();
        task.signals.clear();
    }
    program.queues = Queues::Static(vec![(0..program.tasks.len()).map(TaskId::from).collect()]);
    program
}

/// The bits of the logits at the end of each launch of so many steps; `None` where the VM does not
/// take the program.
fn logits(model: &Model, program: Program, seed: u64, steps: usize) -> Option<Vec<u32>> {
    let verified = verify(program).unwrap_or_else(|rejected| panic!("it should be safe: {rejected}"));
    let registry = Registry::linked().expect("instructions should have unique paths");
    let options = Options { mode: Mode::Shuffled { seed }, ..Options::default() };
    let mut vm = Vm::with(verified, &model.bindings, &registry, options).ok()?;
    let step = |pos: &u32| Step { pos: Pos(*pos), tokens: vec![Token(7 * pos + 3)] };
    let mut bits = Vec::new();
    for positions in Vec::from_iter(0..CONTEXT as u32).chunks(steps) {
        let Some(Output::Tensor(logits)) = vm.run(positions.iter().map(step).collect()).ok()?.first() else {
            return None;
        };
        bits.extend(logits.data().iter().map(|value| value.to_bits()));
    }
    Some(bits)
}

fn report(fates: &BTreeMap<Class, Fates>) -> Fates {
    let mut sum = Fates::default();
    for (class, fate) in fates {
        println!("{class:?}: {} rejected, {} harmless, {} misshapen", fate.rejected, fate.harmless, fate.misshapen);
        sum.rejected += fate.rejected;
        sum.harmless += fate.harmless;
        sum.misshapen += fate.misshapen;
    }
    println!("{sum:?}");
    sum
}

#[test]
fn mutants_of_models_are_rejected_or_harmless() {
    let mut fates = BTreeMap::new();
    let mut rng = Rng::new(1, 1);
    for (name, schedule) in ["llama", "qwen2", "qwen3"].into_iter().zip(schedules()) {
        let mut some = |all: Vec<Mutation>| (0..3).filter_map(|_| rng.pick(&all).copied()).collect();
        judge(&load(name), &schedule, &mut some, &mut fates);
    }
    let Fates { rejected, harmless, .. } = report(&fates);
    assert!(rejected > 100 && harmless > 3, "{rejected} rejected, {harmless} harmless");
}

#[test]
#[ignore = "all mutants: minutes, in release"]
fn all_mutants_of_models_are_rejected_or_harmless() {
    let mut fates = BTreeMap::new();
    for name in ["llama", "qwen2", "qwen3"] {
        let model = load(name);
        for schedule in schedules() {
            judge(&model, &schedule, &mut |all| all, &mut fates);
        }
    }
    report(&fates);
}

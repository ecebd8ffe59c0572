//! Every family against Hugging Face transformers, from a folder and from a GGUF file, and against
//! itself: the CPU VM has the annotated function's bits.

use crate::models::{load, same_bits, schedules, vm};
use amk::ir::schedule::{RowSchedule, Schedule};
use amk::session::Session;
use amk::vm::cpu::Mode;
use amk::{Pos, Token};
use amk_models::model::FAMILIES;
use amk_models::models::imports;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::Path;

/// The largest difference of a logit to transformers in fp32.
const LOGIT_TOLERANCE: f32 = 1e-4;

#[derive(Deserialize)]
struct Golden {
    tokens: Vec<u32>,
    logits: Vec<Logits>,
}

#[derive(Deserialize)]
struct Logits {
    position: usize,
    values: Vec<f32>,
}

/// Declares the tests of each checkpoint in a folder of golden ones, and that each has its tests.
macro_rules! checkpoints {
    ($folder:ident: $($name:ident),* $(,)?) => { paste::paste! {
        const CHECKPOINTS: &[&str] = &[$(stringify!($name)),*];

        fn folder(name: &str) -> std::path::PathBuf {
            crate::models::golden_folder().join(stringify!($folder)).join(name)
        }

        #[test]
        fn every_checkpoint_has_its_tests() {
            let folder = std::fs::read_dir(folder("")).expect("checkpoints").flatten();
            let mut names: Vec<String> = folder.flat_map(|entry| entry.file_name().into_string()).collect();
            names.sort();
            assert!(names == CHECKPOINTS, "{names:?}");
        }

        $(
            #[test]
            fn [<$name _gives_the_logits_of_transformers>]() {
                crate::families::gives_the_logits(&folder(stringify!($name)));
            }

            #[test]
            fn [<the_vm_has_the_bits_of_the_function_of_ $name>]() {
                crate::families::has_the_bits(&folder(stringify!($name)));
            }

            #[test]
            fn [<rows_have_the_bits_of_the_function_of_ $name>]() {
                crate::families::has_the_bits_in_rows(&folder(stringify!($name)));
            }
        )*
    } };
}
pub(crate) use checkpoints;

checkpoints!(
    families:
    arcee,
    cohere,
    cohere2,
    ernie4_5,
    exaone4,
    exaone4_long_window,
    exaone4_without_window,
    falcon3,
    gemma,
    gemma2,
    gemma3,
    gemma3_rope_parameters,
    gemma3_with_images,
    glm,
    glm4,
    gpt_neox,
    gpt_neox_sequential,
    granite,
    granite4,
    helium,
    lfm2,
    lfm2_listed,
    mistral,
    nemotron,
    olmo2,
    olmo3,
    phi,
    phi3,
    phi3_window,
    phi4_mini,
    phi4_mini_long,
    seed_oss,
    smollm3,
    stablelm,
    stablelm_without_biases,
    starcoder2,
    starcoder2_window,
);

#[test]
fn every_import_names_a_family_and_no_two_are_of_one_kind() {
    let families: BTreeSet<&str> = FAMILIES.iter().map(|family| family.name).collect();
    let (mut types, mut architectures) = (BTreeSet::new(), BTreeSet::new());
    for import in imports() {
        assert!(families.contains(import.family), "{}", import.family);
        assert!(types.insert(import.model_type), "{}", import.model_type);
        assert!(
            import.gguf.is_none_or(|gguf| architectures.insert((gguf.architecture, gguf.stated))),
            "{}",
            import.model_type
        );
    }
    let of = |family: &str| imports().any(|import| import.family == family || import.windowed == Some(family));
    assert!(families.iter().all(|family| of(family)), "{families:?}");
    assert!(imports().filter_map(|import| import.windowed).all(|family| families.contains(family)));
}

/// A row of its table is `| family: .. | lines | .. | .. |`.
#[test]
fn the_guide_has_the_lines_of_every_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let guide = read("docs/src/guide/model-family.md");
    let name = |cell: &str| {
        cell.trim().split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default().to_owned()
    };
    let rows: Vec<Vec<&str>> = guide.lines().map(|line| line.split('|').collect()).collect();
    for family in FAMILIES {
        let row = rows.iter().find(|row| row.len() == 6 && name(row[1]) == family.name);
        let row = row.unwrap_or_else(|| panic!("the guide has no row for {}", family.name));
        let lines = read(&format!("amk-models/src/models/{}.rs", family.name)).lines().count();
        assert_eq!(row[2].trim(), lines.to_string(), "{}", family.name);
    }
}

/// The logits of a folder, and of a GGUF file of its name in it, are those in its `golden.json`.
pub(crate) fn gives_the_logits(folder: &Path) {
    let golden = std::fs::read_to_string(folder.join("golden.json")).expect("the golden file");
    let golden: Golden = serde_json::from_str(&golden).expect("tokens and logits");
    let file = folder.join(folder.file_name().expect("a name")).with_extension("gguf");
    for path in [folder, &file].into_iter().filter(|path| path.exists()) {
        let difference = largest_difference(path, &golden);
        println!("{}: {difference:e}", path.display());
        assert!(difference <= LOGIT_TOLERANCE, "{}: {difference} off", path.display());
    }
}

fn largest_difference(path: &Path, golden: &Golden) -> f32 {
    let mut model = load(path, golden.tokens.len());
    let (mut found, mut largest) = (0, 0f32);
    for (pos, &token) in golden.tokens.iter().enumerate() {
        let logits = (model.eager)(Token(token), Pos(pos as u32));
        for golden in golden.logits.iter().filter(|golden| golden.position == pos) {
            assert_eq!(logits.len(), golden.values.len());
            let differences = logits.data().iter().zip(&golden.values).map(|(found, want)| (found - want).abs());
            largest = differences.fold(largest, f32::max);
            found += 1;
        }
    }
    assert_eq!(found, golden.logits.len(), "every golden position was reached");
    largest
}

/// Beyond the windows, in chunks of rows.
pub(crate) fn has_the_bits_in_rows(folder: &Path) {
    const POSITIONS: u32 = 60;
    let mut model = load(folder, POSITIONS as usize);
    let vocabulary = model.instance.dims["VOCAB"];
    let tokens: Vec<Token> = (0..POSITIONS).map(|pos| Token((7 * pos + 3) % vocabulary)).collect();
    let expected: Vec<Vec<f32>> =
        (0..).zip(&tokens).map(|(pos, &token)| (model.eager)(token, Pos(pos)).data().to_vec()).collect();
    let schedule = Schedule { workers: 3, rows: Some(RowSchedule { most: 7, block: Some(2) }), ..Schedule::default() };
    let mut session = Session::new(vm(&model, &schedule, Mode::Shuffled { seed: 1 }));
    let sequence = session.add();
    let mut found = Vec::new();
    for chunk in tokens.chunks(7) {
        session.push_draft(sequence, chunk).expect("room for the chunk");
        while session.pending(sequence).expect("the sequence") > 0 {
            session.step().expect("the step should run");
            found.extend(session.all_logits(sequence).map(<[f32]>::to_vec));
        }
    }
    assert!(found == expected, "{} steps of rows have the function's bits", found.len());
}

/// A convolution's inputs are forked and rolled back with keys and values.
#[test]
fn a_fork_and_a_rollback_of_lfm2_have_the_bits_of_the_function() {
    let folder = folder("lfm2");
    let tokens = |from: u32, count: u32| (from..from + count).map(Token).collect::<Vec<_>>();
    let after = |tokens: &[Token]| {
        let mut model = load(&folder, 256);
        let logits = (0..).zip(tokens).map(|(pos, &token)| (model.eager)(token, Pos(pos)).data().to_vec());
        logits.last().expect("a token")
    };
    let schedule = Schedule { workers: 3, rows: Some(RowSchedule { most: 7, block: None }), ..Schedule::default() };
    let mut session = Session::new(vm(&load(&folder, 256), &schedule, Mode::Shuffled { seed: 1 }));
    let first = session.add();
    session.push(first, &tokens(20, 7)).expect("room");
    while session.pending(first).expect("the sequence") > 0 {
        session.step().expect("the step should run");
    }
    let fork = session.fork(first, 5).expect("a sequence that goes on");
    session.rollback(first, 6).expect("a shorter sequence");
    for (sequence, more) in [(fork, tokens(60, 3)), (first, tokens(90, 2))] {
        session.push(sequence, &more).expect("room");
    }
    while [first, fork].iter().any(|&id| session.pending(id).expect("the sequence") > 0) {
        session.step().expect("the step should run");
    }
    let forked = [tokens(20, 5), tokens(60, 3)].concat();
    let rolled = [tokens(20, 6), tokens(90, 2)].concat();
    assert!(session.logits(fork) == Some(&after(&forked)[..]), "the fork");
    assert!(session.logits(first) == Some(&after(&rolled)[..]), "the one rolled back");
}

pub(crate) fn has_the_bits(folder: &Path) {
    let mut model = load(folder, 8);
    let expected: Vec<Vec<f32>> =
        (0..6).map(|pos| (model.eager)(Token(7 * pos + 3), Pos(pos)).data().to_vec()).collect();
    let graph = model.family.kernel.graph().expect("a graph").clone();
    for mut schedule in schedules() {
        schedule.fuse.retain(|fuse| graph.signatures.iter().any(|called| called.name == fuse.op));
        same_bits(&mut vm(&model, &schedule, Mode::Threads), &expected);
        for seed in 0..5 {
            same_bits(&mut vm(&model, &schedule, Mode::Shuffled { seed }), &expected);
        }
        same_bits(&mut vm(&model, &schedule, Mode::Delayed { seed: 1 }), &expected);
    }
}

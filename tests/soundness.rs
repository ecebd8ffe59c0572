//! Verifier and oracle agree on random programs, and the comparison can tell when they do not.
//!
//! The large run is `cargo run --release -p amk-tests --bin soundness -- --programs 1000000`, with
//! `--class large` for programs of up to 80 tasks, with `--guided` for a search.

use amk_ir::verify::{Bounds, Verifier};
use amk_ir::{Program, text};
use amk_tests::generate::attack::Aim;
use amk_tests::mutate::{self, Class};
use amk_tests::oracle;
use amk_tests::shrink::shrink;
use amk_tests::soundness::guided::Guided;
use amk_tests::soundness::near::NearMiss;
use amk_tests::soundness::{Count, Difference, Family, Label, Tally, codes, draw, opinion};
use std::fmt::Write;

/// Refused without need, but for moving packets of pipelined tickets, which the verifier does not
/// follow.
fn needless(tally: &Tally) -> Vec<&str> {
    tally.rejects.keys().map(String::as_str).filter(|cause| !cause.starts_with("AMK0505")).collect()
}

#[test]
fn random_programs() {
    let tally = Tally::run(codes, Family::Small, 1, 0..12_000);
    for difference in &tally.differences {
        let text = text::print(&difference.program);
        println!("program {}: {}, verifier {:?}\n{text}", difference.number, difference.oracle, difference.codes);
    }
    let Count { false_accepts, undecided, .. } = tally.total();
    assert_eq!((false_accepts, undecided), (0, 0));
    assert_eq!(needless(&tally), [""; 0]);

    let mut table = String::new();
    for (label, count) in &tally.labels {
        let _ = writeln!(table, "{label:?}: {} programs, {} unsafe", count.programs, count.unsafe_programs);
    }
    let _ = writeln!(table, "{:?}", tally.verdicts);
    insta::assert_snapshot!(table);
    for class in Class::ALL {
        assert!(tally.labels[&Label::Mutant(class)].unsafe_programs > 0, "no unsafe program of {class:?}");
    }
}

/// Programs of up to 80 tasks, against one execution a task.
#[test]
fn large_random_programs() {
    let tally = Tally::run(codes, Family::Large, 1, 0..400);
    let numbers: Vec<u64> = tally.differences.iter().map(|difference| difference.number).collect();
    assert_eq!(numbers, [0; 0], "they differ on these programs");
    let safe = tally.verdicts["safe"];
    assert!(safe > 60 && tally.total().undecided == 0, "{safe} safe");
}

/// Programs that search for a forgotten case.
#[test]
fn attacks() {
    let mut sum = Tally::default();
    for aim in Aim::ALL {
        let tally = Tally::run(codes, Family::Attack(aim), 1, 0..1_500);
        if let Some(difference) = tally.differences.iter().find(|difference| difference.codes.is_empty()) {
            panic!("{aim:?} {}: {}\n{}", difference.number, difference.oracle, text::print(&difference.program));
        }
        assert_eq!(tally.total().undecided, 0);
        assert_eq!(needless(&tally), [""; 0], "{aim:?}");
        let (safe, programs) = (tally.verdicts["safe"], tally.total().programs);
        assert!(safe * 5 > programs, "{aim:?}: {safe} of {programs} are safe");
        sum.add(tally);
    }
    for feature in ["packets of 3 slots", "moving packets", "moving aliases", "empty at a position", "partial wait"] {
        let (_, safe) = sum.features.get(feature).copied().unwrap_or_default();
        assert!(safe > 50, "{safe} safe programs with {feature}");
    }
}

/// A verifier that forgets one of its rules is found out by programs that were changed step by
/// step.
#[test]
fn a_guided_search_finds_what_is_forgotten() {
    let forgets = |program: &Program| codes(program).into_iter().filter(|code| code != "AMK0502").collect();
    let mut search = Guided::new(forgets, &Family::small(), 1);
    search.run(4_000);
    let found = |difference: &&Difference| difference.codes.is_empty() && difference.oracle.kind() == "race";
    assert!(search.tally.differences.iter().filter(found).count() > 10);
    let count = |label| search.tally.labels.get(&label).map_or(0, |count| count.programs);
    let (edits, guided) = (count(Label::Edit), count(Label::Guided));
    assert!(edits > 500 && guided > 100, "{edits} edits, {guided} others");
    let [miss] = &search.near_misses(1)[..] else { panic!("some accepted program is nearly unsafe") };
    NearMiss::replay(codes, &miss.print()).expect("what is right finds the edits unsafe");
    assert!(NearMiss::replay(|_| Vec::new(), &miss.print()).is_err());
}

/// A verifier without races, and one that accepts nothing.
#[test]
fn a_wrong_verifier_is_found_out() {
    let blind = |program: &Program| codes(program).into_iter().filter(|code| !code.starts_with("AMK03")).collect();
    assert!(Tally::run(blind, Family::Small, 1, 0..1_000).total().false_accepts > 20);
    let timid = |_: &Program| vec!["AMK0000".to_owned()];
    let tally = Tally::run(timid, Family::Small, 1, 0..1_000);
    assert_eq!(tally.total().false_rejects, tally.verdicts["safe"]);
}

/// All mutants of safe programs, not one drawn of each.
#[test]
fn every_mutant_is_rejected_or_harmless() {
    let (mut mutants, mut harmless, mut bases) = (0, 0, 0);
    for number in 0..150 {
        let (label, program) = draw(Family::Small, 3, number);
        if label != Label::Drawn || !codes(&program).is_empty() || program.tasks.len() < 3 {
            continue;
        }
        bases += 1;
        for mutation in Class::ALL.into_iter().flat_map(|class| mutate::sites(&program, class)) {
            let mutant = mutation.apply(&program);
            assert!(mutant != program, "{mutation} changes nothing");
            let found = codes(&mutant);
            if found == ["AMK0505"] {
                continue;
            }
            let verdict = opinion(&mutant);
            assert_eq!(
                found.is_empty(),
                verdict.is_safe(),
                "{mutation}: {verdict}, {found:?}\n{}",
                text::print(&mutant)
            );
            mutants += 1;
            harmless += u32::from(verdict.is_safe());
        }
    }
    println!("{mutants} mutants of {bases} programs, {harmless} harmless");
    assert!(mutants > 5_000 && harmless < mutants / 2, "{mutants} mutants, {harmless} harmless");
}

/// A program that deadlocks, shrunk to the deadlock.
#[test]
fn shrinking_keeps_what_is_asked_for() {
    let deadlocks = |program: &Program| opinion(program).kind() == "deadlock";
    let drawn = (0..).map(|number| draw(Family::Small, 5, number).1);
    let large = drawn.into_iter().find(|program| program.tasks.len() > 5 && deadlocks(program)).expect("some deadlock");
    let small = shrink(large.clone(), deadlocks);
    assert!(deadlocks(&small) && small.tasks.len() < large.tasks.len(), "{}", text::print(&small));
}

/// The verifier's bounds on steps and positions against larger ones.
#[test]
fn larger_bounds_decide_alike() {
    let mut usual = Verifier::default();
    let mut further = Verifier::with_bounds(Bounds { horizon: 24, every_position: true });
    let mut accepted = 0;
    for family in Family::small() {
        for number in 0..600 {
            let (_, program) = draw(family, 23, number);
            let verdicts = [&mut usual, &mut further].map(|verifier| verifier.check(&program).is_empty());
            assert_eq!(verdicts[0], verdicts[1], "{family} {number}\n{}", text::print(&program));
            accepted += u32::from(verdicts[0]);
        }
    }
    assert!(accepted > 500, "{accepted}");
}

/// `corpus/*.amk`: programs that once distinguished the two, or are worth keeping; the first line
/// gives `; safe` or why not.
#[test]
fn corpus() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");
    let files =
        std::fs::read_dir(folder).expect("the folder exists").map(|entry| entry.expect("it can be listed").path());
    let mut wrong = Vec::new();
    for path in files.filter(|path| path.extension().is_some_and(|extension| extension == "amk")) {
        let text = std::fs::read_to_string(&path).expect("it can be read");
        let expected = text.lines().next().and_then(|line| line.strip_prefix("; ")).unwrap_or_default();
        let kind = expected.split([':', ',']).next().unwrap_or_default();
        let program = text::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let verdict = oracle::judge(&text);
        let codes = codes(&program);
        if verdict.kind() != kind || codes.is_empty() != (kind == "safe") {
            wrong.push(format!("{}: {verdict}, verifier {codes:?}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `corpus/near/*.amk`: accepted programs and edits that make them unsafe, as a search found them:
/// `soundness --guided --programs 200000 --seed 1 --threads 1 --keep tests/corpus/near`.
#[test]
fn near_misses() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/near");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).expect("the folder exists") {
        let path = entry.expect("it can be listed").path();
        let printed = std::fs::read_to_string(&path).expect("it can be read");
        NearMiss::replay(codes, &printed).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        seen += 1;
    }
    assert!(seen > 20, "{seen} near misses");
}

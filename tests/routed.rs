//! Programs with tables: accepted exactly if every routing is safe, except for the refusals listed
//! in the verifier's head comment.
//!
//! The large run is
//! `cargo run --release -p amk-tests --bin soundness -- --routed --programs 300000`.

use amk_ir::{Program, text};
use amk_tests::routed::{self, compare, mutate::Class};
use amk_tests::soundness::codes;
use std::fmt::Write;

#[test]
fn every_routing_of_random_programs() {
    let counts = compare(codes, routed::draw, 1, 0..1_500);
    let mut table = String::new();
    for (class, count) in &counts {
        let rejects: Vec<String> =
            count.false_rejects.iter().map(|(code, numbers)| format!(", {} safe {code}", numbers.len())).collect();
        let (programs, wrong) = (count.programs, count.unsafe_programs);
        let _ = writeln!(table, "{class:?}: {programs} programs, {wrong} unsafe{}", rejects.concat());
        assert_eq!(count.undecided, 0);
        if let Some(&number) = count.false_accepts.first() {
            let (_, program) = routed::draw(1, number);
            let (verdict, routing) = routed::judge(&program);
            panic!("{class:?} {number}: {verdict} for {routing:?}\n{}", text::print(&program));
        }
    }
    for class in Class::SINGLE {
        assert!(counts.contains_key(&class), "no program of {class:?}");
    }
    // As drawn, all are safe and accepted.
    let drawn = &counts[&Class::Drawn];
    assert!(drawn.unsafe_programs == 0 && drawn.false_rejects.is_empty());
    insta::assert_snapshot!(table);
}

/// The comparison detects a verifier that only checks tables, and one that only checks order.
#[test]
fn a_wrong_verifier_is_found_out() {
    let accepts = |verifier: fn(&Program) -> Vec<String>| {
        let counts = compare(verifier, routed::draw, 1, 0..400);
        counts.values().map(|count| count.false_accepts.len()).sum::<usize>()
    };
    assert!(accepts(|program| codes(program).into_iter().filter(|code| !code.starts_with("AMK03")).collect()) > 10);
    assert!(accepts(|program| codes(program).into_iter().filter(|code| !code.starts_with("AMK06")).collect()) > 3);
}

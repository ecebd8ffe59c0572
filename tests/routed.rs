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

/// Programs other than mixtures of experts. Safe ones are rejected for the reasons in the
/// verifier's head comment.
#[test]
fn every_routing_of_tangled_programs() {
    let (mut safe, mut rejected) = (0, 0);
    for (class, count) in compare(codes, routed::draw_tangled, 5, 0..1_200) {
        assert_eq!((count.false_accepts, count.undecided), (Vec::new(), 0), "{class:?}");
        safe += count.programs - count.unsafe_programs;
        // Who depends on a table reads it, and each entry is signalled once: rules.
        let by_rule = |code: &str| ["AMK0632", "AMK0633"].contains(&code);
        let others = count.false_rejects.iter().filter(|(code, _)| !by_rule(code));
        rejected += others.map(|(_, numbers)| numbers.len() as u64).sum::<u64>();
    }
    assert!(safe > 300 && rejected * 100 < safe, "{rejected} of {safe} safe programs are rejected");
}

/// `t2` depends on a table, and only the packet that it reads comes after the table's task.
const BY_PACKET: &str = r#"program @by_packet
instruction i0 "x::fill" fill() -> (y)
instruction i1 "x::pack" pack(table) -> (packet, y)
instruction i2 "x::expert" expert(table, packet, x)
buffer b0 @table activation u32[1]
buffer b1 @rows activation f32[1]
buffer b2 @packet activation f32[1] packet 1
table r0 @table b0 routes 2
event e0 @routed
event e1 @packed[2]
task t0: fill() -> (b0[..]) signal e0
task t1: pack(b0[..]) -> (b2[..], b1[row r0[0]]) wait e0 >= 1 signal e1[r0[0]]
task t2: expert(b0[..], b2[..], b1[rows r0[1]]) wait e1[1] >= count r0
worker w0: t0
worker w1: t1
worker w2: t2"#;

#[test]
fn packets_come_before_the_tables_that_waits_depend_on() {
    let program = text::parse(BY_PACKET).expect("the text should be read");
    assert_eq!((codes(&program), routed::judge(&program).0.is_safe()), (Vec::new(), true));
    let counter = text::parse(&BY_PACKET.replace(" packet 1", "")).expect("the text should be read");
    assert_eq!((codes(&counter).is_empty(), routed::judge(&counter).0.is_safe()), (false, false));
}

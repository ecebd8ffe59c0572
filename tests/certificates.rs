//! The certificate checker against the oracle, on certificates made without a verifier, and on the
//! verifier's.

use amk_checker::{Refusal, check};
use amk_ir::certificate::Certificate;
use amk_ir::verify::{certify, verify};
use amk_ir::{Program, text};
use amk_tests::generate::{self, Rng, Size};
use amk_tests::mutate::{self, Class};
use amk_tests::naive;
use amk_tests::oracle::{Reason, Verdict};
use amk_tests::soundness::{Family, draw, opinion};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Checks a program with the certificate that is made without a verifier.
fn judge(program: &Program) -> Result<(), Refusal> {
    // A text that is not a program has no certificate: the checker refuses it first.
    match check(program, &Default::default()) {
        Err(Refusal::Certificate(_)) => check(program, &naive::certificate(program)),
        other => other,
    }
}

#[test]
fn the_checker_accepts_what_is_safe() {
    let mut verdicts: BTreeMap<&str, u32> = BTreeMap::new();
    for number in 0..3_000 {
        let (_, program) = draw(Family::Small, 17, number);
        let oracle = opinion(&program);
        let checker = judge(&program);
        *verdicts.entry(oracle.kind()).or_default() += 1;
        let agree = match oracle {
            // Signatures, alignment and capacities are not part of a certificate.
            Verdict::TooLarge | Verdict::Unsafe(Reason::Structure(_) | Reason::Text(_)) => true,
            // More than is safe is refused (L4).
            Verdict::Safe => checker.is_ok() || matches!(checker, Err(Refusal::MovingTickets(_))),
            Verdict::Unsafe(_) => checker.is_err(),
        };
        assert!(agree, "{number}: {oracle}, and the checker: {checker:?}\n{}", text::print(&program));
    }
    for kind in ["safe", "race", "deadlock", "uninitialised", "clobbered", "early", "rewritten", "overlap"] {
        assert!(verdicts.get(kind).is_some_and(|&count| count > 3), "{verdicts:?}");
    }
}

/// The certificate that the verifier writes of a program, if it accepts it.
fn certified(program: &Program) -> Option<Certificate> {
    verify(program.clone()).ok().map(|verified| certify(&verified).expect("a small program without tables"))
}

#[test]
fn the_checker_accepts_what_the_verifier_certifies() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut accepted = 0;
    for folder in ["filetests/accepted", "corpus", "corpus/near", "ratchet"] {
        for file in fs::read_dir(root.join(folder)).expect("a folder") {
            let path = file.expect("a file").path();
            if path.is_dir() {
                continue;
            }
            let program = text::parse(&fs::read_to_string(&path).expect("text")).expect("a program");
            if !program.tables.is_empty() {
                assert_eq!(check(&program, &Certificate::default()), Err(Refusal::Tables));
            } else if let Some(certificate) = certified(&program) {
                assert_eq!(check(&program, &certificate), Ok(()), "{}", path.display());
                accepted += 1;
            }
        }
    }
    for family in Family::small().into_iter().chain([Family::Large]) {
        for number in 0..if family == Family::Large { 100 } else { 1_000 } {
            let (_, program) = draw(family, 17, number);
            if let Some(certificate) = certified(&program) {
                assert_eq!(check(&program, &certificate), Ok(()), "{number}\n{}", text::print(&program));
                accepted += 1;
            }
        }
    }
    assert!(accepted > 1_000, "{accepted}");
}

/// A certificate of a safe program, checked against an unsafe mutant.
#[test]
fn a_certificate_of_another_program_shows_nothing() {
    let (mut mutants, mut harmless) = (0, 0);
    for number in 0..60 {
        let program = generate::program(&mut Rng::new(19, number), Size::SMALL);
        let Some(certificate) = certified(&program) else { continue };
        for mutation in Class::ALL.iter().flat_map(|&class| mutate::sites(&program, class)) {
            let mutant = mutation.apply(&program);
            if check(&mutant, &certificate).is_err() {
                mutants += 1;
                continue;
            }
            harmless += 1;
            let oracle = opinion(&mutant);
            let is_covered = !matches!(oracle, Verdict::Unsafe(Reason::Structure(_) | Reason::Text(_)));
            assert!(!is_covered || oracle.is_safe(), "{number}: {oracle}\n{}", text::print(&mutant));
        }
    }
    assert!(mutants > 500 && harmless > 100, "{mutants} refused, {harmless} not");
}

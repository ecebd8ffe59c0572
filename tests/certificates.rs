//! The checker of certificates against the oracle, on certificates that no verifier has made.

use amk_checker::{Refusal, check};
use amk_ir::{Program, text};
use amk_tests::generate::Size;
use amk_tests::naive;
use amk_tests::oracle::{Explorer, Reason, Verdict};
use amk_tests::soundness::{draw, opinion};
use std::collections::BTreeMap;

/// What the checker says of a program with the certificate that no verifier has made.
fn judge(program: &Program) -> Result<(), Refusal> {
    // Of what is no program there is no certificate: the checker sees that first.
    match check(program, &Default::default()) {
        Err(Refusal::Certificate(_)) => check(program, &naive::certificate(program)),
        other => other,
    }
}

#[test]
fn the_checker_accepts_what_is_safe() {
    let mut explorer = Explorer::default();
    let mut verdicts: BTreeMap<&str, u32> = BTreeMap::new();
    for number in 0..3_000 {
        let (_, program) = draw(Size::SMALL, 17, number);
        let oracle = opinion(&mut explorer, &program, true);
        let checker = judge(&program);
        *verdicts.entry(oracle.kind()).or_default() += 1;
        let agree = match oracle {
            // Signatures, alignment and capacities are no part of a certificate.
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

//! Counts of a comparison of verifier and oracle.

use super::{Family, Label, Verifier, cause, draw, features, opinion};
use crate::oracle::Verdict;
use amk_ir::{Program, verify};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The verdicts of verifier and oracle on the programs of a label.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize)]
pub struct Count {
    /// Programs drawn.
    pub programs: u64,
    /// Programs the oracle calls unsafe.
    pub unsafe_programs: u64,
    /// Unsafe programs that the verifier accepts.
    pub false_accepts: u64,
    /// Safe programs that the verifier rejects.
    pub false_rejects: u64,
    /// Programs too large for the oracle.
    pub undecided: u64,
}

/// A program on which they differ.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Its number.
    pub number: u64,
    /// The program.
    pub program: Program,
    /// The oracle's verdict.
    pub oracle: Verdict,
    /// The verifier's codes; none where it accepts.
    pub codes: Vec<String>,
}

/// The counts.
#[derive(Clone, Default, Debug)]
pub struct Tally {
    /// By label.
    pub labels: BTreeMap<Label, Count>,
    /// Programs and safe programs, by features.
    pub features: BTreeMap<&'static str, (u64, u64)>,
    /// Oracle's verdicts, by kind.
    pub verdicts: BTreeMap<&'static str, u64>,
    /// Programs by the first code the verifier reports.
    pub codes: BTreeMap<String, u64>,
    /// Safe programs that the verifier rejects: how many by its first violation, and the number of
    /// one.
    pub rejects: BTreeMap<String, (u64, u64)>,
    /// The longest time the verifier took, and the number of the program.
    pub slowest: (Duration, u64),
    /// The first programs on which they differ.
    pub differences: Vec<Difference>,
    /// Time in the verifier.
    pub verifying: Duration,
    /// Time in the oracle, with its reading of the text.
    pub exploring: Duration,
}

/// As many differences are kept.
const KEPT: usize = 100;

impl Tally {
    /// Compares a verifier, given by the codes it reports, with the oracle on some programs of a
    /// seed.
    pub fn run(verifier: Verifier, family: Family, seed: u64, numbers: impl IntoIterator<Item = u64>) -> Self {
        let mut tally = Self::default();
        for number in numbers {
            let (label, program) = draw(family, seed, number);
            tally.judge(verifier, (label, &program), number);
        }
        tally
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: Self) {
        for (label, count) in other.labels {
            let sum = self.labels.entry(label).or_default();
            sum.programs += count.programs;
            sum.unsafe_programs += count.unsafe_programs;
            sum.false_accepts += count.false_accepts;
            sum.false_rejects += count.false_rejects;
            sum.undecided += count.undecided;
        }
        for (feature, (programs, safe)) in other.features {
            let sum = self.features.entry(feature).or_default();
            *sum = (sum.0 + programs, sum.1 + safe);
        }
        other.verdicts.into_iter().for_each(|(kind, n)| *self.verdicts.entry(kind).or_default() += n);
        other.codes.into_iter().for_each(|(code, n)| *self.codes.entry(code).or_default() += n);
        for (cause, (programs, number)) in other.rejects {
            let sum = self.rejects.entry(cause).or_insert((0, number));
            *sum = (sum.0 + programs, sum.1.min(number));
        }
        self.slowest = self.slowest.max(other.slowest);
        self.differences.extend(other.differences);
        self.differences.sort_by_key(|difference| (!difference.codes.is_empty(), difference.number));
        self.differences.truncate(KEPT);
        self.verifying += other.verifying;
        self.exploring += other.exploring;
    }

    /// All labels together.
    pub fn total(&self) -> Count {
        self.labels.values().fold(Count::default(), |sum, count| Count {
            programs: sum.programs + count.programs,
            unsafe_programs: sum.unsafe_programs + count.unsafe_programs,
            false_accepts: sum.false_accepts + count.false_accepts,
            false_rejects: sum.false_rejects + count.false_rejects,
            undecided: sum.undecided + count.undecided,
        })
    }

    /// Judges a program; returns the verifier's codes and the oracle's verdict.
    pub fn judge(
        &mut self,
        verifier: Verifier,
        (label, program): (Label, &Program),
        number: u64,
    ) -> (Vec<String>, Verdict) {
        let started = Instant::now();
        let codes = verifier(program);
        let took = started.elapsed();
        self.verifying += took;
        self.slowest = self.slowest.max((took, number));
        let started = Instant::now();
        let verdict = opinion(program);
        self.exploring += started.elapsed();

        let count = self.labels.entry(label).or_default();
        count.programs += 1;
        *self.verdicts.entry(verdict.kind()).or_default() += 1;
        *self.codes.entry(codes.first().cloned().unwrap_or("accepted".into())).or_default() += 1;
        count.unsafe_programs += u64::from(matches!(verdict, Verdict::Unsafe(_)));
        for feature in features(program) {
            let seen = self.features.entry(feature).or_default();
            *seen = (seen.0 + 1, seen.1 + u64::from(verdict.is_safe()));
        }
        match (&verdict, codes.is_empty()) {
            (Verdict::TooLarge, _) => count.undecided += 1,
            (Verdict::Unsafe(_), true) => count.false_accepts += 1,
            (Verdict::Safe, false) => {
                count.false_rejects += 1;
                let cause = verify::check(program).first().map_or_else(|| codes[0].clone(), cause);
                self.rejects.entry(cause).or_insert((0, number)).0 += 1;
            }
            (Verdict::Unsafe(_), false) | (Verdict::Safe, true) => return (codes, verdict),
        }
        // False accepts are kept before all others.
        if self.differences.len() < KEPT || codes.is_empty() {
            let (oracle, codes) = (verdict.clone(), codes.clone());
            self.differences.push(Difference { number, program: program.clone(), oracle, codes });
        }
        (codes, verdict)
    }
}

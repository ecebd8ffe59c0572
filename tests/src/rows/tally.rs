//! The verifier against the oracle on random programs with rows.

use super::longer::{longer, ordinary};
use super::mutate::{self, Change};
use super::{Verdict, draw, judge, lower};
use crate::generate::Rng;
use crate::soundness::{Verifier, cause};
use amk_ir::{Program, verify};
use core::fmt;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The verdicts of verifier and oracle on programs of a change.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize)]
pub struct Count {
    /// Programs drawn.
    pub programs: u64,
    /// Programs of which some step is wrong, or that have no meaning.
    pub unsafe_programs: u64,
    /// Programs that the verifier accepts.
    pub accepted: u64,
    /// Unsafe programs that the verifier accepts.
    pub false_accepts: u64,
    /// Safe programs that it rejects.
    pub false_rejects: u64,
    /// Programs too large for the oracle.
    pub undecided: u64,
}

impl Count {
    fn add(&mut self, other: Self) {
        self.programs += other.programs;
        self.unsafe_programs += other.unsafe_programs;
        self.accepted += other.accepted;
        self.false_accepts += other.false_accepts;
        self.false_rejects += other.false_rejects;
        self.undecided += other.undecided;
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { programs, unsafe_programs, accepted, false_accepts, false_rejects, undecided } = self;
        write!(f, "{programs:>8} programs {unsafe_programs:>8} unsafe {accepted:>8} accepted, ")?;
        write!(f, "{false_accepts} of them unsafe; {false_rejects} safe ones rejected, {undecided} undecided")
    }
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
    /// By change.
    pub changes: BTreeMap<Change, Count>,
    /// Oracle's verdicts, by kind.
    pub verdicts: BTreeMap<&'static str, u64>,
    /// Programs by the first code the verifier reports.
    pub codes: BTreeMap<String, u64>,
    /// Unsafe programs that the verifier accepts: how many by what the oracle finds, and the number
    /// of one.
    pub accepts: BTreeMap<String, (u64, u64)>,
    /// Safe programs that the verifier rejects: how many by its first violation, and the number of
    /// one.
    pub rejects: BTreeMap<String, (u64, u64)>,
    /// Differences: the first of each cause, false accepts first.
    pub differences: Vec<Difference>,
}

/// The `n`-th program of a seed.
pub fn drawn(seed: u64, n: u64) -> (Change, Program) {
    let rng = &mut Rng::new(seed ^ 0x5105, n);
    let lowered = if rng.chance(25) { lower::program(rng) } else { None };
    let unchanged = if lowered.is_some() { Change::Lowered } else { Change::Drawn };
    let mut program = lowered.unwrap_or_else(|| draw::program(rng));
    let change = match rng.below(100) {
        0..40 => unchanged,
        40..90 => (0..8).find_map(|_| mutate::change(rng, &mut program)).unwrap_or(unchanged),
        _ => {
            for _ in 0..rng.between(2, 4) {
                mutate::change(rng, &mut program);
            }
            Change::Several
        }
    };
    (change, program)
}

/// Why the verifier rejects a safe program.
fn needless(program: &Program, codes: &[String], steps: usize) -> String {
    let cause = verify::check(program).first().map_or_else(|| codes[0].clone(), cause);
    if !judge(&longer(program), steps).is_safe() {
        return format!("{cause}, {LONGER}");
    }
    let races = ["AMK03", "AMK04"].iter().any(|family| cause.starts_with(family));
    if program.has_packets() && races && verify::check(&ordinary(program)).is_empty() {
        format!("{cause}, {LATER}")
    } else {
        cause
    }
}

/// The verifier lets a sequence have all its rows at any first position, and so go beyond the
/// context.
pub const LONGER: &str = "in a longer context";

/// Packets order by row 0 alone, and with later rows' packets the program would be safe.
pub const LATER: &str = "by packets of later rows";

/// A fault that the verifier misses in a program that it accepts.
fn missed(program: &Program, verdict: &Verdict) -> String {
    match verdict {
        Verdict::Form(why) => format!("form: {}", why.rsplit(": ").next().unwrap_or(why)),
        Verdict::Unsafe(step, _) => {
            let fewer = step.rows.len() < program.rows.unwrap_or(0) as usize || step.rows.iter().any(|row| !row.wanted);
            let rows = if fewer { ", rows are missing" } else { "" };
            format!("{}{rows}{}", verdict.kind(), if program.has_packets() { ", packets" } else { "" })
        }
        Verdict::Safe | Verdict::TooLarge => verdict.kind().to_owned(),
    }
}

impl Tally {
    /// Compares a verifier, given by the codes it reports, with the oracle on some programs of a
    /// seed, in at most `steps` steps of several sequences each.
    pub fn run(verifier: Verifier, seed: u64, numbers: impl IntoIterator<Item = u64>, steps: usize) -> Self {
        let mut tally = Self::default();
        for number in numbers {
            let (change, program) = drawn(seed, number);
            tally.judge(verifier, change, program, number, steps);
        }
        tally
    }

    fn judge(&mut self, verifier: Verifier, change: Change, program: Program, number: u64, steps: usize) {
        let codes = verifier(&program);
        let verdict = judge(&program, steps);
        let count = self.changes.entry(change).or_default();
        count.programs += 1;
        count.accepted += u64::from(codes.is_empty());
        *self.verdicts.entry(verdict.kind()).or_default() += 1;
        *self.codes.entry(codes.first().cloned().unwrap_or("accepted".into())).or_default() += 1;
        count.unsafe_programs += u64::from(!matches!(verdict, Verdict::Safe | Verdict::TooLarge));
        match (&verdict, codes.is_empty()) {
            (Verdict::TooLarge, _) => count.undecided += 1,
            (Verdict::Safe, false) => {
                count.false_rejects += 1;
                let cause = needless(&program, &codes, steps);
                let known = self.rejects.entry(cause).or_insert((0, number));
                known.0 += 1;
                if known.0 == 1 {
                    self.differences.push(Difference { number, program, oracle: verdict, codes });
                }
            }
            (Verdict::Safe, true) => {}
            (_, true) => {
                count.false_accepts += 1;
                let known = self.accepts.entry(missed(&program, &verdict)).or_insert((0, number));
                known.0 += 1;
                if known.0 == 1 {
                    self.differences.push(Difference { number, program, oracle: verdict, codes });
                }
            }
            (_, false) => {}
        }
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: Self) {
        for (change, count) in other.changes {
            self.changes.entry(change).or_default().add(count);
        }
        other.verdicts.into_iter().for_each(|(kind, n)| *self.verdicts.entry(kind).or_default() += n);
        other.codes.into_iter().for_each(|(code, n)| *self.codes.entry(code).or_default() += n);
        let merge = |sums: &mut BTreeMap<String, (u64, u64)>, more: BTreeMap<String, (u64, u64)>| {
            for (cause, (programs, number)) in more {
                let sum = sums.entry(cause).or_insert((0, number));
                *sum = (sum.0 + programs, sum.1.min(number));
            }
        };
        merge(&mut self.accepts, other.accepts);
        merge(&mut self.rejects, other.rejects);
        self.differences.extend(other.differences);
        let first: BTreeSet<u64> =
            self.accepts.values().chain(self.rejects.values()).map(|&(_, number)| number).collect();
        self.differences.retain(|difference| first.contains(&difference.number));
        self.differences.sort_by_key(|difference| (!difference.codes.is_empty(), difference.number));
    }

    /// All changes together.
    pub fn total(&self) -> Count {
        let mut sum = Count::default();
        self.changes.values().for_each(|&count| sum.add(count));
        sum
    }
}

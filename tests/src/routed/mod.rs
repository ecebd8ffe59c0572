//! Programs with tables: the verifier's one proof against all routings, each judged by the oracle
//! as a separate program.

pub mod draw;
pub mod instance;
pub mod mutate;
pub mod tangle;

use crate::generate::Rng;
use crate::oracle::{Reason, Verdict};
use crate::soundness::opinion;
use amk_ir::{Program, Steps};
use core::fmt;
use instance::{instance, names_what_is_there, routings};
use mutate::Class;
use std::collections::BTreeMap;

/// The `n`-th program of a seed.
pub fn draw(seed: u64, n: u64) -> (Class, Program) {
    let rng = &mut Rng::new(seed, n);
    let program = draw::program(rng);
    spoil(rng, program)
}

/// The `n`-th program of a seed other than mixtures of experts.
pub fn draw_tangled(seed: u64, n: u64) -> (Class, Program) {
    let rng = &mut Rng::new(seed, n);
    let program = tangle::program(rng);
    spoil(rng, program)
}

/// Changes most programs.
fn spoil(rng: &mut Rng, mut program: Program) -> (Class, Program) {
    let class = match rng.below(100) {
        0..30 => Class::Drawn,
        30..85 => {
            let drawn = (0..16).find_map(|_| {
                let class = *rng.pick(&Class::SINGLE)?;
                mutate::apply(rng, &mut program, class).then_some(class)
            });
            drawn.unwrap_or(Class::Drawn)
        }
        _ => {
            for _ in 0..rng.between(2, 4) {
                let class = *rng.pick(&Class::SINGLE).unwrap_or(&Class::Drawn);
                mutate::apply(rng, &mut program, class);
            }
            Class::Several
        }
    };
    (class, program)
}

/// The oracle's opinion: of the first routing that is not safe, if there is one.
pub fn judge(program: &Program) -> (Verdict, Option<instance::Routing>) {
    if program.steps == Steps::Pipelined {
        return (Verdict::Unsafe(Reason::Structure("tables in a pipelined program".into())), None);
    }
    if !names_what_is_there(program) {
        return (Verdict::Unsafe(Reason::Structure("an entry or a group that its table has not".into())), None);
    }
    for routing in routings(program) {
        let verdict = opinion(&instance(program, &routing));
        if !verdict.is_safe() {
            return (verdict, Some(routing));
        }
    }
    (Verdict::Safe, None)
}

/// The verdicts of verifier and oracle on the programs of a class.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Count {
    /// Programs drawn.
    pub programs: u64,
    /// Programs with an unsafe routing.
    pub unsafe_programs: u64,
    /// Unsafe programs that the verifier accepts.
    pub false_accepts: Vec<u64>,
    /// Programs whose every routing is safe and that the verifier rejects, by its first code.
    pub false_rejects: BTreeMap<String, Vec<u64>>,
    /// Programs too large for the oracle.
    pub undecided: u64,
}

impl Count {
    /// Adds another's counts.
    pub fn add(&mut self, other: Self) {
        self.programs += other.programs;
        self.unsafe_programs += other.unsafe_programs;
        self.false_accepts.extend(other.false_accepts);
        for (code, numbers) in other.false_rejects {
            self.false_rejects.entry(code).or_default().extend(numbers);
        }
        self.undecided += other.undecided;
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { programs, unsafe_programs, false_accepts, false_rejects, undecided } = self;
        write!(f, "{programs:>8} programs {unsafe_programs:>8} unsafe {:>3} accepted", false_accepts.len())?;
        if *undecided > 0 {
            write!(f, ", {undecided} undecided")?;
        }
        if let Some(first) = false_accepts.first() {
            write!(f, " (as {first})")?;
        }
        let first = |numbers: &[u64]| numbers.iter().min().copied().unwrap_or(0);
        for (code, numbers) in false_rejects {
            write!(f, "; safe but {code}: {} (as {})", numbers.len(), first(numbers))?;
        }
        Ok(())
    }
}

/// Compares a verifier, given by the codes it reports, with the oracle on some programs of a seed.
pub fn compare(
    verifier: fn(&Program) -> Vec<String>,
    draw: fn(u64, u64) -> (Class, Program),
    seed: u64,
    numbers: impl IntoIterator<Item = u64>,
) -> BTreeMap<Class, Count> {
    let mut counts: BTreeMap<Class, Count> = BTreeMap::new();
    for number in numbers {
        let (class, program) = draw(seed, number);
        let count = counts.entry(class).or_default();
        count.programs += 1;
        let codes = verifier(&program);
        let (verdict, _) = judge(&program);
        count.unsafe_programs += u64::from(matches!(verdict, Verdict::Unsafe(_)));
        match (verdict, codes.first()) {
            (Verdict::TooLarge, _) => count.undecided += 1,
            (Verdict::Unsafe(_), None) => count.false_accepts.push(number),
            (Verdict::Safe, Some(code)) => count.false_rejects.entry(code.clone()).or_default().push(number),
            (Verdict::Unsafe(_), Some(_)) | (Verdict::Safe, None) => {}
        }
    }
    counts
}

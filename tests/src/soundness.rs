//! The verifier against the oracle on random programs.

use crate::generate::{self, Rng, Size};
use crate::mutate::{self, Class};
use crate::oracle::{self, Horizon, Verdict};
use amk_ir::{Access, Buffer, Element, Exchange, Operand, Program, Queues, Steps, Wait, text, verify};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How a program was drawn.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Label {
    /// As the generator made it.
    Drawn,
    /// With one mutation.
    Mutant(Class),
    /// With two to four mutations.
    Several,
    /// With random waits and signals.
    Scrambled,
}

/// The `n`-th program of a seed.
pub fn draw(size: Size, seed: u64, n: u64) -> (Label, Program) {
    let rng = &mut Rng::new(seed, n);
    let mut program = generate::program(rng, size);
    match rng.below(100) {
        0..55 => (Label::Drawn, program),
        55..86 => {
            for _ in 0..4 {
                let class = *rng.pick(&Class::ALL).unwrap_or(&Class::DropWait);
                if let Some(mutation) = rng.pick(&mutate::sites(&program, class)) {
                    return (Label::Mutant(class), mutation.apply(&program));
                }
            }
            (Label::Drawn, program)
        }
        86..92 => {
            for _ in 0..rng.between(2, 4) {
                let class = *rng.pick(&Class::ALL).unwrap_or(&Class::DropWait);
                if let Some(mutation) = rng.pick(&mutate::sites(&program, class)) {
                    program = mutation.apply(&program);
                }
            }
            (Label::Several, program)
        }
        _ => {
            scramble(rng, &mut program);
            (Label::Scrambled, program)
        }
    }
}

/// Throws waits and signals away and draws others, with thresholds that can be met.
fn scramble(rng: &mut Rng, program: &mut Program) {
    let counters: Vec<Element> = (0..program.events.len())
        .flat_map(|event| (0..program.events[event].len() as u32).map(move |index| (event, index)))
        .map(|(event, index)| Element { event: event.into(), index })
        .collect();
    let (signals, waits, partial) = (rng.between(20, 70), rng.between(15, 60), rng.between(10, 90));
    for task in &mut program.tasks {
        task.waits.clear();
        task.signals.clear();
        for &counter in &counters {
            if rng.chance(signals) {
                task.signals.push(counter);
            }
        }
    }
    for task in 0..program.tasks.len() {
        for &on in &counters {
            let fan_in = program.tasks.iter().filter(|task| task.signals.contains(&on)).count() as u32;
            if fan_in > 0 && rng.chance(waits) && !program.tasks[task].signals.contains(&on) {
                let threshold = if rng.chance(partial) { rng.between(1, fan_in) } else { fan_in };
                program.tasks[task].waits.push(Wait { on, threshold });
            }
        }
    }
}

/// What verifier and oracle said of the programs of a label.
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
    /// What the oracle says.
    pub oracle: Verdict,
    /// The verifier's codes; none where it accepts.
    pub codes: Vec<String>,
}

/// What was counted.
#[derive(Clone, Default, Debug)]
pub struct Tally {
    /// By label.
    pub labels: BTreeMap<Label, Count>,
    /// Programs and safe programs, by what is in them.
    pub features: BTreeMap<&'static str, (u64, u64)>,
    /// Oracle's verdicts, by kind.
    pub verdicts: BTreeMap<&'static str, u64>,
    /// Programs by the first code the verifier reports.
    pub codes: BTreeMap<String, u64>,
    /// The first programs on which they differ.
    pub differences: Vec<Difference>,
    /// Time in the verifier.
    pub verifying: Duration,
    /// Time in the oracle, with its reading of the text.
    pub exploring: Duration,
}

/// A verifier, as the codes it reports.
pub type Verifier = fn(&Program) -> Vec<String>;

/// As many differences are kept.
const KEPT: usize = 100;

impl Tally {
    /// Compares a verifier, given by the codes it reports, with the oracle on some programs of a seed.
    pub fn run(verifier: Verifier, size: Size, seed: u64, numbers: impl IntoIterator<Item = u64>) -> Self {
        let mut tally = Self::default();
        for number in numbers {
            tally.judge(verifier, draw(size, seed, number), number);
        }
        tally
    }

    /// Adds what another counted.
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
        self.differences.extend(other.differences);
        self.differences.sort_by_key(|difference| difference.number);
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

    fn judge(&mut self, verifier: Verifier, (label, program): (Label, Program), number: u64) {
        let started = Instant::now();
        let codes = verifier(&program);
        self.verifying += started.elapsed();
        let started = Instant::now();
        let verdict = opinion(&program, !codes.is_empty());
        self.exploring += started.elapsed();

        let count = self.labels.entry(label).or_default();
        count.programs += 1;
        *self.verdicts.entry(verdict.kind()).or_default() += 1;
        *self.codes.entry(codes.first().cloned().unwrap_or("accepted".into())).or_default() += 1;
        count.unsafe_programs += u64::from(matches!(verdict, Verdict::Unsafe(_)));
        for feature in features(&program) {
            let seen = self.features.entry(feature).or_default();
            *seen = (seen.0 + 1, seen.1 + u64::from(verdict.is_safe()));
        }
        let wrong = match &verdict {
            Verdict::TooLarge => &mut count.undecided,
            Verdict::Unsafe(_) if codes.is_empty() => &mut count.false_accepts,
            Verdict::Safe if !codes.is_empty() => &mut count.false_rejects,
            _ => return,
        };
        *wrong += 1;
        if self.differences.len() < KEPT {
            self.differences.push(Difference { number, program, oracle: verdict, codes });
        }
    }
}

/// The verifier's codes; none where it accepts.
pub fn codes(program: &Program) -> Vec<String> {
    verify::check(program).iter().map(|violation| violation.code().to_string()).collect()
}

/// The oracle's verdict; `deep`: before it calls a program safe it looks many steps ahead.
pub fn opinion(program: &Program, deep: bool) -> Verdict {
    let text = text::print(program);
    let verdict = oracle::judge(&text);
    if deep && verdict.is_safe() && program.steps == Steps::Pipelined && program.positions == 1 {
        return oracle::judge_within(&text, Horizon { steps: 24 });
    }
    verdict
}

/// What is in a program, so that nobody tests only the easy ones.
fn features(program: &Program) -> Vec<&'static str> {
    let tasks = || program.tasks.iter();
    let operands = || tasks().flat_map(|task| &task.calls).flat_map(|call| &call.operands);
    let fan_in = |on: &Element| tasks().filter(|task| task.signals.contains(on)).count() as u32;
    let follows = |operand: &Operand| operand.region.intervals().iter().any(|i| i.lo.pos || i.hi.pos);
    let buffers = |of: fn(&Buffer) -> bool| program.buffers.iter().any(of);
    let found = [
        ("pipelined", program.steps == Steps::Pipelined),
        ("ticket", matches!(program.queues, Queues::Ticket { .. })),
        ("several workers", program.queues.workers() > 1),
        ("packets", buffers(|buffer| buffer.exchange != Exchange::Counter)),
        ("aliases", program.buffers.iter().filter(|buffer| buffer.place.is_some()).count() > 1),
        ("fused", tasks().any(|task| task.calls.len() > 1)),
        ("early", operands().any(|operand| operand.early)),
        ("follows the position", operands().any(follows)),
        ("update in place", operands().any(|operand| operand.access == Access::Update)),
        ("partial wait", tasks().flat_map(|task| &task.waits).any(|wait| wait.threshold < fan_in(&wait.on))),
        ("no wait", tasks().all(|task| task.waits.is_empty())),
    ];
    found.into_iter().filter(|(_, found)| *found).map(|(feature, _)| feature).collect()
}

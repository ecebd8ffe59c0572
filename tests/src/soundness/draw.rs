//! Draws programs of a family, most of them mutated.

use crate::generate::attack::{self, Aim};
use crate::generate::{self, Rng, Size};
use crate::mutate::{self, Class, Mutation};
use amk_ir::{Element, Program, Wait};
use core::fmt;

/// Where programs come from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Family {
    /// Up to 7 tasks, a little of everything.
    Small,
    /// 12 to 80 tasks.
    Large,
    /// Pipelined programs that search for a forgotten case.
    Attack(Aim),
}

impl Family {
    /// The small ones and all attacks.
    pub fn small() -> Vec<Self> {
        [Self::Small].into_iter().chain(Aim::ALL.map(Self::Attack)).collect()
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Attack(aim) => format!("{aim:?}"),
            family => format!("{family:?}"),
        };
        f.pad(&name.to_lowercase())
    }
}

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
    /// One that showed something new, with one to three mutations.
    Guided,
    /// An accepted one with an edit.
    Edit,
}

/// The `n`-th program of a seed.
pub fn draw(family: Family, seed: u64, n: u64) -> (Label, Program) {
    let stream = Family::small().iter().position(|&other| other == family).unwrap_or(0) as u64;
    let rng = &mut Rng::new(seed ^ stream << 40, n);
    let mut program = match family {
        Family::Small => generate::program(rng, Size::SMALL),
        Family::Large => generate::program(rng, Size::LARGE),
        Family::Attack(aim) => attack::program(rng, aim),
    };
    let label = spoil(rng, &mut program);
    (label, program)
}

/// Changes somewhat less than half of the programs.
fn spoil(rng: &mut Rng, program: &mut Program) -> Label {
    match rng.below(100) {
        0..55 => Label::Drawn,
        55..86 => {
            let drawn = (0..4).find_map(|_| mutation(rng, program, &Class::ALL));
            drawn.map_or(Label::Drawn, |mutation| {
                *program = mutation.apply(program);
                Label::Mutant(mutation.class)
            })
        }
        86..92 => {
            mutate(rng, program, &Class::ALL, 2, 4);
            Label::Several
        }
        _ => {
            scramble(rng, program);
            Label::Scrambled
        }
    }
}

/// Makes `fewest` to `most` mutations of some classes, as far as they apply.
pub(super) fn mutate(rng: &mut Rng, program: &mut Program, classes: &[Class], fewest: u32, most: u32) {
    for _ in 0..rng.between(fewest, most) {
        if let Some(mutation) = mutation(rng, program, classes) {
            *program = mutation.apply(program);
        }
    }
}

/// A mutation of one of some classes, if the one that is drawn applies.
fn mutation(rng: &mut Rng, program: &Program, classes: &[Class]) -> Option<Mutation> {
    let class = *rng.pick(classes)?;
    rng.pick(&mutate::sites(program, class)).copied()
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

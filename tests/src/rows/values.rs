//! What a step computes, as symbols: every element has a number that says which call made it, and
//! from which elements.
//!
//! The listed order has to leave the same in states, and in outputs of wanted rows, as the function
//! called for row 0, then for row 1, and so on, with all its calls, whether their rows are wanted
//! or not.

use super::instance::{Instance, Made, instance};
use super::step::Step;
use crate::oracle::cells;
use crate::oracle::source::{Kind, Operand, Source};
use rustc_hash::FxHasher;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// An element: the buffer of the program with rows, which of its memories, and the number in it.
type Element = (usize, usize, u64);

/// Elements that were written.
type Memory = BTreeMap<Element, u64>;

/// The first buffer with an element in which the step leaves something else than the function does.
pub fn difference(source: &Source, step: &Step, listed: &Instance) -> Option<usize> {
    let mut all = step.clone();
    all.rows.iter_mut().for_each(|row| row.wanted = true);
    let function = instance(source, &all);
    let rows = 0..step.rows.len();
    let expected = run(&function, rows.flat_map(|row| calls(&function).filter(move |call| call.row == row)));
    let found = run(listed, calls(listed));
    let elements = expected.keys().chain(found.keys()).copied();
    let value = |memory: &Memory, element| memory.get(&element).copied().unwrap_or(symbol(&element));
    let mut different = elements.filter(|&element| value(&expected, element) != value(&found, element));
    let matters = |&(id, _, number): &Element| {
        let buffer = &source.buffers[id];
        let row = number / (buffer.elements() / buffer.shape[0]);
        match buffer.kind {
            Kind::State => true,
            Kind::Output => step.rows.get(row as usize).is_some_and(|row| row.wanted),
            _ => false,
        }
    };
    different.find(matters).map(|(id, ..)| id)
}

/// A call of a step.
#[derive(Clone, Copy)]
struct Called {
    task: usize,
    /// The call's number in the step.
    number: usize,
    row: usize,
}

/// The calls of a step as they are listed.
fn calls(instance: &Instance) -> impl Iterator<Item = Called> {
    let numbered = |made: &Vec<Made>| made.iter().map(|made| made.row).enumerate().collect::<Vec<_>>();
    let tasks = instance.made.iter().map(numbered).enumerate();
    tasks.flat_map(|(task, rows)| rows.into_iter().map(move |(number, row)| Called { task, number, row }))
}

fn run(instance: &Instance, order: impl Iterator<Item = Called>) -> Memory {
    let mut memory = Memory::new();
    let source = &instance.source;
    for Called { task, number, row } in order {
        let elements = |operand: &Operand| -> Vec<Element> {
            let (id, part) = instance.memories[operand.buffer];
            let numbers = cells::elements(&source.buffers[operand.buffer], operand, 0);
            numbers.into_iter().map(|number| (id, part, number)).collect()
        };
        let operands = &source.tasks[task].calls[number].operands;
        let read = operands.iter().filter(|operand| operand.access.reads()).flat_map(elements);
        let values: Vec<u64> = read.map(|element| memory.get(&element).copied().unwrap_or(symbol(&element))).collect();
        let made = symbol(&(task, instance.made[task][number].call, row, values));
        let written = operands.iter().filter(|operand| operand.access.writes()).flat_map(elements);
        memory.extend(written.enumerate().map(|(n, element)| (element, symbol(&(made, n)))));
    }
    memory
}

fn symbol(of: &impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    of.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::read;
    use crate::rows::step::{Row, Step};
    use crate::rows::tally::drawn;
    use crate::rows::{Fault, judge, judge_step};
    use amk_ir::text;

    fn chunk(rows: u64) -> Step {
        Step::new((0..rows).map(|position| Row { sequence: 0, position, wanted: true }).collect(), 1)
    }

    /// The order of rows alone decides where all are wanted, so the values need not be compared.
    #[test]
    fn safe_programs_have_the_values_of_the_function() {
        let safe = (0..600).map(|n| drawn(3, n).1).filter(|program| judge(program, 0).is_safe());
        let mut steps = 0;
        for program in safe {
            let source = read::read(&text::print(&program)).unwrap();
            for rows in 1..=source.rows.unwrap().min(source.positions) {
                let step = chunk(rows);
                assert_eq!(difference(&source, &step, &instance(&source, &step)), None, "{}", text::print(&program));
                steps += 1;
            }
        }
        assert!(steps > 300, "{steps}");
    }

    /// Where a read is listed before what it should find, the values differ too.
    #[test]
    fn rows_out_of_order_have_other_values() {
        let (mut differ, mut judged) = (0, 0);
        for program in (0..600).map(|n| drawn(4, n).1) {
            let Ok(source) = read::read(&text::print(&program)) else { continue };
            if crate::rows::form::check(&source).is_err() {
                continue;
            }
            let step = chunk(source.rows.unwrap().min(source.positions));
            if let Err(Some(Fault::Order { .. })) = judge_step(&source, &step) {
                judged += 1;
                differ += u32::from(difference(&source, &step, &instance(&source, &step)).is_some());
            }
        }
        assert!(judged > 50 && differ * 4 > judged, "{differ} of {judged}");
    }
}

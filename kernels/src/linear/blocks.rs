//! Blocks of rows: in steps of more rows than a tensor-core product has columns, several
//! neighbouring workers multiply everything that is on their tapes, each for a block of the rows.
//! So each has more units of weights at once, and fewer inputs.

use crate::abi::{BLOCK_ROWS, most_own_rows};
use amk::ir::schedule::Schedule;
use amk_cuda::image::decode::{Places, Refusal};
use amk_cuda::image::{Encoder, Record};
use amk_cuda::plan::{Block, Plan, Planner, Unsupported, Work, even};
use std::iter;
use std::ops::Range;

/// Elements whose weights are on the tape of one worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Dealt {
    /// The elements.
    pub elements: Range<u32>,
    /// The worker.
    pub worker: u32,
    /// The first byte of its piece of the tape.
    pub tape: u64,
}

/// The blocks of the rows of a step; `None`: it is one call of the function.
pub(crate) fn blocks(rows: Option<u32>) -> u32 {
    rows.map_or(1, |rows| rows.div_ceil(BLOCK_ROWS))
}

/// Checks that the workers can be divided among the blocks of a step.
///
/// # Errors
/// If there are fewer workers than blocks.
pub(super) fn check(planner: &Planner<'_>, call: usize) -> Result<(), Unsupported> {
    let (blocks, workers) = (blocks(planner.plan.rows()), planner.plan.schedule.workers);
    if workers >= blocks {
        return Ok(());
    }
    let most = workers * BLOCK_ROWS;
    let what = format!(
        "{blocks} blocks of {BLOCK_ROWS} rows are too many for {workers} workers; they take steps of up to {most} rows"
    );
    Err(Unsupported::at(planner.flow, call, what))
}

/// Divides a phase whose elements, `unit` of them per unit of weights, are on the tapes of the
/// workers as given by `parts`: each worker gets its own part for all rows, or, if there are
/// several blocks of rows, everything on the tapes of some neighbours for one block.
pub(crate) fn works(plan: &Plan, parts: &[Range<u32>], unit: u32) -> Vec<Work> {
    match blocks(plan.rows()) {
        1 => parts.iter().cloned().map(Work::Rows).collect(),
        blocks => of_blocks(blocks, plan.rows().unwrap_or(0), parts, unit),
    }
}

/// The rows of a block of a step of up to `most` rows; `None`: all, as there is one block.
pub(super) fn block(most: Option<u32>, number: u32) -> Option<Range<u32>> {
    let most = most.filter(|&most| most > BLOCK_ROWS)?;
    Some(number * BLOCK_ROWS..((number + 1) * BLOCK_ROWS).min(most))
}

/// Whether rows of a step are in one block.
pub(super) fn is_in_one(rows: &Range<u32>) -> bool {
    rows.start / BLOCK_ROWS == (rows.end - 1) / BLOCK_ROWS
}

/// Gives each worker a block of the rows, and everything on the tapes of some neighbours.
fn of_blocks(blocks: u32, rows: u32, parts: &[Range<u32>], unit: u32) -> Vec<Work> {
    let rows_of = |number| block(Some(rows), number).unwrap_or(0..rows);
    let shared = neighbours(blocks, parts, unit);
    shared.map(|(elements, block, own)| Work::Block(Block { elements, rows: rows_of(block), own })).collect()
}

/// Divides the elements into as many ranges as there are workers for `count` of each, and gives
/// each of these workers a range, a number below `count`, and the elements on its own tape.
/// Left-over workers have no range, and only skip what is on their tapes.
pub(super) fn neighbours(
    count: u32,
    parts: &[Range<u32>],
    unit: u32,
) -> impl Iterator<Item = (Range<u32>, u32, Range<u32>)> {
    let end = parts.iter().map(|part| part.end).max().unwrap_or(0);
    let units = end.div_ceil(unit);
    let cut = even(units, units.min(parts.len() as u32 / count)).into_iter().flat_map(move |units| {
        let elements = units.start * unit..(units.end * unit).min(end);
        (0..count).map(move |number| (elements.clone(), number))
    });
    let cut = cut.chain(iter::repeat((0..0, 0)));
    cut.zip(parts).map(|((elements, number), own)| (elements, number, own.clone()))
}

/// The parts of a phase's elements with their places on the tapes, if neighbours may share them.
pub(super) fn dealt(planner: &Planner<'_>, parts: &[Range<u32>]) -> Vec<Dealt> {
    if !planner.plan.is_wide() {
        return Vec::new();
    }
    let place = |(worker, elements): (usize, &Range<u32>)| Dealt {
        elements: elements.clone(),
        worker: worker as u32,
        tape: planner.tape[worker],
    };
    let mut dealt: Vec<Dealt> = parts.iter().enumerate().map(place).collect();
    dealt.retain(|dealt| !dealt.elements.is_empty());
    dealt.sort_by_key(|dealt| dealt.elements.start);
    dealt
}

/// Encodes the pieces that hold a block's elements: their number and, in the upper half, the number
/// of units to skip in the first one; and the place of their words, two for each.
pub(super) fn encode(
    encoder: &mut Encoder<'_>,
    dealt: &[Dealt],
    elements: &Range<u32>,
    units: impl Fn(&Range<u32>) -> u32,
) -> (u32, u32) {
    let overlaps = |dealt: &&Dealt| dealt.elements.start < elements.end && elements.start < dealt.elements.end;
    let pieces: Vec<&Dealt> = dealt.iter().filter(overlaps).collect();
    let before = pieces.first().map_or(0, |first| units(&(first.elements.start..elements.start)));
    let words = |dealt: &&Dealt| [(dealt.tape / 16) as u32, dealt.worker | units(&dealt.elements) << 16];
    let at = encoder.arguments(pieces.iter().flat_map(words).collect::<Vec<u32>>());
    (pieces.len() as u32 | before << 16, at)
}

/// The reason why the workers cannot hold the residual, `len` rows of the model, if so: each holds
/// its part of them for all rows of a step, or, if the workers are divided among blocks of rows,
/// for the rows of its block.
pub(crate) fn unheld(len: u32, schedule: &Schedule) -> Option<String> {
    let (rows, workers) = (schedule.rows.map(|rows| rows.most), schedule.workers);
    let blocks = blocks(rows);
    let most = workers.min((workers / blocks).max(1) * blocks) * most_own_rows(rows);
    (len > most).then(|| format!("its residual has {len} elements, and {workers} workers hold up to {most}"))
}

/// Checks that a worker can hold `len` rows of the residual, for the rows of the step that a record
/// is for: those of one block, of some neighbours.
///
/// # Errors
/// If it cannot.
pub(crate) fn check_held(record: &Record, places: &Places<'_>, len: u32) -> Result<(), Refusal> {
    let most = places.program.rows;
    let rows = match most {
        None => 0..1,
        Some(most) => places.block_rows(record)?.unwrap_or(0..most),
    };
    if is_in_one(&rows) && len <= most_own_rows(most) * blocks(most) {
        return Ok(());
    }
    Err(Refusal::new("units, layer", format!("give {len} rows for {rows:?}, which a worker cannot hold")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of so many units on some workers, as blocks of 200 rows.
    fn blocks_of(units: u32, workers: u32) -> Vec<Block> {
        let parts = even(units, workers);
        let works = of_blocks(2, 200, &parts, 1);
        let has = |(work, part): (&Work, &Range<u32>)| part.is_empty() || work.own() == Some(part);
        assert!(works.iter().zip(&parts).all(has), "{units} units");
        let block = |work: Work| if let Work::Block(block) = work { Some(block) } else { None };
        works.into_iter().filter(|work| !work.is_empty()).filter_map(block).collect()
    }

    #[test]
    fn every_element_of_every_row_is_in_one_block() {
        for (units, workers) in (1..40).flat_map(|units| [(units, 8), (units, 7)]) {
            let blocks = blocks_of(units, workers);
            let mut cells = vec![[0; 200]; units as usize];
            for Block { elements, rows, .. } in &blocks {
                elements.clone().for_each(|unit| rows.clone().for_each(|row| cells[unit as usize][row as usize] += 1));
            }
            assert!(cells.iter().flatten().all(|&count| count == 1), "{units} units on {workers} workers");
        }
    }

    #[test]
    fn ranges_are_as_short_as_the_workers_allow() {
        let elements =
            |units, workers| Vec::from_iter(blocks_of(units, workers).into_iter().map(|block| block.elements));
        assert_eq!(elements(2, 8), [0..1, 0..1, 1..2, 1..2]);
        assert_eq!(elements(8, 8), [0..2, 0..2, 2..4, 2..4, 4..6, 4..6, 6..8, 6..8]);
        assert_eq!(elements(8, 5), [0..4, 0..4, 4..8, 4..8]);
    }
}

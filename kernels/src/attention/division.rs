//! How the attention of a wide step is divided: by key heads, blocks of rows and parts of the
//! positions.

use super::form::SMALL_HEAD;
use super::phase::BLOCK;
use crate::fused::Decoder;
use crate::linear::blocks;
use amk_cuda::image::abi::{CHUNK, WARPS};
use amk_cuda::plan::{Plan, Work};
use std::iter;
use std::ops::Range;

/// Steps of more rows mostly run long prompts. The larger sets attend to rows of many sequences one
/// sequence after the other, and there may be this many such rows.
const MANY_SEQUENCES: u32 = 256;
/// In steps of more rows, a prompt's first and last rows are in different rounds.
const VERY_LONG: u32 = 512;
/// Queries of a set of rows in long steps.
const LONG_QUERIES: u32 = 64;
/// The longest head whose elements fit in a worker's warps in long steps.
const LONGEST_HEAD: u32 = 256;
/// Maximum number of parts of the positions. A row has a result of each in memory.
const MOST_PARTS: u32 = 8;
/// Minimum number of blocks of positions in a part of a context.
const LEAST_BLOCKS: u32 = 4;

/// A step and its workers.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    rows: u32,
    workers: u32,
    /// Key heads with their copies, query heads, elements of a head.
    heads: [u32; 3],
}

/// How attention is shared out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Division {
    step: Step,
    /// The rows of a task.
    block: u32,
    /// Phases in which the workers attend, each to a block.
    rounds: u32,
    /// By sets of more queries, with the positions in the ring's memory.
    long: bool,
    /// Parts of the positions, each a separate task; another phase merges their results.
    pub(super) parts: u32,
}

impl Step {
    fn kv_heads(self) -> u32 {
        self.heads[0]
    }

    /// Rows of a set of `queries`.
    fn set(self, queries: u32) -> u32 {
        let [kv_heads, heads, _] = self.heads;
        queries / (heads / kv_heads)
    }

    fn division(self, block: u32, rounds: u32) -> Division {
        Division { step: self, block, rounds, long: false, parts: 1 }
    }

    /// In as few rounds as possible, but at least `least`, with the smallest block with which no
    /// worker has two tasks in a round.
    fn first(self, least: u32, blocks: impl Iterator<Item = u32> + Clone) -> Option<Division> {
        let of = |rounds| blocks.clone().map(move |block| self.division(block, rounds));
        (least..=self.rows).find_map(|rounds| of(rounds).find(Division::fits))
    }

    /// By rows, or sets of 8 queries. The later rows of a long step attend to more positions: a
    /// worker has a block of the first half, then one of the second.
    fn by_rows(self) -> Division {
        let (set, most) = (self.set(8), WARPS / self.heads[2].div_ceil(SMALL_HEAD).max(1));
        let rounds = if blocks::blocks(Some(self.rows)) > 1 { 2 } else { 1 };
        let blocks = iter::once(1).chain((1..=most).map(|sets| sets * set));
        self.first(rounds, blocks).unwrap_or(self.division(most * set, rounds))
    }

    /// By sets of more queries. Each task reads all positions, so larger tasks are preferred to
    /// more rounds. But the later rows of very long steps attend to so many more positions that a
    /// worker has both early and late ones.
    fn by_sets(self) -> Option<Division> {
        let (set, most) = (self.set(LONG_QUERIES), self.teams());
        let least = if self.rows > VERY_LONG { 2 } else { 1 };
        let of = |rounds| self.first(rounds, (1..=most).map(|sets| sets * set));
        // More rounds may give a worker fewer sets. Teams without one have nothing to do.
        let first = of(least)?.rounds;
        let division = (first..=2 * first).filter_map(of).min_by_key(|division| division.rounds * division.sets());
        division.map(|division| Division { long: true, ..division })
    }

    /// The same, with the positions in up to `most_parts` parts, among the suitable divisions.
    fn by_parts(self, most_parts: u32, suits: impl Fn(&Division) -> bool) -> Option<Division> {
        let (set, most) = (self.set(LONG_QUERIES), self.teams());
        let all = (2..=most_parts).flat_map(|parts| (1..=most).map(move |sets| (parts, sets * set)));
        let division = all.map(|(parts, block)| {
            let tasks = self.kv_heads() * self.rows.div_ceil(block) * parts;
            Division { long: true, parts, ..self.division(block, tasks.div_ceil(self.workers)) }
        });
        division.filter(suits).min_by(|one, two| one.time().total_cmp(&two.time()))
    }

    /// By sets, in steps that are long enough. Not if `memory` bytes are too few, or if a third of
    /// the workers would have no task. In parts of the positions if that takes much less time.
    fn long(self, most_parts: u32, memory: u32) -> Option<Division> {
        if self.rows <= MANY_SEQUENCES || self.heads[2] > LONGEST_HEAD {
            return None;
        }
        let suits =
            |division: &Division| 3 * division.of_round() >= 2 * self.workers && division.long_bytes() <= memory;
        let whole = self.by_sets().filter(suits);
        let faster = |division: &Division| whole.is_none_or(|whole| division.time() < 0.75 * whole.time());
        self.by_parts(most_parts, suits).filter(faster).or(whole)
    }

    /// Number of teams of a worker's warps in long steps, each with a set of queries or a share of
    /// the positions.
    fn teams(self) -> u32 {
        WARPS / 4 / self.heads[2].div_ceil(SMALL_HEAD)
    }

    /// The rows of a block.
    fn rows_of(self, block: u32, number: u32) -> Range<u32> {
        number * block..((number + 1) * block).min(self.rows)
    }
}

impl Division {
    /// Returns the division for a plan whose attention has these heads, as in [`Decoder::heads`]. A
    /// task of a narrow step has all rows. Larger sets do not compute scores that decrease as
    /// products increase.
    pub(super) fn new(plan: &Plan, heads: [u32; 3], score_scale: f32) -> Self {
        let rows = plan.rows().unwrap_or(1);
        let step = Step { rows, workers: plan.schedule.workers, heads };
        if !plan.is_wide() || heads == [0; 3] {
            return step.division(rows, 1);
        }
        let most_parts = MOST_PARTS.min(plan.sizes.context / BLOCK / LEAST_BLOCKS).min(plan.schedule.splits);
        let long = step.long(most_parts, plan.schedule.ring.slots * CHUNK);
        long.filter(|_| score_scale >= 0.0).unwrap_or_else(|| step.by_rows())
    }

    /// That of a plan.
    pub(super) fn of(plan: &Plan) -> Self {
        let (heads, score_scale) =
            Decoder::attending(plan).map_or(([0; 3], 0.0), |decoder| (decoder.heads(), decoder.score_scale));
        Self::new(plan, heads, score_scale)
    }

    /// The rows of a task's block.
    pub(super) fn rows(&self, block: u32) -> Range<u32> {
        self.step.rows_of(self.block, block)
    }

    /// The rows of a block that a task appends.
    pub(super) fn appended(&self, block: u32) -> Range<u32> {
        self.step.rows_of(self.append_block(), block)
    }

    /// The blocks of each round that are appended.
    pub(super) fn appends(&self) -> Vec<Vec<u32>> {
        let (block, Step { rows, workers, .. }) = (self.append_block(), self.step);
        let rounds = (self.step.kv_heads() * rows.div_ceil(block)).div_ceil(workers);
        self.by_round(block, if self.parts > 1 { rounds } else { self.rounds })
    }

    /// The blocks of each round, whose rows attend to all of their positions.
    pub(super) fn blocks(&self) -> Vec<Vec<u32>> {
        self.by_round(self.block, self.rounds)
    }

    /// The tasks of each round that attend to parts, at most one per worker: a kv head, and a
    /// column (see [`Self::block_and_part`]). Later rows attend to more positions, and a task goes
    /// to the worker with the fewest so far.
    pub(super) fn parts_by_round(&self) -> Vec<Vec<Work>> {
        let Step { rows, workers, .. } = self.step;
        let (blocks, kv_heads) = (rows.div_ceil(self.block), self.step.kv_heads());
        let mut loads: Vec<(u32, Vec<Work>)> = vec![(0, Vec::new()); workers as usize];
        for block in (0..blocks).rev() {
            for n in 0..kv_heads * self.parts {
                let Some((load, tasks)) = loads.iter_mut().min_by_key(|(load, _)| *load) else { continue };
                *load += blocks + block;
                tasks.push(Work::Cell { row: n % kv_heads, column: block * self.parts + n / kv_heads });
            }
        }
        let rounds = loads.iter().map(|(_, tasks)| tasks.len()).max().unwrap_or(0);
        let none = Work::Rows(0..0);
        let round = |round| loads.iter().map(|(_, tasks)| tasks.get(round).unwrap_or(&none).clone()).collect();
        (0..rounds).map(round).collect()
    }

    /// The block of rows, and the part of the positions, of a task's column.
    pub(super) fn block_and_part(&self, column: u32) -> (u32, u32) {
        (column / self.parts, column % self.parts)
    }

    /// The reason why there are too few workers, if so.
    pub(super) fn refused(&self) -> Option<String> {
        let Step { rows, workers, .. } = self.step;
        let (kv_heads, blocks) = (self.step.kv_heads(), rows.div_ceil(self.block));
        let what = || format!("{kv_heads} key heads with {blocks} blocks of rows are too many for {workers} workers");
        (self.parts == 1 && !self.fits()).then(what)
    }

    /// The number of rows of a task that appends. If it does not attend to these rows, as many as
    /// give each worker one task, if that is not too many.
    fn append_block(&self) -> u32 {
        let Step { rows, workers, .. } = self.step;
        let even = rows.div_ceil((workers / self.step.kv_heads().max(1)).max(1));
        if self.parts > 1 { self.block.min(even) } else { self.block }
    }

    /// A worker's blocks in two rounds are equally far from the two ends.
    fn by_round(&self, block: u32, rounds: u32) -> Vec<Vec<u32>> {
        let all = Vec::from_iter(0..self.step.rows.div_ceil(block));
        let mut rounds: Vec<_> = all.chunks(all.len().div_ceil(rounds as usize)).map(<[u32]>::to_vec).collect();
        rounds.iter_mut().skip(1).step_by(2).for_each(|round| round.reverse());
        rounds
    }

    /// Number of tasks in a round, at most one per worker.
    fn of_round(&self) -> u32 {
        let blocks = self.step.rows.div_ceil(self.block);
        self.step.kv_heads() * (blocks * self.parts).div_ceil(self.rounds)
    }

    fn fits(&self) -> bool {
        self.of_round() <= self.step.workers
    }

    /// The number of sets of a task, counting one for teams that have none.
    fn sets(&self) -> u32 {
        let most = self.step.teams();
        most / (most / (self.block / self.step.set(LONG_QUERIES)))
    }

    /// The time of attention by sets, in units of one set over all positions. For any number of
    /// sets, a task also loads queries, stores a result and loads blocks of positions. Fitted on an
    /// H200.
    fn time(&self) -> f64 {
        let [task, blocks, join] = [0.25, 0.7, 0.1];
        let parts = f64::from(self.parts);
        let joined = if self.parts > 1 { join * parts } else { 0.0 };
        f64::from(self.rounds) * (task + (blocks + f64::from(self.sets())) / parts) + joined
    }

    /// The bytes that a task of a long step needs (`PromptMemory` in `blocks.cuh`): the rotations,
    /// the queries and two blocks of positions, or the teams' shares.
    fn long_bytes(&self) -> u32 {
        let head_dim = self.step.heads[2];
        let sets = self.block / self.step.set(LONG_QUERIES);
        let turns = (self.block * head_dim.max(SMALL_HEAD) * 4).next_multiple_of(1024);
        let shares = self.step.teams() * LONG_QUERIES * (8 + (head_dim + 16) * 4);
        shares.max(turns + sets * LONG_QUERIES * head_dim * 2 + 2 * BLOCK * head_dim * 4)
    }
}

/// Maximum number of rows of a task that appends or attends: all of a narrow step; otherwise as few
/// as give no worker two tasks in a round, one row or whole sets.
pub(crate) fn block(plan: &Plan) -> u32 {
    Division::of(plan).block
}

/// Whether steps are long, so that attention uses sets of more queries, with the positions in the
/// ring's memory.
pub(super) fn is_long(plan: &Plan) -> bool {
    Division::of(plan).long
}

/// Whether the positions of a wide step's rows are divided into parts.
pub(super) fn has_parts(plan: &Plan) -> bool {
    Division::of(plan).parts > 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const SLOTS: u32 = 6;

    fn long(rows: u32, workers: u32, heads: [u32; 3]) -> Option<Division> {
        Step { rows, workers, heads }.long(MOST_PARTS, SLOTS * CHUNK)
    }

    /// Steps of models with few key heads, with few workers and with an H200's.
    fn in_parts() -> impl Iterator<Item = Division> {
        let steps = [(300, 16, [2, 4, 64]), (300, 44, [2, 4, 128]), (300, 23, [3, 9, 64]), (2048, 132, [3, 9, 64])];
        let further = [(512, 132, [3, 9, 64]), (2048, 132, [1, 4, 256])];
        steps.into_iter().chain(further).map(|(rows, workers, heads)| long(rows, workers, heads).expect("a division"))
    }

    #[test]
    fn positions_are_in_parts_where_blocks_of_rows_do_not_occupy_the_workers() {
        for division in in_parts() {
            assert!(division.parts > 1, "{division:?}");
        }
        for (rows, heads) in [(2048, [8, 32, 64]), (2048, [8, 32, 128]), (512, [8, 32, 128]), (2048, [8, 16, 128])] {
            let division = long(rows, 132, heads);
            assert_eq!(division.map_or(1, |division| division.parts), 1, "{rows} rows, {heads:?}");
        }
    }

    #[test]
    fn every_block_has_every_part_once_and_a_worker_one_task_a_round() {
        for division in in_parts() {
            let Step { rows, workers, heads: [kv_heads, ..] } = division.step;
            let rounds = division.parts_by_round();
            assert!(rounds.iter().all(|works| works.len() == workers as usize), "{division:?}");
            let tasks = rounds.into_iter().flatten().filter_map(|work| match work {
                Work::Cell { row, column } => Some((row, division.block_and_part(column))),
                _ => None,
            });
            let tasks = Vec::from_iter(tasks);
            let distinct: BTreeSet<_> = tasks.iter().copied().collect();
            let all = (kv_heads * rows.div_ceil(division.block) * division.parts) as usize;
            assert_eq!((tasks.len(), distinct.len()), (all, all), "{division:?}");
            let covered = |blocks: &mut dyn Iterator<Item = Range<u32>>| blocks.flatten().collect::<Vec<_>>();
            let every = Vec::from_iter(0..rows);
            assert_eq!(covered(&mut (0..rows.div_ceil(division.block)).map(|block| division.rows(block))), every);
            let mut appended = Vec::from_iter(division.appends().into_iter().flatten());
            appended.sort_unstable();
            assert_eq!(covered(&mut appended.into_iter().map(|block| division.appended(block))), every);
            assert!(division.appends().iter().all(|blocks| blocks.len() as u32 * kv_heads <= workers), "{division:?}");
        }
    }

    /// A worker has at most one task more than another, and the later tasks are also distributed.
    #[test]
    fn the_workers_have_about_as_many_positions() {
        for division in in_parts() {
            let rounds = division.parts_by_round();
            let blocks = division.step.rows.div_ceil(division.block);
            let load = |worker: usize| {
                let cost = |works: &Vec<Work>| match works[worker] {
                    Work::Cell { column, .. } => blocks + division.block_and_part(column).0,
                    _ => 0,
                };
                rounds.iter().map(cost).sum::<u32>()
            };
            let loads = (0..division.step.workers as usize).map(load);
            let (least, most) = (loads.clone().min(), loads.max());
            assert!(most.unwrap_or(0) - least.unwrap_or(0) <= 2 * blocks, "{division:?}: {least:?} to {most:?}");
        }
    }
}

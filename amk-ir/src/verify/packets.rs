//! Packets as counters: each set of words that is read together is a counter that its writers
//! signal.

use super::budget::Budget;
use super::grid::{Grid, Step};
use super::storage::Storages;
use super::sync::Rows;
use super::violation::TooMuch;
use crate::{BufferId, Program};

const NONE: u32 = u32::MAX;
/// Units of work for a cell that an access has.
const PER_CELL: u64 = 10;

/// The order that packets make in one step.
#[derive(Default)]
pub(super) struct PacketEdges {
    /// Sets that each task reads; empty if there are none at all.
    pub(super) reads: Rows<u32>,
    /// Sets that each task writes to; empty if there are none at all.
    pub(super) writes: Rows<u32>,
    /// Tasks that write to each set.
    pub(super) writers: Rows<u32>,
    /// The buffer of each set.
    pub(super) buffers: Vec<BufferId>,
}

/// Sets of one storage while they are found.
struct Sets {
    /// The access that wrote each cell last.
    writers: Vec<u32>,
    /// The set that read each cell last, if nothing has written to it since.
    readers: Vec<u32>,
    /// The access that defines the cells of each set.
    first: Vec<u32>,
}

impl PacketEdges {
    /// The order through packets in a step at `position`; or a buffer that is divided too finely to
    /// follow.
    pub(super) fn at(
        program: &Program,
        storages: &Storages,
        grid: &mut Grid,
        position: u32,
        budget: &mut Budget,
    ) -> Result<Self, BufferId> {
        let mut edges = Self::default();
        if !storages.kinds.iter().any(|kind| kind.packet) {
            return Ok(edges);
        }
        edges.writers.clear();
        let mut reads: Vec<(u32, u32)> = Vec::new();
        for (storage, kind) in storages.kinds.iter().enumerate() {
            if kind.packet && !edges.add(program, (storages, storage), grid, position, &mut reads, budget) {
                return Err(storages.buffers.row(storage as u32).first().copied().unwrap_or(BufferId(0)));
            }
        }
        reads.sort_unstable();
        reads.dedup();
        let tasks = program.tasks.len() as u32;
        edges.reads.clear();
        let mut next = reads.into_iter().peekable();
        for task in 0..tasks {
            while let Some((_, set)) = next.next_if(|(reader, _)| *reader == task) {
                edges.reads.push(set);
            }
            edges.reads.end_row();
        }
        edges.writers.transpose_into(tasks, |&task| task, &mut edges.writes);
        Ok(edges)
    }

    fn add(
        &mut self,
        program: &Program,
        (storages, storage): (&Storages, usize),
        grid: &mut Grid,
        position: u32,
        reads: &mut Vec<(u32, u32)>,
        budget: &mut Budget,
    ) -> bool {
        let (accesses, buffers) = (storages.accesses(storage), storages.buffers.row(storage as u32));
        let step = [Step { number: 0, position }];
        if !grid.cut(program, buffers, accesses, &step, true) {
            return false;
        }
        let base = self.writers.rows();
        let cells = grid.cells() as usize;
        let mut sets = Sets { writers: vec![NONE; cells], readers: vec![NONE; cells], first: Vec::new() };
        let mut ranges = Vec::new();
        for (n, access) in accesses.iter().enumerate() {
            let Some(first) = grid.first(n) else { continue };
            grid.ranges(n, &mut ranges);
            let visits: u64 = ranges.iter().map(|&(start, end)| u64::from(end - start)).sum();
            if !budget.spend(visits * PER_CELL, TooMuch::Pairs { buffer: access.operand.buffer }) {
                return true;
            }
            let cells = || ranges.iter().flat_map(|&(start, end)| start..end).map(|cell| cell as usize);
            if access.operand.access.reads() {
                let known = sets.readers[first as usize];
                let same = |set: u32| {
                    let own = |cell: usize| {
                        accesses.get(sets.writers[cell] as usize).is_some_and(|w| w.task() == access.task())
                    };
                    grid.same(sets.first[set as usize] as usize, n)
                        && cells().all(|cell| sets.readers[cell] == set && !own(cell))
                };
                let set = if known != NONE && same(known) {
                    known
                } else {
                    let set = sets.first.len() as u32;
                    let mut tasks: Vec<u32> = cells()
                        .filter_map(|cell| accesses.get(sets.writers[cell] as usize))
                        .map(|writer| writer.task())
                        .collect();
                    tasks.sort_unstable();
                    tasks.dedup();
                    // A task need not wait for its own writes; the set is then private to it.
                    let own = tasks.len();
                    tasks.retain(|&task| task != access.task());
                    let shared = own == tasks.len();
                    tasks.into_iter().for_each(|task| self.writers.push(task));
                    self.writers.end_row();
                    self.buffers.push(access.operand.buffer);
                    sets.first.push(n as u32);
                    cells().for_each(|cell| sets.readers[cell] = if shared { set } else { NONE });
                    set
                };
                reads.push((access.task(), base + set));
            }
            if access.operand.access.writes() {
                cells().for_each(|cell| {
                    sets.writers[cell] = n as u32;
                    sets.readers[cell] = NONE;
                });
            }
        }
        true
    }
}

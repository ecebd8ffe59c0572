//! The elements of a storage divided into cells, so that each access covers whole cells.

use super::storage::{Access, bytes};
use crate::{Buffer, BufferId, MAX_RANK, Program};

/// One step of a launch: how many steps after the first, and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) number: u32,
    pub(super) position: u32,
}

/// Start and end in each dimension.
type Box = [(u32, u32); MAX_RANK];

/// Reusable memory of a grid.
#[derive(Default)]
pub(super) struct Grid {
    /// Cuts of each dimension; if buffers share bytes, cuts of the bytes in the first.
    cuts: [Vec<u64>; MAX_RANK],
    strides: [u32; MAX_RANK],
    cells: u32,
    /// Boxes of cells, for one buffer.
    boxes: Vec<Box>,
    /// Runs of cells, for shared bytes.
    runs: Vec<(u64, u64)>,
    run_starts: Vec<u32>,
    shared: bool,
    /// Instances per step, and whether each step has its own.
    accesses: usize,
    moves: bool,
}

/// More runs of bytes than this, for each access, are not taken apart: rows of a tile.
const MOST_RUNS: usize = 1 << 14;
/// The same for all accesses of a storage.
pub(super) const MOST_RUNS_OF_STORAGE: usize = 1 << 21;

impl Grid {
    /// Divides the storage for accesses of the given steps; `false` if that would take far more
    /// cells than there are accesses.
    pub(super) fn cut(
        &mut self,
        program: &Program,
        buffers: &[BufferId],
        accesses: &[Access],
        steps: &[Step],
        moves: bool,
    ) -> bool {
        self.shared = buffers.len() > 1;
        self.accesses = accesses.len();
        self.moves = moves;
        self.cuts.iter_mut().for_each(Vec::clear);
        self.boxes.clear();
        self.runs.clear();
        self.run_starts.clear();
        let distinct = if moves { steps } else { steps.get(..1).unwrap_or(&[]) };
        if self.shared {
            self.cut_bytes(program, buffers, accesses, distinct)
        } else {
            self.cut_boxes(program, buffers, accesses, distinct)
        }
    }

    fn cut_boxes(&mut self, program: &Program, buffers: &[BufferId], accesses: &[Access], steps: &[Step]) -> bool {
        let shape = buffers.first().map_or(&[][..], |b| &program.buffers[b.index()].shape);
        // The last dimension of the buffer is the last of the grid, so that rows of cells are long.
        let offset = MAX_RANK - shape.len().min(MAX_RANK);
        for (cuts, &extent) in self.cuts[offset..].iter_mut().zip(shape) {
            cuts.extend([0, u64::from(extent)]);
        }
        for step in steps {
            for access in accesses {
                let mut tile: Box = [(0, 1); MAX_RANK];
                for (dim, interval) in access.operand.region.intervals().iter().enumerate() {
                    let (lo, hi) = (interval.lo.at(step.position.into()), interval.hi.at(step.position.into()));
                    tile[offset + dim] = (lo as u32, hi as u32);
                    self.cuts[offset + dim].extend([lo, hi]);
                }
                self.boxes.push(tile);
            }
        }
        let mut cells = 1u64;
        for dim in (0..MAX_RANK).rev() {
            let cuts = &mut self.cuts[dim];
            if cuts.is_empty() {
                cuts.extend([0, 1]);
            }
            cuts.sort_unstable();
            cuts.dedup();
            self.strides[dim] = cells.min(u64::from(u32::MAX)) as u32;
            cells = cells.saturating_mul(cuts.len() as u64 - 1);
        }
        const CELLS_PER_ACCESS: u64 = 64;
        if cells > CELLS_PER_ACCESS * self.boxes.len() as u64 + 4096 {
            return false;
        }
        self.cells = cells as u32;
        for tile in &mut self.boxes {
            for (side, cuts) in tile.iter_mut().zip(&self.cuts) {
                *side = (index_of(cuts, side.0.into()), index_of(cuts, side.1.into()));
            }
        }
        true
    }

    fn cut_bytes(&mut self, program: &Program, buffers: &[BufferId], accesses: &[Access], steps: &[Step]) -> bool {
        for &buffer in buffers {
            let bytes = bytes(&program.buffers[buffer.index()]);
            self.cuts[0].extend([bytes.start, bytes.end]);
        }
        self.run_starts.push(0);
        for step in steps {
            for access in accesses {
                let buffer = &program.buffers[access.operand.buffer.index()];
                if !byte_runs(buffer, access, step.position, &mut self.runs) || self.runs.len() > MOST_RUNS_OF_STORAGE {
                    return false;
                }
                self.run_starts.push(self.runs.len() as u32);
            }
        }
        let cuts = &mut self.cuts[0];
        cuts.extend(self.runs.iter().flat_map(|&(start, end)| [start, end]));
        cuts.sort_unstable();
        cuts.dedup();
        self.cells = cuts.len().saturating_sub(1) as u32;
        for run in &mut self.runs {
            *run = (index_of(cuts, run.0).into(), index_of(cuts, run.1).into());
        }
        true
    }

    pub(super) fn cells(&self) -> u32 {
        self.cells
    }

    /// The number of runs of bytes of all accesses, if buffers share them.
    pub(super) fn runs(&self) -> u64 {
        self.runs.len() as u64
    }

    fn distinct(&self, instance: usize) -> usize {
        if self.moves { instance } else { instance % self.accesses.max(1) }
    }

    fn runs_of(&self, instance: usize) -> &[(u64, u64)] {
        let n = self.distinct(instance);
        match self.run_starts.get(n..n + 2) {
            Some(&[start, end]) => &self.runs[start as usize..end as usize],
            _ => &[],
        }
    }

    /// The first cell of an instance of an access, counted over steps; `None` if it has no element.
    pub(super) fn first(&self, instance: usize) -> Option<u32> {
        if self.shared {
            return self.runs_of(instance).first().map(|&(start, _)| start as u32);
        }
        let tile = &self.boxes[self.distinct(instance)];
        tile.iter()
            .all(|(lo, hi)| lo < hi)
            .then(|| tile.iter().zip(self.strides).map(|((lo, _), stride)| lo * stride).sum())
    }

    /// Whether two instances have the same cells.
    pub(super) fn same(&self, a: usize, b: usize) -> bool {
        match self.shared {
            true => self.runs_of(a) == self.runs_of(b),
            false => self.boxes[self.distinct(a)] == self.boxes[self.distinct(b)],
        }
    }

    /// Ranges of cells of an instance.
    pub(super) fn ranges(&self, instance: usize, out: &mut Vec<(u32, u32)>) {
        out.clear();
        if self.shared {
            out.extend(self.runs_of(instance).iter().map(|&(start, end)| (start as u32, end as u32)));
        } else {
            self.box_ranges(&self.boxes[self.distinct(instance)], out);
        }
    }

    fn box_ranges(&self, tile: &Box, out: &mut Vec<(u32, u32)>) {
        let [a, b, c, d] = *tile;
        let [sa, sb, sc, _] = self.strides;
        if d.0 >= d.1 {
            return;
        }
        for x in a.0..a.1 {
            for y in b.0..b.1 {
                for z in c.0..c.1 {
                    let row = x * sa + y * sb + z * sc;
                    out.push((row + d.0, row + d.1));
                }
            }
        }
    }

    /// Ranges of cells of a whole buffer.
    pub(super) fn whole(&self, buffer: &Buffer, out: &mut Vec<(u32, u32)>) {
        out.clear();
        if self.shared {
            let bytes = bytes(buffer);
            out.push((index_of(&self.cuts[0], bytes.start), index_of(&self.cuts[0], bytes.end)));
        } else {
            out.push((0, self.cells));
        }
    }

    /// The elements of a cell of one buffer: start and end in each of its dimensions. `None` for
    /// shared bytes.
    pub(super) fn elements(&self, cell: u32, rank: usize) -> Option<Vec<(u64, u64)>> {
        let side = |dim: usize| {
            let cuts = &self.cuts[dim];
            let n = (cell / self.strides[dim].max(1)) as usize % (cuts.len() - 1).max(1);
            (cuts[n], cuts[n + 1])
        };
        (!self.shared).then(|| (MAX_RANK - rank.min(MAX_RANK)..MAX_RANK).map(side).collect())
    }
}

fn index_of(cuts: &[u64], cut: u64) -> u32 {
    cuts.partition_point(|&known| known < cut) as u32
}

/// Adds the runs of bytes of a tile of a placed buffer; `false` if there are too many.
pub(super) fn byte_runs(buffer: &Buffer, access: &Access, position: u32, runs: &mut Vec<(u64, u64)>) -> bool {
    let mut tile = [(0u64, 1u64); MAX_RANK];
    let mut extents = [1u64; MAX_RANK];
    // Dimensions of extent 1 in front do not change the order of bytes.
    let offset = MAX_RANK - buffer.shape.len().min(MAX_RANK);
    let sides = tile[offset..].iter_mut().zip(&mut extents[offset..]);
    for ((side, to), (interval, &extent)) in sides.zip(access.operand.region.intervals().iter().zip(&buffer.shape)) {
        *to = u64::from(extent);
        *side = (interval.lo.at(position.into()), interval.hi.at(position.into()));
    }
    if tile.iter().any(|(lo, hi)| lo >= hi) {
        return true;
    }
    // A tile that has whole rows has them in one run.
    while tile[MAX_RANK - 1] == (0, extents[MAX_RANK - 1]) && extents[..MAX_RANK - 1].iter().any(|&extent| extent > 1) {
        let row = extents[MAX_RANK - 1];
        tile.rotate_right(1);
        extents.rotate_right(1);
        (tile[0], extents[0]) = ((0, 1), 1);
        let last = &mut tile[MAX_RANK - 1];
        *last = (last.0 * row, last.1 * row);
        extents[MAX_RANK - 1] *= row;
    }
    let rows = tile[..MAX_RANK - 1].iter().fold(1u64, |rows, (lo, hi)| rows.saturating_mul(hi - lo));
    if rows > MOST_RUNS as u64 {
        return false;
    }
    let (size, place) = (u64::from(buffer.dtype.bytes()), buffer.place.unwrap_or(0));
    let [a, b, c, d] = tile;
    for x in a.0..a.1 {
        for y in b.0..b.1 {
            for z in c.0..c.1 {
                let row = ((x * extents[1] + y) * extents[2] + z) * extents[3];
                runs.push((place + (row + d.0) * size, place + (row + d.1) * size));
            }
        }
    }
    true
}

/// Whether two sorted lists of runs have a byte in common.
pub(super) fn runs_meet(a: &[(u64, u64)], b: &[(u64, u64)]) -> bool {
    let (mut i, mut j) = (0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        if x.0 < y.1 && y.0 < x.1 {
            return true;
        }
        if x.1 <= y.1 { i += 1 } else { j += 1 }
    }
    false
}

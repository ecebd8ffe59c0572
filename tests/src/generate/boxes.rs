//! Buffers of up to four dimensions, whose tiles move in several of them.

use super::Draft;
use amk_ir::{Access, BufferId, Interval, Operand, Region};

/// The most elements of a buffer.
const MOST: u32 = 200;

impl Draft<'_> {
    /// A shape with room for every position in some dimensions.
    pub(super) fn box_shape(&mut self) -> Vec<u32> {
        let positions = self.program.positions;
        let rank = self.rng.between(2, 4);
        let mut shape: Vec<u32> = Vec::new();
        for _ in 0..rank {
            let wide = positions + self.rng.below(2);
            let extent = if self.rng.chance(60) { wide } else { self.rng.between(1, 2) };
            let fits = shape.iter().product::<u32>() * extent <= MOST;
            shape.push(if fits { extent } else { 1 });
        }
        shape
    }

    /// The pieces of a buffer in one dimension, each over the whole of the others.
    pub(super) fn slabs(&mut self, buffer: BufferId, state: bool) -> Vec<Region> {
        let shape = self.program.buffers[buffer.index()].shape.clone();
        let wide: Vec<usize> = (0..shape.len()).filter(|&dim| self.is_wide(shape[dim])).collect();
        let Some(&dim) = self.rng.pick(&wide) else { return vec![Region::full(&shape)] };
        let pieces = self.pieces(shape[dim], state);
        let slab = |piece| {
            let mut slab = Region::full(&shape);
            slab.intervals_mut()[dim] = piece;
            slab
        };
        pieces.into_iter().map(slab).collect()
    }

    /// A tile that moves in any of its dimensions, and is not empty at some position in each.
    pub(super) fn moving_box(&mut self, buffer: BufferId, access: Access) -> Operand {
        let mut region = Region::full(&self.program.buffers[buffer.index()].shape);
        for interval in region.intervals_mut() {
            let extent = interval.hi.base;
            if self.is_wide(extent) && self.rng.chance(70) {
                *interval = self.moving(extent);
            } else if self.rng.chance(30) {
                let at = self.rng.below(extent);
                *interval = Interval::fixed(at, at + 1);
            }
        }
        Operand { buffer, region, access, early: false, routed: None }
    }

    fn is_wide(&self, extent: u32) -> bool {
        extent >= self.program.positions
    }
}

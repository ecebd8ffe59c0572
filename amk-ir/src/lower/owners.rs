//! Owners: tiles of calls that touch the same elements of a state, which one worker runs.

use crate::{Region, TensorId};
use std::collections::HashMap;

/// A tile: the number of its call, and its own.
pub type Tile = (usize, usize);

/// Sets of tiles that touch the same elements of a state. If a set has one worker, its queue keeps
/// the order of the accesses, within a step and from step to step.
#[derive(Debug, Default)]
pub struct Owners {
    touched: HashMap<TensorId, Vec<(Tile, Region)>>,
    /// A tile of the same set, or itself.
    same: HashMap<Tile, Tile>,
    /// Numbers of the sets, by their first tiles.
    numbers: HashMap<Tile, u32>,
}

impl Owners {
    /// Adds a tile that touches a region of a state; tiles must be added in eager order.
    pub fn touch(&mut self, tile: Tile, state: TensorId, region: Region) {
        self.same.entry(tile).or_insert(tile);
        let before = self.touched.entry(state).or_default();
        let meets: Vec<Tile> =
            before.iter().filter(|(_, other)| overlap(other, &region)).map(|(tile, _)| *tile).collect();
        before.push((tile, region));
        let mut first = self.first(tile);
        for other in meets {
            let other = self.first(other);
            let (low, high) = if other < first { (other, first) } else { (first, other) };
            self.same.insert(high, low);
            first = low;
        }
        let next = self.numbers.len() as u32;
        self.numbers.entry(first).or_insert(next);
    }

    fn first(&self, mut tile: Tile) -> Tile {
        while let Some(&next) = self.same.get(&tile).filter(|&&next| next != tile) {
            tile = next;
        }
        tile
    }

    /// Returns the number of a tile's set; `None` if it touches no state.
    pub fn of(&self, tile: Tile) -> Option<u32> {
        self.same.contains_key(&tile).then(|| self.numbers.get(&self.first(tile)).copied().unwrap_or(0))
    }
}

/// Whether two regions may share elements, each at a position of its own: the accesses may be in
/// different steps. A bound that moves with the position overlaps everything.
fn overlap(a: &Region, b: &Region) -> bool {
    a.intervals().iter().zip(b.intervals()).all(|(a, b)| {
        let moves = [a.lo, a.hi, b.lo, b.hi].iter().any(|bound| bound.pos);
        moves || (a.lo.base < b.hi.base && b.lo.base < a.hi.base)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bound, Interval};

    fn region(head: u32, to: Interval) -> Region {
        Region::new(&[Interval::fixed(head, head + 1), to]).expect("rank 2")
    }

    #[test]
    fn tiles_of_one_head_have_one_owner() {
        let mut owners = Owners::default();
        let now = Interval { lo: Bound::at_pos(0), hi: Bound::at_pos(1) };
        let past = Interval { lo: Bound::fixed(0), hi: Bound::at_pos(1) };
        for head in 0..2 {
            owners.touch((0, head), TensorId(0), region(head as u32, now));
            owners.touch((1, head), TensorId(1), region(head as u32, now));
        }
        // Two query heads a key head read both caches.
        for query in 0..4 {
            owners.touch((2, query), TensorId(0), region(query as u32 / 2, past));
            owners.touch((2, query), TensorId(1), region(query as u32 / 2, past));
        }
        let of = |call, tile| owners.of((call, tile)).expect("an owner");
        for query in 0..4 {
            assert_eq!([of(0, query / 2), of(1, query / 2)], [of(2, query); 2]);
        }
        assert_ne!(of(0, 0), of(0, 1));
        assert_eq!(owners.of((3, 0)), None);
    }
}

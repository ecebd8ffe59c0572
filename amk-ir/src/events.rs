//! Event derivation: from the tiles that producers write and consumers read to counters, signals
//! and waits.
//!
//! The rule is interval overlap with per-coordinate counts: a consumer depends on exactly the
//! producers whose tiles overlap its own. Consumers that depend on the same producers share a
//! counter whose fan-in is the number of these producers, so ragged tiles need no special case. If
//! that would take more signals and waits than one counter per producer, each producer gets a
//! counter of its own.

use crate::Region;
use std::collections::HashMap;

/// Counters between the tasks of a producing and a consuming op.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Derived {
    /// Signals each counter gets in a step.
    pub fan_in: Vec<u32>,
    /// The counters each producer signals.
    pub signals: Vec<Vec<u32>>,
    /// The counters each consumer waits for, with thresholds.
    pub waits: Vec<Vec<(u32, u32)>>,
}

/// The producers each consumer depends on, ascending: those whose region overlaps at some position
/// below `positions`.
pub fn overlaps(producers: &[Region], consumers: &[Region], positions: u32) -> Vec<Vec<u32>> {
    consumers
        .iter()
        .map(|consumer| {
            let overlapping =
                producers.iter().enumerate().filter(|(_, producer)| overlap(producer, consumer, positions));
            overlapping.map(|(index, _)| index as u32).collect()
        })
        .collect()
}

/// Whether two regions of a buffer share an element at some position below `positions`.
pub fn overlap(a: &Region, b: &Region, positions: u32) -> bool {
    if a.intervals().len() != b.intervals().len() {
        return false;
    }
    // Each dimension's overlap is an interval of positions (bounds move with slope 0 or 1), so
    // their common part decides.
    let (mut first, mut last) = (0i64, i64::from(positions) - 1);
    for (x, y) in a.intervals().iter().zip(b.intervals()) {
        for (start, hi) in [(x.lo, x.hi), (x.lo, y.hi), (y.lo, x.hi), (y.lo, y.hi)] {
            for (moves, lo) in start.lines() {
                let gap = hi.offset() - lo;
                match (moves, hi.pos) {
                    (true, false) => last = last.min(gap - 1),
                    (false, true) => first = first.max(1 - gap),
                    _ if gap <= 0 => return false,
                    _ => {}
                }
            }
        }
    }
    first <= last
}

/// Counters for the given dependencies of `consumers` on `producers` tasks.
pub fn derive(producers: usize, dependencies: &[Vec<u32>]) -> Derived {
    let mut groups: HashMap<&[u32], u32> = HashMap::new();
    let mut order: Vec<&[u32]> = Vec::new();
    for dependency in dependencies.iter().filter(|d| !d.is_empty()) {
        groups.entry(dependency).or_insert_with(|| {
            order.push(dependency);
            order.len() as u32 - 1
        });
    }
    let grouped_cost: usize = order.iter().map(|group| group.len()).sum::<usize>() + dependencies.len();
    let each_cost: usize = producers + dependencies.iter().map(Vec::len).sum::<usize>();
    if grouped_cost <= each_cost {
        by_group(producers, dependencies, &groups, &order)
    } else {
        by_producer(producers, dependencies)
    }
}

fn by_group(producers: usize, dependencies: &[Vec<u32>], groups: &HashMap<&[u32], u32>, order: &[&[u32]]) -> Derived {
    let mut signals = vec![Vec::new(); producers];
    for (counter, group) in order.iter().enumerate() {
        for &producer in *group {
            signals[producer as usize].push(counter as u32);
        }
    }
    let wait =
        |dependency: &Vec<u32>| groups.get(dependency.as_slice()).map(|&counter| (counter, dependency.len() as u32));
    Derived {
        fan_in: order.iter().map(|group| group.len() as u32).collect(),
        signals,
        waits: dependencies.iter().map(|d| wait(d).into_iter().collect()).collect(),
    }
}

fn by_producer(producers: usize, dependencies: &[Vec<u32>]) -> Derived {
    Derived {
        fan_in: vec![1; producers],
        signals: (0..producers as u32).map(|producer| vec![producer]).collect(),
        waits: dependencies.iter().map(|d| d.iter().map(|&producer| (producer, 1)).collect()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bound, Interval};

    fn tiles(extent: u32, tile: u32) -> Vec<Region> {
        let tiles = (0..extent.div_ceil(tile)).map(|i| Interval::fixed(i * tile, (i * tile + tile).min(extent)));
        tiles.map(|interval| Region::new(&[interval]).expect("rank 1")).collect()
    }

    #[test]
    fn mismatched_chunks_count_by_coordinate() {
        // Event Tensor (arXiv), Qwen3-32B o_proj: 8 producers of 1024, consumers of 2752 over 8192.
        let dependencies = overlaps(&tiles(8192, 1024), &tiles(8192, 2752), 1);
        let derived = derive(8, &dependencies);
        assert_eq!(derived.fan_in, [3, 4, 3]);
        assert_eq!(dependencies.iter().map(Vec::len).sum::<usize>(), 10);
        assert_eq!(derived.waits, [[(0, 3)], [(1, 4)], [(2, 3)]]);
    }

    #[test]
    fn positions_decide_overlap() {
        let region = |lo, hi| Region::new(&[Interval { lo, hi }]).expect("rank 1");
        let append = region(Bound::at_pos(0), Bound::at_pos(1));
        let before = region(Bound::fixed(0), Bound::at_pos(0));
        let upto = region(Bound::fixed(0), Bound::at_pos(1));
        let block = region(Bound::fixed(64), Bound::fixed(128));
        assert!(!overlap(&append, &before, 1000));
        assert!(overlap(&append, &upto, 1000));
        assert!(!overlap(&append, &block, 64) && overlap(&append, &block, 65));
        assert!(!overlap(&before, &block, 65) && overlap(&before, &block, 66));
        let window = region(Bound::behind(9), Bound::at_pos(1));
        let first = region(Bound::fixed(0), Bound::fixed(2));
        assert!(overlap(&window, &first, 1000) && overlap(&window, &append, 1000));
        assert!(!overlap(&window, &region(Bound::fixed(0), Bound::behind(9)), 1000));
    }

    #[test]
    fn a_halo_gets_a_counter_a_producer_or_a_group() {
        let halo: Vec<Vec<u32>> = (0..8u32).map(|i| (i.saturating_sub(1)..=(i + 1).min(7)).collect()).collect();
        let derived = derive(8, &halo);
        for (wait, dependency) in derived.waits.iter().zip(&halo) {
            let total: u32 = wait.iter().map(|(_, threshold)| threshold).sum();
            assert_eq!(total as usize, dependency.len());
        }
    }
}

//! Who gets how much of a phase.

use std::ops::Range;

/// `units` in order, evenly spread.
pub(super) fn even(units: u32, workers: u32) -> Vec<Range<u32>> {
    let cut = |n: u32| (u64::from(units) * u64::from(n) / u64::from(workers.max(1))) as u32;
    (0..workers).map(|n| cut(n)..cut(n + 1)).collect()
}

/// `units` in order; those that do not divide go to the workers with the least load, which grows by `bytes` a unit.
pub(super) fn level(units: u32, load: &mut [u64], bytes: u64) -> Vec<Range<u32>> {
    let workers = load.len().max(1) as u32;
    let mut counts = vec![units / workers; load.len()];
    let mut order: Vec<usize> = (0..load.len()).collect();
    order.sort_by_key(|&worker| load[worker]);
    order.iter().take((units % workers) as usize).for_each(|&worker| counts[worker] += 1);
    let mut next = 0;
    counts
        .iter()
        .zip(load)
        .map(|(&count, load)| {
            *load += u64::from(count) * bytes;
            next += count;
            next - count..next
        })
        .collect()
}

/// The parts moved on by some workers.
pub(super) fn rotated<T>(mut parts: Vec<T>, by: usize) -> Vec<T> {
    let len = parts.len().max(1);
    parts.rotate_right(by % len);
    parts
}

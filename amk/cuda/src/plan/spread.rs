//! Who gets how much of a phase.

use std::ops::Range;

/// `units` in order, evenly spread.
pub fn even(units: u32, workers: u32) -> Vec<Range<u32>> {
    let cut = |n: u32| (u64::from(units) * u64::from(n) / u64::from(workers.max(1))) as u32;
    (0..workers).map(|n| cut(n)..cut(n + 1)).collect()
}

/// `units` in order; those that do not divide go to the first workers of `order`, which has all of
/// them.
pub fn level(units: u32, order: &[usize]) -> Vec<Range<u32>> {
    let workers = order.len().max(1) as u32;
    let mut counts = vec![units / workers; order.len()];
    order.iter().take((units % workers) as usize).for_each(|&worker| counts[worker] += 1);
    let mut next = 0;
    counts
        .into_iter()
        .map(|count| {
            next += count;
            next - count..next
        })
        .collect()
}

/// The parts moved on by some workers.
pub fn rotated<T>(mut parts: Vec<T>, by: usize) -> Vec<T> {
    let len = parts.len().max(1);
    parts.rotate_right(by % len);
    parts
}

//! Measures the memory throughput of this machine.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

/// Minimum number of words that all threads read together, 512 MiB: more than a last-level cache
/// holds, so that they come from memory.
const WORDS: usize = 64 << 20;

/// Words that each thread reads, 64 MiB, more than its share of the cache, as long as all threads
/// together read at most [`MOST_WORDS`].
const WORDS_A_THREAD: usize = 8 << 20;

/// Maximum number of words that all threads read together, 1 GiB: as much as a machine can spare.
const MOST_WORDS: usize = 128 << 20;

/// Passes; the best one counts, since other processes can only slow a pass down.
const PASSES: usize = 5;

/// Returns the rate, in bytes per second, at which `threads` threads read memory together, each
/// reading its own part in order.
pub fn read_bandwidth(threads: usize) -> f64 {
    let threads = threads.max(1);
    let words = words_of_each(threads);
    let barrier = Barrier::new(threads);
    let seconds: Vec<[f64; PASSES]> = std::thread::scope(|scope| {
        let run = || {
            // Not zeros, which may all be one shared page.
            let own = vec![1u64; words];
            core::array::from_fn(|_| {
                barrier.wait();
                let start = Instant::now();
                black_box(sum(black_box(&own)));
                barrier.wait();
                start.elapsed().as_secs_f64()
            })
        };
        let handles: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let own = run();
        handles.into_iter().filter_map(|handle| handle.join().ok()).chain([own]).collect()
    });
    let slowest = |pass: usize| seconds.iter().map(|thread| thread[pass]).fold(0.0, f64::max);
    let best = (0..PASSES).map(slowest).fold(f64::INFINITY, f64::min);
    (threads * words * size_of::<u64>()) as f64 / best
}

/// Returns the number of words that each thread reads.
fn words_of_each(threads: usize) -> usize {
    threads.saturating_mul(WORDS_A_THREAD).clamp(WORDS, MOST_WORDS) / threads
}

/// Sums the words, using the widest registers available.
fn sum(words: &[u64]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { sum_avx2(words) };
    }
    sum_lanes(words)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_avx2(words: &[u64]) -> u64 {
    sum_lanes(words)
}

/// 32 independent sums, which the compiler keeps in vector registers.
#[inline(always)]
fn sum_lanes(words: &[u64]) -> u64 {
    let mut lanes = [0u64; 32];
    let (chunks, rest) = words.as_chunks::<32>();
    for chunk in chunks {
        for (lane, word) in lanes.iter_mut().zip(chunk) {
            *lane = lane.wrapping_add(*word);
        }
    }
    lanes.iter().chain(rest).fold(0, |sum, word| sum.wrapping_add(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_a_gibibyte_at_most() {
        let of = |threads| (words_of_each(threads) * size_of::<u64>()) >> 20;
        assert_eq!([of(1), of(8), of(16), of(256), of(1024)], [512, 64, 64, 4, 1]);
    }

    #[test]
    fn the_sum_reads_every_word() {
        let words: Vec<u64> = (0..1000).collect();
        assert_eq!(sum(&words), 499_500);
    }
}

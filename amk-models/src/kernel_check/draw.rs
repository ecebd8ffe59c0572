//! Random shapes and values, the same for the same seed.

use crate::sampler::philox;

/// A sequence of random numbers.
pub(super) struct Draw {
    seed: u64,
    next: u32,
}

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, next: 0 }
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: u32) -> u32 {
        self.next += 1;
        philox::word(self.seed, 0, self.next) % end.max(1)
    }

    /// Eighths from -2 to 2: bf16 holds them, and f32 the sums of thousands of their products, without rounding.
    pub(super) fn eighths(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| (self.below(33) as f32 - 16.0) / 8.0).collect()
    }
}

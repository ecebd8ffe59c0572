//! Random shapes and values, the same for the same seed.

use amk_run::sampler::philox;

/// A sequence of random numbers.
#[derive(Clone)]
pub(super) struct Draw {
    seed: u64,
    next: u32,
}

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, next: 0 }
    }

    fn word(&mut self) -> u32 {
        self.next += 1;
        philox::word(self.seed, 0, self.next)
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: u32) -> u32 {
        self.word() % end.max(1)
    }

    /// One of these.
    pub(super) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u32) as usize]
    }

    /// A number in `0..1`.
    pub(super) fn unit(&mut self) -> f64 {
        f64::from(self.word()) / 4_294_967_296.0
    }

    /// Eighths from -2 to 2: bf16 holds them, and f32 the sums of thousands of their products,
    /// without rounding.
    pub(super) fn eighths(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| (self.below(33) as f32 - 16.0) / 8.0).collect()
    }

    /// Numbers from -2 to 2 that use all bits of f32.
    pub(super) fn reals(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| (4.0 * self.unit() - 2.0) as f32).collect()
    }

    /// Rounds `value` to one of its two bf16 neighbours at random, more often to the nearer: the
    /// mean is `value`. A bf16 number stays as it is.
    pub(super) fn rounded(&mut self, value: f64) -> f64 {
        if value == 0.0 || !value.is_finite() {
            return value;
        }
        // The exponent of a normal f64; 7 bits follow it in bf16.
        let exponent = (value.to_bits() >> 52 & 0x7ff) as i32 - 1023;
        let unit = f64::from(exponent - 7).exp2();
        let below = (value / unit).floor();
        (below + f64::from(u8::from(self.unit() < value / unit - below))) * unit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    #[test]
    fn rounding_gives_the_neighbours_and_their_mean() {
        let mut draw = Draw::new(1);
        for value in [1.001, -3.7, 1e-5, 255.9] {
            let rounded: Vec<f64> = (0..4000).map(|_| draw.rounded(value)).collect();
            assert!(
                rounded.iter().all(|&x| bf16::from_f64(x).to_f64() == x && (x - value).abs() < value.abs() / 128.0)
            );
            let mean = rounded.iter().sum::<f64>() / 4000.0;
            assert!((mean - value).abs() < value.abs() / 2000.0, "{mean} {value}");
        }
        assert_eq!(draw.rounded(-1.5), -1.5);
    }
}

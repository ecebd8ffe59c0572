//! Options and results of a launch.

use super::extensions::Extensions;
use core::any::Any;
use std::time::Duration;

/// Options of a launch. The default is greedy decoding.
#[derive(Clone, Default, Debug)]
pub struct RunOptions {
    /// Options of the registered choice of tokens, by type; without any it is greedy.
    pub sampling: Extensions,
    /// Tokens that end the launch, at most 8.
    pub stops: Vec<u32>,
    /// Keep the logits of all steps.
    pub logits: bool,
    /// Timeout of the launch; by default 20 s plus 100 ms per step.
    pub deadline: Option<Duration>,
}

impl RunOptions {
    /// Returns the default timeout of a launch. In f32 a step takes tens of milliseconds at far
    /// positions.
    pub(super) fn time_for(&self, steps: u32) -> Duration {
        self.deadline.unwrap_or(Duration::from_secs(20) + steps * Duration::from_millis(100))
    }

    /// The same with options of the registered choice of tokens.
    #[must_use]
    pub fn sampled<T: Any + Clone + core::fmt::Debug + Send + Sync>(mut self, options: T) -> Self {
        self.sampling.set(options);
        self
    }
}

/// The results of a launch.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The token chosen after each step.
    pub tokens: Vec<u32>,
    /// The logits of the step after the last of `tokens`, if the probes left its draw undecided
    /// (`amk_kernels::choose`). The launch ended there.
    pub undecided: Option<Vec<f32>>,
    /// The logits `[steps, VOCAB]`, if requested.
    pub logits: Vec<f32>,
    /// Time of the launch on the device.
    pub time: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_launches_have_more_time_unless_it_is_said() {
        // 8,192 steps of an 8B model in bf16 take 29 s, of SmolLM2 in f32 170 s.
        let options = RunOptions::default();
        assert!(options.time_for(8192) > Duration::from_secs(2 * 170), "{:?}", options.time_for(8192));
        assert!(options.time_for(1) < Duration::from_secs(21));
        let told = RunOptions { deadline: Some(Duration::from_secs(3)), ..options };
        assert_eq!(told.time_for(8192), Duration::from_secs(3));
    }
}

//! Options and results of a launch.

use std::time::Duration;

/// Options of a launch. The default is greedy decoding.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Sampling temperature; 0: greedy.
    pub temperature: f32,
    /// Sample from this many of the likeliest tokens; 0: all.
    pub top_k: u32,
    /// Sample from the likeliest tokens that together reach this probability, among those kept by
    /// `top_k`; 1: all.
    pub top_p: f32,
    /// Sample from the tokens with at least this probability relative to the likeliest; 0: all.
    pub min_p: f32,
    /// Seed of the draws.
    pub seed: u64,
    /// Index of the first draw, which follows the last forced token.
    pub draw: u32,
    /// Tokens that end the launch, at most 8.
    pub stops: Vec<u32>,
    /// Keep the logits of all steps.
    pub logits: bool,
    /// Timeout of the launch; by default 20 s plus 100 ms per step.
    pub deadline: Option<Duration>,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed: 0,
            draw: 0,
            stops: Vec::new(),
            logits: false,
            deadline: None,
        }
    }
}

impl RunOptions {
    /// Returns the default timeout of a launch. In f32 a step takes tens of milliseconds at far
    /// positions.
    pub(super) fn time_for(&self, steps: u32) -> Duration {
        self.deadline.unwrap_or(Duration::from_secs(20) + steps * Duration::from_millis(100))
    }

    /// Whether tokens are filtered before a draw.
    pub fn filters(&self) -> bool {
        self.temperature > 0.0 && (self.top_k > 0 || self.top_p < 1.0 || self.min_p > 0.0)
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

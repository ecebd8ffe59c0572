//! What a launch is asked for and what it gives.

use std::time::Duration;

/// What a launch does besides greedy steps.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// 0: the most likely token; else tokens are drawn at this temperature.
    pub temperature: f32,
    /// Tokens are drawn from this many of the likeliest; 0: from all.
    pub top_k: u32,
    /// Tokens are drawn from the likeliest that together reach this probability, of those that
    /// `top_k` leaves; 1: from all.
    pub top_p: f32,
    /// Tokens are drawn from those with at least this probability relative to the likeliest; 0:
    /// from all.
    pub min_p: f32,
    /// Seed of the draws.
    pub seed: u64,
    /// Number of the first draw, which comes after the last token that is given.
    pub draw: u32,
    /// Tokens that end the launch, at most 8.
    pub stops: Vec<u32>,
    /// Keep the logits of all steps.
    pub logits: bool,
    /// Time after which a launch that has not ended is stopped; by default 20 s, and 100 ms for
    /// every step.
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
    /// How long a launch of so many steps may take. In f32 a step takes tens of milliseconds at far
    /// positions.
    pub(super) fn time_for(&self, steps: u32) -> Duration {
        self.deadline.unwrap_or(Duration::from_secs(20) + steps * Duration::from_millis(100))
    }

    /// Whether tokens are taken out before a draw.
    pub fn filters(&self) -> bool {
        self.temperature > 0.0 && (self.top_k > 0 || self.top_p < 1.0 || self.min_p > 0.0)
    }
}

/// What a launch gave.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The token chosen after each step.
    pub tokens: Vec<u32>,
    /// The logits of the step after the last of `tokens`, where the workers' looks did not decide
    /// its draw (`amk_kernels::choose`): the launch ended there.
    pub undecided: Option<Vec<f32>>,
    /// The logits `[steps, VOCAB]`, where they were asked for.
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

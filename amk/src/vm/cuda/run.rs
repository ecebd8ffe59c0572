//! What a launch is asked for and what it gives.

use std::time::Duration;

/// What a launch does besides greedy steps.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// 0: the most likely token; else tokens are drawn at this temperature.
    pub temperature: f32,
    /// Tokens are drawn from this many of the likeliest; 0: from all.
    pub top_k: u32,
    /// Tokens are drawn from the likeliest that together reach this probability, of those that `top_k` leaves; 1: from all.
    pub top_p: f32,
    /// Tokens are drawn from those with at least this probability relative to the likeliest; 0: from all.
    pub min_p: f32,
    /// Seed of the draws.
    pub seed: u64,
    /// Number of the first draw, which comes after the last token that is given.
    pub draw: u32,
    /// Tokens that end the launch, at most 8.
    pub stops: Vec<u32>,
    /// Keep the logits of all steps.
    pub logits: bool,
    /// Time after which a launch that has not ended is stopped.
    pub deadline: Duration,
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
            deadline: Duration::from_secs(20),
        }
    }
}

impl RunOptions {
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
    /// The logits of the step after the last of `tokens`, where the workers' looks did not decide its draw
    /// ([`super::choose`]): the launch ended there.
    pub undecided: Option<Vec<f32>>,
    /// The logits `[steps, VOCAB]`, where they were asked for.
    pub logits: Vec<f32>,
    /// Time of the launch on the device.
    pub time: Duration,
}

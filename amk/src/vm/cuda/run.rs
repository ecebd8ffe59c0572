//! What a launch is asked for and what it gives.

use std::time::Duration;

/// What a launch does besides greedy steps.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// 0: the most likely token; else tokens are drawn at this temperature.
    pub temperature: f32,
    /// Seed of the draws.
    pub seed: u64,
    /// Tokens that end the launch, at most 8.
    pub stops: Vec<u32>,
    /// Keep the logits of all steps.
    pub logits: bool,
    /// Time after which a launch that has not ended is stopped.
    pub deadline: Duration,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self { temperature: 0.0, seed: 0, stops: Vec::new(), logits: false, deadline: Duration::from_secs(20) }
    }
}

/// What a launch gave.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The token chosen after each step.
    pub tokens: Vec<u32>,
    /// The logits `[steps, VOCAB]`, where they were asked for.
    pub logits: Vec<f32>,
    /// Time of the launch on the device.
    pub time: Duration,
}

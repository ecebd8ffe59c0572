//! How the token after a row is chosen.

use crate::tensor::Token;
use std::sync::Arc;

/// How a token is drawn. The default is greedy decoding.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Draw {
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
    /// Index of the draw: for a launch, of its first draw, which follows the last given token; for
    /// a row, of the row's draw.
    pub draw: u32,
}

impl Default for Draw {
    fn default() -> Self {
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 0, draw: 0 }
    }
}

impl Draw {
    /// Whether tokens are filtered before a draw.
    pub fn filters(&self) -> bool {
        self.temperature > 0.0 && (self.top_k > 0 || self.top_p < 1.0 || self.min_p > 0.0)
    }
}

/// How the token after a row is chosen from its logits. Among equal logits the lowest token wins.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Choice {
    /// The draw.
    pub draw: Draw,
    /// Changes to logits before the draw, in the order of their tokens, at most one per token.
    pub changes: Arc<[LogitChange]>,
}

/// The effect of penalties and biases on the logit of a token.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LogitChange {
    /// The token.
    pub token: Token,
    /// The divisor of a logit of 0 or more, and the factor of a negative one; 1: no effect.
    pub repetition: f32,
    /// Added after that.
    pub penalty: f32,
    /// Added last.
    pub bias: f32,
}

impl LogitChange {
    /// A change that has no effect on the logit.
    pub const fn none(token: Token) -> Self {
        Self { token, repetition: 1.0, penalty: 0.0, bias: 0.0 }
    }

    /// The changed logit. Each operation rounds to f32.
    pub fn of(&self, logit: f32) -> f32 {
        let penalised = if logit < 0.0 { logit * self.repetition } else { logit / self.repetition };
        penalised + self.penalty + self.bias
    }
}

/// The result of a step for a row whose outputs were wanted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Outcome<'v> {
    /// The token that was chosen after it.
    Token(Token),
    /// Its logits `[VOCAB]`, if no token was requested or the VM leaves the choice to its caller.
    Logits(&'v [f32]),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_divides_or_multiplies_and_then_adds() {
        let change = LogitChange { token: Token(3), repetition: 2.0, penalty: -0.5, bias: 3.0 };
        assert_eq!((change.of(4.0), change.of(-4.0)), (4.5, -5.5));
        assert_eq!(LogitChange::none(Token(3)).of(-1.25), -1.25);
    }

    #[test]
    fn greedy_draws_have_no_filters() {
        let filtered = Draw { top_k: 3, ..Draw::default() };
        assert!(!filtered.filters());
        assert!(Draw { temperature: 0.5, ..filtered }.filters());
        assert!(!Draw { temperature: 0.5, ..Draw::default() }.filters());
    }
}

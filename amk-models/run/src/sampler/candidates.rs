//! The tokens still in the race, and the filters that remove tokens.

use std::cmp::Ordering;

/// Tokens that the first pass of top-p sorts; real distributions rarely need more.
const FIRST_PASS: usize = 256;
/// Growth of each further pass.
const PASS_GROWTH: usize = 8;

/// Tokens with the logarithm of their weight relative to the likeliest token:
/// `(logit - highest logit) / temperature`, so at most 0.
pub(super) struct Candidates {
    tokens: Vec<(u32, f32)>,
}

impl Candidates {
    /// All tokens with a finite logit. `likeliest` is one of them and `temperature` is positive.
    pub(super) fn new(logits: &[f32], likeliest: u32, temperature: f32) -> Self {
        let highest = logits[likeliest as usize];
        let weighted = (0..).zip(logits).map(|(id, logit)| (id, (logit - highest) / temperature));
        // A tiny temperature gives the likeliest token 0, not NaN, and every other token -inf,
        // which then never wins.
        Self { tokens: weighted.filter(|(_, log_weight)| !log_weight.is_nan()).collect() }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, f32)> {
        self.tokens.iter().copied()
    }

    /// Keeps the `count` likeliest tokens; 0 keeps all.
    pub(super) fn keep_top_k(&mut self, count: usize) {
        if count > 0 && count < self.tokens.len() {
            self.tokens.select_nth_unstable_by(count - 1, likelier);
            self.tokens.truncate(count);
        }
    }

    /// Keeps the likeliest tokens that together reach `probability` of the total, at least one.
    pub(super) fn keep_top_p(&mut self, probability: f32) {
        if probability >= 1.0 {
            return;
        }
        let wanted =
            f64::from(probability) * self.tokens.iter().map(|&(_, log_weight)| weight(log_weight)).sum::<f64>();
        let mut first = FIRST_PASS;
        loop {
            let sorted = first.min(self.tokens.len());
            if sorted < self.tokens.len() {
                self.tokens.select_nth_unstable_by(sorted, likelier);
            }
            self.tokens[..sorted].sort_unstable_by(likelier);
            let mut reached = 0.0;
            let enough = self.tokens[..sorted].iter().position(|&(_, log_weight)| {
                reached += weight(log_weight);
                reached >= wanted
            });
            if let Some(last) = enough {
                self.tokens.truncate(last + 1);
                return;
            }
            if sorted == self.tokens.len() {
                // Rounding kept the sum just below: all are needed.
                return;
            }
            first *= PASS_GROWTH;
        }
    }

    /// Keeps tokens with at least `share` of the likeliest token's probability.
    pub(super) fn keep_min_p(&mut self, share: f32) {
        if share > 0.0 {
            let lowest = share.ln();
            self.tokens.retain(|&(_, log_weight)| log_weight >= lowest);
        }
    }
}

fn weight(log_weight: f32) -> f64 {
    f64::from(log_weight).exp()
}

/// Likelier tokens first, lower ids first among equals.
pub(super) fn likelier(a: &(u32, f32), b: &(u32, f32)) -> Ordering {
    b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
}

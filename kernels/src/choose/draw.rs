//! How a launch draws its tokens.

use crate::abi::DrawParams;
use amk_cuda::RunOptions;

/// Options of the draws of a launch ([`RunOptions::sampled`]). The default is greedy decoding.
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
    /// Index of the first draw, which follows the last given token.
    pub draw: u32,
}

impl Default for Draw {
    fn default() -> Self {
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 0, draw: 0 }
    }
}

impl Draw {
    /// The options of a launch.
    pub(super) fn of(options: &RunOptions) -> Self {
        options.sampling.get().copied().unwrap_or_default()
    }

    /// Whether tokens are filtered before a draw.
    pub fn filters(&self) -> bool {
        self.temperature > 0.0 && (self.top_k > 0 || self.top_p < 1.0 || self.min_p > 0.0)
    }

    /// The parameters of a launch whose first `forced` tokens are given.
    pub(super) fn params(&self, forced: u32) -> DrawParams {
        let &Self { temperature, top_k, top_p, min_p, seed, draw } = self;
        DrawParams {
            seed,
            inv_temperature: if temperature > 0.0 { 1.0 / temperature } else { 0.0 },
            draw: draw.wrapping_sub(forced.wrapping_sub(1)),
            filter: u32::from(self.filters()),
            top_k,
            top_p,
            min_log: min_p.ln(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_draw_follows_the_last_given_token() {
        let draw = Draw { temperature: 0.5, top_k: 3, draw: 7, ..Draw::default() };
        let params = draw.params(5);
        assert_eq!((params.draw, params.inv_temperature, params.filter), (3, 2.0, 1));
        assert_eq!(Draw::default().params(9).draw, u32::MAX - 7);
        assert_eq!(Draw { temperature: 1.0, ..Draw::default() }.params(1).filter, 0);
    }
}

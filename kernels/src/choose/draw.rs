//! How a launch draws its tokens.

use crate::abi::DrawParams;
use amk::rows::Draw;
use amk_cuda::RunOptions;

/// The options of a launch ([`RunOptions::sampled`]).
pub(super) fn drawn(options: &RunOptions) -> Draw {
    options.sampling.get().copied().unwrap_or_default()
}

/// The parameters of a launch whose first `forced` tokens are given.
pub(super) fn params(draw: &Draw, forced: u32) -> DrawParams {
    let filter = u32::from(draw.filters());
    let &Draw { temperature, top_k, top_p, min_p, seed, draw } = draw;
    DrawParams {
        seed,
        inv_temperature: if temperature > 0.0 { 1.0 / temperature } else { 0.0 },
        draw: draw.wrapping_sub(forced.wrapping_sub(1)),
        filter,
        top_k,
        top_p,
        min_log: min_p.ln(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_draw_follows_the_last_given_token() {
        let draw = Draw { temperature: 0.5, top_k: 3, draw: 7, ..Draw::default() };
        let of_five = params(&draw, 5);
        assert_eq!((of_five.draw, of_five.inv_temperature, of_five.filter), (3, 2.0, 1));
        assert_eq!(params(&Draw::default(), 9).draw, u32::MAX - 7);
        assert_eq!(params(&Draw { temperature: 1.0, ..Draw::default() }, 1).filter, 0);
    }
}

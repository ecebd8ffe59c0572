//! The structs that the choice of rows' tokens shares with its CUDA code, in programs with rows.

use super::draw::params;
use crate::abi::DrawParams;
use amk::rows::{Choice, LogitChange};
use amk_cuda::image::declare::Struct;
use amk_cuda::{Params, device_structs};

device_structs! {
    /// How the token after a row is chosen.
    struct RowChoice {
        /// Its draw.
        draw: DrawParams,
        /// 0: the host chooses by the logits.
        asked: u32,
        /// First of the changes of its logits.
        first_change: u32,
        /// The changes.
        change_count: u32,
        /// Padding, zero.
        reserved: u32,
    }
    /// The effect of penalties and biases on a logit.
    struct LogitWords {
        /// The token.
        token: u32,
        /// A logit of 0 or more is divided by it, a negative one multiplied.
        repetition: f32,
        /// Added then.
        penalty: f32,
        /// Added last.
        bias: f32,
    }
    /// Parameters of the choice of the rows' tokens.
    struct RowParams {
        /// By row of the step `[row_count]`. The changes of all rows follow.
        choices: u64 as "const RowChoice*",
        /// Mapped host memory: the token after each row that asks for one.
        chosen: u64 as "u32*",
    }
}

/// The structs, and those that are parameters of a launch.
pub(crate) const ROWS: (&[Struct], &[Struct]) = STRUCTS.split_at(2);

/// Appends the choices of a step by row, and the changes.
pub(super) fn put_choices(choices: &[Option<&Choice>], to: &mut Params) {
    let mut first_change = 0;
    for choice in choices {
        let Some(Choice { draw, changes }) = choice else {
            to.push(&RowChoice::default());
            continue;
        };
        let (draw, change_count) = (params(draw, 1), changes.len() as u32);
        to.push(&RowChoice { draw, asked: 1, first_change, change_count, reserved: 0 });
        first_change += change_count;
    }
    for &LogitChange { token, repetition, penalty, bias } in choices.iter().flatten().flat_map(|of| &*of.changes) {
        to.push(&LogitWords { token: token.0, repetition, penalty, bias });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amk::Token;
    use amk::rows::Draw;

    #[test]
    fn choices_lie_by_row_and_their_changes_follow() {
        let draw = Draw { temperature: 0.5, seed: 7, draw: 3, ..Draw::default() };
        let change = |token| LogitChange { bias: 2.5, ..LogitChange::none(Token(token)) };
        let of = |changes: &[u32]| Choice { draw, changes: changes.iter().copied().map(change).collect() };
        let (one, other) = (of(&[4, 9]), of(&[5]));
        let mut params = Params::default();
        put_choices(&[Some(&one), None, Some(&other)], &mut params);
        let words = params.words();
        assert_eq!(words.len(), 3 * 12 + 3 * 4);
        let row = |n: usize| &words[12 * n..12 * (n + 1)];
        let ranges = [0, 1, 2].map(|n| (row(n)[8], row(n)[9], row(n)[10]));
        assert_eq!(ranges, [(1, 0, 2), (0, 0, 0), (1, 2, 1)]);
        assert_eq!((row(2)[0], row(2)[2], row(2)[3]), (7, 2.0_f32.to_bits(), 3));
        let tokens: Vec<u32> = words[36..].chunks(4).map(|change| change[0]).collect();
        assert_eq!((tokens, words[39]), (vec![4, 9, 5], 2.5_f32.to_bits()));
    }
}

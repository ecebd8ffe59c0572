//! Choosing a token across workers, each of which holds some rows of the logits.
//!
//! Every worker publishes the [`best`] of its rows, reads all bests and so [`choose`]s the same
//! token. To draw a token with top-k, top-p or min-p, a device searches the logits in rounds in
//! between ([`first_probe`] and [`probe`]). These references choose greedily. Seed, temperature and
//! filters are launch arguments of the device and not part of its program, so here the probes find
//! nothing and their results are unused. In a step of several rows one worker has all logits of a
//! row, and the reference of its choice is [`crate::argmax()`].
//!
//! A tensor stores a token as a number: all integers up to 2^24 are exact in f32. A worker without
//! rows, or with NaNs only, has token infinity.

mod decode;
mod draw;
mod formula;
mod phase;
mod row_abi;
mod rows;

pub use amk::rows::Draw;
pub(crate) use decode::{BEST, CHOOSE, PROBE};
pub use phase::{Best, Choose, Probe};
pub(crate) use phase::{Choice, defines};
pub(crate) use row_abi::ROWS;
pub use rows::ChooseRows;

use amk::prelude::*;

/// Words that a worker publishes along with its best row: its logit, the highest logit, and the
/// probability of all rows relative to the highest.
const SHARES: usize = 3;
/// Levels of a round, and words that a worker publishes for each.
const FOUND: [usize; 2] = [8, 5];
/// Words of a worker's search state after a round.
const SEARCH: usize = 30;
/// Tokens that f32 can represent exactly.
const MOST_TOKENS: usize = 1 << 24;

/// Returns the largest of a worker's logits and its token, the lowest of several. NaNs are never
/// chosen.
///
/// `logits: [N]` f32 of the tokens `first..first + N`; `best: [1, 2]`, the logit and the token;
/// `shares: [1, 3]`, 0 under greedy decoding.
///
/// # Panics
/// If a token is 2^24 or more.
#[instruction(
    op = "best",
    shape = "logits: [N], first: F -> (best: [1, 2], shares: [1, 3])",
    task = "best[.., ..], shares[.., ..] <- logits[..]"
)]
pub fn best(logits: &Tensor, first: usize) -> (Tensor, Tensor) {
    assert!(first + logits.len() <= MOST_TOKENS, "`best` of {} logits from {first} on", logits.len());
    let candidates = logits.data().iter().zip(first..).map(|(&logit, token)| (logit, token as f32));
    let (logit, token) = highest(candidates);
    (row(&[1, 2], vec![logit, token]), row(&[1, SHARES], vec![0.0; SHARES]))
}

/// [`best`] of a worker without rows.
#[instruction(op = "best", shape = "-> (best: [1, 2], shares: [1, 3])", task = "best[.., ..], shares[.., ..] <-")]
pub fn no_best() -> (Tensor, Tensor) {
    best(&Tensor::from([]), 0)
}

/// Runs the first round from the bests of all workers. A greedy choice searches for nothing.
///
/// `logits: [N]`, the worker's rows; `best: [W, 2]`, `shares: [W, 3]` of all workers; `found: [1,
/// 8, 5]`, the result of the round, and `search: [1, 30]`, the worker's search state after it: 0.
#[instruction(
    op = "probe",
    shape = "logits: [N], best: [W, 2], shares: [W, 3] -> (found: [1, 8, 5], search: [1, 30])",
    task = "found[.., .., ..], search[.., ..] <- logits[..], best[.., ..], shares[.., ..]"
)]
pub fn first_probe(logits: &Tensor, best: &Tensor, shares: &Tensor) -> (Tensor, Tensor) {
    nothing(&[logits, best, shares])
}

/// [`first_probe`] of a worker without rows.
#[instruction(
    op = "probe",
    shape = "best: [W, 2], shares: [W, 3] -> (found: [1, 8, 5], search: [1, 30])",
    task = "found[.., .., ..], search[.., ..] <- best[.., ..], shares[.., ..]"
)]
pub fn no_first_probe(best: &Tensor, shares: &Tensor) -> (Tensor, Tensor) {
    nothing(&[best, shares])
}

/// Runs a further round from the results of all workers in the previous one. A greedy choice
/// searches for nothing.
///
/// `logits: [N]`, the worker's rows; `before: [W, 8, 5]`, the results of all workers; `search: [1,
/// 30]`, the worker's search state; `found: [1, 8, 5]`, the result of this round, and `narrowed:
/// [1, 30]`, the search state after it: 0.
#[instruction(
    op = "probe",
    shape = "logits: [N], before: [W, 8, 5], search: [1, 30] -> (found: [1, 8, 5], narrowed: [1, 30])",
    task = "found[.., .., ..], narrowed[.., ..] <- logits[..], before[.., .., ..], search[.., ..]"
)]
pub fn probe(logits: &Tensor, before: &Tensor, search: &Tensor) -> (Tensor, Tensor) {
    nothing(&[logits, before, search])
}

/// [`probe`] of a worker without rows.
#[instruction(
    op = "probe",
    shape = "before: [W, 8, 5], search: [1, 30] -> (found: [1, 8, 5], narrowed: [1, 30])",
    task = "found[.., .., ..], narrowed[.., ..] <- before[.., .., ..], search[.., ..]"
)]
pub fn no_probe(before: &Tensor, search: &Tensor) -> (Tensor, Tensor) {
    nothing(&[before, search])
}

/// Returns the token of the next step: the argmax over the logits of all workers, the lowest of
/// several, or 0 when all logits are NaN.
///
/// `best: [W, 2]` of all workers; `found: [W, 8, 5]` and `search: [1, 30]` of the last round, which
/// a greedy choice does not read.
#[instruction(
    op = "choose",
    shape = "best: [W, 2], found: [W, 8, 5], search: [1, 30] -> token: [1]",
    task = "token[..] <- best[.., ..], found[.., .., ..], search[.., ..]"
)]
pub fn choose(best: &Tensor, found: &Tensor, search: &Tensor) -> Token {
    // Used by draws only.
    let _ = (found, search);
    let (_, token) = highest(best.data().chunks_exact(2).map(|best| (best[0], best[1])));
    Token(if token.is_finite() { token as u32 } else { 0 })
}

/// Returns the candidate with the largest logit, and with the lowest token of several.
fn highest(candidates: impl Iterator<Item = (f32, f32)>) -> (f32, f32) {
    candidates.fold((f32::NEG_INFINITY, f32::INFINITY), |best, next| {
        if next.0 > best.0 || (next.0 == best.0 && next.1 < best.1) { next } else { best }
    })
}

/// Returns the empty result of a round and search state.
fn nothing(_: &[&Tensor]) -> (Tensor, Tensor) {
    let [levels, fields] = FOUND;
    (row(&[1, levels, fields], vec![0.0; levels * fields]), row(&[1, SEARCH], vec![0.0; SEARCH]))
}

/// Builds a tensor with one worker's row.
fn row(shape: &[usize], values: Vec<f32>) -> Tensor {
    Tensor::new(shape, values).unwrap_or_else(|error| panic!("{error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::argmax;
    use proptest::prelude::*;

    /// Returns the token that workers choose when each has some of the rows.
    fn chosen(parts: &[&[f32]]) -> Token {
        let mut first = 0;
        let bests = parts.iter().flat_map(|part| {
            let (best, _) = if part.is_empty() { no_best() } else { best(&Tensor::from(*part), first) };
            first += part.len();
            best.into_vec()
        });
        let bests = row(&[parts.len(), 2], bests.collect());
        let (found, search) = nothing(&[]);
        choose(&bests, &found, &search)
    }

    #[test]
    fn the_lowest_of_several_is_chosen_and_no_number_never() {
        assert_eq!(chosen(&[&[1.0, 3.0], &[f32::NAN, 3.0]]), Token(1));
        assert_eq!(chosen(&[&[f32::NAN], &[], &[f32::NEG_INFINITY, -5.0]]), Token(2));
        assert_eq!(chosen(&[&[f32::NAN], &[]]), Token(0));
    }

    proptest! {
        #[test]
        fn workers_choose_the_argmax(logits in proptest::collection::vec(-3i8..4, 1..40), cut in 0usize..40) {
            let logits: Vec<f32> = logits.into_iter().map(f32::from).collect();
            let (a, b) = logits.split_at(cut.min(logits.len()));
            prop_assert_eq!(chosen(&[a, b]), argmax(&Tensor::from(logits.as_slice())));
        }
    }
}

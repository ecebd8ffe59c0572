//! The choice of a token by several workers, each of which has some rows of the logits.
//!
//! Every worker publishes the [`best`] of its rows, reads everybody's and so [`choose`]s the same
//! token. Between the two a device that draws tokens by top-k, top-p or min-p looks through the
//! logits in rounds, [`first_probe`] and [`probe`]. These references choose greedily: what a draw
//! depends on (seed, temperature and filters) comes with a launch of the device and is not in its
//! program, so here the probes find nothing and nobody reads what they say.
//!
//! A token stands for itself among the numbers of a tensor, in which all integers up to 2^24 are
//! exact. A worker without rows, or without a row that is a number, has token infinity.

mod decode;
mod formula;
mod phase;

pub(crate) use decode::{BEST, CHOOSE, PROBE};
pub(crate) use phase::Choice;
pub use phase::{Best, Choose, Probe};

use amk::prelude::*;

/// What a worker tells of its best row beside it: its logit, the highest logit, and the probability
/// of all rows relative to that.
const SHARES: usize = 3;
/// Levels of a look, and what a worker tells of each.
const FOUND: [usize; 2] = [8, 5];
/// What a worker knows after a look.
const SEARCH: usize = 30;
/// Tokens that f32 tells apart.
const MOST_TOKENS: usize = 1 << 24;

/// The largest of a worker's logits and its token, the lowest of several; elements that are no
/// numbers are never chosen.
///
/// `logits: [N]` f32, of the tokens `first..first + N`; `best: [1, 2]`, the logit and the token;
/// `shares: [1, 3]`, which a greedy choice does not read: 0.
///
/// # Panics
/// When a token is 2^24 or more.
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

/// [`best`] of a worker that has no rows.
#[instruction(op = "best", shape = "-> (best: [1, 2], shares: [1, 3])", task = "best[.., ..], shares[.., ..] <-")]
pub fn no_best() -> (Tensor, Tensor) {
    best(&Tensor::from([]), 0)
}

/// The first look, from what all workers say of their best: greedily there is nothing to look for.
///
/// `logits: [N]`, the worker's rows; `best: [W, 2]`, `shares: [W, 3]` of all workers;
/// `found: [1, 8, 5]`, what the look found, and `search: [1, 30]`, what the worker knows then: 0.
#[instruction(
    op = "probe",
    shape = "logits: [N], best: [W, 2], shares: [W, 3] -> (found: [1, 8, 5], search: [1, 30])",
    task = "found[.., .., ..], search[.., ..] <- logits[..], best[.., ..], shares[.., ..]"
)]
pub fn first_probe(logits: &Tensor, best: &Tensor, shares: &Tensor) -> (Tensor, Tensor) {
    nothing(&[logits, best, shares])
}

/// [`first_probe`] of a worker that has no rows.
#[instruction(
    op = "probe",
    shape = "best: [W, 2], shares: [W, 3] -> (found: [1, 8, 5], search: [1, 30])",
    task = "found[.., .., ..], search[.., ..] <- best[.., ..], shares[.., ..]"
)]
pub fn no_first_probe(best: &Tensor, shares: &Tensor) -> (Tensor, Tensor) {
    nothing(&[best, shares])
}

/// A further look, from what all workers found in the one before: greedily there is nothing to look
/// for.
///
/// `logits: [N]`, the worker's rows; `before: [W, 8, 5]`, what all workers found;
/// `search: [1, 30]`, what this one knew; `found: [1, 8, 5]`, what this look found, and
/// `narrowed: [1, 30]`, what the worker knows then: 0.
#[instruction(
    op = "probe",
    shape = "logits: [N], before: [W, 8, 5], search: [1, 30] -> (found: [1, 8, 5], narrowed: [1, 30])",
    task = "found[.., .., ..], narrowed[.., ..] <- logits[..], before[.., .., ..], search[.., ..]"
)]
pub fn probe(logits: &Tensor, before: &Tensor, search: &Tensor) -> (Tensor, Tensor) {
    nothing(&[logits, before, search])
}

/// [`probe`] of a worker that has no rows.
#[instruction(
    op = "probe",
    shape = "before: [W, 8, 5], search: [1, 30] -> (found: [1, 8, 5], narrowed: [1, 30])",
    task = "found[.., .., ..], narrowed[.., ..] <- before[.., .., ..], search[.., ..]"
)]
pub fn no_probe(before: &Tensor, search: &Tensor) -> (Tensor, Tensor) {
    nothing(&[before, search])
}

/// The token of the next step: that of the largest logit of all workers, the lowest of several; 0
/// where no logit is a number.
///
/// `best: [W, 2]` of all workers; `found: [W, 8, 5]` and `search: [1, 30]` of the last look, which
/// a greedy choice does not read.
#[instruction(
    op = "choose",
    shape = "best: [W, 2], found: [W, 8, 5], search: [1, 30] -> token: [1]",
    task = "token[..] <- best[.., ..], found[.., .., ..], search[.., ..]"
)]
pub fn choose(best: &Tensor, found: &Tensor, search: &Tensor) -> Token {
    // Only a draw needs them.
    let _ = (found, search);
    let (_, token) = highest(best.data().chunks_exact(2).map(|best| (best[0], best[1])));
    Token(if token.is_finite() { token as u32 } else { 0 })
}

/// The candidate with the largest logit; of several that with the lowest token.
fn highest(candidates: impl Iterator<Item = (f32, f32)>) -> (f32, f32) {
    candidates.fold((f32::NEG_INFINITY, f32::INFINITY), |best, next| {
        if next.0 > best.0 || (next.0 == best.0 && next.1 < best.1) { next } else { best }
    })
}

/// What a look at these finds where there is nothing to look for.
fn nothing(_: &[&Tensor]) -> (Tensor, Tensor) {
    let [levels, fields] = FOUND;
    (row(&[1, levels, fields], vec![0.0; levels * fields]), row(&[1, SEARCH], vec![0.0; SEARCH]))
}

/// A worker's row.
fn row(shape: &[usize], values: Vec<f32>) -> Tensor {
    Tensor::new(shape, values).unwrap_or_else(|error| panic!("{error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::argmax;
    use proptest::prelude::*;

    /// The token that workers with some rows each choose.
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

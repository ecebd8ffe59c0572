//! Log-probabilities of tokens under the model's own logits.

use super::candidates::likelier;

/// A token and the logarithm of its probability.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Logprob {
    /// The token.
    pub token: u32,
    /// The natural logarithm of its probability.
    pub logprob: f64,
}

/// The log-probabilities at a position of a text.
#[derive(Clone, PartialEq, Debug)]
pub struct Logprobs {
    /// The chosen token's.
    pub chosen: Logprob,
    /// Of the likeliest tokens, in order.
    pub top: Vec<Logprob>,
}

impl Logprobs {
    /// Of a chosen token and the `top` likeliest ones, by the logits of all tokens, `[vocab]`.
    pub fn new(logits: &[f32], chosen: u32, top: usize) -> Self {
        let softmax = LogSoftmax::new(logits);
        let of = |token: u32| Logprob { token, logprob: softmax.of(logits, token) };
        Self { chosen: of(chosen), top: likeliest(logits, top).into_iter().map(of).collect() }
    }
}

/// The ids of the highest logits, in order; a logit that is not a number is not among them.
fn likeliest(logits: &[f32], count: usize) -> Vec<u32> {
    if count == 0 {
        return Vec::new();
    }
    let mut tokens: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).filter(|(_, logit)| !logit.is_nan()).collect();
    if count < tokens.len() {
        tokens.select_nth_unstable_by(count - 1, likelier);
        tokens.truncate(count);
    }
    tokens.sort_unstable_by(likelier);
    tokens.into_iter().map(|(token, _)| token).collect()
}

/// The part that all log-probabilities of one set of logits share.
pub(crate) struct LogSoftmax {
    highest: f32,
    /// The logarithm of the sum of all weights, with the highest weight 1.
    log_sum: f64,
}

impl LogSoftmax {
    pub(crate) fn new(logits: &[f32]) -> Self {
        let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|logit| f64::from(logit - highest).exp()).sum();
        Self { highest, log_sum: sum.ln() }
    }

    /// The log-probability of a token, `-inf` for one outside the logits.
    pub(crate) fn of(&self, logits: &[f32], token: u32) -> f64 {
        let logit = logits.get(token as usize).copied().unwrap_or(f32::NEG_INFINITY);
        f64::from(logit - self.highest) - self.log_sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logprobs_are_those_of_the_softmax() {
        let logits = [1.0, 3.0, f32::NEG_INFINITY, 3.0, 2.0];
        let log_sum = (1_f64.exp() + 2.0 * 3_f64.exp() + 2_f64.exp()).ln();
        let Logprobs { chosen, top } = Logprobs::new(&logits, 4, 3);
        assert_eq!((chosen.token, top.iter().map(|one| one.token).collect::<Vec<_>>()), (4, vec![1, 3, 4]));
        assert!((chosen.logprob - (2.0 - log_sum)).abs() < 1e-12);
        assert!(top.iter().all(|one| (one.logprob - (f64::from(logits[one.token as usize]) - log_sum)).abs() < 1e-12));
        let all = Logprobs::new(&logits, 2, 9);
        assert_eq!((all.chosen.logprob, all.top.len()), (f64::NEG_INFINITY, 5));
        assert!(Logprobs::new(&logits, 0, 0).top.is_empty());
        assert_eq!(likeliest(&[f32::NAN, -1.0, 0.0], 2), [2, 1]);
    }
}

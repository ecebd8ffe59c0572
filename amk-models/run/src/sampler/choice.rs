//! Choices that a VM can make in place of the sampler.

use super::{Sampler, SamplerConfig};
use amk::Token;
use amk::rows::{Choice, Draw, LogitChange};
use std::collections::BTreeMap;

/// A lower temperature may overflow in f32 where logits are multiplied by its inverse, and is left
/// to the host.
const LEAST_TEMPERATURE: f32 = 1e-20;

impl Sampler {
    /// The choices of the next token after `history` and of those after each token of `draft`, as a
    /// VM makes them ([`amk::rows::RowVm::chooses`]). `None` where only [`Sampler::sample`] can
    /// choose, as in a text of a grammar.
    pub fn choices(&self, history: &[u32], draft: &[u32]) -> Option<Vec<Choice>> {
        let SamplerConfig { temperature, top_k, top_p, min_p, seed, .. } = self.config;
        if self.grammar.is_some() || (temperature > 0.0 && temperature < LEAST_TEMPERATURE) {
            return None;
        }
        let top_k = u32::try_from(top_k).unwrap_or(u32::MAX);
        let choice = |ahead: usize| {
            let step = self.step + ahead as u64;
            let draw = Draw { temperature, top_k, top_p, min_p, seed, draw: u32::try_from(step).ok()? };
            let changes = match self.config.changes_logits() {
                true => changes(&self.config, &[history, &draft[..ahead]].concat(), step),
                false => Vec::new(),
            };
            Some(Choice { draw, changes: changes.into() })
        };
        (0..=draft.len()).map(choice).collect()
    }

    /// Goes on after a token that was chosen by [`Sampler::choices`].
    pub fn take(&mut self, token: Token) -> u32 {
        self.step += 1;
        token.0
    }
}

/// What penalties and biases change after a history whose last `step` tokens were chosen, in the
/// order of the tokens.
pub(super) fn changes(config: &SamplerConfig, history: &[u32], step: u64) -> Vec<LogitChange> {
    let SamplerConfig { repetition_penalty, presence_penalty, frequency_penalty, ref logit_bias, .. } = *config;
    let mut changes: BTreeMap<u32, LogitChange> = BTreeMap::new();
    let mut change = |id: u32, by: &dyn Fn(&mut LogitChange)| {
        by(changes.entry(id).or_insert(LogitChange::none(Token(id))));
    };
    for &id in history.iter().filter(|_| repetition_penalty != 1.0) {
        change(id, &|change| change.repetition = repetition_penalty);
    }
    if presence_penalty != 0.0 || frequency_penalty != 0.0 {
        for (id, count) in counts(chosen(history, step)) {
            change(id, &|change| change.penalty = -(presence_penalty + frequency_penalty * count as f32));
        }
    }
    logit_bias.iter().for_each(|(&id, &bias)| change(id, &|change| change.bias = bias));
    changes.into_values().collect()
}

/// The end of a history that so many choices made.
fn chosen(history: &[u32], choices: u64) -> &[u32] {
    let choices = usize::try_from(choices).unwrap_or(usize::MAX).min(history.len());
    &history[history.len() - choices..]
}

/// How often each token occurs.
fn counts(tokens: &[u32]) -> BTreeMap<u32, u32> {
    tokens.iter().fold(BTreeMap::new(), |mut counts, &token| {
        *counts.entry(token).or_default() += 1;
        counts
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_after_a_draft_count_its_tokens() {
        let config = SamplerConfig { temperature: 0.5, frequency_penalty: 0.5, seed: 9, ..SamplerConfig::default() };
        let sampler = Sampler::after(config, 2).unwrap();
        let choices = sampler.choices(&[7, 4, 4], &[5, 4]).unwrap();
        let draws: Vec<(u32, u64)> = choices.iter().map(|choice| (choice.draw.draw, choice.draw.seed)).collect();
        assert_eq!(draws, [(2, 9), (3, 9), (4, 9)]);
        let penalties = |choice: &Choice| -> Vec<(u32, f32)> {
            choice.changes.iter().map(|change| (change.token.0, change.penalty)).collect()
        };
        assert_eq!(penalties(&choices[0]), [(4, -1.0)], "the prompt's tokens are not penalised");
        assert_eq!(penalties(&choices[2]), [(4, -1.5), (5, -0.5)]);
    }

    #[test]
    fn what_a_vm_cannot_choose_is_left_to_the_sampler() {
        let tiny = SamplerConfig { temperature: 1e-30, ..SamplerConfig::default() };
        assert_eq!(Sampler::new(tiny).unwrap().choices(&[1], &[]), None);
        let greedy = SamplerConfig::default();
        let late = Sampler::after(greedy.clone(), u64::from(u32::MAX)).unwrap();
        assert_eq!(late.choices(&[1], &[2]), None, "the second draw has a number over 32 bits");
        let mut sampler = Sampler::new(greedy).unwrap();
        assert_eq!(sampler.choices(&[1], &[]), Some(vec![Choice::default()]));
        assert_eq!((sampler.take(Token(3)), sampler.step), (3, 1));
    }
}

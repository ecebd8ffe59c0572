//! Choices that a VM can make in place of the sampler.

use super::{Sampler, SamplerConfig};
use amk::Token;
use amk::rows::{Choice, Draw, LogitChange};
use std::sync::Arc;

/// A lower temperature may overflow in f32 when logits are multiplied by its inverse, and is left
/// to the host.
const LEAST_TEMPERATURE: f32 = 1e-20;

impl Sampler {
    /// Returns the choices of the next token after `history` and of those after each token of
    /// `draft`, as a VM makes them ([`amk::rows::RowVm::chooses`]). `None` if only
    /// [`Sampler::sample`] can choose, as in a text with a grammar.
    pub fn choices(&mut self, history: &[u32], draft: &[u32]) -> Option<Vec<Choice>> {
        let SamplerConfig { temperature, top_k, top_p, min_p, seed, .. } = self.config;
        if self.grammar.is_some() || (temperature > 0.0 && temperature < LEAST_TEMPERATURE) {
            return None;
        }
        let top_k = u32::try_from(top_k).unwrap_or(u32::MAX);
        let changes = self.changes_along(history, draft);
        let choice = |(step, changes): (u64, Arc<[LogitChange]>)| {
            let draw = Draw { temperature, top_k, top_p, min_p, seed, draw: u32::try_from(step).ok()? };
            Some(Choice { draw, changes })
        };
        (self.step..).zip(changes).map(choice).collect()
    }

    /// Lists the changes after a history, and after each token of a draft that follows it.
    fn changes_along(&mut self, history: &[u32], draft: &[u32]) -> Vec<Arc<[LogitChange]>> {
        if !self.config.changes_logits() {
            return vec![Arc::default(); draft.len() + 1];
        }
        self.changes.go_on(&self.config, history, self.step);
        let mut lists = vec![self.changes.iter().collect()];
        if !draft.is_empty() {
            let mut ahead = self.changes.clone();
            lists.extend(draft.iter().map(|&token| {
                ahead.choose(&self.config, token);
                ahead.iter().collect()
            }));
        }
        lists
    }

    /// Advances past a token that was chosen by [`Sampler::choices`].
    pub fn take(&mut self, token: Token) -> u32 {
        self.step += 1;
        token.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_after_a_draft_count_its_tokens() {
        let config = SamplerConfig { temperature: 0.5, frequency_penalty: 0.5, seed: 9, ..SamplerConfig::default() };
        let mut sampler = Sampler::after(config, 2).unwrap();
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
        let mut late = Sampler::after(greedy.clone(), u64::from(u32::MAX)).unwrap();
        assert_eq!(late.choices(&[1], &[2]), None, "the second draw has a number over 32 bits");
        let mut sampler = Sampler::new(greedy).unwrap();
        assert_eq!(sampler.choices(&[1], &[]), Some(vec![Choice::default()]));
        assert_eq!((sampler.take(Token(3)), sampler.step), (3, 1));
    }
}

//! Changes to logits by penalties and biases, updated as a text grows: the history is not recounted
//! for each token.

use super::SamplerConfig;
use amk::Token;
use amk::rows::LogitChange;
use std::collections::BTreeMap;

/// The changes after a history.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    history: Vec<u32>,
    /// Tokens at its end that were chosen, not given.
    chosen: usize,
    of: BTreeMap<u32, Change>,
}

#[derive(Clone, Debug)]
struct Change {
    change: LogitChange,
    /// How often the token was chosen.
    count: u32,
}

impl Changes {
    /// Advances to a history whose last `step` tokens were chosen.
    pub(super) fn go_on(&mut self, config: &SamplerConfig, history: &[u32], step: u64) {
        let chosen = usize::try_from(step).unwrap_or(usize::MAX).min(history.len());
        let (given, ran) = (history.len() - chosen, self.history.len());
        if self.of.is_empty() || given != ran - self.chosen || !history.starts_with(&self.history) {
            *self = Self::after(config, &history[..given]);
        }
        for &token in &history[self.history.len()..] {
            self.choose(config, token);
        }
    }

    /// The changes after a prompt.
    fn after(config: &SamplerConfig, prompt: &[u32]) -> Self {
        let mut changes = Self { history: prompt.to_vec(), ..Self::default() };
        for (&id, &bias) in &config.logit_bias {
            changes.entry(id).change.bias = bias;
        }
        for &id in prompt.iter().filter(|_| config.repetition_penalty != 1.0) {
            changes.entry(id).change.repetition = config.repetition_penalty;
        }
        changes
    }

    /// Goes on by a chosen token.
    pub(super) fn choose(&mut self, config: &SamplerConfig, token: u32) {
        let SamplerConfig { repetition_penalty, presence_penalty, frequency_penalty, .. } = *config;
        self.history.push(token);
        self.chosen += 1;
        let (repeats, counts) = (repetition_penalty != 1.0, presence_penalty != 0.0 || frequency_penalty != 0.0);
        if repeats || counts {
            let Change { change, count } = self.entry(token);
            *count += 1;
            change.repetition = repetition_penalty;
            if counts {
                change.penalty = -(presence_penalty + frequency_penalty * *count as f32);
            }
        }
    }

    fn entry(&mut self, id: u32) -> &mut Change {
        self.of.entry(id).or_insert(Change { change: LogitChange::none(Token(id)), count: 0 })
    }

    /// In the order of the tokens, one a token.
    pub(super) fn iter(&self) -> impl Iterator<Item = LogitChange> {
        self.of.values().map(|change| change.change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_that_go_on_are_those_of_the_whole_history() {
        let bias = [(3, 1.5), (9, -2.0)].into();
        let config = SamplerConfig {
            repetition_penalty: 1.5,
            presence_penalty: 0.25,
            frequency_penalty: 0.5,
            logit_bias: bias,
            ..SamplerConfig::default()
        };
        let list = |changes: &Changes| changes.iter().collect::<Vec<_>>();
        let whole = |history: &[u32], step| {
            let mut changes = Changes::default();
            changes.go_on(&config, history, step);
            list(&changes)
        };
        let history = [3, 7, 7, 5, 3, 5, 5];
        let mut growing = Changes::default();
        for (end, step) in [(3, 0), (4, 1), (6, 3), (7, 4), (5, 2)] {
            growing.go_on(&config, &history[..end], step);
            assert_eq!(list(&growing), whole(&history[..end], step), "{end}");
        }
        growing.go_on(&config, &[1, 7, 7, 5, 3], 2);
        assert_eq!(list(&growing), whole(&[1, 7, 7, 5, 3], 2), "another history");
        growing.go_on(&config, &[1, 7, 7, 5, 3], 1);
        assert_eq!(list(&growing), whole(&[1, 7, 7, 5, 3], 1), "another prompt");
        let of = |token| whole(&history, 4).into_iter().find(|change| change.token == Token(token)).unwrap();
        assert_eq!(of(5), LogitChange { token: Token(5), repetition: 1.5, penalty: -1.75, bias: 0.0 });
        assert_eq!(of(7), LogitChange { token: Token(7), repetition: 1.5, penalty: 0.0, bias: 0.0 });
        assert_eq!(of(9), LogitChange { token: Token(9), repetition: 1.0, penalty: 0.0, bias: -2.0 });
        assert_eq!(of(3), LogitChange { token: Token(3), repetition: 1.5, penalty: -0.75, bias: 1.5 });
    }
}

//! From logits to the next token: greedy or random, reproducible by seed.
//!
//! A random choice is a race of exponentials: token `i` with probability `p_i` gets the time
//! `E_i / p_i`, where `E_i` is a standard exponential number, and the first one wins; it is token
//! `i` with probability `p_i`. In logarithms this is one argmax of
//! `logit_i / temperature - ln E_i`, so the choice needs neither a sum nor an order over the
//! vocabulary, and `E_i` depends only on seed, step and `i` ([`philox`]). A device draws the same
//! numbers in whatever place and order it computes them.
//!
//! The filters are the same as in transformers, in the same order: repetition penalty, temperature,
//! top-k, top-p, min-p. The repetition penalty is followed by the biases and penalties of OpenAI's
//! API, and then the mask of a grammar.

mod candidates;
mod changes;
mod choice;
mod logprobs;
pub mod philox;
mod stop;

pub(crate) use logprobs::LogSoftmax;
pub use logprobs::{Logprob, Logprobs};
pub use stop::{StopStrings, Stopped};

use crate::grammar::{Grammar, GrammarError};
use amk::rows::LogitChange;
use amk_models::checkpoint::GenerationDefaults;
use candidates::Candidates;
use changes::Changes;
use std::collections::BTreeMap;

/// How to choose tokens. The default is greedy.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerConfig {
    /// Divides the logits; 0 is greedy.
    pub temperature: f32,
    /// Keeps this many of the likeliest tokens; 0 keeps all.
    pub top_k: usize,
    /// Keeps the likeliest tokens that together reach this probability; 1 keeps all.
    pub top_p: f32,
    /// Keeps tokens with at least this probability relative to the likeliest one; 0 keeps all.
    pub min_p: f32,
    /// Above 1 makes tokens that already occurred less likely: positive logits are divided by it,
    /// negative ones multiplied.
    pub repetition_penalty: f32,
    /// Subtracted from the logits of tokens that were already chosen.
    pub presence_penalty: f32,
    /// Subtracted from the logit of a token for each time that it was chosen.
    pub frequency_penalty: f32,
    /// Added to the logits of tokens.
    pub logit_bias: BTreeMap<u32, f32>,
    /// Same seed, same choices.
    pub seed: u64,
}

impl Default for SamplerConfig {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: BTreeMap::new(),
            seed: 0,
        }
    }
}

/// Temperature if neither the user nor the model sets one: Llama 3's recommendation, as for top-p.
const DEFAULT_TEMPERATURE: f32 = 0.6;
/// Top-p if neither the user nor the model sets the sampling.
const DEFAULT_TOP_P: f32 = 0.9;

impl SamplerConfig {
    /// Returns the settings that a model's author recommends, with this temperature if one is
    /// given. Greedy decoding uses none of the filters.
    pub fn of_model(defaults: &GenerationDefaults, temperature: Option<f32>) -> Self {
        let not_sampled = temperature.is_none() && defaults.do_sample == Some(false);
        let temperature = if not_sampled { Some(0.0) } else { temperature.or(defaults.temperature) };
        let temperature = temperature.unwrap_or(DEFAULT_TEMPERATURE);
        let repetition_penalty = defaults.repetition_penalty.unwrap_or(1.0);
        if temperature == 0.0 {
            return Self { repetition_penalty, ..Self::default() };
        }
        let top_p = if defaults.recommend_sampling() { 1.0 } else { DEFAULT_TOP_P };
        Self {
            temperature,
            top_k: defaults.top_k.unwrap_or(0),
            top_p: defaults.top_p.unwrap_or(top_p),
            min_p: defaults.min_p.unwrap_or(0.0),
            repetition_penalty,
            ..Self::default()
        }
    }

    /// Whether a penalty or a bias changes the logits from which tokens are chosen.
    pub fn changes_logits(&self) -> bool {
        self.repetition_penalty != 1.0
            || self.presence_penalty != 0.0
            || self.frequency_penalty != 0.0
            || !self.logit_bias.is_empty()
    }
}

/// No token can be chosen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SamplerError {
    /// A parameter outside its range.
    #[error("{parameter} is {value}, but must be {range}")]
    Parameter {
        /// Which one.
        parameter: &'static str,
        /// Its value.
        value: f32,
        /// The allowed range.
        range: &'static str,
    },
    /// No logit is a number, so the model's computation went wrong.
    #[error("none of the {count} logits is a finite number")]
    NoFiniteLogit {
        /// How many logits there were.
        count: usize,
    },
    /// The highest logit is infinite: every other token's probability would be 0.
    #[error("the logit of token {token} is infinite")]
    InfiniteLogit {
        /// The token.
        token: u32,
    },
    /// The repetition penalty makes finite logits infinite.
    #[error("a repetition penalty of {penalty:?} makes logits infinite; choose one nearer to 1")]
    Penalty {
        /// The penalty.
        penalty: f32,
    },
    /// The grammar allows no continuation of the text.
    #[error(transparent)]
    Grammar(#[from] GrammarError),
}

/// Chooses token after token.
#[derive(Clone, Debug)]
pub struct Sampler {
    config: SamplerConfig,
    /// The constraint on the text.
    grammar: Option<Grammar>,
    /// Tokens chosen so far: the position in the sequence of random numbers.
    step: u64,
    /// The changes of logits by penalties and biases.
    changes: Changes,
    /// The logits after penalties, biases and mask; empty without any.
    logits: Vec<f32>,
}

impl Sampler {
    /// A sampler at its first step.
    ///
    /// # Errors
    /// [`SamplerError::Parameter`] for a parameter outside its range.
    pub fn new(config: SamplerConfig) -> Result<Self, SamplerError> {
        let check = |parameter, value: f32, holds: bool, range| match holds {
            true => Ok(()),
            false => Err(SamplerError::Parameter { parameter, value, range }),
        };
        let SamplerConfig { temperature, top_p, min_p, repetition_penalty: penalty, .. } = config;
        check("temperature", temperature, temperature.is_finite() && temperature >= 0.0, "a finite number, 0 or more")?;
        check("top-p", top_p, top_p > 0.0 && top_p <= 1.0, "above 0 and at most 1")?;
        check("min-p", min_p, (0.0..=1.0).contains(&min_p), "from 0 to 1")?;
        check("repetition penalty", penalty, penalty.is_finite() && penalty > 0.0, "above 0")?;
        for (name, penalty) in
            [("presence penalty", config.presence_penalty), ("frequency penalty", config.frequency_penalty)]
        {
            check(name, penalty, (-2.0..=2.0).contains(&penalty), "from -2 to 2")?;
        }
        for &bias in config.logit_bias.values() {
            check("logit bias", bias, (-100.0..=100.0).contains(&bias), "from -100 to 100")?;
        }
        Ok(Self { config, grammar: None, step: 0, changes: Changes::default(), logits: Vec::new() })
    }

    /// Returns a sampler that has made `draws` draws: its next draw is the one that a sampler makes
    /// after that many calls of [`Sampler::sample`].
    ///
    /// # Errors
    /// As for [`Sampler::new`].
    pub fn after(config: SamplerConfig, draws: u64) -> Result<Self, SamplerError> {
        Ok(Self { step: draws, ..Self::new(config)? })
    }

    /// Returns the same for a text with a grammar, at its beginning.
    #[must_use]
    pub fn with_grammar(self, grammar: Option<Grammar>) -> Self {
        Self { grammar, ..self }
    }

    /// Whether the grammar allows no more tokens.
    pub fn ended(&self) -> bool {
        self.grammar.as_ref().is_some_and(Grammar::ended)
    }

    /// Returns the next token after `history`, given the `logits` of all tokens, `[vocab]`. The
    /// history is the prompt followed by the tokens that this sampler chose. Among equal logits the
    /// lowest id wins; a logit that is not a number counts as impossible.
    ///
    /// # Errors
    /// [`SamplerError::NoFiniteLogit`], and [`SamplerError::InfiniteLogit`] for one above all
    /// others; [`SamplerError::Penalty`] and [`SamplerError::Grammar`].
    pub fn sample(&mut self, logits: &[f32], history: &[u32]) -> Result<u32, SamplerError> {
        self.change(logits, history)?;
        let drawn = self.draw(if self.logits.is_empty() { logits } else { &self.logits });
        let penalty = self.config.repetition_penalty;
        let token =
            drawn.map_err(|error| if self.overflows(logits) { SamplerError::Penalty { penalty } } else { error })?;
        self.step += 1;
        if let Some(grammar) = &mut self.grammar {
            grammar.take(token)?;
        }
        Ok(token)
    }

    /// Draws by the logits as they are.
    fn draw(&self, logits: &[f32]) -> Result<u32, SamplerError> {
        let likeliest = match largest(logits) {
            Some(token) if logits[token as usize] == f32::INFINITY => {
                return Err(SamplerError::InfiniteLogit { token });
            }
            Some(token) if logits[token as usize].is_finite() => token,
            _ => return Err(SamplerError::NoFiniteLogit { count: logits.len() }),
        };
        if self.config.temperature == 0.0 {
            return Ok(likeliest);
        }
        let mut candidates = Candidates::new(logits, likeliest, self.config.temperature);
        candidates.keep_top_k(self.config.top_k);
        candidates.keep_top_p(self.config.top_p);
        candidates.keep_min_p(self.config.min_p);
        let (seed, step) = (self.config.seed, self.step);
        let times =
            candidates.iter().map(|(id, log_weight)| (id, log_weight - philox::exponential(seed, step, id).ln()));
        Ok(argmax(times).unwrap_or(likeliest))
    }

    /// Applies penalties, biases and the mask to a copy of the logits.
    fn change(&mut self, logits: &[f32], history: &[u32]) -> Result<(), SamplerError> {
        self.logits.clear();
        if self.config.changes_logits() || self.grammar.is_some() {
            self.logits.extend_from_slice(logits);
        }
        if self.config.changes_logits() {
            self.penalise(history);
        }
        match &mut self.grammar {
            Some(grammar) => Ok(grammar.mask(&mut self.logits)?),
            None => Ok(()),
        }
    }

    /// Whether a change makes a finite logit infinite.
    fn overflows(&self, logits: &[f32]) -> bool {
        let finite = |change: &LogitChange| Some(*logits.get(change.token.index())?).filter(|logit| logit.is_finite());
        self.changes.iter().any(|change| finite(&change).is_some_and(|logit| !change.of(logit).is_finite()))
    }

    fn penalise(&mut self, history: &[u32]) {
        self.changes.go_on(&self.config, history, self.step);
        for change in self.changes.iter() {
            if let Some(logit) = self.logits.get_mut(change.token.index()) {
                *logit = change.of(*logit);
            }
        }
    }
}

/// The id of the highest value, like [`argmax`], in lanes that the compiler vectorises.
fn largest(values: &[f32]) -> Option<u32> {
    const LANES: usize = 16;
    let mut top = [f32::NEG_INFINITY; LANES];
    for chunk in values.chunks(LANES) {
        for (top, &value) in top.iter_mut().zip(chunk) {
            *top = if value > *top { value } else { *top };
        }
    }
    let top = top.into_iter().fold(f32::NEG_INFINITY, f32::max);
    match top == f32::NEG_INFINITY {
        true => argmax((0..).zip(values.iter().copied())),
        false => values.iter().position(|&value| value == top).map(|id| id as u32),
    }
}

/// The item with the highest value, the lowest id among equals; NaN is below everything. `None`
/// when there are only NaN.
fn argmax(values: impl Iterator<Item = (u32, f32)>) -> Option<u32> {
    let mut best: Option<(u32, f32)> = None;
    for (id, value) in values {
        let wins = match best {
            None => !value.is_nan(),
            Some((best_id, best_value)) => value > best_value || (value == best_value && id < best_id),
        };
        if wins {
            best = Some((id, value));
        }
    }
    best.map(|(id, _)| id)
}

#[cfg(test)]
#[path = "sampler_tests.rs"]
mod tests;

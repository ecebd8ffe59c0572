//! How tokens are chosen, by the options of a command.

use crate::generate::LineOptions;
use crate::options::seed;
use amk_models::checkpoint::{Checkpoint, GenerationDefaults};
use amk_run::sampler::{Sampler, SamplerConfig};
use anyhow::{Context as _, Result};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};

/// How tokens are chosen.
#[derive(Clone, clap::Args)]
pub(crate) struct SamplingArgs {
    /// Always take the likeliest token, after the penalties.
    #[arg(long, conflicts_with_all = ["temperature", "top_k", "top_p", "min_p"])]
    greedy: bool,
    /// The divisor of the logits; 0 is greedy [default: the model's, else 0.6].
    #[arg(short, long, value_name = "T")]
    temperature: Option<f32>,
    /// Keep this many of the likeliest tokens; 0 keeps all [default: the model's].
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32))]
    top_k: Option<u32>,
    /// Keep the likeliest tokens that together reach this probability [default: the model's; 0.9
    /// where it recommends no sampling].
    #[arg(long, value_name = "P")]
    top_p: Option<f32>,
    /// Keep tokens with this probability relative to the likeliest [default: the model's].
    #[arg(long, value_name = "P")]
    min_p: Option<f32>,
    /// Above 1 makes repetitions less likely [default: the model's].
    #[arg(long, value_name = "F")]
    repetition_penalty: Option<f32>,
    /// Subtracted once from the logit of each token that the text has, from -2 to 2; the prompt
    /// does not count.
    #[arg(long, value_name = "F", default_value_t = 0.0, allow_negative_numbers = true)]
    presence_penalty: f32,
    /// Subtracted from a token's logit for each time that the text has it, from -2 to 2.
    #[arg(long, value_name = "F", default_value_t = 0.0, allow_negative_numbers = true)]
    frequency_penalty: f32,
    /// The same seed gives the same text [default: random, and printed].
    #[arg(long, value_name = "N", value_parser = seed)]
    seed: Option<u64>,
}

impl SamplingArgs {
    /// Refuses options that are out of range for any model.
    pub(crate) fn check(&self) -> Result<()> {
        Sampler::new(self.sampler(&GenerationDefaults::default()))?;
        Ok(())
    }

    /// With options of a line of a file of prompts in place of their own.
    pub(crate) fn with(&self, line: &LineOptions) -> Self {
        Self {
            greedy: self.greedy && line.temperature.is_none(),
            temperature: line.temperature.or(self.temperature),
            top_k: line.top_k.or(self.top_k),
            top_p: line.top_p.or(self.top_p),
            min_p: line.min_p.or(self.min_p),
            repetition_penalty: line.repetition_penalty.or(self.repetition_penalty),
            presence_penalty: line.presence_penalty.unwrap_or(self.presence_penalty),
            frequency_penalty: line.frequency_penalty.unwrap_or(self.frequency_penalty),
            seed: line.seed.or(self.seed),
        }
    }

    /// The way for a checkpoint, and whether its seed is random.
    pub(crate) fn of_checkpoint(&self, checkpoint: &Checkpoint) -> Result<(SamplerConfig, bool)> {
        let mut sampler = self.sampler(&checkpoint.generation);
        let random = self.seed.is_none() && sampler.temperature > 0.0;
        if random {
            sampler.seed = random_seed();
        }
        // The user's options were valid: other errors are the model's.
        Sampler::new(sampler.clone())
            .with_context(|| format!("{}: the model's generation_config.json", checkpoint.path.display()))?;
        Ok((sampler, random))
    }

    fn sampler(&self, defaults: &GenerationDefaults) -> SamplerConfig {
        let own = SamplerConfig::of_model(defaults, if self.greedy { Some(0.0) } else { self.temperature });
        SamplerConfig {
            top_k: self.top_k.map_or(own.top_k, |top_k| top_k as usize),
            top_p: self.top_p.unwrap_or(own.top_p),
            min_p: self.min_p.unwrap_or(own.min_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(own.repetition_penalty),
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            seed: self.seed.unwrap_or(0),
            ..own
        }
    }
}

/// A random seed, short enough to be typed.
fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish() >> 32
}

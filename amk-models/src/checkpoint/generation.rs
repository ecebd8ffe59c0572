//! The generation settings that a checkpoint's author recommends.

use std::path::Path;

use serde_json::{Map, Value};

use crate::config::token_ids;

use super::{CheckpointError, json_error};

/// Recommendations of a checkpoint's author (`generation_config.json`). They affect sampling, not
/// the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationDefaults {
    /// The tokens that end a text.
    pub eos: Vec<u32>,
    /// Whether to sample; greedy otherwise.
    pub do_sample: Option<bool>,
    /// Divides the logits.
    pub temperature: Option<f32>,
    /// The number of likeliest tokens to keep; 0 keeps all.
    pub top_k: Option<usize>,
    /// Probability that the kept tokens must reach.
    pub top_p: Option<f32>,
    /// Probability relative to the likeliest token below which a token is dropped.
    pub min_p: Option<f32>,
    /// Factor against tokens that occurred already.
    pub repetition_penalty: Option<f32>,
    /// Fields that would change a text and are not applied.
    pub left: Vec<&'static str>,
}

/// Fields of `generation_config.json` with which transformers changes a text and which are not
/// applied here, each with the values that have no effect, in addition to null, false and an empty
/// list.
const NOT_APPLIED: [(&str, &[f64]); 17] = [
    ("bad_words_ids", &[]),
    ("begin_suppress_tokens", &[]),
    ("diversity_penalty", &[0.0]),
    ("epsilon_cutoff", &[0.0]),
    ("eta_cutoff", &[0.0]),
    ("exponential_decay_length_penalty", &[]),
    ("forced_bos_token_id", &[]),
    ("forced_eos_token_id", &[]),
    ("guidance_scale", &[1.0]),
    ("min_length", &[0.0]),
    ("min_new_tokens", &[0.0]),
    ("no_repeat_ngram_size", &[0.0]),
    ("num_beams", &[0.0, 1.0]),
    ("penalty_alpha", &[0.0]),
    ("sequence_bias", &[]),
    ("suppress_tokens", &[]),
    ("typical_p", &[1.0]),
];

fn changes_nothing(value: &Value, neutral: &[f64]) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(list) => list.is_empty(),
        Value::Number(number) => number.as_f64().is_some_and(|number| neutral.contains(&number)),
        _ => false,
    }
}

impl GenerationDefaults {
    /// Whether they set the sampling.
    pub fn recommend_sampling(&self) -> bool {
        let Self { temperature, top_k, top_p, min_p, .. } = self;
        top_k.is_some() || [temperature, top_p, min_p].into_iter().any(Option::is_some)
    }

    /// Reads a `generation_config.json`; fields that it does not know control other generation
    /// methods.
    pub(super) fn read(path: &Path, config: &Map<String, Value>) -> Result<Self, CheckpointError> {
        let number = |field: &str, holds: fn(f32) -> bool, range: &str| match config.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_f64().map(|number| number as f32).filter(|number| holds(*number)) {
                Some(number) => Ok(Some(number)),
                None => Err(json_error(path, format!("`{field}` is {value}: expected a number {range}"))),
            },
        };
        let top_k = number("top_k", |top_k| top_k >= 0.0 || top_k == -1.0, "from 0, or -1")?;
        let top_p = number("top_p", |top_p| top_p >= 0.0, "from 0")?;
        let eos = match config.get("eos_token_id") {
            None | Some(Value::Null) => Vec::new(),
            Some(value) => token_ids(value)
                .ok_or_else(|| json_error(path, format!("`eos_token_id` is {value}: expected a token id or a list")))?,
        };
        let do_sample = match config.get("do_sample") {
            None | Some(Value::Null) => None,
            Some(Value::Bool(sampled)) => Some(*sampled),
            Some(value) => return Err(json_error(path, format!("`do_sample` is {value}: expected true or false"))),
        };
        let left = NOT_APPLIED
            .iter()
            .filter(|(field, neutral)| config.get(*field).is_some_and(|value| !changes_nothing(value, neutral)));
        Ok(Self {
            left: left.map(|(field, _)| *field).collect(),
            eos,
            do_sample,
            temperature: number("temperature", |number| number >= 0.0 && number.is_finite(), "from 0")?,
            // -1 means all, as 0 does and as in requests.
            top_k: top_k.map(|top_k| top_k.max(0.0) as usize),
            // As in transformers: 0 keeps only the likeliest, and more than 1 keeps all.
            top_p: top_p.map(|top_p| top_p.clamp(f32::MIN_POSITIVE, 1.0)),
            min_p: number("min_p", |min_p| (0.0..=1.0).contains(&min_p), "from 0 to 1")?,
            repetition_penalty: number(
                "repetition_penalty",
                |penalty| penalty > 0.0 && penalty.is_finite(),
                "above 0",
            )?,
        })
    }
}

//! The generation settings that a checkpoint's author recommends.

use std::path::Path;

use serde_json::{Map, Value};

use crate::config::token_ids;

use super::{CheckpointError, json_error};

/// Recommendations of a checkpoint's author (`generation_config.json`). They steer sampling, not
/// the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationDefaults {
    /// The tokens that end a text.
    pub eos: Vec<u32>,
    /// Whether to sample; greedy otherwise.
    pub do_sample: Option<bool>,
    /// Divides the logits.
    pub temperature: Option<f32>,
    /// How many of the likeliest tokens to keep; 0 keeps all.
    pub top_k: Option<usize>,
    /// Probability that the kept tokens must reach.
    pub top_p: Option<f32>,
    /// Probability relative to the likeliest token below which a token is dropped.
    pub min_p: Option<f32>,
    /// Factor against tokens that occurred already.
    pub repetition_penalty: Option<f32>,
}

impl GenerationDefaults {
    /// Whether they set the sampling.
    pub fn recommend_sampling(&self) -> bool {
        let Self { temperature, top_k, top_p, min_p, .. } = self;
        top_k.is_some() || [temperature, top_p, min_p].into_iter().any(Option::is_some)
    }

    /// Reads a `generation_config.json`; fields it does not know steer other ways of generating and
    /// are left alone.
    pub(super) fn read(path: &Path, config: &Map<String, Value>) -> Result<Self, CheckpointError> {
        let number = |field: &str, lowest: f64| match config.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_f64().filter(|number| *number >= lowest) {
                Some(number) => Ok(Some(number as f32)),
                None => {
                    let least = if lowest > 0.0 { "above 0" } else { "from 0" };
                    Err(json_error(path, format!("`{field}` is {value}: expected a number {least}")))
                }
            },
        };
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
        Ok(Self {
            eos,
            do_sample,
            temperature: number("temperature", 0.0)?,
            top_k: number("top_k", 0.0)?.map(|top_k| top_k as usize),
            top_p: number("top_p", 0.0)?,
            min_p: number("min_p", 0.0)?,
            repetition_penalty: number("repetition_penalty", f64::MIN_POSITIVE)?,
        })
    }
}

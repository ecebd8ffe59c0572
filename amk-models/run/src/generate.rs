//! Text from a model, token by token.

use crate::sampler::{Sampler, SamplerConfig, SamplerError};
use crate::text::{Ended, Generated, Request, See, Text};
use amk::rows::RowsError;
use amk::vm::cpu::{Vm, VmError};
use amk::{Pos, Token};
use amk_cuda as cuda;
use amk_kernels::fused::Draw;
use amk_models::tokenizer::{Tokenizer, TokenizerError};
use std::io;
use std::time::Instant;

/// Computes logits, one step after the other.
pub trait Decoder {
    /// Positions it was made for.
    fn positions(&self) -> usize;

    /// The logits `[VOCAB]` of the token after `token` at position `pos`. Positions are taken in
    /// order from 0.
    ///
    /// # Errors
    /// If the VM fails.
    fn step(&mut self, token: Token, pos: Pos) -> Result<&[f32], DecoderError>;
}

/// The error of a failed VM.
pub type DecoderError = Box<dyn core::error::Error + Send + Sync>;

impl Decoder for Vm {
    fn positions(&self) -> usize {
        self.program().positions as usize
    }

    fn step(&mut self, token: Token, pos: Pos) -> Result<&[f32], DecoderError> {
        let logits = Self::step(self, token, pos).map_err(|error: VmError| Box::new(error))?;
        Ok(logits.data())
    }
}

impl Decoder for cuda::Vm {
    fn positions(&self) -> usize {
        Self::positions(self)
    }

    fn step(&mut self, token: Token, pos: Pos) -> Result<&[f32], DecoderError> {
        Ok(Self::step(self, token.0, pos.0)?)
    }
}

/// The reasons why nothing, or not everything, was generated.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// The prompt is empty.
    #[error("the prompt has no tokens; write a few words")]
    EmptyPrompt,
    /// The prompt is longer than the context.
    #[error(
        "the prompt has {tokens} tokens, but the context has {positions} positions; shorten the \
        prompt or raise --context"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// Positions of the context.
        positions: usize,
    },
    /// The VM failed.
    #[error("the step at position {pos} failed")]
    Decoder {
        /// The position.
        pos: usize,
        /// Why.
        source: DecoderError,
    },
    /// The sequences do not fit in the VM.
    #[error(transparent)]
    Rows(#[from] RowsError),
    /// A step of several sequences failed.
    #[error("a step failed")]
    Step(#[source] DecoderError),
    /// No token could be chosen.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// A token could not be decoded.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The receiver of the text cannot take any more.
    #[error("the text cannot be written")]
    Write(#[source] io::Error),
}

/// Generates text after `prompt`; `see` is called with each piece as soon as its characters are
/// complete.
///
/// # Errors
/// An empty prompt or one longer than the context, a failing VM, logits that are not numbers, and
/// errors of `see`.
pub fn generate(
    decoder: &mut dyn Decoder,
    tokenizer: &Tokenizer,
    prompt: &[u32],
    request: Request,
    see: &mut See<'_>,
) -> Result<Generated, GenerateError> {
    let positions = decoder.positions();
    let (last, before) = checked(prompt, positions)?;
    let mut sampler = request.sampler()?;
    let start = Instant::now();
    for (pos, &token) in before.iter().enumerate() {
        step(decoder, token, pos)?;
    }
    let prompt_time = start.elapsed();
    let (begun, start) = (start, Instant::now());
    let mut history = prompt.to_vec();
    let mut text = Text::new(tokenizer, &request, prompt, 0)?;
    let limit = request.max_tokens.unwrap_or(usize::MAX);
    let mut token = last;
    let full = loop {
        let pos = history.len() - 1;
        if text.ended.is_some() || text.tokens.len() >= limit {
            break Ended::MaxTokens;
        }
        if sampler.ended() {
            break Ended::Grammar;
        }
        if pos >= positions {
            break Ended::ContextFull;
        }
        if Request::is_over(request.max_time, begun) {
            break Ended::MaxTime;
        }
        let logits = step(decoder, token, pos)?;
        token = sampler.sample(logits, &history)?;
        history.push(token);
        text.push(token, logits, see)?;
    };
    let (tokens, ended) = text.finish(see)?;
    let ended = ended.unwrap_or(full);
    let (decoded, decode_time) = (tokens.len(), start.elapsed());
    let (prompt_tokens, prompt_run) = (prompt.len(), before.len());
    let (drafted, accepted) = (0, 0);
    Ok(Generated { tokens, ended, prompt_tokens, prompt_run, prompt_time, decoded, decode_time, drafted, accepted })
}

/// Returns the last token of the prompt and those before it, if the context can hold them: the last
/// one's step yields a new token.
pub(crate) fn checked(prompt: &[u32], positions: usize) -> Result<(u32, &[u32]), GenerateError> {
    let (&last, before) = prompt.split_last().ok_or(GenerateError::EmptyPrompt)?;
    if prompt.len() > positions {
        return Err(GenerateError::PromptTooLong { tokens: prompt.len(), positions });
    }
    Ok((last, before))
}

/// Whether the device chooses the tokens itself, so that one launch generates the whole text.
pub fn on_device(request: &Request) -> bool {
    let Request { sampler, logprobs, grammar, max_time, .. } = request;
    !sampler.changes_logits() && logprobs.is_none() && grammar.is_none() && max_time.is_none()
}

/// Like [`generate`], in one launch: between tokens the host only writes text. [`on_device`] must
/// hold for the request; stop strings end the text, not the launch. The tokens are the same as
/// [`Sampler`] draws from the same logits; if the device's search leaves a draw undecided
/// (`amk_kernels::choose`), it is made here and a new launch continues.
///
/// # Errors
/// As for [`generate`].
pub fn generate_on_device(
    vm: &mut cuda::Vm,
    tokenizer: &Tokenizer,
    prompt: &[u32],
    request: Request,
    see: &mut See<'_>,
) -> Result<Generated, GenerateError> {
    let positions = vm.positions();
    let (_, before) = checked(prompt, positions)?;
    Sampler::new(request.sampler.clone())?;
    let room = positions - prompt.len() + 1;
    let wanted = request.max_tokens.unwrap_or(room).min(room);
    let mut text = Text::new(tokenizer, &request, prompt, before.len())?;
    let start = Instant::now();
    let (mut prompt_time, mut failed) = (None, None);
    // Tokens of the next launch and the position of the first.
    let (mut given, mut pos) = (prompt.to_vec(), 0);
    while text.ended.is_none() && text.tokens.len() < wanted {
        let draws = text.tokens.len();
        let options = run_options(&request.sampler, &request.stop_tokens, draws);
        let steps = u32::try_from(given.len() - 1 + wanted - draws).unwrap_or(u32::MAX);
        let run = vm.run(&given, u32::try_from(pos).unwrap_or(u32::MAX), steps, &options, &mut |token| {
            if text.before == 1 {
                prompt_time = Some(start.elapsed());
            }
            if failed.is_none() {
                failed = text.push(token, &[], see).err();
            }
        });
        let run = run.map_err(|error| GenerateError::Decoder { pos, source: Box::new(error) })?;
        if let Some(error) = failed {
            return Err(error);
        }
        let Some(logits) = run.undecided else { break };
        let mut sampler = Sampler::after(request.sampler.clone(), text.tokens.len() as u64)?;
        let token = sampler.sample(&logits, &[])?;
        pos += run.tokens.len() + 1;
        given = vec![token];
        text.push(token, &logits, see)?;
    }
    let full = if wanted == room { Ended::ContextFull } else { Ended::MaxTokens };
    let (tokens, ended) = text.finish(see)?;
    let prompt_run = if prompt_time.is_some() { before.len() } else { 0 };
    let prompt_time = prompt_time.unwrap_or_default();
    let decode_time = start.elapsed().saturating_sub(prompt_time);
    let (prompt_tokens, decoded, ended) = (prompt.len(), tokens.len(), ended.unwrap_or(full));
    let (drafted, accepted) = (0, 0);
    Ok(Generated { tokens, ended, prompt_tokens, prompt_run, prompt_time, decoded, decode_time, drafted, accepted })
}

/// Options of a launch: `draws` tokens were drawn before it.
fn run_options(sampler: &SamplerConfig, stops: &[u32], draws: usize) -> cuda::RunOptions {
    let draw = Draw {
        temperature: sampler.temperature,
        top_k: u32::try_from(sampler.top_k).unwrap_or(u32::MAX),
        top_p: sampler.top_p,
        min_p: sampler.min_p,
        seed: sampler.seed,
        draw: u32::try_from(draws).unwrap_or(u32::MAX),
    };
    cuda::RunOptions { stops: stops.to_vec(), ..cuda::RunOptions::default() }.sampled(draw)
}

fn step(decoder: &mut dyn Decoder, token: u32, pos: usize) -> Result<&[f32], GenerateError> {
    let at = u32::try_from(pos).unwrap_or(u32::MAX);
    decoder.step(Token(token), Pos(at)).map_err(|source| GenerateError::Decoder { pos, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_a_device_cannot_do_is_left_to_the_host() {
        let with = |sampler| Request { sampler, ..Request::default() };
        let plain = SamplerConfig { temperature: 0.7, top_k: 5, ..SamplerConfig::default() };
        assert!(on_device(&with(plain.clone())));
        assert!(!on_device(&with(SamplerConfig { repetition_penalty: 1.1, ..plain.clone() })));
        assert!(!on_device(&with(SamplerConfig { presence_penalty: 0.5, ..plain.clone() })));
        assert!(!on_device(&with(SamplerConfig { frequency_penalty: -0.5, ..plain.clone() })));
        assert!(!on_device(&with(SamplerConfig { logit_bias: [(3, 1.0)].into(), ..plain.clone() })));
        assert!(!on_device(&Request { logprobs: Some(0), ..with(plain.clone()) }));
        assert!(!on_device(&Request { max_time: Some(Duration::from_secs(1)), ..with(plain) }));
    }
}

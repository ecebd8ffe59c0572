//! Text from a model, token by token.

use crate::sampler::{Sampler, SamplerConfig, SamplerError, StopStrings};
use crate::tokenizer::{Tokenizer, TokenizerError};
use amk::vm::cpu::{Vm, VmError};
use amk::vm::cuda;
use amk::{Pos, Token};
use std::time::{Duration, Instant};

/// Computes logits, one step after the other.
pub trait Decoder {
    /// Positions it was made for.
    fn positions(&self) -> usize;

    /// The logits `[VOCAB]` of the token after `token` at position `pos`. Positions are taken in order from 0.
    ///
    /// # Errors
    /// When the VM fails.
    fn step(&mut self, token: Token, pos: Pos) -> Result<&[f32], DecoderError>;
}

/// Why a VM failed.
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

/// What to generate.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// How tokens are chosen.
    pub sampler: SamplerConfig,
    /// New tokens at most; `None`: up to the end of the context.
    pub max_tokens: Option<usize>,
    /// Token ids that end the text.
    pub stop_tokens: Vec<u32>,
    /// Strings that end the text.
    pub stop_strings: Vec<String>,
}

/// Why a text ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// A stop token came.
    StopToken,
    /// A stop string came.
    StopString,
    /// The requested number of tokens is there.
    MaxTokens,
    /// The context is full.
    ContextFull,
}

/// What was generated, and how fast.
#[derive(Clone, Debug)]
pub struct Generated {
    /// The new tokens, without the stop token.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub ended: Ended,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Time for the prompt.
    pub prompt_time: Duration,
    /// Time for the new tokens.
    pub decode_time: Duration,
}

impl Generated {
    /// New tokens a second.
    pub fn tokens_per_second(&self) -> f64 {
        self.tokens.len() as f64 / self.decode_time.as_secs_f64().max(1e-9)
    }
}

/// Why nothing, or not all, was generated.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// There is nothing to go on from.
    #[error("the prompt has no tokens; write a few words")]
    EmptyPrompt,
    /// The prompt fills the context.
    #[error(
        "the prompt has {tokens} tokens, but the context has {positions} positions and one is needed for the answer; \
         shorten the prompt or raise --context"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// Positions of the context.
        positions: usize,
    },
    /// The VM failed.
    #[error("the step at position {pos} failed: {source}")]
    Decoder {
        /// The position.
        pos: usize,
        /// Why.
        source: DecoderError,
    },
    /// No token could be chosen.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// A token could not be decoded.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
}

/// Generates text after `prompt`; `see` gets it piece by piece, each as soon as its characters are complete.
///
/// # Errors
/// An empty prompt or one that fills the context; a failing VM; logits that are no numbers.
pub fn generate(
    decoder: &mut dyn Decoder,
    tokenizer: &Tokenizer,
    prompt: &[u32],
    request: Request,
    see: &mut dyn FnMut(&str),
) -> Result<Generated, GenerateError> {
    let positions = decoder.positions();
    let (&last, before) = prompt.split_last().ok_or(GenerateError::EmptyPrompt)?;
    if prompt.len() >= positions {
        return Err(GenerateError::PromptTooLong { tokens: prompt.len(), positions });
    }
    let mut sampler = Sampler::new(request.sampler)?;
    let start = Instant::now();
    for (pos, &token) in before.iter().enumerate() {
        step(decoder, token, pos)?;
    }
    let prompt_time = start.elapsed();
    let start = Instant::now();
    let mut history = prompt.to_vec();
    let mut stream = tokenizer.stream();
    let mut stops = StopStrings::new(request.stop_strings);
    let limit = request.max_tokens.unwrap_or(usize::MAX);
    let mut token = last;
    let ended = loop {
        if history.len() - prompt.len() >= limit {
            break Ended::MaxTokens;
        }
        let pos = history.len() - 1;
        if pos >= positions {
            break Ended::ContextFull;
        }
        token = sampler.sample(step(decoder, token, pos)?, &history)?;
        if request.stop_tokens.contains(&token) {
            break Ended::StopToken;
        }
        history.push(token);
        let piece = stops.push(&stream.push(token)?);
        see(&piece.text);
        if piece.stopped {
            break Ended::StopString;
        }
    };
    if ended != Ended::StopString {
        let rest = stops.push(&stream.finish()?);
        see(&rest.text);
        if !rest.stopped {
            see(&stops.finish());
        }
    }
    let tokens = history.split_off(prompt.len());
    Ok(Generated { tokens, ended, prompt_tokens: prompt.len(), prompt_time, decode_time: start.elapsed() })
}

/// Whether the device chooses such tokens itself, so that one launch makes the whole text.
pub fn on_device(sampler: &SamplerConfig) -> bool {
    sampler.top_k == 0 && sampler.top_p == 1.0 && sampler.min_p == 0.0 && sampler.repetition_penalty == 1.0
}

/// As [`generate`], in one launch: the host does nothing between tokens but write them. The sampler must be one for which
/// [`on_device`] holds; stop strings end what is seen, not the launch.
///
/// # Errors
/// As [`generate`].
pub fn generate_on_device(
    vm: &mut cuda::Vm,
    tokenizer: &Tokenizer,
    prompt: &[u32],
    request: Request,
    see: &mut dyn FnMut(&str),
) -> Result<Generated, GenerateError> {
    let positions = vm.positions();
    if prompt.is_empty() {
        return Err(GenerateError::EmptyPrompt);
    }
    if prompt.len() >= positions {
        return Err(GenerateError::PromptTooLong { tokens: prompt.len(), positions });
    }
    let room = positions - prompt.len() + 1;
    let wanted = request.max_tokens.unwrap_or(room).min(room);
    let steps = prompt.len() - 1 + wanted;
    let options = cuda::RunOptions {
        temperature: request.sampler.temperature,
        seed: request.sampler.seed,
        stops: request.stop_tokens.clone(),
        ..cuda::RunOptions::default()
    };
    let mut text = Text::new(tokenizer, request.stop_strings, request.stop_tokens, prompt.len() - 1);
    let count = u32::try_from(steps).unwrap_or(u32::MAX);
    let start = Instant::now();
    let mut prompt_time = None;
    let run = vm.run(prompt, 0, count, &options, &mut |token| {
        text.push(token, see);
        if text.before == 0 {
            prompt_time.get_or_insert_with(|| start.elapsed());
        }
    });
    run.map_err(|error| GenerateError::Decoder { pos: prompt.len() - 1, source: Box::new(error) })?;
    let full = if wanted == room { Ended::ContextFull } else { Ended::MaxTokens };
    let (tokens, ended) = text.finish(see)?;
    let prompt_time = prompt_time.unwrap_or_default();
    let decode_time = start.elapsed().saturating_sub(prompt_time);
    Ok(Generated { tokens, ended: ended.unwrap_or(full), prompt_tokens: prompt.len(), prompt_time, decode_time })
}

/// The text of tokens that a device makes.
struct Text<'t> {
    stream: crate::tokenizer::TokenStream<'t>,
    stops: StopStrings,
    stop_tokens: Vec<u32>,
    /// Steps of the prompt that are still to come; what they choose is not part of the text.
    before: usize,
    tokens: Vec<u32>,
    ended: Option<Ended>,
    failed: Option<TokenizerError>,
}

impl<'t> Text<'t> {
    fn new(tokenizer: &'t Tokenizer, stops: Vec<String>, stop_tokens: Vec<u32>, before: usize) -> Self {
        let stops = StopStrings::new(stops);
        Self { stream: tokenizer.stream(), stops, stop_tokens, before, tokens: Vec::new(), ended: None, failed: None }
    }

    fn push(&mut self, token: u32, see: &mut dyn FnMut(&str)) {
        if self.before > 0 {
            self.before -= 1;
            return;
        }
        if self.ended.is_some() {
            return;
        }
        if self.stop_tokens.contains(&token) {
            self.ended = Some(Ended::StopToken);
            return;
        }
        self.tokens.push(token);
        match self.stream.push(token) {
            Ok(piece) => {
                let piece = self.stops.push(&piece);
                see(&piece.text);
                if piece.stopped {
                    self.ended = Some(Ended::StopString);
                }
            }
            Err(error) => self.failed = Some(error),
        }
    }

    fn finish(mut self, see: &mut dyn FnMut(&str)) -> Result<(Vec<u32>, Option<Ended>), GenerateError> {
        if let Some(error) = self.failed {
            return Err(error.into());
        }
        if self.ended != Some(Ended::StopString) {
            let rest = self.stops.push(&self.stream.finish()?);
            see(&rest.text);
            if !rest.stopped {
                see(&self.stops.finish());
            }
        }
        Ok((self.tokens, self.ended))
    }
}

fn step(decoder: &mut dyn Decoder, token: u32, pos: usize) -> Result<&[f32], GenerateError> {
    let at = u32::try_from(pos).unwrap_or(u32::MAX);
    decoder.step(Token(token), Pos(at)).map_err(|source| GenerateError::Decoder { pos, source })
}

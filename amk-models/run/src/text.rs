//! Requests for text, and the text of new tokens.

use crate::generate::GenerateError;
use crate::grammar::Grammar;
use crate::sampler::{Logprobs, Sampler, SamplerConfig, SamplerError, StopStrings, Stopped};
use amk_models::tokenizer::{Tokenizer, TokenizerError};
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

/// Guesses of the next tokens. They affect only the speed, not the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Speculate {
    /// None.
    #[default]
    Never,
    /// The tokens that followed the same few tokens earlier in the prompt or the text.
    Lookup,
    /// A small model with the same vocabulary: [`crate::batch::Batch::with_drafter`].
    Model,
}

/// A request for text.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// How tokens are chosen.
    pub sampler: SamplerConfig,
    /// Maximum number of new tokens; `None`: up to the end of the context.
    pub max_tokens: Option<usize>,
    /// Maximum time for the text, from the first step of its prompt.
    pub max_time: Option<Duration>,
    /// Token ids that end the text.
    pub stop_tokens: Vec<u32>,
    /// Strings that end the text.
    pub stop_strings: Vec<String>,
    /// Whether likely next tokens are guessed and checked together.
    pub speculate: Speculate,
    /// Whether special tokens are part of the visible text, including the one that ends it.
    pub show_special: bool,
    /// Whether the log-probability of each token comes with its text, together with this many
    /// of the likeliest tokens.
    pub logprobs: Option<usize>,
    /// The constraint on the text.
    pub grammar: Option<Grammar>,
    /// Whether the text continues its prompt, so that a space at its beginning counts. An
    /// answer is a text of its own. A text with a grammar contains everything that the grammar
    /// requires.
    pub continues: bool,
}

impl Request {
    /// The way in which the text's tokens are chosen.
    ///
    /// # Errors
    /// [`SamplerError::Parameter`].
    pub fn sampler(&self) -> Result<Sampler, SamplerError> {
        Ok(Sampler::new(self.sampler.clone())?.with_grammar(self.grammar.clone()))
    }

    /// Whether the maximum time of a text that began at `start` is over.
    pub(crate) fn is_over(max_time: Option<Duration>, start: Instant) -> bool {
        max_time.is_some_and(|most| start.elapsed() >= most)
    }

    /// The request for text number `number` of several: with a seed of its own.
    #[must_use]
    pub fn numbered(&self, number: u64) -> Self {
        let sampler = SamplerConfig { seed: self.sampler.seed.wrapping_add(number), ..self.sampler.clone() };
        Self { sampler, ..self.clone() }
    }
}

/// The reason why a text ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// A stop token came.
    StopToken,
    /// A stop string came.
    StopString,
    /// The grammar allows no more.
    Grammar,
    /// The requested number of tokens is there.
    MaxTokens,
    /// Its time is over.
    MaxTime,
    /// The context is full.
    ContextFull,
}

/// Generated text, and the speed.
#[derive(Clone, Debug)]
pub struct Generated {
    /// The new tokens, without the stop token.
    pub tokens: Vec<u32>,
    /// The reason why it ended.
    pub ended: Ended,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the prompt that ran in `prompt_time`.
    pub prompt_run: usize,
    /// Time for them.
    pub prompt_time: Duration,
    /// New tokens that were chosen in `decode_time`.
    pub decoded: usize,
    /// Time for them.
    pub decode_time: Duration,
    /// Tokens that were guessed.
    pub drafted: usize,
    /// Guesses that were right.
    pub accepted: usize,
}

impl Generated {
    /// Prompt tokens per second; `None` if none was timed.
    pub fn prompt_tokens_per_second(&self) -> Option<f64> {
        rate(self.prompt_run, self.prompt_time)
    }

    /// New tokens per second; `None` if there are none.
    pub fn tokens_per_second(&self) -> Option<f64> {
        rate(self.decoded, self.decode_time)
    }
}

fn rate(count: usize, time: Duration) -> Option<f64> {
    (count > 0).then(|| count as f64 / time.as_secs_f64().max(1e-9))
}

/// A piece of a text.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'p> {
    /// The text that follows the previous pieces.
    pub text: &'p str,
    /// The log-probabilities of the tokens whose text begins in it, if requested. A partial
    /// character begins where the whole character does.
    pub logprobs: &'p [PlacedLogprobs],
}

/// The log-probabilities of a token of a text.
#[derive(Clone, PartialEq, Debug)]
pub struct PlacedLogprobs {
    /// Characters of the text before it.
    pub offset: usize,
    /// Those of the token and of the likeliest tokens in its place.
    pub logprobs: Logprobs,
}

/// Receives new text. An error ends the generation.
pub type See<'s> = dyn FnMut(Piece<'_>) -> io::Result<()> + 's;

/// The text of new tokens, up to a stop.
pub(crate) struct Text<'t> {
    tokenizer: &'t Tokenizer,
    stream: amk_models::tokenizer::TokenStream<'t>,
    show_special: bool,
    stops: StopStrings,
    stop_tokens: Vec<u32>,
    /// Remaining steps of the prompt; their choices are not part of the text.
    pub(crate) before: usize,
    pub(crate) tokens: Vec<u32>,
    /// The last tokens taken, whose text has not been written.
    unwritten: VecDeque<u32>,
    pub(crate) ended: Option<Ended>,
    /// How many log-probabilities are wanted of each token.
    top: Option<usize>,
    unseen: Unseen,
}

/// Log-probabilities of tokens whose text has not been seen yet.
#[derive(Default)]
struct Unseen {
    tokens: VecDeque<PlacedLogprobs>,
    /// How many of them have their offsets: the text of the others is not complete.
    placed: usize,
    /// The last tokens of the text, which is not complete.
    incomplete: Vec<u32>,
    /// Characters of the text, those that may begin a stop string too.
    complete: usize,
    /// Characters that have been seen.
    seen: usize,
}

impl Unseen {
    /// The text of the incomplete tokens is complete.
    fn place(&mut self, text: &str, tokenizer: &Tokenizer, special: bool) -> Result<(), TokenizerError> {
        let incomplete = core::mem::take(&mut self.incomplete);
        if self.placed < self.tokens.len() {
            let beginnings = beginnings(&incomplete, text, tokenizer, special)?;
            for (token, beginning) in self.tokens.iter_mut().skip(self.placed).zip(beginnings) {
                token.offset = self.complete + beginning;
                self.placed += 1;
            }
        }
        self.complete += text.chars().count();
        Ok(())
    }

    /// Gives out text, with the tokens that begin in it.
    fn show(&mut self, text: &str, see: &mut See<'_>) -> Result<(), GenerateError> {
        self.seen += text.chars().count();
        let begun = self.tokens.partition_point(|token| token.offset < self.seen);
        self.give(text, begun, see)
    }

    /// Gives out text with this many tokens.
    fn give(&mut self, text: &str, tokens: usize, see: &mut See<'_>) -> Result<(), GenerateError> {
        let logprobs: Vec<PlacedLogprobs> = self.tokens.drain(..tokens).collect();
        self.placed = self.placed.saturating_sub(tokens);
        see(Piece { text, logprobs: &logprobs }).map_err(GenerateError::Write)
    }
}

impl<'t> Text<'t> {
    /// Starts the text after a prompt of which `before` steps remain.
    pub(crate) fn new(
        tokenizer: &'t Tokenizer,
        request: &Request,
        prompt: &[u32],
        before: usize,
    ) -> Result<Self, TokenizerError> {
        let show_special = request.show_special;
        let stream = if show_special { tokenizer.stream().with_special() } else { tokenizer.stream() };
        let continues = request.continues || request.grammar.is_some();
        Ok(Self {
            tokenizer,
            stream: if continues { stream.after(prompt)? } else { stream },
            show_special,
            stops: StopStrings::new(request.stop_strings.iter().cloned()),
            stop_tokens: request.stop_tokens.clone(),
            before,
            tokens: Vec::new(),
            unwritten: VecDeque::new(),
            ended: None,
            top: request.logprobs,
            unseen: Unseen::default(),
        })
    }

    /// Whether the logits of its tokens are read.
    pub(crate) fn reads_logits(&self) -> bool {
        self.top.is_some()
    }

    /// Whether its text can be written after the next token has been chosen, because it cannot end
    /// the text.
    pub(crate) fn can_wait(&self) -> bool {
        self.stops.is_empty() && !self.reads_logits()
    }

    /// Takes a token that was chosen by these logits, which are read for log-probabilities only,
    /// and writes its text.
    pub(crate) fn push(&mut self, token: u32, logits: &[f32], see: &mut See<'_>) -> Result<(), GenerateError> {
        self.take(token, logits);
        self.write(see)
    }

    /// Takes a token as [`Self::push`]; its text is to be written.
    pub(crate) fn take(&mut self, token: u32, logits: &[f32]) {
        if self.before > 0 {
            self.before -= 1;
        } else if self.ended.is_none() && self.stop_tokens.contains(&token) {
            self.ended = Some(Ended::StopToken);
            if self.show_special {
                self.unwritten.push_back(token);
            }
        } else if self.ended.is_none() {
            self.tokens.push(token);
            self.unwritten.push_back(token);
            if let Some(top) = self.top {
                let logprobs = Logprobs::new(logits, token, top);
                self.unseen.tokens.push_back(PlacedLogprobs { offset: self.unseen.complete, logprobs });
            }
        }
    }

    /// Writes the text of the tokens that were taken.
    pub(crate) fn write(&mut self, see: &mut See<'_>) -> Result<(), GenerateError> {
        while let Some(token) = self.unwritten.pop_front() {
            let text = self.stream.push(token)?;
            self.unseen.incomplete.push(token);
            if !text.is_empty() {
                self.unseen.place(&text, self.tokenizer, self.show_special)?;
            }
            let piece = self.stops.push(&text);
            if piece.stopped {
                self.ended.get_or_insert(Ended::StopString);
            }
            self.unseen.show(&piece.text, see)?;
        }
        Ok(())
    }

    pub(crate) fn finish(mut self, see: &mut See<'_>) -> Result<(Vec<u32>, Option<Ended>), GenerateError> {
        self.write(see)?;
        if self.ended != Some(Ended::StopString) {
            let last = self.stream.finish()?;
            self.unseen.place(&last, self.tokenizer, self.show_special)?;
            let Stopped { mut text, stopped } = self.stops.push(&last);
            if stopped {
                self.ended = Some(Ended::StopString);
                self.unseen.show(&text, see)?;
            } else {
                // The last tokens may have no text.
                text.push_str(&self.stops.finish());
                self.unseen.give(&text, self.unseen.tokens.len(), see)?;
            }
        }
        Ok((self.tokens, self.ended))
    }
}

/// The number of characters of a text before each of its tokens. A partial character begins where
/// the whole character does.
fn beginnings(tokens: &[u32], text: &str, tokenizer: &Tokenizer, special: bool) -> Result<Vec<usize>, TokenizerError> {
    if tokens.len() < 2 {
        return Ok(vec![0; tokens.len()]);
    }
    let (mut bytes, mut starts) = (Vec::new(), Vec::new());
    for &token in tokens {
        starts.push(bytes.len());
        // Twice, because a decoder leaves out a space at the beginning.
        if special || !tokenizer.decode(&[token, token])?.is_empty() {
            bytes.extend(tokenizer.bytes(token)?);
        }
    }
    let characters = character_starts(&bytes);
    // From the end, because of such a space.
    let from_end = |start: usize| {
        let before = characters.partition_point(|&character| character < start);
        let inside = start < bytes.len() && characters.get(before) != Some(&start);
        characters.len() - before + usize::from(inside)
    };
    let count = text.chars().count();
    let mut beginnings: Vec<usize> = starts.into_iter().map(|start| count.saturating_sub(from_end(start))).collect();
    beginnings[0] = 0;
    Ok(beginnings)
}

/// Where characters begin in bytes, and incomplete ones.
fn character_starts(bytes: &[u8]) -> Vec<usize> {
    let (mut starts, mut at) = (Vec::new(), 0);
    for chunk in bytes.utf8_chunks() {
        starts.extend(chunk.valid().char_indices().map(|(character, _)| at + character));
        at += chunk.valid().len();
        starts.extend((!chunk.invalid().is_empty()).then_some(at));
        at += chunk.invalid().len();
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::path::Path;

    #[test]
    fn rates_are_those_of_the_steps_that_were_timed() {
        let of = |prompt_run, tokens: usize| Generated {
            tokens: vec![0; tokens],
            ended: Ended::MaxTokens,
            prompt_tokens: prompt_run + 1,
            prompt_run,
            prompt_time: Duration::from_secs(2),
            decoded: tokens,
            decode_time: Duration::from_secs(4),
            drafted: 0,
            accepted: 0,
        };
        let rates = |of: Generated| (of.prompt_tokens_per_second(), of.tokens_per_second());
        assert_eq!(rates(of(4, 2)), (Some(2.0), Some(0.5)));
        assert_eq!(rates(of(0, 0)), (None, None));
    }

    /// Tokens of bytes: parts of characters, and letters.
    const D2: u32 = 0;
    const X15: u32 = 1;
    const F7: u32 = 2;
    const W: u32 = 3;
    const U: u32 = 4;
    /// A euro sign, in three parts.
    const EURO: [u32; 3] = [5, 6, 7];
    /// It has no text.
    const TURN: u32 = 8;

    fn tokenizer() -> Tokenizer {
        let names = ["\u{d2}", "\u{115}", "\u{f7}", "W", "u", "\u{e2}", "\u{124}", "\u{ac}"];
        let vocab: BTreeMap<&str, usize> = names.into_iter().zip(0..).collect();
        let json = serde_json::json!({
            "version": "1.0", "added_tokens": [{ "id": TURN, "content": "<turn>", "special": true, "normalized": false,
                "single_word": false, "lstrip": false, "rstrip": false }],
            "decoder": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true },
            "model": { "type": "WordLevel", "vocab": vocab, "unk_token": "" },
        });
        Tokenizer::from_json(Path::new("tokenizer.json"), json.to_string().as_bytes()).unwrap()
    }

    /// The text of some tokens up to a stop string, their offsets in it, and why it ended.
    fn written(stop: &str, tokens: &[u32]) -> (String, Vec<(usize, u32)>, Option<Ended>) {
        let tokenizer = tokenizer();
        let request = Request { stop_strings: vec![stop.to_owned()], logprobs: Some(0), ..Request::default() };
        let mut text = Text::new(&tokenizer, &request, &[], 0).unwrap();
        let (mut seen, mut offsets) = (String::new(), Vec::new());
        let mut see = |piece: Piece<'_>| {
            seen.push_str(piece.text);
            offsets.extend(piece.logprobs.iter().map(|token| (token.offset, token.logprobs.chosen.token)));
            Ok(())
        };
        tokens.iter().try_for_each(|&token| text.push(token, &[0.0; 9], &mut see)).unwrap();
        let (_, ended) = text.finish(&mut see).unwrap();
        (seen, offsets, ended)
    }

    #[test]
    fn tokens_begin_where_their_text_does_and_parts_where_their_character_does() {
        let [first, second, third] = EURO;
        let offsets = |tokens: &[u32]| written("", tokens).1.into_iter().map(|(offset, _)| offset).collect::<Vec<_>>();
        assert_eq!(offsets(&[W, D2, X15, F7, W, U]), [0, 1, 2, 3, 4, 5]);
        assert_eq!(offsets(&[W, first, second, third, U]), [0, 1, 1, 1, 2]);
        assert_eq!(offsets(&[first, second, W]), [0, 0, 1]);
        assert_eq!(offsets(&[D2, TURN, X15]), [0, 1, 1]);
        assert_eq!(offsets(&[W, D2, D2, first, second]), [0, 1, 2, 3, 3], "at the end");
    }

    #[test]
    fn tokens_of_a_stop_string_are_left_out_after_bytes_that_are_no_character() {
        let text = "\u{fffd}\u{15}\u{fffd}".to_owned();
        let stopped = written("Wu", &[D2, X15, F7, W, U]);
        assert_eq!(stopped, (text, vec![(0, D2), (1, X15), (2, F7)], Some(Ended::StopString)));
    }

    #[test]
    fn a_stop_string_may_end_with_the_last_bytes() {
        let stopped = written("W\u{fffd}", &[U, W, D2]);
        assert_eq!(stopped, ("u".to_owned(), vec![(0, U)], Some(Ended::StopString)));
    }
}

//! Grammars: constrain a text by masking tokens before each draw.
//!
//! A [`Language`] is the set of permitted texts: JSON with a schema, a regular expression, a
//! context-free grammar. [`Grammars`] compiles it for the tokens of a vocabulary, with the crate
//! `llguidance`. A [`Grammar`] follows one text.

mod schema;

use amk_models::tokenizer::{Tokenizer, TokenizerError};
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, INVALID_TOKEN, TokEnv, TokRxInfo, TokTrie};
use llguidance::{JsonCompileOptions, Matcher, ParserFactory, panic_utils};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::thread;

/// Bytes of a language at most.
const MOST_BYTES: usize = 1 << 16;
/// The stack size of the compiling thread: parsers of grammars are recursive.
const STACK: usize = 256 << 20;
/// White space between the tokens of JSON. It is bounded because some models would otherwise
/// continue it forever.
const JSON_SPACE: &str = r"[\x20\x0A\x0D\x09]{1,32}";

/// The set of permitted texts.
#[derive(Clone, Debug, PartialEq)]
pub enum Language {
    /// Any JSON object.
    JsonObject,
    /// JSON that fits a schema.
    JsonSchema {
        /// The schema.
        schema: Value,
        /// Whether a keyword that cannot be enforced is [`GrammarError::NotEnforced`]; otherwise it
        /// is ignored.
        strict: bool,
    },
    /// The matches of a regular expression, in the syntax of the crate `regex`.
    Regex(String),
    /// One of some texts.
    Choice(Vec<String>),
    /// A context-free grammar in llguidance's variant of Lark.
    Lark(String),
}

/// The reasons why a grammar does not compile, or its text cannot continue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// A language cannot be compiled, or a text in it cannot continue.
    #[error("the grammar: {0}")]
    Failed(String),
    /// A strict schema has a keyword that cannot be enforced.
    #[error("the grammar: {0}")]
    NotEnforced(String),
}

impl GrammarError {
    fn new(error: impl fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }

    /// An error of llguidance's compiler, whose message may suggest options of its own.
    fn of_compiler(error: impl fmt::Display) -> Self {
        let text = error.to_string();
        let rest = |begin: &str| text.split_once(begin).map(|(_, rest)| rest.lines().next().unwrap_or_default());
        if text.contains("oneOf constraints are not supported") {
            let what = "`oneOf` of schemas that may overlap cannot be enforced; `anyOf` can";
            return Self::NotEnforced(what.to_owned());
        }
        let keywords = rest("Unimplemented keys: ").map(str::to_owned);
        let what = keywords.or_else(|| rest("Unknown format: ").map(|format| format!("the format {format}")));
        match what {
            Some(what) => Self::NotEnforced(format!("{what} cannot be enforced")),
            None => Self::Failed(text),
        }
    }
}

/// The suffix of llguidance's errors about a text.
const NOT_VERBOSE: &str = "\n<non-verbose/>";
/// Its reason when no token is permitted.
const NO_EXTENSION: &str = "NoExtensionBias";
const NO_TOKEN: &str = "no token of the vocabulary can follow";

/// An error of a text on its way.
fn of_text(error: impl fmt::Display) -> GrammarError {
    let text = error.to_string();
    match text.contains(NO_EXTENSION) {
        true => GrammarError::new(NO_TOKEN),
        false => GrammarError::new(text.strip_suffix(NOT_VERBOSE).unwrap_or(&text)),
    }
}

impl From<TokenizerError> for GrammarError {
    fn from(error: TokenizerError) -> Self {
        Self::new(error)
    }
}

/// Compiles languages for the tokens of a vocabulary.
pub struct Grammars {
    tokenizer: Tokenizer,
    ends: Vec<u32>,
    /// Made when the first language is compiled.
    factory: OnceLock<Result<ParserFactory, GrammarError>>,
}

impl Grammars {
    /// For the tokens of a tokenizer; one of `ends` is permitted where the text may end.
    pub fn new(tokenizer: Tokenizer, ends: Vec<u32>) -> Self {
        Self { tokenizer, ends, factory: OnceLock::new() }
    }

    /// Compiles a language. This may take some time.
    ///
    /// # Errors
    /// A language that is invalid, too large, or cannot be enforced.
    pub fn compile(&self, language: &Language) -> Result<Grammar, GrammarError> {
        let grammar = language.grammar()?;
        let factory = self.factory.get_or_init(|| factory(&self.tokenizer, &self.ends));
        let factory = factory.as_ref().map_err(Clone::clone)?;
        // A language is untrusted and must not end the program.
        let compile = || panic_utils::catch_unwind(AssertUnwindSafe(|| factory.create_parser(grammar)));
        let parser = thread::scope(|scope| {
            let thread = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, compile);
            let ended = thread.map_err(GrammarError::new)?.join();
            ended.map_err(|_| GrammarError::new("it cannot be compiled"))?.map_err(GrammarError::of_compiler)
        })?;
        let matcher = Matcher::new(Ok(parser));
        match matcher.get_error() {
            Some(error) => Err(GrammarError::of_compiler(error)),
            None => Ok(Grammar { matcher }),
        }
    }
}

impl fmt::Debug for Grammars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammars").field("tokenizer", &self.tokenizer).finish_non_exhaustive()
    }
}

impl Language {
    fn grammar(&self) -> Result<TopLevelGrammar, GrammarError> {
        match self {
            Self::JsonObject => Self::JsonSchema { schema: json!({ "type": "object" }), strict: true }.grammar(),
            Self::JsonSchema { schema, strict } => {
                bounded(&schema.to_string())?;
                Ok(TopLevelGrammar::from_json_schema(with_options(schema.clone(), *strict)?))
            }
            Self::Regex(text) => Ok(TopLevelGrammar::from_regex(bounded(text)?)),
            Self::Choice(texts) => Ok(TopLevelGrammar::from_lark(choice(texts)?)),
            Self::Lark(text) => Ok(TopLevelGrammar::from_lark(bounded(text)?.to_owned())),
        }
    }

    /// Returns a rule for [`Language::Lark`] that matches JSON with a schema; keywords that cannot
    /// be enforced are ignored, or with `strict` refused.
    ///
    /// # Errors
    /// A schema that is not an object or is too large, or [`GrammarError::NotEnforced`].
    pub fn json_rule(schema: Value, strict: bool) -> Result<String, GrammarError> {
        bounded(&schema.to_string())?;
        Ok(format!("%json {}", with_options(schema, strict)?))
    }
}

/// The schema with options of its compilation, which are llguidance's field.
fn with_options(mut schema: Value, strict: bool) -> Result<Value, GrammarError> {
    if schema == Value::Bool(true) {
        schema = json!({});
    }
    if !schema.is_object() {
        return Err(GrammarError::new(format!("a JSON schema is an object, not {schema}")));
    }
    let mut schema = schema::enforceable(schema, strict)?;
    let options = JsonCompileOptions {
        lenient: !strict,
        whitespace_pattern: Some(JSON_SPACE.to_owned()),
        ..JsonCompileOptions::default()
    };
    options.apply_to(&mut schema);
    Ok(schema)
}

fn choice(texts: &[String]) -> Result<String, GrammarError> {
    let texts: Vec<String> = texts.iter().map(|text| Value::from(text.as_str()).to_string()).collect();
    if texts.is_empty() {
        return Err(GrammarError::new("a choice needs texts"));
    }
    // One terminal: the parser has a limit for the rules that may come, the lexer takes thousands.
    Ok(format!("start: TEXT\nTEXT: {}", bounded(&texts.join(" | "))?))
}

/// Refuses text on which parsers would spend too much memory.
fn bounded(text: &str) -> Result<&str, GrammarError> {
    match text.len() {
        0..=MOST_BYTES => Ok(text),
        len => Err(GrammarError::new(format!("{len} bytes are more than {MOST_BYTES}"))),
    }
}

fn factory(tokenizer: &Tokenizer, ends: &[u32]) -> Result<ParserFactory, GrammarError> {
    let special: BTreeSet<u32> = tokenizer.special_tokens().into_iter().chain(ends.iter().copied()).collect();
    let count = ends.iter().map(|&end| end as usize + 1).max().unwrap_or(0).max(tokenizer.token_count());
    let bytes = |id: u32| match special.contains(&id) {
        // It is not text, whatever its name.
        true => Ok([&[TokTrie::SPECIAL_TOKEN_MARKER], tokenizer.token(id).unwrap_or_default().as_bytes()].concat()),
        false => tokenizer.bytes(id),
    };
    let words = (0..count as u32).map(bytes).collect::<Result<Vec<_>, _>>()?;
    let info = TokRxInfo::new(words.len() as u32, ends.first().copied().unwrap_or(INVALID_TOKEN));
    let mut trie = TokTrie::from(&info, &words);
    if !ends.is_empty() {
        trie = trie.with_eos_tokens(ends);
    }
    let tokens: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
    let mut factory = ParserFactory::new_simple(&tokens).map_err(GrammarError::new)?;
    factory.quiet().limits_mut().verbose_errors = false;
    Ok(factory)
}

/// The way of a text through a language.
#[derive(Clone)]
pub struct Grammar {
    matcher: Matcher,
}

impl Grammar {
    /// Makes the logits of tokens that may not come next `-inf`.
    ///
    /// # Errors
    /// If no token may come, or the language takes too long.
    pub(crate) fn mask(&mut self, logits: &mut [f32]) -> Result<(), GrammarError> {
        let mask = self.matcher.compute_mask_or_eos().map_err(of_text)?;
        if mask.is_zero() {
            return Err(GrammarError::new(NO_TOKEN));
        }
        let (known, unknown) = logits.split_at_mut(mask.len().min(logits.len()));
        mask.iter_unset_entries(|id| {
            if let Some(logit) = known.get_mut(id) {
                *logit = f32::NEG_INFINITY;
            }
        });
        unknown.fill(f32::NEG_INFINITY);
        Ok(())
    }

    /// Goes on with a token that the mask allowed.
    ///
    /// # Errors
    /// If the language takes too long.
    pub(crate) fn take(&mut self, token: u32) -> Result<(), GrammarError> {
        if self.ended() {
            return Ok(());
        }
        self.matcher.consume_token(token).map_err(of_text)?;
        match self.matcher.stop_reason() {
            reason if reason.is_ok() => Ok(()),
            reason => Err(GrammarError::new(format!("it cannot go on ({reason})"))),
        }
    }

    /// Whether the text is complete and cannot continue.
    pub(crate) fn ended(&self) -> bool {
        self.matcher.is_stopped()
    }
}

impl fmt::Debug for Grammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammar").field("ended", &self.ended()).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "grammar_tests.rs"]
mod tests;

//! Limits of a template's source: minijinja's parser and compiler recurse over it.

use super::tags::{Block, assignment, is_word, outside_strings};

/// Longest source, in bytes; templates of large models have some 30,000.
const MAX_SOURCE: usize = 1 << 18;
/// Blocks inside of blocks; each `elif` counts as one.
const MAX_BLOCKS: usize = 100;
/// Maximum number of operators and brackets that enclose an operand.
const MAX_OPERATORS: usize = 250;
/// Maximum number of concatenations and slices in a tag, each of which copies its text.
const MAX_COPIES: usize = 64;
/// Multiplications in a tag: minijinja repeats a text or a tuple to 100 million bytes or items.
const MAX_PRODUCTS: usize = 2;
/// Maximum nesting of lists that are printed as text; each level doubles the backslashes inside.
const MAX_WRITTEN: usize = 4;

/// A template's source exceeds a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LimitError {
    #[error("the template has {0} bytes, more than {MAX_SOURCE}")]
    Source(usize),
    #[error("more than {MAX_BLOCKS} blocks or `elif` inside of one another (line {0})")]
    Blocks(usize),
    #[error("more than {MAX_OPERATORS} operators or brackets inside of one another (line {0})")]
    Operators(usize),
    #[error("more than {MAX_COPIES} concatenations or slices in a tag (line {0})")]
    Copies(usize),
    #[error("more than {MAX_PRODUCTS} multiplications in a tag (line {0})")]
    Products(usize),
    #[error("more than {MAX_WRITTEN} lists inside of one another are concatenated (line {0})")]
    Written(usize),
}

/// Refuses a source that is too long.
pub(super) fn check_source(source: &str) -> Result<(), LimitError> {
    if source.len() > MAX_SOURCE { Err(LimitError::Source(source.len())) } else { Ok(()) }
}

/// The blocks that are open, and the branches of each.
#[derive(Default)]
pub(super) struct OpenBlocks(Vec<usize>);

impl OpenBlocks {
    /// Takes the tag of a block on `line`.
    pub(super) fn enter(&mut self, block: &Block<'_>, line: usize) -> Result<(), LimitError> {
        match block.keyword {
            "elif" | "else" => self.0.iter_mut().rev().take(1).for_each(|branches| *branches += 1),
            "set" if assignment(block.rest).is_some() => {}
            "for" | "if" | "with" | "macro" | "call" | "filter" | "block" | "autoescape" | "generation" | "set" => {
                self.0.push(1);
            }
            end if end.starts_with("end") => drop(self.0.pop()),
            _ => {}
        }
        if self.0.iter().sum::<usize>() > MAX_BLOCKS { Err(LimitError::Blocks(line)) } else { Ok(()) }
    }
}

/// A bracket that is open, or the tag itself.
#[derive(Default)]
struct Level {
    /// Operators of the item that is being read.
    operators: usize,
    is_square: bool,
    concatenates: bool,
    /// The most lists written as texts inside of one another, of those closed.
    written: usize,
}

/// Counts of a tag up to a place.
struct Counts {
    levels: Vec<Level>,
    /// Operators that enclose the place.
    operators: usize,
    copies: usize,
    products: usize,
}

/// Refuses a tag on `line` whose expressions are nested too deeply or copy too much.
pub(super) fn check_tag(tag: &str, line: usize) -> Result<(), LimitError> {
    let mut counts = Counts { levels: vec![Level::default()], operators: 0, copies: 0, products: 0 };
    for (at, c) in outside_strings(tag) {
        if is_word(c) {
            if is_operator_at(tag, at) {
                counts.add(c);
            }
        } else if !c.is_whitespace() {
            counts.add(c);
        }
        counts.products += usize::from(c == '*' && !tag[..at].ends_with('*'));
        counts.check(line)?;
    }
    Ok(())
}

/// Whether a word that is an operator starts at `at`.
fn is_operator_at(tag: &str, at: usize) -> bool {
    let rest = &tag[at..];
    let word = &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())];
    !tag[..at].ends_with(is_word) && ["and", "or", "not", "in", "is", "if", "else"].contains(&word)
}

impl Counts {
    /// Adds an operator, a bracket, or a separator of items.
    fn add(&mut self, c: char) {
        match c {
            '(' | '[' | '{' => self.levels.push(Level { is_square: c == '[', ..Level::default() }),
            ')' | ']' | '}' if self.levels.len() > 1 => self.close(),
            _ => {}
        }
        let Some(level) = self.levels.last_mut() else { return };
        self.copies += usize::from(matches!(c, '~' | '+') || c == ':' && level.is_square);
        if matches!(c, ',' | ':') {
            self.operators -= std::mem::take(&mut level.operators);
        } else {
            level.operators += 1;
            self.operators += 1;
        }
        level.concatenates |= c == '~';
    }

    fn close(&mut self) {
        let Some(closed) = self.levels.pop() else { return };
        self.operators -= closed.operators;
        if let Some(level) = self.levels.last_mut() {
            level.written = level.written.max(closed.written + usize::from(closed.concatenates));
        }
    }

    fn check(&self, line: usize) -> Result<(), LimitError> {
        let written = self.levels.last().map_or(0, |level| level.written + usize::from(level.concatenates));
        match () {
            () if self.operators > MAX_OPERATORS => Err(LimitError::Operators(line)),
            () if self.copies > MAX_COPIES => Err(LimitError::Copies(line)),
            () if self.products > MAX_PRODUCTS => Err(LimitError::Products(line)),
            () if written > MAX_WRITTEN => Err(LimitError::Written(line)),
            () => Ok(()),
        }
    }
}

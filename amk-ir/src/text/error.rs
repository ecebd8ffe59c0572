//! Errors of the reader of the text format.

use super::shown::{OneLine, clipped};
use core::fmt;

/// Why a text is not a program or not a graph, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
    /// The cause.
    pub cause: ParseCause,
    /// One edit that would help, if there is one.
    pub help: Option<String>,
}

/// The causes of a parse error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ParseCause {
    /// Something else was expected here.
    Expected {
        /// The expected tokens.
        expected: &'static str,
        /// The token found; empty at the end of the line.
        found: String,
    },
    /// The line does not start with a word of the format.
    UnknownLine {
        /// Its first word.
        word: String,
    },
    /// An entity is not the next of its kind.
    OutOfOrder {
        /// The id that the line should define.
        expected: String,
        /// The id it defines.
        found: String,
    },
    /// A line that may occur once occurs twice.
    Repeated {
        /// Its first word, or the name it defines.
        what: String,
    },
    /// A name or id is used that no line above defines.
    NotDeclared {
        /// The kind of entity.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// The name refers to several instructions or values.
    Ambiguous {
        /// The entities, in the plural.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A number does not fit.
    TooLarge {
        /// The number as written.
        number: String,
        /// The largest number that fits.
        max: u64,
    },
    /// More dimensions than a buffer can have, or more than this buffer has.
    Rank {
        /// Dimensions found.
        found: usize,
        /// Dimensions possible.
        max: usize,
    },
    /// An index of an event tensor is outside of its extent.
    EventIndex {
        /// The index.
        index: u64,
        /// The extent.
        extent: u32,
    },
    /// Both `worker` and `ticket` lines.
    MixedQueues,
    /// The text has no `program` line.
    NoProgram,
    /// The text has no `graph` line.
    NoGraph,
    /// The text is not an expression over dims and indices.
    Expression {
        /// The expected syntax.
        why: String,
    },
    /// The text ends within a block.
    Open {
        /// The first word of the block's first line.
        block: &'static str,
    },
    /// Blocks within blocks, or lists of layouts within lists.
    TooDeep {
        /// Blocks that may be within each other.
        most: usize,
    },
    /// A value has one type here and another one above.
    Retyped {
        /// The value's name.
        name: String,
        /// The type above.
        before: String,
    },
    /// The `task` clause of an instruction has no region for a tensor on the side where it belongs.
    NoRegion {
        /// The tensor's name.
        name: String,
        /// Left or right of the arrow.
        side: &'static str,
    },
}

/// A piece of the text in backticks, which stays short on long input.
pub(super) fn tick(text: &str) -> String {
    format!("`{}`", clipped(text, 40))
}

/// A message that quotes the text: on one line, and short.
fn clipped_line(message: &str) -> String {
    const LONGEST: usize = 120;
    OneLine(message).to_string().chars().take(LONGEST).collect()
}

impl fmt::Display for ParseCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expected { expected, found } if found.is_empty() => {
                write!(f, "expected {expected}, found the end of the line")
            }
            Self::Expected { expected, found } => write!(f, "expected {expected}, found {}", tick(found)),
            Self::UnknownLine { word } => write!(f, "no line starts with {}", tick(word)),
            Self::OutOfOrder { expected, found } => write!(f, "expected {}, found {}", tick(expected), tick(found)),
            Self::Repeated { what } => write!(f, "{} is given twice", tick(what)),
            Self::NotDeclared { kind, name } => write!(f, "{kind} {} is not declared above", tick(name)),
            Self::Ambiguous { kind, name } => write!(f, "several {kind} are named {}", tick(name)),
            Self::TooLarge { number, max } => write!(f, "{} is too large, at most {max} fits", tick(number)),
            Self::Rank { found, max } => write!(f, "{found} dimensions where at most {max} are possible"),
            Self::EventIndex { index, extent } => write!(f, "index {index} is outside of extent {extent}"),
            Self::MixedQueues => write!(f, "both `worker` and `ticket` lines"),
            Self::NoProgram => write!(f, "no `program` line"),
            Self::NoGraph => write!(f, "no `graph` line"),
            Self::Expression { why } => f.write_str(&clipped_line(why)),
            Self::Open { block } => write!(f, "the text ends within a block of `{block}`"),
            Self::TooDeep { most } => write!(f, "more than {most} blocks within each other"),
            Self::Retyped { name, before } => write!(f, "{} is {} above", tick(name), tick(before)),
            Self::NoRegion { name, side } => write!(f, "no region of {} {side} of the arrow", tick(name)),
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.cause)?;
        if let Some(help) = &self.help {
            write!(f, "\nhelp: {help}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ParseError {}

//! A token id and a position.

use core::fmt;

/// The id of a token in the vocabulary.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Token(pub u32);

/// The position of a step: the number of tokens before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Pos(pub u32);

impl Token {
    /// The token as an index into the vocabulary.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Pos {
    /// The position as an index into a state.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl From<u32> for Token {
    fn from(id: u32) -> Self {
        Self(id)
    }
}

impl From<u32> for Pos {
    fn from(position: u32) -> Self {
        Self(position)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Pos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

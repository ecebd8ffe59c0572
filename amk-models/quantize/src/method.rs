//! How weights become codes.

use core::fmt;
use core::str::FromStr;

/// How weights become codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// To nearest, with scales that reach the largest element of each block, as the encoding's own
    /// `encode` does.
    Rtn,
    /// To nearest, with the scales that have the least squared error among those tried. With a
    /// text the errors are weighted by the mean squares of the inputs that they are multiplied by.
    Search,
    /// Each element's error is made up for by the later elements of its row, in the proportions
    /// that keep the outputs closest on a text (Frantar et al. 2022, arXiv:2210.17323). Scales are
    /// searched.
    Gptq,
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Rtn, Self::Search, Self::Gptq];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rtn => "rtn",
            Self::Search => "search",
            Self::Gptq => "gptq",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Method {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(Self::name).join(", ");
        Self::ALL.into_iter().find(|method| method.name() == text).ok_or_else(|| format!("the methods are {}", names()))
    }
}

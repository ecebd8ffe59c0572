//! Guesses of the next tokens from the text itself: what followed the same few tokens earlier often
//! follows again, in edited code or summarised text.
//!
//! Source: Saxena, Prompt Lookup Decoding, 2023.

use std::collections::HashMap;

/// Number of tokens that must match.
const SAME: usize = 3;
/// The places of each run of [`SAME`] tokens.
#[derive(Clone, Debug)]
pub(crate) struct Lookup {
    /// The token after the last run of these tokens.
    after: HashMap<[u32; SAME], usize>,
    /// Tokens of the history that are in `after`.
    known: usize,
}

impl Lookup {
    pub(crate) fn new() -> Self {
        Self { after: HashMap::new(), known: SAME }
    }

    /// Guesses the tokens after a history, which is the last call's and more.
    pub(crate) fn guess<'h>(&mut self, history: &'h [u32], most: usize) -> &'h [u32] {
        // The last run has nothing after it yet.
        for next in self.known..history.len() {
            if let Some(run) = history[..next].last_chunk() {
                self.after.insert(*run, next);
            }
        }
        self.known = self.known.max(history.len());
        let Some(&next) = history.last_chunk::<SAME>().and_then(|run| self.after.get(run)) else { return &[] };
        &history[next..history.len().min(next + most)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_followed_before_is_guessed() {
        let mut lookup = Lookup::new();
        let history = [1, 2, 3, 4, 5, 6, 9, 1, 2, 3];
        assert_eq!(lookup.guess(&history, 4), [4, 5, 6, 9]);
        assert_eq!(lookup.guess(&history, 2), [4, 5]);
        let longer = [&history[..], &[7]].concat();
        assert!(lookup.guess(&longer, 9).is_empty());
        let again = [&longer[..], &[1, 2, 3]].concat();
        assert_eq!(lookup.guess(&again, 9), [7, 1, 2, 3], "the last place counts");
    }
}

//! Guesses of next tokens from the text itself: what followed the same few tokens before follows
//! again, in code that is edited or text that is summarised.
//!
//! Source: Saxena, Prompt Lookup Decoding, 2023.

use std::collections::HashMap;

/// Tokens that have to be the same.
const SAME: usize = 3;
/// Guesses at most, the first time and ever.
const FIRST: usize = 4;
const MOST: usize = 16;
/// Tokens without guesses after guesses of which none was right.
const PAUSE: usize = 8;

/// The places of each run of [`SAME`] tokens, and how well the last guesses went.
#[derive(Clone, Debug)]
pub(crate) struct Lookup {
    /// The token after the last run of these tokens.
    after: HashMap<[u32; SAME], usize>,
    /// Tokens of the history that are in `after`.
    known: usize,
    most: usize,
    /// Tokens to go without guesses.
    pause: usize,
    /// Guesses in a row of which none was right.
    wrong: u32,
}

impl Lookup {
    pub(crate) fn new() -> Self {
        Self { after: HashMap::new(), known: SAME, most: FIRST, pause: 0, wrong: 0 }
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
        if self.pause > 0 {
            self.pause -= 1;
            return &[];
        }
        let Some(&next) = history.last_chunk::<SAME>().and_then(|run| self.after.get(run)) else { return &[] };
        &history[next..history.len().min(next + self.most.min(most))]
    }

    /// Learns how many of some guesses were right.
    pub(crate) fn learn(&mut self, drafted: usize, accepted: usize) {
        if drafted == 0 {
            return;
        }
        if accepted == 0 {
            self.wrong = (self.wrong + 1).min(4);
            self.most = (self.most / 2).max(1);
            self.pause = PAUSE << self.wrong;
        } else {
            self.wrong = 0;
            self.most = if accepted == drafted { (self.most * 2).min(MOST) } else { accepted + 1 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_followed_before_is_guessed() {
        let mut lookup = Lookup::new();
        let history = [1, 2, 3, 4, 5, 6, 9, 1, 2, 3];
        assert_eq!(lookup.guess(&history, 9), [4, 5, 6, 9]);
        assert_eq!(lookup.guess(&history, 2), [4, 5]);
        let longer = [&history[..], &[7]].concat();
        assert!(lookup.guess(&longer, 9).is_empty());
        let again = [&longer[..], &[1, 2, 3]].concat();
        assert_eq!(lookup.guess(&again, 9), [7, 1, 2, 3], "the last place counts");
    }

    #[test]
    fn right_guesses_make_more_and_wrong_ones_pause() {
        let mut lookup = Lookup::new();
        let history: Vec<u32> = (0..40).chain(0..3).collect();
        assert_eq!(lookup.guess(&history, 99).len(), FIRST);
        lookup.learn(4, 4);
        assert_eq!(lookup.guess(&history, 99).len(), 8);
        lookup.learn(8, 2);
        assert_eq!(lookup.guess(&history, 99).len(), 3);
        lookup.learn(3, 0);
        for _ in 0..PAUSE << 1 {
            assert!(lookup.guess(&history, 99).is_empty());
        }
        assert_eq!(lookup.guess(&history, 99).len(), 1);
    }
}

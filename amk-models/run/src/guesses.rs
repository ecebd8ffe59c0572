//! The number of tokens guessed at a time: more if guesses are right, and none for a while if they
//! are wrong.

/// Guesses at most, the first time and ever.
const FIRST: usize = 4;
const MOST: usize = 16;
/// Number of tokens without guesses after consecutive wrong ones.
const PAUSE: usize = 8;
/// A pause doubles up to this many times.
const DOUBLED: u32 = 4;

/// The number of guesses, and how well they went.
#[derive(Clone, Debug)]
pub(crate) struct Guesses {
    most: usize,
    /// Tokens to go without guesses.
    pause: usize,
    /// Number of consecutive guesses of which none was right.
    wrong: u32,
    pub(crate) drafted: usize,
    pub(crate) accepted: usize,
}

impl Guesses {
    pub(crate) fn new() -> Self {
        Self { most: FIRST, pause: 0, wrong: 0, drafted: 0, accepted: 0 }
    }

    /// Tokens to guess now.
    pub(crate) fn number(&mut self) -> usize {
        if self.pause > 0 {
            self.pause -= 1;
            return 0;
        }
        self.most
    }

    /// Learns how many of some guesses were right.
    pub(crate) fn learn(&mut self, drafted: usize, accepted: usize) {
        self.drafted += drafted;
        self.accepted += accepted;
        if drafted == 0 {
            return;
        }
        if accepted == 0 {
            self.wrong = (self.wrong + 1).min(DOUBLED);
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
    fn right_guesses_make_more_and_wrong_ones_pause() {
        let mut guesses = Guesses::new();
        assert_eq!(guesses.number(), FIRST);
        guesses.learn(4, 4);
        assert_eq!(guesses.number(), 8);
        guesses.learn(8, 2);
        assert_eq!(guesses.number(), 3);
        guesses.learn(3, 0);
        for _ in 0..PAUSE << 1 {
            assert_eq!(guesses.number(), 0);
        }
        assert_eq!(guesses.number(), 1);
        assert_eq!((guesses.drafted, guesses.accepted), (15, 6));
    }
}

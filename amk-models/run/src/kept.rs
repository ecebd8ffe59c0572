//! Ended texts whose keys and values are kept for prompts with the same beginning.

use amk::rows::SequenceId;
use std::collections::VecDeque;

/// Sequences and the tokens that they have run; those that were used last come last.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    most: usize,
    texts: VecDeque<(SequenceId, Vec<u32>)>,
}

impl Kept {
    /// Room for this many.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, texts: VecDeque::new() }
    }

    /// Whether texts are kept at all.
    pub(crate) fn keeps(&self) -> bool {
        self.most > 0
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }

    /// The sequences.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SequenceId, &[u32])> {
        self.texts.iter().map(|(sequence, tokens)| (*sequence, tokens.as_slice()))
    }

    /// A sequence is used: it goes last.
    pub(crate) fn use_again(&mut self, sequence: SequenceId) {
        let at = self.texts.iter().position(|(kept, _)| *kept == sequence);
        if let Some(text) = at.and_then(|at| self.texts.remove(at)) {
            self.texts.push_back(text);
        }
    }

    /// Keeps a sequence. Returns the evicted ones: those that are a prefix of it, and the oldest
    /// beyond the capacity.
    pub(crate) fn push(&mut self, sequence: SequenceId, tokens: Vec<u32>) -> Vec<SequenceId> {
        let (mut gone, mut left): (Vec<_>, Vec<_>) =
            self.texts.drain(..).partition(|(_, kept)| tokens.starts_with(kept));
        left.push((sequence, tokens));
        gone.extend(left.drain(..left.len().saturating_sub(self.most)));
        self.texts = left.into();
        gone.into_iter().map(|(sequence, _)| sequence).collect()
    }

    /// The oldest, which is kept no longer.
    pub(crate) fn pop(&mut self) -> Option<SequenceId> {
        self.texts.pop_front().map(|(sequence, _)| sequence)
    }
}

/// Tokens at the beginning of two texts that are the same.
pub(crate) fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use amk::rows::{RowLimits, Sequences};

    #[test]
    fn the_oldest_go_first_and_so_does_what_another_begins_with() {
        let mut sequences = Sequences::new(RowLimits::new(1, 64, 1));
        let [a, b, c, d] = [(); 4].map(|()| sequences.add());
        let mut kept = Kept::new(2);
        assert_eq!(kept.push(a, vec![1, 2]), []);
        assert_eq!(kept.push(b, vec![3]), []);
        kept.use_again(a);
        assert_eq!(kept.push(c, vec![4]), [b]);
        assert_eq!(kept.push(d, vec![1, 2, 3]), [a]);
        assert_eq!(kept.iter().collect::<Vec<_>>(), [(c, &[4][..]), (d, &[1, 2, 3])]);
        assert_eq!((kept.pop(), kept.pop(), kept.pop()), (Some(c), Some(d), None));
    }
}

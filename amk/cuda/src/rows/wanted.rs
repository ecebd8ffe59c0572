//! The wanted rows of a step, and the choices of the tokens after them.

use crate::error::CudaError;
use crate::params::Params;
use crate::set::{Sampling, sampling};
use amk::Token;
use amk::rows::{Choice, PlacedRow};
use core::ops::Range;
use std::collections::HashMap;

/// The word of a row whose choice is left to the host.
pub(super) const LEFT: u32 = u32::MAX;

/// The wanted rows of a step. Rows whose logits are requested come first among the logits, so that
/// these are one copy.
#[derive(Default)]
pub(super) struct Wanted {
    /// The place of each row among the logits.
    places: HashMap<usize, usize>,
    /// The number of rows whose logits are requested.
    logits: usize,
    /// Rows whose tokens are requested.
    choosing: Vec<usize>,
    /// The tokens after these rows, except those left to the host.
    tokens: HashMap<usize, Token>,
}

impl Wanted {
    pub(super) fn of(rows: &[PlacedRow]) -> Self {
        let numbers = |chooses: bool| {
            let wanted = rows.iter().enumerate().filter(|(_, row)| row.wanted);
            wanted.filter(move |(_, row)| row.choice.is_some() == chooses).map(|(number, _)| number)
        };
        let places = numbers(false).chain(numbers(true)).zip(0..).collect();
        Self { places, logits: numbers(false).count(), choosing: numbers(true).collect(), tokens: HashMap::new() }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// The place of a row among the logits.
    pub(super) fn place(&self, row: usize) -> Option<usize> {
        self.places.get(&row).copied()
    }

    /// The token after a row.
    pub(super) fn token(&self, row: usize) -> Option<Token> {
        self.tokens.get(&row).copied()
    }

    /// Takes the words that the device wrote, one per row. Returns the places of the logits that
    /// the host reads.
    pub(super) fn take(&mut self, chosen: &[u32]) -> Vec<Range<usize>> {
        let mut places = Vec::from_iter((self.logits > 0).then_some(0..self.logits));
        for &row in &self.choosing {
            match chosen.get(row) {
                Some(&token) if token != LEFT => _ = self.tokens.insert(row, Token(token)),
                _ => places.extend(self.place(row).map(|place| place..place + 1)),
            }
        }
        places
    }
}

/// The registered choice of tokens.
pub(super) fn chooser() -> Result<&'static dyn Sampling, CudaError> {
    let missing = || CudaError::Image { at: "the plan".to_owned(), what: "has no code that chooses tokens".to_owned() };
    sampling().ok_or_else(missing)
}

/// The words of the rows' choices.
pub(super) fn choices(rows: &[PlacedRow]) -> Result<Vec<u32>, CudaError> {
    let choices: Vec<Option<&Choice>> = rows.iter().map(|row| row.choice.as_ref().filter(|_| row.wanted)).collect();
    let mut params = Params::default();
    chooser()?.put_choices(&choices, &mut params);
    Ok(params.words())
}

#[cfg(test)]
mod tests {
    use super::*;
    use amk::Pos;

    #[test]
    fn logits_that_are_asked_for_are_one_copy_and_those_of_rows_left_to_the_host_follow() {
        let row = |(wanted, chooses): (bool, bool)| PlacedRow {
            token: Token(1),
            pos: Pos(0),
            pages: [0].into(),
            wanted,
            choice: chooses.then(Choice::default),
        };
        let rows = [(true, true), (true, false), (false, true), (true, true), (true, false)].map(row);
        let mut wanted = Wanted::of(&rows);
        let places: Vec<Option<usize>> = (0..5).map(|row| wanted.place(row)).collect();
        assert_eq!(places, [Some(2), Some(0), None, Some(3), Some(1)]);
        assert_eq!(wanted.take(&[7, 8, 9, LEFT, 10]), [0..2, 3..4]);
        let tokens: Vec<Option<Token>> = (0..5).map(|row| wanted.token(row)).collect();
        assert_eq!(tokens, [Some(Token(7)), None, None, None, None]);
    }
}

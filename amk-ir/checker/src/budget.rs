//! Limits on the cost of a check, whatever its input.

use crate::Refusal;

/// About ten seconds.
const MOST: u64 = 1 << 31;

/// Steps of work that are left.
#[derive(Debug)]
pub(crate) struct Budget {
    most: u64,
    left: u64,
}

impl Budget {
    pub(crate) fn new() -> Self {
        Self::of(MOST)
    }

    pub(crate) fn of(most: u64) -> Self {
        Self { most, left: most }
    }

    /// Takes `steps` for `what`.
    pub(crate) fn take(&mut self, steps: u64, what: &'static str) -> Result<(), Refusal> {
        self.left = self.left.checked_sub(steps).ok_or(Refusal::TooLarge { what, most: self.most })?;
        Ok(())
    }
}

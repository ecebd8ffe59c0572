//! The collected violations of one run.

use super::violation::{Code, Violation};

/// At most this many violations of a code are kept, so that a program that is wrong everywhere is
/// refused as fast as a right one is accepted.
pub(super) const KEPT_PER_CODE: u32 = 1000;

/// Violations in the order in which they were found.
#[derive(Default)]
pub(super) struct Found {
    violations: Vec<Violation>,
    /// Codes seen and how often.
    counts: Vec<(Code, u32)>,
}

impl Found {
    pub(super) fn push(&mut self, violation: Violation) {
        let code = violation.code();
        let count = match self.counts.iter_mut().find(|(known, _)| *known == code) {
            Some((_, count)) => count,
            None => {
                self.counts.push((code, 0));
                let Some((_, count)) = self.counts.last_mut() else { return };
                count
            }
        };
        *count += 1;
        if *count <= KEPT_PER_CODE {
            self.violations.push(violation);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.violations.is_empty()
    }

    pub(super) fn into_vec(self) -> Vec<Violation> {
        self.violations
    }
}

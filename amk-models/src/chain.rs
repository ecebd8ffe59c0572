//! An error with its causes.

use std::error::Error;
use std::fmt;

/// An error with its causes on one line: no error's message repeats its source's.
pub struct Chain<'e>(pub &'e dyn Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        std::iter::successors(self.0.source(), |&cause| cause.source()).try_for_each(|cause| write!(f, ": {cause}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Attempt, FetchError};
    use crate::checkpoint::CheckpointError;

    #[test]
    fn every_cause_is_told_once() {
        let path = "a.json".into();
        let unreadable = CheckpointError::Io { path, source: std::io::ErrorKind::FileTooLarge.into() };
        let reason = FetchError::Unusable(unreadable);
        assert_eq!(
            Chain(&reason).to_string(),
            "the downloaded files cannot be used: cannot read a.json: file too large"
        );
        let attempt = Attempt { source: "hub".into(), reason };
        assert_eq!(attempt.to_string(), "hub: the downloaded files cannot be used: cannot read a.json: file too large");
    }
}

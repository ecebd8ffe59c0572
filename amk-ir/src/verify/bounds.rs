//! Finite bounds with which the verifier checks unboundedly many steps and positions.

/// Finite bounds, each with a lemma in `docs/src/internals/verifier.md`. Larger ones give the same
/// verdicts, more slowly: a test compares them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Number of steps for which a simulation follows how far workers run ahead of each other (L5,
    /// L9); at least 2.
    pub horizon: u32,
    /// Whether every position is checked, rather than one of each period (L7).
    pub every_position: bool,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { horizon: 16, every_position: false }
    }
}

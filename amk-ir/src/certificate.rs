//! Certificates: the evidence for the acceptance of a program, in a form that is checked without a
//! search.
//!
//! [`crate::verify::certify`] makes one; the crate `amk-checker`, which shares no code with the
//! verifier, checks it against the definitions of `docs/src/internals/verifier.md`. A certificate
//! holds nothing that the checker takes on trust.

use crate::{Element, TaskId};
use serde::{Deserialize, Serialize};

/// The certificate of an accepted program without tables.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// Periods of the positions, in order. Within a period the bounds of all tiles keep their
    /// order, so that its first position represents all: every element read there has been written,
    /// and outputs are complete.
    pub periods: Vec<Period>,
    /// Proofs of order, one for each range of start positions; together they cover all positions. A
    /// single proof if the order through packets does not depend on the position.
    pub proofs: Vec<Proof>,
}

/// Consecutive positions, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Period {
    /// The first position.
    pub first: u32,
    /// The last position.
    pub last: u32,
}

/// The orders between tasks (which always finish before which others start) in every launch that
/// starts at one of some positions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// Start positions of the launches.
    pub starts: Period,
    /// All tasks, in an order in which one step can run.
    pub order: Vec<TaskId>,
    /// Tasks in chains: each task starts when those before it in its chain have finished. If queues
    /// are static, the chains are the queues.
    pub chains: Vec<Vec<TaskId>>,
    /// Clocks, each with at most as many numbers as there are chains. `n` in the place of a chain
    /// claims that the first `n` of its tasks have finished; over several steps a chain repeats.
    /// Missing trailing components are zero.
    pub clocks: Vec<Vec<u32>>,
    /// For each step from the first, and within it for each task, the index of a clock that holds
    /// whenever the task starts. A clock covers at least the preceding tasks of the task's own
    /// chain, whatever it claims.
    pub steps: Vec<Vec<u32>>,
    /// Counters for which signals of a step can precede some signals of the previous step, in
    /// order. Waits on them claim nothing in a clock.
    pub mixed: Vec<Element>,
    /// Traps, for orders that the clocks do not show.
    pub traps: Vec<Trap>,
}

/// Tasks that cannot start before a task of the first step has finished.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trap {
    /// Applies to launches that start here or later; those that start later are shorter.
    pub from: u32,
    /// The unfinished task of the first step.
    pub task: TaskId,
    /// Number of steps considered. Tasks of later steps count as able to run, as far as their queue
    /// allows.
    pub horizon: u32,
    /// Task and step of all that are stuck, in order; steps are below the horizon.
    pub stuck: Vec<(TaskId, u32)>,
}

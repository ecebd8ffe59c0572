//! An independent oracle: reads the `.amk` text by itself and explores every interleaving of a
//! small program.
//!
//! It shares no code with the verifier and decides the same question by brute force: does every
//! task run in every execution, and does every element read have the value of the eager order?
//! Three stages, each with its own way to say no:
//!
//! 1. [`structure`]: texts without any meaning (references, arities, regions outside of their
//!    buffers, queues, thresholds).
//! 2. [`eager`]: tasks one after the other, in memory whose every cell knows who wrote it last:
//!    reads of unwritten elements, outputs not written, values clobbered through an alias.
//! 3. [`withhold`]: all interleavings. Two accesses of a cell, one of them a write, where some
//!    execution starts the later one (in eager order) before the earlier has ended, are a race;
//!    tasks that are left when none can run are a deadlock.
//!
//! Counters run on from step to step. A barrier step is explored alone, at every position; a
//! pipelined program in launches from every position and of every length, up to [`Horizon`] where
//! any number of steps is at position 0. [`explore`] and [`fine`] visit every state of a launch,
//! slowly, and tests compare the three.

pub mod cells;
pub mod eager;
pub mod explore;
pub mod fine;
pub mod launch;
pub mod read;
pub mod source;
pub mod structure;
pub mod withhold;

pub use explore::Explorer;
pub use launch::{Horizon, Instance, Launch};
pub use source::Source;

use core::fmt;

/// The oracle's verdict on a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Every execution computes the same as the eager order.
    Safe,
    /// Some execution does not.
    Unsafe(Reason),
    /// The program is too large to be explored.
    TooLarge,
}

/// Why a program is unsafe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The text cannot be read.
    Text(String),
    /// The program has no meaning.
    Structure(String),
    /// A task reads an element that this step has not written before it.
    Uninitialised(Fault),
    /// In the eager order already, a read finds a value of another buffer.
    Clobbered(Fault),
    /// An element of an output is not written in some step.
    Unwritten {
        /// The output.
        buffer: usize,
    },
    /// At the end of a step, a kept buffer is overwritten through an alias.
    Lost {
        /// The buffer.
        buffer: usize,
    },
    /// An early read of an element that a task of the launch writes.
    Early(Fault),
    /// An element of a packet buffer is written twice in a step.
    Rewritten(Fault),
    /// A written operand overlaps another operand of its call.
    Overlap(Fault),
    /// The later access can start before the earlier has ended.
    Race {
        /// Earlier in eager order.
        earlier: Instance,
        /// Later in eager order, and started.
        later: Instance,
        /// Tasks that ran before it did, in order; only [`explore`] tells.
        trace: Vec<Instance>,
    },
    /// Tasks are left and none can run.
    Deadlock {
        /// Tasks that ran, in order; only [`explore`] tells.
        trace: Vec<Instance>,
        /// Tasks that are next on their workers.
        stuck: Vec<Instance>,
    },
}

/// The access at which the eager order goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The task.
    pub task: usize,
    /// The buffer.
    pub buffer: usize,
    /// The element, in row-major order.
    pub element: u64,
    /// The position of the step.
    pub position: u64,
}

impl Reason {
    /// A word for the kind of reason.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Structure(_) => "structure",
            Self::Uninitialised(_) => "uninitialised",
            Self::Clobbered(_) => "clobbered",
            Self::Unwritten { .. } => "unwritten",
            Self::Lost { .. } => "lost",
            Self::Early(_) => "early",
            Self::Rewritten(_) => "rewritten",
            Self::Overlap(_) => "overlap",
            Self::Race { .. } => "race",
            Self::Deadlock { .. } => "deadlock",
        }
    }
}

impl Verdict {
    /// A word for the verdict.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::Unsafe(reason) => reason.kind(),
            Self::TooLarge => "too large",
        }
    }

    /// Whether the program is safe.
    pub fn is_safe(&self) -> bool {
        *self == Self::Safe
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Safe | Self::TooLarge => f.write_str(self.kind()),
            Self::Unsafe(reason) => write!(f, "{reason}"),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        match self {
            Self::Text(why) | Self::Structure(why) => write!(f, "{kind}: {why}"),
            Self::Uninitialised(at)
            | Self::Clobbered(at)
            | Self::Early(at)
            | Self::Rewritten(at)
            | Self::Overlap(at) => {
                write!(f, "{kind}: t{} at element {} of b{}, position {}", at.task, at.element, at.buffer, at.position)
            }
            Self::Unwritten { buffer } | Self::Lost { buffer } => write!(f, "{kind}: b{buffer}"),
            Self::Race { earlier, later, trace } => {
                write!(f, "{kind}: {later} starts before {earlier} ends{}", After(trace))
            }
            Self::Deadlock { trace, stuck } => write!(f, "{kind}: {stuck:?} wait for ever{}", After(trace)),
        }
    }
}

/// The execution before the fault, where known.
struct After<'a>(&'a [Instance]);

impl fmt::Display for After<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ", after {:?}", self.0) }
    }
}

/// Judges the program of a text.
pub fn judge(text: &str) -> Verdict {
    judge_within(text, Horizon::default())
}

/// Judges the program of a text, with launches of so many steps where it allows any number.
pub fn judge_within(text: &str, horizon: Horizon) -> Verdict {
    match read::read(text) {
        Ok(source) => withhold::judge(&source, horizon),
        Err(why) => Verdict::Unsafe(Reason::Text(why)),
    }
}

/// The first stages: structure and eager order.
///
/// A launch from a later position is explored as the rest of a launch from position 0: at the end
/// of a step everything that the next may rely on is as before.
fn sequential(source: &Source, horizon: Horizon) -> Result<cells::Cells, Verdict> {
    structure::check(source).map_err(|why| Verdict::Unsafe(Reason::Structure(why)))?;
    let cells = cells::Cells::new(source).ok_or(Verdict::TooLarge)?;
    let steps = if source.positions == 1 { horizon.steps } else { source.positions };
    let checked = eager::early_reads(source, &cells).and_then(|()| eager::run(source, &cells, 0, steps));
    checked.map_err(Verdict::Unsafe)?;
    Ok(cells)
}

//! The reasons why calls were not fused.

use super::reasons::Iteration;
use crate::program::BufferKind;
use crate::schedule::FuseInto;
use crate::text::Shown;
use core::fmt::{self, Display, Formatter};

/// A fusion that was not done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The call in [`super::unroll::Unrolled::calls`].
    pub call: usize,
    /// Its iteration of the enclosing loops.
    pub iteration: Iteration,
    /// Its instruction.
    pub op: String,
    /// Where it would have gone.
    pub into: FuseInto,
    /// The reason.
    pub because: Unfused,
}

/// The reason why a call was not fused. Calls are named by their instructions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unfused {
    /// It could be fused, but the schedule does not ask for it.
    NotAsked,
    /// It has hand-written signals or waits.
    HandWritten,
    /// It does not map one tile of each operand, along one grid variable, to one tile of its
    /// result.
    NotElementWise,
    /// It reads no result of another call.
    NoProducer,
    /// No call reads its result.
    Unread {
        /// The result.
        value: String,
    },
    /// A value that it reads has several readers.
    Shared {
        /// The value.
        value: String,
        /// Its readers.
        readers: Vec<String>,
    },
    /// A value that it reads is written by several calls.
    Rewritten {
        /// The value.
        value: String,
        /// Its writers.
        writers: Vec<String>,
    },
    /// The producer is itself repeated in the tasks that read its result.
    Repeated {
        /// The producer.
        producer: String,
    },
    /// The producer is not tiled along one grid variable.
    NoTiles {
        /// The producer.
        producer: String,
    },
    /// The producer is tiled along another extent.
    Extents {
        /// The producer.
        producer: String,
        /// Extent of the producer.
        theirs: Option<i64>,
        /// Extent of the call.
        own: i64,
    },
    /// The producer has hand-written signals or waits.
    ProducerEvents {
        /// The producer.
        producer: String,
    },
    /// A value that passes between the calls is not tiled by their common tile.
    TilesDisagree {
        /// The call that cuts it otherwise.
        call: String,
        /// The value.
        value: String,
    },
    /// A call has tiles of a fixed size.
    FixedTile {
        /// The call.
        call: String,
    },
    /// A call between them uses a value that one of them writes, or writes a value that one of them
    /// uses.
    Between {
        /// The call between.
        call: String,
        /// The value that it shares with them.
        value: String,
    },
    /// The task would make more calls than allowed.
    TooLong {
        /// Calls of the task.
        calls: usize,
        /// Calls that a task may make.
        most: usize,
    },
    /// Its result is needed outside the tasks that would repeat it.
    Kept {
        /// The result.
        value: String,
        /// Its kind.
        kind: BufferKind,
    },
    /// It updates a value in place, so repeating it would change the value again.
    Updates {
        /// The value.
        value: String,
    },
    /// A value that it reads is written again later.
    Overwritten {
        /// The value.
        value: String,
        /// The later writer.
        by: String,
    },
}

impl Display for Refused {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (into, word) = match self.into {
            FuseInto::Producer => ("its producer", "producer"),
            FuseInto::Consumers => ("its consumers", "consumers"),
        };
        let op = Shown(&self.op);
        write!(f, "`{op}` is not fused into {into}: {}", self.because)?;
        match self.because {
            Unfused::NotAsked => write!(f, "; to ask, write `schedule(fuse({op} = {word}))`"),
            _ => Ok(()),
        }
    }
}

/// A name of the graph in backticks.
struct Tick<'a>(&'a str);

impl Display for Tick<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", Shown(self.0))
    }
}

/// `by a, by b and by c`; repeated names are counted.
fn by(calls: &[String]) -> String {
    let mut parts: Vec<(&str, usize)> = Vec::new();
    for call in calls {
        match parts.iter_mut().find(|(known, _)| known == call) {
            Some((_, count)) => *count += 1,
            None => parts.push((call, 1)),
        }
    }
    let one = |(call, count): &(&str, usize)| match count {
        1 => format!("by {}", Tick(call)),
        _ => format!("by {count} calls of {}", Tick(call)),
    };
    let parts: Vec<String> = parts.iter().map(one).collect();
    match parts.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        parts => parts.concat(),
    }
}

impl Display for Unfused {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAsked => write!(f, "the schedule does not ask for it"),
            Self::HandWritten => write!(f, "it has hand-written signals or waits"),
            Self::NotElementWise => write!(f, "it is not element-wise"),
            Self::NoProducer => write!(f, "it reads no result of another call"),
            Self::Unread { value } => write!(f, "no call reads {}", Tick(value)),
            Self::Shared { value, readers } => write!(f, "{} is read {}", Tick(value), by(readers)),
            Self::Rewritten { value, writers } => write!(f, "{} is written {}", Tick(value), by(writers)),
            Self::Repeated { producer } => write!(f, "{} is itself fused into its consumers", Tick(producer)),
            Self::NoTiles { producer } => write!(f, "{} is not cut along one dimension", Tick(producer)),
            Self::Extents { producer, theirs: Some(theirs), own } => {
                write!(f, "tiles disagree: {} cuts {theirs} elements, this call {own}", Tick(producer))
            }
            Self::Extents { producer, .. } => write!(f, "the grid of {} has no extent", Tick(producer)),
            Self::ProducerEvents { producer } => write!(f, "{} has hand-written signals or waits", Tick(producer)),
            Self::TilesDisagree { call, value } => {
                write!(f, "tiles disagree: {} does not cut {} by its tile alone", Tick(call), Tick(value))
            }
            Self::FixedTile { call } => write!(f, "{} sets the size of its tiles itself", Tick(call)),
            Self::Between { call, value } => {
                write!(f, "{}, which stands between the calls, uses or writes {}", Tick(call), Tick(value))
            }
            Self::TooLong { calls, most } => write!(f, "a task would make {calls} calls, the limit is {most}"),
            Self::Kept { value, kind } => {
                write!(f, "{} is kept as {}", Tick(value), crate::text::kind_name(*kind))
            }
            Self::Updates { value } => write!(f, "it updates {} in place", Tick(value)),
            Self::Overwritten { value, by } => write!(f, "{} is written again by {}", Tick(value), Tick(by)),
        }
    }
}

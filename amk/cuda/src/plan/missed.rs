//! The reasons why calls run in generic bodies, in tasks of their own, or without a stream; and the
//! calls that join the tasks of others.

use amk_ir::DType;
use amk_ir::lower::flow::Flow;
use amk_ir::lower::{Iteration, Unfused, once};
use core::fmt::{self, Display, Formatter};

/// A faster way to run a call, and why it is not used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missed {
    /// The call in [`amk_ir::lower::unroll::Unrolled::calls`].
    pub call: usize,
    /// Its iteration of the enclosing loops.
    pub iteration: Iteration,
    /// Its instruction.
    pub op: String,
    /// The faster way that it lacks.
    pub lacks: Lacks,
    /// Why.
    pub because: Because,
}

/// A faster way to run a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lacks {
    /// A fused body.
    FusedBody,
    /// A place in the tasks of the call before it.
    Producer,
    /// A stream of its weight.
    Stream,
}

/// The reason why a call is not faster. Calls are named by their instructions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Because {
    /// Programs in f32 have only generic tasks.
    Precision,
    /// The schedule has `fusion = false`.
    NotAsked,
    /// No registered fusion has a rule for it.
    NoRule,
    /// It needs none: it runs in the tasks of another call with a generic body.
    Joined {
        /// The first call of these tasks.
        lead: String,
    },
    /// A fusion refused it.
    Refused(String),
    /// Its group was formed and given up.
    GivenUp(String),
    /// The lowering's reasons.
    Unfused(Unfused),
    /// Its producer runs by a fused body.
    FusedProducer {
        /// The producer.
        producer: String,
    },
    /// The producer writes several values, or updates one.
    SeveralResults {
        /// The producer.
        producer: String,
    },
    /// Values between the calls of a task are f32.
    Type {
        /// The value.
        value: String,
        /// Its type.
        dtype: DType,
    },
    /// The rows of the producer's streamed weight are distributed over the workers, and this call
    /// cannot be tiled in the same way.
    Dealt {
        /// The producer.
        producer: String,
    },
    /// Its crate registers no stream for it.
    NoStream,
    /// It follows another call in its task; only the first call's weight streams.
    Follows {
        /// The call before it.
        producer: String,
    },
    /// The stream does not support a matrix of this shape.
    Shape {
        /// The weight.
        weight: String,
        /// Rows.
        rows: u32,
        /// Columns.
        columns: u32,
    },
    /// Streamed weights are bf16 matrices.
    NotMatrix {
        /// The weight.
        weight: String,
    },
    /// It uses a state, whose place determines its worker.
    State,
    /// Steps have rows, and streams take one.
    Rows,
    /// An input that arrives in shared memory is not a multiple of 8 long.
    Arrives {
        /// The input.
        value: String,
    },
    /// Its tiles are not rows of the weight.
    NotByRows {
        /// The weight.
        weight: String,
    },
}

impl Missed {
    /// Something that a call lacks, and why.
    pub(super) fn of(flow: &Flow<'_>, call: usize, lacks: Lacks, because: Because) -> Self {
        Self { call, iteration: flow.call(call).indices.clone(), op: flow.op(call), lacks, because }
    }
}

/// Returns the reasons as text. Calls that lack the same for the same reason share a line.
pub fn lines(missed: &[Missed]) -> Vec<String> {
    once(missed.iter().map(|missed| (missed.to_string(), &missed.iteration)))
}

impl Display for Missed {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { op, because, .. } = self;
        match self.lacks {
            Lacks::FusedBody if matches!(because, Because::Joined { .. }) => write!(f, "`{op}` {because}"),
            Lacks::FusedBody => write!(f, "`{op}` runs by its generic body: {because}"),
            Lacks::Producer => write!(f, "`{op}` does not join the tasks before it: {because}"),
            Lacks::Stream => write!(f, "the weight of `{op}` does not stream: {because}"),
        }
    }
}

impl Display for Because {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Precision => write!(f, "in f32 every call does"),
            Self::NotAsked => write!(f, "the schedule has `fusion = false`"),
            Self::NoRule => write!(f, "no registered fusion takes it"),
            Self::Joined { lead } => write!(f, "joins the tasks of `{lead}`"),
            Self::Refused(why) | Self::GivenUp(why) => f.write_str(why),
            Self::Unfused(why) => write!(f, "{why}"),
            Self::FusedProducer { producer } => write!(f, "`{producer}` runs by a fused body"),
            Self::SeveralResults { producer } => write!(f, "`{producer}` does not write one value alone"),
            Self::Type { value, dtype } => write!(f, "`{value}` is {dtype}, and what passes within a task is f32"),
            Self::Dealt { producer } => {
                write!(f, "it cannot be cut like the rows of the streamed weight of `{producer}`")
            }
            Self::NoStream => write!(f, "no crate registers a stream for it"),
            Self::Follows { producer } => write!(f, "it follows `{producer}` in one task"),
            Self::Shape { weight, rows, columns } => {
                write!(f, "its stream does not take `{weight}`, which is {rows} x {columns}")
            }
            Self::NotMatrix { weight } => write!(f, "`{weight}` is not a bf16 matrix"),
            Self::State => write!(f, "it uses a state"),
            Self::Rows => write!(f, "steps have rows"),
            Self::Arrives { value } => write!(f, "the length of `{value}` is not a multiple of 8"),
            Self::NotByRows { weight } => write!(f, "its tiles are not rows of `{weight}`"),
        }
    }
}

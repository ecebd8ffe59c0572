//! Typed reasons to refuse a certificate.

use amk_ir::{BufferId, Element, Region, TaskId};
use core::fmt;

/// An operand of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct At {
    /// The task.
    pub task: TaskId,
    /// The call's index in the task.
    pub call: u32,
    /// The operand's index in the call.
    pub operand: u32,
    /// The buffer.
    pub buffer: BufferId,
    /// The tile.
    pub region: Region,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, call, operand, buffer, region } = self;
        write!(f, "{buffer}{region} (operand {operand} of call {call} of {task})")
    }
}

/// Two operands that conflict.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conflict {
    /// The first in eager order.
    pub first: At,
    /// The second.
    pub second: At,
    /// The position of the first.
    pub position: u32,
    /// Steps from the first to the second.
    pub distance: u64,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, second, position, distance } = self;
        write!(f, "(1) {first} at position {position} and (2) {second}")?;
        match distance {
            0 => write!(f, " of the same step"),
            1 => write!(f, " of the next step"),
            _ => write!(f, " {distance} steps later"),
        }
    }
}

/// A wait that keeps a task from running in the order of a proof.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Missing {
    /// A task before it in its queue.
    #[error("it is not the next in its queue")]
    Queue,
    /// Signals.
    #[error("{on} has {signals} of {threshold} signals")]
    Signals {
        /// The counter.
        on: Counter,
        /// Signals before it.
        signals: u64,
        /// The threshold of the wait.
        threshold: u32,
    },
    /// A packet.
    #[error("{0}, which writes packets that it reads, has not run")]
    Packet(TaskId),
}

/// A counter, as the text format writes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counter(pub Element);

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.0.event, self.0.index)
    }
}

/// Defects of the program itself.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// The program has no position.
    #[error("there are no positions")]
    NoPositions,
    /// There are no workers to draw tickets.
    #[error("no worker draws tickets")]
    NoWorkers,
    /// There are more entities of a kind than ids.
    #[error("there are too many tasks, calls or operands")]
    TooMany,
    /// A queue names a task that is not there.
    #[error("a queue names {0}, which is not there")]
    NoTask(TaskId),
    /// A task is not in exactly one queue, once.
    #[error("{task} is {times} times in the queues")]
    Queued {
        /// The task.
        task: TaskId,
        /// How often.
        times: u32,
    },
    /// A buffer has no, or more than four, dimensions.
    #[error("{0} has no dimension, or more than four")]
    Rank(BufferId),
    /// A place is beyond all memory.
    #[error("the place of {0} ends beyond 2^64 bytes")]
    Place(BufferId),
    /// A local or packet buffer shares bytes, or two buffers that have a meaning before a step do.
    #[error("{0} and {1} may not share bytes")]
    Shared(BufferId, BufferId),
    /// A local buffer has a place.
    #[error("{0} is local and has a place")]
    PlacedLocal(BufferId),
    /// A packet buffer is of another kind, or has no slot.
    #[error("{0} cannot be exchanged by packets")]
    Packet(BufferId),
    /// A local buffer is used by two tasks.
    #[error("{buffer} is local and used by {first} and {second}")]
    Local {
        /// The buffer.
        buffer: BufferId,
        /// A task that uses it.
        first: TaskId,
        /// Another.
        second: TaskId,
    },
    /// An operand's buffer is not there.
    #[error("operand {0} has no such buffer")]
    NoBuffer(At),
    /// A tile has another rank than its buffer, bounds that cross, or elements outside.
    #[error("{0} is not a tile of the buffer at every position")]
    Tile(At),
    /// A weight or an input is written.
    #[error("{0} is written, but weights and inputs are not")]
    ReadOnly(At),
    /// An early operand is written.
    #[error("{0} is early and written")]
    EarlyWrite(At),
    /// A counter is not there.
    #[error("{0} names the counter {1}, which is not there")]
    NoCounter(TaskId, Counter),
    /// A task signals a counter twice.
    #[error("{0} signals {1} twice")]
    SignalledTwice(TaskId, Counter),
}

/// Defects of the certificate itself.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Ill {
    /// Periods do not go from 0 to the last position, one after the other.
    #[error("the periods are not all positions, one after the other")]
    Periods,
    /// Start positions do not go from 0 to the last position, one after the other.
    #[error("the start positions of the proofs are not all positions, one after the other")]
    Starts,
    /// An order has not each task once.
    #[error("the order has not each task once")]
    Order,
    /// Chains are not the queues.
    #[error("the chains are not the queues")]
    NotQueues,
    /// A chain names a task that is not there, or one for the second time.
    #[error("the chains name {0}, which is not there or twice in them")]
    Chain(TaskId),
    /// Several workers draw tickets of pipelined steps.
    #[error("tickets of several workers and pipelined steps have no chains")]
    NoChains,
    /// A clock has more numbers than there are chains.
    #[error("clock {0} has more numbers than there are chains")]
    Clock(usize),
    /// A step has not a clock for each task.
    #[error("step {0} of the clocks does not name a clock for each task")]
    Step(usize),
    /// A counter that is called mixed is not there.
    #[error("the mixed counter {0} is not there")]
    Mixed(Counter),
    /// A trap is of launches from a position that its proof is not of.
    #[error("the trap of {task} is of launches from {from}, and its proof is not")]
    From {
        /// The task of the first step.
        task: TaskId,
        /// The first start position of the launches.
        from: u32,
    },
    /// A trap names a task or a step that is not there, or is its own task's.
    #[error("the trap of {task} names {stuck} of step {step}")]
    Stuck {
        /// The task of the first step.
        task: TaskId,
        /// The stuck one.
        stuck: TaskId,
        /// Its step.
        step: u32,
    },
}

/// Why a certificate is not accepted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// Certificates do not cover tables.
    #[error("the program has tables: certificates do not cover them")]
    Tables,
    /// The check would take too long.
    #[error("{what} would take more than {most} steps of work")]
    TooLarge {
        /// A part of the check.
        what: &'static str,
        /// The most it may take.
        most: u64,
    },
    /// The program is not one.
    #[error("no program: {0}")]
    Program(#[from] Malformed),
    /// The certificate is not one of this program.
    #[error("no certificate of this program: {0}")]
    Certificate(#[from] Ill),
    /// Tickets of several workers, pipelined steps, and packets whose tiles move (L4).
    #[error("pipelined tickets of several workers with packets whose tiles move, as in {0}")]
    MovingTickets(At),
    /// The launches of a proof do not have the same packets.
    #[error(
        "the proof of positions {first} to {last}: in step {step}, {writer} writes packets of \
        some reader at some of them only"
    )]
    Writers {
        /// The first start position.
        first: u32,
        /// The last.
        last: u32,
        /// The step of the launch.
        step: u64,
        /// The writer.
        writer: TaskId,
    },
    /// A task cannot run when those before it in the order have (C1).
    #[error("from position {position}, {task} cannot run in the order of the proof: {missing}")]
    NotEnabled {
        /// The first start position of the proof.
        position: u32,
        /// The task.
        task: TaskId,
        /// The unsatisfied condition.
        missing: Missing,
    },
    /// A clock claims more than the inequality of L6 allows.
    #[error(
        "from position {position}, the clock of {task} in step {step} claims {claimed} of chain \
        {chain}, and {shown} are shown"
    )]
    Clock {
        /// The first start position of the proof.
        position: u32,
        /// The task.
        task: TaskId,
        /// Its step.
        step: u64,
        /// The chain.
        chain: usize,
        /// Finished tasks of the chain, as claimed.
        claimed: u64,
        /// As shown.
        shown: u64,
    },
    /// Signals of a step can come before the previous step's.
    #[error(
        "from position {position}, {counter} counts as not mixed, but {task} of the next step is \
        not shown to come after {other}"
    )]
    Mixed {
        /// The first start position of the proof.
        position: u32,
        /// The counter.
        counter: Counter,
        /// A task that signals it.
        task: TaskId,
        /// Another, or the same.
        other: TaskId,
    },
    /// A counter is mixed in launches from a later position, and not in this proof.
    #[error("from position {position}, {counter} counts as not mixed, and in a launch from {later} it does not")]
    MixedLater {
        /// The first start position of the proof.
        position: u32,
        /// The counter.
        counter: Counter,
        /// The first start position of the other proof.
        later: u32,
    },
    /// A stuck instance can start.
    #[error("from position {position}, in the trap of {task}: {stuck} of step {step} can start")]
    NotStuck {
        /// The first start position of the proof.
        position: u32,
        /// The task of the first step that has not finished.
        task: TaskId,
        /// The task that the certificate claims is stuck.
        stuck: TaskId,
        /// Its step.
        step: u32,
    },
    /// Two conflicting accesses are not shown to be in order (C2).
    #[error("not shown to be in order: {conflict}; the proof from position {start} has no clock and no trap for it")]
    Unordered {
        /// The two.
        conflict: Box<Conflict>,
        /// The first start position of the proof.
        start: u32,
    },
    /// An early operand reads an element that is written.
    #[error("{0} is read early, and {1} is written")]
    Early(Box<At>, Box<At>),
    /// A call writes an element that another of its operands touches.
    #[error("one call writes what it has twice: {0}")]
    SameCall(Box<Conflict>),
    /// A packet word is written twice in a step.
    #[error("packets are written twice in a step: {0}")]
    WrittenTwice(Box<Conflict>),
    /// A bound passes another within a period (L7).
    #[error(
        "between positions {first} and {last} the bounds of dimension {dimension} of {buffer} do not keep their order"
    )]
    Period {
        /// The period's first position.
        first: u32,
        /// Its last.
        last: u32,
        /// The buffer.
        buffer: BufferId,
        /// The dimension.
        dimension: usize,
    },
    /// An element is read before it is written, or after another buffer overwrote it (C3).
    #[error("at position {position}, {at} reads what its buffer has not written last")]
    Undefined {
        /// The reading operand.
        at: Box<At>,
        /// The position.
        position: u32,
    },
    /// A buffer that must keep its contents does not hold them at the end of a step (C3).
    #[error("at the end of a step at position {position}, {buffer} does not hold what was last written to it")]
    NotKept {
        /// The buffer.
        buffer: BufferId,
        /// The position.
        position: u32,
    },
}

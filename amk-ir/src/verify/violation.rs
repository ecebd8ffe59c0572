//! Violations: the defect, the entities involved and the reason.

use super::routing::{Given, NoTable, NoTile, Uncounted};
use super::rows::{NoRows, Unwanted};
use crate::{Access, BufferId, Element, EventId, OpId, Operand, Program, Region, TableId, TaskId, Wait};
use core::fmt;

/// A stable code, printed as `AMK0302`. The first two digits are the family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(pub u16);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AMK{:04}", self.0)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One operand of one call of one task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Site {
    /// The task.
    pub task: TaskId,
    /// The call's place in the task.
    pub call: u32,
    /// The operand's place in the call.
    pub operand: u32,
}

impl Site {
    /// The operand in its program.
    pub fn of(self, program: &Program) -> Option<&Operand> {
        let call = program.tasks.get(self.task.index())?.calls.get(self.call as usize)?;
        call.operands.get(self.operand as usize)
    }
}

/// A party of a race: an access, in this step or `step` steps later.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Party {
    /// Where the access is.
    pub site: Site,
    /// The refused access.
    pub access: Access,
    /// The buffer.
    pub buffer: BufferId,
    /// The tile.
    pub region: Region,
    /// Steps after the step of party (1).
    pub step: u32,
}

/// A task of a certain step, relative to the step of party (1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Occurrence {
    /// The task.
    pub task: TaskId,
    /// Steps after the step of party (1).
    pub step: u32,
}

/// A broken rule of a program. [`Violation::message`] renders it as text.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Violation {
    /// AMK0101: a reference to an entity that does not exist.
    Missing {
        /// Who refers to it.
        from: Option<TaskId>,
        /// The missing item.
        what: Reference,
    },
    /// AMK0102: a call does not fit its instruction.
    Call {
        /// The task.
        task: TaskId,
        /// The call's place in the task.
        call: u32,
        /// The mismatch.
        mismatch: Mismatch,
    },
    /// AMK0103: a shape that no buffer or event tensor can have, or no position.
    Shape(Shaped),
    /// AMK0104: a tile leaves its buffer.
    OutOfBounds {
        /// The access.
        site: Site,
        /// The dimension, or `None` if the ranks differ.
        dim: Option<u32>,
        /// The first position at which it does.
        position: u32,
    },
    /// AMK0105: a tile whose bounds cross, or that is empty at every position.
    EmptyTile {
        /// The access.
        site: Site,
        /// The dimension.
        dim: u32,
        /// The first position at which the bounds cross; `None` if they only meet.
        crosses_at: Option<u32>,
    },
    /// AMK0106: a write to a weight or an input.
    ReadOnly {
        /// The access.
        site: Site,
    },
    /// AMK0107: a local buffer is used by two tasks.
    SharedLocal {
        /// The buffer.
        buffer: BufferId,
        /// The first user.
        first: TaskId,
        /// Another user.
        second: TaskId,
    },
    /// AMK0108: a task is not in the queues exactly once.
    Queued {
        /// The task.
        task: TaskId,
        /// How often it is.
        times: u32,
    },
    /// AMK0109: elements of an output that no task writes.
    OutputNotWritten {
        /// The buffer.
        buffer: BufferId,
        /// Elements that are not written: start and end in each dimension.
        elements: Vec<(u64, u64)>,
        /// The position at which they are not.
        position: u32,
        /// Their place in rows that a table sorts: an entry and its value.
        given: Option<Given>,
    },
    /// AMK0110: the program exceeds a capacity of the target.
    Capacity(Capacity),
    /// AMK0111: a task waits for or signals a counter twice.
    Repeated {
        /// The task.
        task: TaskId,
        /// The counter.
        element: Element,
        /// Whether it is a wait.
        wait: bool,
    },
    /// AMK0112: packets where none are allowed.
    Packet {
        /// The buffer.
        buffer: BufferId,
        /// The reason.
        why: NoPacket,
    },
    /// AMK0113: more entities than 32 bits can count.
    TooMany {
        /// The kind of entity.
        what: &'static str,
        /// How many.
        count: u64,
    },
    /// AMK0114: a check that would take too long.
    TooMuch(TooMuch),
    /// AMK0115: a written operand is marked `early`.
    EarlyWrite {
        /// The access.
        site: Site,
    },
    /// AMK0116: a parameter that is infinite or not a number.
    NotFinite {
        /// The task.
        task: TaskId,
        /// The call's place in the task.
        call: u32,
        /// The parameter's place in the call.
        param: u32,
    },
    /// AMK0201: a wait that can never hold, or that always holds.
    Unsatisfiable {
        /// The task.
        task: TaskId,
        /// The wait.
        wait: Wait,
        /// Number of tasks that signal the counter.
        fan_in: u32,
    },
    /// AMK0202: tasks that wait for each other.
    Deadlock {
        /// The shortest cycle: each link names a task's wait and a task that would have to finish
        /// first; the last link leads back to the first.
        cycle: Vec<Link>,
        /// Number of tasks that never run.
        stuck: u32,
        /// The position at which it happens.
        position: u32,
    },
    /// AMK0203: a task waits for a later ticket, so one resident worker would wait forever.
    TicketOrder {
        /// The task.
        task: TaskId,
        /// The wait for the later ticket.
        link: Link,
        /// The position at which it does.
        position: u32,
    },
    /// AMK0204: there are tasks and no worker to run them.
    NoWorkers {
        /// Number of tasks.
        tasks: u32,
    },
    /// AMK0301: a read of elements that nothing has written in this step.
    Uninitialised {
        /// The read.
        site: Site,
        /// Elements that are not written: start and end in each dimension.
        elements: Vec<(u64, u64)>,
        /// The position at which they are not.
        position: u32,
        /// A task that writes some of them later in eager order.
        later: Option<TaskId>,
        /// Their place in rows that a table sorts: an entry and its value.
        given: Option<Given>,
    },
    /// AMK0302 to AMK0304, AMK0404, AMK0502 and AMK0503: two accesses, one of them a write, in no
    /// proven order.
    Race(Box<Race>),
    /// AMK0305: a read before the waits, of an element that the launch writes.
    Early {
        /// The read.
        read: Party,
        /// A write of the same elements.
        write: Party,
        /// The position of the read.
        position: u32,
        /// The position of the write.
        write_position: u32,
    },
    /// AMK0306: a call writes an element that another of its operands touches.
    SameCall {
        /// One operand.
        first: Party,
        /// The other operand.
        second: Party,
        /// The position at which they overlap.
        position: u32,
    },
    /// AMK0401: a buffer's place in the arena is not a multiple of its elements' alignment.
    Misaligned {
        /// The buffer.
        buffer: BufferId,
        /// The alignment in bytes.
        alignment: u32,
    },
    /// AMK0402: a buffer that must keep its bytes loses them to another.
    SharedPlace {
        /// The buffer.
        buffer: BufferId,
        /// Another with the same bytes.
        other: BufferId,
        /// The write after which the bytes are not the buffer's at the end of a step; `None` if the
        /// two can never share.
        write: Option<Party>,
        /// The position at which it is so.
        position: u32,
    },
    /// AMK0403: a read of elements whose bytes another buffer has overwritten.
    Overwritten {
        /// The read.
        read: Party,
        /// The write that came last.
        write: Party,
        /// The position at which it does.
        position: u32,
    },
    /// AMK0405: a local buffer has a place in the arena.
    PlacedLocal {
        /// The buffer.
        buffer: BufferId,
    },
    /// AMK0501: an element of a packet buffer is written twice in a step.
    PacketTwice {
        /// The first write.
        first: Party,
        /// The second write.
        second: Party,
        /// The position at which both write.
        position: u32,
    },
    /// AMK0504: more signals on a counter than comparisons across the 32-bit wrap-around can tell
    /// apart.
    WrapAround {
        /// The counter.
        element: Element,
        /// Signals in a step.
        fan_in: u64,
    },
    /// AMK0505: packets whose tiles move with the position, in pipelined steps of several ticket
    /// workers.
    MovingTickets {
        /// The buffer.
        buffer: BufferId,
    },
    /// AMK0630: a table that cannot be one.
    Table {
        /// The table.
        table: TableId,
        /// The reason.
        why: NoTable,
    },
    /// AMK0631: a tile that its table cannot decide.
    RoutedTile {
        /// The access.
        site: Site,
        /// The reason.
        why: NoTile,
    },
    /// AMK0632: the signals of an event tensor are not those that a table counts.
    RoutedCounter {
        /// The event tensor.
        event: EventId,
        /// The table.
        table: TableId,
        /// The difference.
        why: Uncounted,
    },
    /// AMK0633: a task depends on a table and does not read it.
    TableNotRead {
        /// The task.
        task: TaskId,
        /// The table.
        table: TableId,
        /// The entry that it depends on, `None` for all.
        entry: Option<u32>,
    },
    /// AMK0634: a table in a program whose steps are pipelined.
    RoutedSteps {
        /// The table.
        table: TableId,
    },
    /// AMK0801: a program that cannot have rows, or a call that cannot have its rows.
    Rows(NoRows),
    /// AMK0802: a tile that is not the tile of the call's rows.
    MixedRows {
        /// The access.
        site: Site,
    },
    /// AMK0802: a row writes a state at another position than its own.
    OtherPositions {
        /// The access.
        site: Site,
    },
    /// AMK0803: accesses of two rows of a sequence to a state are not listed in the order of the
    /// rows.
    RowOrder {
        /// The access that is listed first, for the later row.
        first: Party,
        /// The access that is listed second, for the earlier row.
        second: Party,
        /// The position of the earlier row.
        position: u32,
        /// Rows between the two.
        distance: u32,
    },
    /// AMK0804: rows that are not wanted are omitted, and something depends on them.
    UnwantedRows {
        /// The access.
        site: Site,
        /// The dependence.
        why: Unwanted,
    },
    /// AMK0805: a tile restricts a dimension of a state in which others move.
    RowBound {
        /// The access.
        site: Site,
        /// The dimension.
        dim: u32,
    },
}

/// An entity that is referred to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reference {
    /// A buffer.
    Buffer(BufferId),
    /// An instruction.
    Instruction(crate::InstructionId),
    /// A counter.
    Counter(Element),
    /// An op.
    Op(OpId),
    /// A task, by a queue.
    Task(TaskId),
    /// A table.
    Table(TableId),
}

/// A mismatch between a call and its instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mismatch {
    /// Number of operands.
    Operands {
        /// The declared number.
        expected: u32,
        /// The number in the call.
        found: u32,
    },
    /// An operand is accessed in a way that its buffer does not allow.
    Access {
        /// The operand's place.
        operand: u32,
        /// The declared access.
        expected: Access,
        /// The access in the call.
        found: Access,
    },
    /// Number of parameters.
    Params {
        /// The declared number.
        expected: u32,
        /// The number in the call.
        found: u32,
    },
}

/// Items with an impossible shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shaped {
    /// A buffer without dimensions or with more than 4.
    Rank {
        /// The buffer.
        buffer: BufferId,
        /// Its number of dimensions.
        rank: u32,
    },
    /// A buffer with an extent of zero.
    EmptyBuffer {
        /// The buffer.
        buffer: BufferId,
        /// The dimension.
        dim: u32,
    },
    /// An event tensor with an extent of zero.
    EmptyEvent {
        /// The event tensor.
        event: EventId,
        /// The dimension.
        dim: u32,
    },
    /// A program for no position.
    NoPositions,
}

/// Capacities that the target lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Capacity {
    /// Resident workers.
    Workers {
        /// Needed.
        needed: u64,
        /// Available.
        available: u64,
    },
    /// Bytes of task-local memory.
    Local {
        /// The task.
        task: TaskId,
        /// Needed.
        needed: u64,
        /// Available.
        available: u64,
    },
    /// Bytes of memory.
    Memory {
        /// Needed.
        needed: u64,
        /// Available.
        available: u64,
    },
}

/// The reasons why a buffer cannot be exchanged in packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoPacket {
    /// Its kind is neither `activation` nor `output`.
    Kind,
    /// It has no slots.
    NoSlots,
    /// Its tiles divide it in more ways than the verifier follows.
    TooFine,
}

/// A link of a cycle: why a task cannot start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// The task that cannot start.
    pub task: TaskId,
    /// The wait.
    pub on: WaitsOn,
    /// The task that would have to run first.
    pub for_task: TaskId,
}

/// The kinds of waits of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitsOn {
    /// A counter that `for_task` signals.
    Counter(Wait),
    /// A packet that `for_task` writes.
    Packet(BufferId),
    /// The task before it in its queue.
    Queue,
}

/// Two accesses to the same elements, one of them a write, in no proven order.
#[derive(Clone, PartialEq, Debug)]
pub struct Race {
    /// The kind of conflict.
    pub conflict: Conflict,
    /// The access that comes first in eager order.
    pub first: Party,
    /// The access that comes second in eager order.
    pub second: Party,
    /// The position of the step of the first.
    pub position: u32,
    /// The reason why they are not ordered.
    pub because: Unordered,
    /// The value of an entry for which they are not; `None` if no value matters.
    pub given: Option<Given>,
    /// Tasks that run, in this order, before the second starts; the first has not finished.
    pub witness: Vec<Occurrence>,
}

/// Quantities that require more work than the verifier spends on a program of this size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TooMuch {
    /// Bounds of a buffer's tiles pass each other at too many positions.
    Positions {
        /// The buffer.
        buffer: BufferId,
        /// Positions to check.
        positions: u64,
    },
    /// Packets move with the position, and there are so many slots that two uses of one are further
    /// apart than the steps that are followed.
    Slots {
        /// The buffer whose packets move.
        buffer: BufferId,
    },
    /// Tiles of a buffer are compared pair by pair, and there are too many.
    Pairs {
        /// The buffer.
        buffer: BufferId,
    },
    /// Tiles of a buffer that shares its bytes split into too many runs of bytes, over all
    /// positions.
    Runs {
        /// The buffer.
        buffer: BufferId,
    },
    /// The clocks of each counter: the finished tasks of each worker that it stands for.
    Clocks {
        /// Workers, or chains of tickets as far as they were followed.
        workers: u32,
        /// Whether they are chains of tickets.
        tickets: bool,
        /// Counters.
        counters: u32,
    },
    /// Orders that do not follow from queues and full waits.
    Orders {
        /// A task whose order was in question.
        task: TaskId,
    },
    /// Orders that depend on a table's entries.
    Routes {
        /// A task whose order was in question.
        task: TaskId,
    },
}

/// The kinds of conflicts between two accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Conflict {
    /// AMK0302: the second reads an element that the first writes.
    ReadAfterWrite,
    /// AMK0303: both write.
    WriteAfterWrite,
    /// AMK0304: the second writes an element that the first reads.
    WriteAfterRead,
    /// AMK0404: they are of two buffers that share bytes.
    SharedBytes,
    /// AMK0502: the second writes the packet slot of a later step.
    PacketReuse,
    /// AMK0503: they are of two steps.
    AcrossSteps,
}

impl Conflict {
    /// The code of the kind.
    pub fn code(self) -> Code {
        Code(match self {
            Self::ReadAfterWrite => 302,
            Self::WriteAfterWrite => 303,
            Self::WriteAfterRead => 304,
            Self::SharedBytes => 404,
            Self::PacketReuse => 502,
            Self::AcrossSteps => 503,
        })
    }
}

/// The reason why the first of two tasks need not have finished when the second starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unordered {
    /// No wait, packet or queue leads from the first to the second.
    NoPath,
    /// The second always runs before the first.
    Reversed,
    /// They are in the queue of one worker, in the other order.
    QueueReversed,
    /// The second waits for a counter that the first signals, but enough other signals can come
    /// without it.
    Partial {
        /// The wait.
        wait: Wait,
        /// Tasks that signal the counter.
        fan_in: u32,
        /// Signals of this step that can come without the first.
        others: u32,
    },
    /// Like `Partial`, but only because workers can run ahead: signals of later steps count.
    RunsAhead {
        /// The wait.
        wait: Wait,
        /// Tasks that signal the counter.
        fan_in: u32,
    },
}

impl Violation {
    /// The stable code of its kind.
    pub fn code(&self) -> Code {
        Code(match self {
            Self::Missing { .. } => 101,
            Self::Call { .. } => 102,
            Self::Shape(_) => 103,
            Self::OutOfBounds { .. } => 104,
            Self::EmptyTile { .. } => 105,
            Self::ReadOnly { .. } => 106,
            Self::SharedLocal { .. } => 107,
            Self::Queued { .. } => 108,
            Self::OutputNotWritten { .. } => 109,
            Self::Capacity(_) => 110,
            Self::Repeated { .. } => 111,
            Self::Packet { .. } => 112,
            Self::TooMany { .. } => 113,
            Self::TooMuch(_) => 114,
            Self::EarlyWrite { .. } => 115,
            Self::NotFinite { .. } => 116,
            Self::Unsatisfiable { .. } => 201,
            Self::Deadlock { .. } => 202,
            Self::TicketOrder { .. } => 203,
            Self::NoWorkers { .. } => 204,
            Self::Uninitialised { .. } => 301,
            Self::Race(race) => return race.conflict.code(),
            Self::Early { .. } => 305,
            Self::SameCall { .. } => 306,
            Self::Misaligned { .. } => 401,
            Self::SharedPlace { .. } => 402,
            Self::Overwritten { .. } => 403,
            Self::PlacedLocal { .. } => 405,
            Self::PacketTwice { .. } => 501,
            Self::WrapAround { .. } => 504,
            Self::MovingTickets { .. } => 505,
            Self::Table { .. } => 630,
            Self::RoutedTile { .. } => 631,
            Self::RoutedCounter { .. } => 632,
            Self::TableNotRead { .. } => 633,
            Self::RoutedSteps { .. } => 634,
            Self::Rows(_) => 801,
            Self::MixedRows { .. } | Self::OtherPositions { .. } => 802,
            Self::RowOrder { .. } => 803,
            Self::UnwantedRows { .. } => 804,
            Self::RowBound { .. } => 805,
        })
    }
}

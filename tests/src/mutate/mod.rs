//! Mutations: small changes of a program that mostly make it wrong.
//!
//! [`sites`] lists every place of a program where a class of mutation applies, [`Mutation::apply`]
//! makes the mutant. Whether a mutant is unsafe is for others to say: some are harmless, as when a
//! wait is dropped that another one implies.

mod apply;
mod sites;

pub use sites::sites;

use amk_ir::{BufferId, Element, EventId, TaskId};
use core::fmt;

/// The kind of a mutation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// A wait is gone.
    DropWait,
    /// A wait asks for one signal less.
    LowerWait,
    /// A wait asks for one signal more.
    RaiseWait,
    /// A wait is on another counter.
    RedirectWait,
    /// A task waits twice for a counter.
    RepeatWait,
    /// A task waits for a task behind it in eager order.
    WaitForLater,
    /// A task waits for its own signal.
    WaitForSelf,
    /// A signal is gone.
    DropSignal,
    /// A signal goes to another counter.
    RedirectSignal,
    /// A task signals twice.
    RepeatSignal,
    /// Two neighbours of a queue change places.
    SwapQueue,
    /// A task moves to another worker.
    MoveTask,
    /// A task moves to a new worker.
    SplitWorker,
    /// A task is in no queue.
    DropEntry,
    /// A task is queued twice.
    RepeatEntry,
    /// Static queues become a ticket queue.
    StaticToTicket,
    /// One worker less is resident than there are.
    FewerResident,
    /// Two neighbours in eager order, in conflict, change places: a read moves before the append.
    SwapEager,
    /// A tile moves by one element.
    ShiftTile,
    /// A tile grows by one element.
    WidenTile,
    /// A tile shrinks by one element.
    NarrowTile,
    /// A tile follows the position.
    FollowPosition,
    /// A bound of a tile follows the position, or no longer does.
    FollowBound,
    /// A bound of a tile is some elements behind the position.
    FallBehind,
    /// Two buffers share memory.
    Alias,
    /// An operand is read before the waits.
    Early,
    /// A packet buffer has one slot less.
    FewerSlots,
    /// A packet buffer has one slot more.
    MoreSlots,
    /// A packet buffer becomes an ordinary one.
    PacketToCounter,
    /// An ordinary buffer becomes a packet buffer.
    CounterToPacket,
    /// The barrier between steps is removed.
    Pipeline,
    /// Steps are separated by a barrier.
    Barrier,
    /// There is one position less.
    FewerPositions,
    /// There is one position more.
    MorePositions,
    /// A written buffer becomes read only.
    ReadOnly,
    /// A state becomes undefined at the start of a step.
    ForgetState,
    /// A buffer becomes private to a task.
    MakeLocal,
    /// A buffer loses its last row.
    ShrinkBuffer,
    /// An event tensor loses its last counter.
    ShrinkEvent,
    /// A call is gone.
    DropCall,
    /// An operand is gone.
    DropOperand,
    /// An operand is accessed in another way than the instruction declares.
    ChangeAccess,
    /// A tile has a dimension more.
    ChangeRank,
    /// An operand is of a buffer that does not exist.
    UnknownBuffer,
    /// A wait is on an event tensor that does not exist.
    UnknownCounter,
    /// A call is of an instruction that does not exist.
    UnknownInstruction,
    /// A call has a parameter more than its instruction.
    ExtraParam,
    /// All workers are removed.
    NoWorkers,
    /// The target has less memory than the program needs, or just enough.
    LessMemory,
    /// A buffer of the arena moves by a byte.
    Misalign,
}

impl Class {
    /// All classes.
    pub const ALL: [Self; 50] = [
        Self::DropWait,
        Self::LowerWait,
        Self::RaiseWait,
        Self::RedirectWait,
        Self::RepeatWait,
        Self::WaitForLater,
        Self::WaitForSelf,
        Self::DropSignal,
        Self::RedirectSignal,
        Self::RepeatSignal,
        Self::SwapQueue,
        Self::MoveTask,
        Self::SplitWorker,
        Self::DropEntry,
        Self::RepeatEntry,
        Self::StaticToTicket,
        Self::FewerResident,
        Self::SwapEager,
        Self::ShiftTile,
        Self::WidenTile,
        Self::NarrowTile,
        Self::FollowPosition,
        Self::FollowBound,
        Self::FallBehind,
        Self::Alias,
        Self::Early,
        Self::FewerSlots,
        Self::MoreSlots,
        Self::PacketToCounter,
        Self::CounterToPacket,
        Self::Pipeline,
        Self::Barrier,
        Self::FewerPositions,
        Self::MorePositions,
        Self::ReadOnly,
        Self::ForgetState,
        Self::MakeLocal,
        Self::ShrinkBuffer,
        Self::ShrinkEvent,
        Self::DropCall,
        Self::DropOperand,
        Self::ChangeAccess,
        Self::ChangeRank,
        Self::UnknownBuffer,
        Self::UnknownCounter,
        Self::UnknownInstruction,
        Self::ExtraParam,
        Self::NoWorkers,
        Self::LessMemory,
        Self::Misalign,
    ];
}

/// A mutation at its place in a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mutation {
    /// Its kind.
    pub class: Class,
    /// Where, and how.
    pub site: Site,
}

/// A place in a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Site {
    /// The whole program.
    Program,
    /// A wait, and another counter where the class needs one.
    Wait(TaskId, usize, Option<Element>),
    /// A task, and a counter to wait for.
    Task(TaskId, Element),
    /// A signal, and another counter where the class needs one.
    Signal(TaskId, usize, Option<Element>),
    /// An entry of a queue (0 for the ticket queue), and another worker where the class needs one.
    Entry(usize, usize, usize),
    /// Two tasks.
    Pair(TaskId, TaskId),
    /// A dimension of an operand of a call, and whether the change is at its upper end.
    Tile {
        /// The task.
        task: TaskId,
        /// The call.
        call: usize,
        /// The operand.
        operand: usize,
        /// The dimension.
        dim: usize,
        /// Upwards, or at the upper bound.
        up: bool,
    },
    /// A call.
    Call(TaskId, usize),
    /// A buffer.
    Buffer(BufferId),
    /// Two buffers.
    Buffers(BufferId, BufferId),
    /// An event tensor.
    Event(EventId),
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {:?}", self.class, self.site)
    }
}

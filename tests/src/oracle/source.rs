//! The oracle's view of a program: plain structures of its own.

/// A program as the oracle read it.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// Positions of a step are `0..positions`.
    pub positions: u64,
    /// The most rows of a step. Such a program is judged step by step, in [`crate::rows`].
    pub rows: Option<u64>,
    /// Whether a worker goes on to the next step at once.
    pub pipelined: bool,
    /// Workers that can be resident.
    pub resident: Option<u64>,
    /// Bytes of task-local memory of a worker.
    pub local_bytes: Option<u64>,
    /// Bytes of memory for all buffers.
    pub memory_bytes: Option<u64>,
    /// The instruction table.
    pub instructions: Vec<Signature>,
    /// The buffers.
    pub buffers: Vec<Buffer>,
    /// Extents of the event tensors.
    pub events: Vec<Vec<u64>>,
    /// The tasks in eager order.
    pub tasks: Vec<Task>,
    /// The tasks of each worker.
    pub queues: Queues,
}

/// How an instruction accesses its operands, in the order of the text: reads and updates, then
/// writes.
#[derive(Clone, Debug, Default)]
pub struct Signature {
    /// The name that calls use.
    pub name: String,
    /// The operands.
    pub accesses: Vec<Access>,
    /// Number of scalar parameters.
    pub params: usize,
}

/// The kinds of accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reads.
    Read,
    /// Reads and writes.
    Update,
    /// Writes.
    Write,
}

impl Access {
    /// Whether it reads.
    pub fn reads(self) -> bool {
        self != Self::Write
    }

    /// Whether it writes.
    pub fn writes(self) -> bool {
        self != Self::Read
    }
}

/// The kinds of buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Never written.
    Weight,
    /// Never written.
    Input,
    /// Undefined at the start of a step.
    Activation,
    /// Fully written in each step.
    Output,
    /// Kept from step to step.
    State,
    /// Private to one task.
    Local,
}

/// A buffer.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// The kind of buffer.
    pub kind: Kind,
    /// Bytes of an element.
    pub width: u64,
    /// Extents, outermost first.
    pub shape: Vec<u64>,
    /// Copies, if it is a packet buffer.
    pub slots: Option<u64>,
    /// Offset in the shared arena.
    pub place: Option<u64>,
    /// Elements of an output that the host does not read: nobody need write them.
    pub unread: Vec<u64>,
}

impl Buffer {
    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }
}

/// A task.
#[derive(Clone, Debug, Default)]
pub struct Task {
    /// Its calls in order.
    pub calls: Vec<Call>,
    /// Counter and threshold.
    pub waits: Vec<(Counter, u64)>,
    /// Counters it adds one to.
    pub signals: Vec<Counter>,
}

/// An element of an event tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counter {
    /// The event tensor.
    pub event: usize,
    /// The row-major index; past the end where the coordinates are outside.
    pub index: u64,
}

/// A call of an instruction.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// The name of the instruction.
    pub name: String,
    /// The operands: reads and updates, then writes.
    pub operands: Vec<Operand>,
    /// Number of scalar parameters.
    pub params: usize,
    /// The rows that it is for, in a program with rows.
    pub rows: Option<Rows>,
}

/// Rows of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rows {
    /// The first.
    pub first: u64,
    /// One past the last.
    pub end: u64,
    /// Whether rows whose outputs nobody wants are left out.
    pub wanted: bool,
}

/// A tile of a buffer.
#[derive(Clone, Debug)]
pub struct Operand {
    /// The buffer.
    pub buffer: usize,
    /// An interval a dimension; `None` is the whole extent.
    pub tile: Vec<Option<(Bound, Bound)>>,
    /// The access.
    pub access: Access,
    /// Whether it may be read before the waits.
    pub early: bool,
}

/// `base`, `pos + base`, or `max(0, pos - base)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bound {
    /// Whether the position is added.
    pub pos: bool,
    /// The constant.
    pub base: u64,
    /// Whether the constant is subtracted from the position, down to 0.
    pub back: bool,
}

impl Bound {
    /// The value at a position.
    pub fn at(self, position: u64) -> u64 {
        match (self.pos, self.back) {
            (false, _) => self.base,
            (true, false) => position + self.base,
            (true, true) => position.saturating_sub(self.base),
        }
    }
}

/// The tasks of each worker.
#[derive(Clone, Debug)]
pub enum Queues {
    /// A list of tasks a worker.
    Static(Vec<Vec<usize>>),
    /// One list, drawn from by `workers` workers.
    Ticket {
        /// Number of workers.
        workers: u64,
        /// The list.
        order: Vec<usize>,
    },
}

impl Default for Queues {
    fn default() -> Self {
        Self::Static(Vec::new())
    }
}

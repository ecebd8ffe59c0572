//! The program: concrete tasks, buffers, events and queues for given dims.
//!
//! Tasks are listed in *eager order*: running them one after the other by id computes the annotated
//! function. That order is the meaning of the program; waits, packets and queues only determine how
//! much of it the workers keep.

use crate::{
    BufferId, CallRows, DType, EventId, InstructionId, OpId, Region, Routed, RoutedSignal, RoutedWait, Table, TaskId,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A megakernel program. See the [module](self) for its meaning and [`crate::text`] for its text
/// format.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// The name: function and instance, such as `decode.smollm2_135m`.
    pub name: String,
    /// The dims the program was lowered for.
    #[serde(default)]
    pub dims: BTreeMap<String, u32>,
    /// Positions of a step are `0..positions`; 1 if nothing depends on the position.
    pub positions: u32,
    /// Maximum number of rows in a step, see [`crate::rows`]; `None`: a step is one call of the
    /// function, and nothing has a dimension of rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u32>,
    /// How one step follows the other.
    #[serde(default)]
    pub steps: Steps,
    /// Resource limits of the target.
    #[serde(default)]
    pub limits: Limits,
    /// The instructions the tasks call.
    pub instructions: Vec<Instruction>,
    /// Labels of the graph's ops, for messages.
    #[serde(default)]
    pub ops: Vec<String>,
    /// The buffers.
    pub buffers: Vec<Buffer>,
    /// The tables that data-dependent edges depend on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<Table>,
    /// The event tensors.
    pub events: Vec<EventTensor>,
    /// The tasks, in eager order.
    pub tasks: Vec<Task>,
    /// The assignment of tasks to workers, in order.
    pub queues: Queues,
}

/// How the steps of a launch follow each other. Counters and packets are monotonic: nothing is
/// reset between steps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Steps {
    /// All workers finish a step before any starts the next.
    #[default]
    Barrier,
    /// A worker continues with the next step when its own queue is done.
    Pipelined,
}

/// Capacities of the target, checked by AMK01xx.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Workers that are resident at the same time.
    pub workers: u32,
    /// Bytes of task-local memory a worker has.
    pub local_bytes: u64,
    /// Bytes of memory for all buffers.
    pub memory_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { workers: u32::MAX, local_bytes: u64::MAX, memory_bytes: u64::MAX }
    }
}

/// An instruction of the program's table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instruction {
    /// The short name used in the text format.
    pub name: String,
    /// The full path of the Rust function, such as `amk_kernels::linear`; the registry's key.
    pub path: String,
    /// The operands in call order.
    pub operands: Vec<OperandSpec>,
    /// Names of the scalar parameters in call order.
    #[serde(default)]
    pub params: Vec<String>,
}

/// An operand that an instruction declares.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperandSpec {
    /// The operand's name.
    pub name: String,
    /// How the instruction accesses it.
    pub access: Access,
}

/// How a call accesses an operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Reads every element of the region.
    Read,
    /// Writes every element of the region without reading it.
    Write,
    /// Reads and writes every element of the region.
    Update,
}

impl Access {
    /// Whether elements are read.
    pub const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::Update)
    }

    /// Whether elements are written.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Update)
    }
}

/// A buffer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Buffer {
    /// The name: a path of the annotated function, such as `w.layers[3].wq`.
    pub name: String,
    /// The kind of buffer.
    pub kind: BufferKind,
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first; 1 to 4 of them, none zero.
    pub shape: Vec<u32>,
    /// How its consumers are synchronised with its writers.
    #[serde(default)]
    pub exchange: Exchange,
    /// Offset in bytes in the arena that buffers may share; `None`: separate memory.
    #[serde(default)]
    pub place: Option<u64>,
}

impl Buffer {
    /// Number of elements, saturating.
    pub fn len(&self) -> u64 {
        self.shape.iter().fold(1, |n, &extent| n.saturating_mul(u64::from(extent)))
    }

    /// Whether some extent is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size in bytes, saturating.
    pub fn bytes(&self) -> u64 {
        self.len().saturating_mul(u64::from(self.dtype.bytes()))
    }

    /// Whether it is exchanged by packets.
    pub fn is_packet(&self) -> bool {
        self.exchange != Exchange::Counter
    }
}

/// The kinds of buffers, by lifetime and access.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BufferKind {
    /// Read only, never written in a launch; may be read before any wait (tape, prefetch).
    Weight,
    /// Set by the host before a step; read only.
    Input,
    /// Written and read within a step; undefined before.
    Activation,
    /// Read by the host after a step; every element is written in each step.
    Output,
    /// Kept from step to step, defined from the start: the KV cache, the token fed back.
    State,
    /// Private to one task: between the calls of a fused task.
    Local,
}

/// How consumers of a buffer are synchronised with its writers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum Exchange {
    /// By waits on event tensors.
    #[default]
    Counter,
    /// Each word carries its epoch; reading is waiting. `slots` copies are used in rotation, one
    /// per step.
    Packet {
        /// Copies of the buffer: 1, or 2 when double-buffered.
        slots: u8,
    },
}

/// An n-d array of monotonic counters. A task signals elements; a consumer waits for counts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventTensor {
    /// The name.
    pub name: String,
    /// Extents, outermost first; empty: one counter.
    pub shape: Vec<u32>,
}

impl EventTensor {
    /// Number of counters, saturating.
    pub fn len(&self) -> u64 {
        self.shape.iter().fold(1, |n, &extent| n.saturating_mul(u64::from(extent)))
    }

    /// Whether it has no counter.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One counter of an event tensor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Element {
    /// The event tensor.
    pub event: EventId,
    /// The element's index in row-major order.
    pub index: u32,
}

/// A wait: the task starts when the counter has had `threshold` signals in this step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wait {
    /// The counter.
    pub on: Element,
    /// Signals to wait for, 1 to the number of tasks that signal the counter.
    pub threshold: u32,
}

/// A task: calls run in order by one worker, after all waits, before all signals.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// The graph op it is a tile of (the last op of a fused group).
    pub op: Option<OpId>,
    /// Instruction calls, in order.
    pub calls: Vec<Call>,
    /// All must hold before the first call starts.
    #[serde(default)]
    pub waits: Vec<Wait>,
    /// Each is signalled once after the last call.
    #[serde(default)]
    pub signals: Vec<Element>,
    /// Waits that depend on tables, checked after the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routed_waits: Vec<RoutedWait>,
    /// Signals that depend on tables, after the last call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routed_signals: Vec<RoutedSignal>,
}

/// One call of an instruction on one tile.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// The instruction.
    pub instruction: InstructionId,
    /// Its operands in order.
    pub operands: Vec<Operand>,
    /// Its scalar parameters in order.
    #[serde(default)]
    pub params: Vec<Param>,
    /// The rows that it computes, in a program with rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<CallRows>,
}

/// An operand: a tile of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operand {
    /// The buffer.
    pub buffer: BufferId,
    /// The tile.
    pub region: Region,
    /// How the call accesses it.
    pub access: Access,
    /// The read may start before the task's waits (tape, prefetch).
    #[serde(default)]
    pub early: bool,
    /// The part of the first dimension that a table selects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routed: Option<Routed>,
}

/// A scalar parameter.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Param {
    /// A 32-bit float.
    F32(f32),
    /// An unsigned integer.
    U32(u32),
    /// The position of the step.
    Pos,
}

/// The assignment of tasks to workers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum Queues {
    /// One list per worker, run in order; every worker must be resident.
    Static(Vec<Vec<TaskId>>),
    /// A single list: a free worker takes the next ticket. One resident worker is enough.
    Ticket {
        /// Workers that draw tickets.
        workers: u32,
        /// Tasks in ticket order.
        order: Vec<TaskId>,
    },
}

impl Default for Queues {
    fn default() -> Self {
        Self::Static(Vec::new())
    }
}

impl Queues {
    /// Number of workers.
    pub fn workers(&self) -> u32 {
        match self {
            Self::Static(queues) => queues.len() as u32,
            Self::Ticket { workers, .. } => *workers,
        }
    }
}

impl Program {
    /// Whether a buffer is exchanged by packets.
    pub fn has_packets(&self) -> bool {
        self.buffers.iter().any(Buffer::is_packet)
    }

    /// Index of the first counter of each event tensor when the counters of all event tensors are
    /// numbered consecutively, and the total number.
    pub fn counter_bases(&self) -> (Vec<u64>, u64) {
        let mut next = 0u64;
        let bases = self
            .events
            .iter()
            .map(|event| {
                let base = next;
                next = next.saturating_add(event.len());
                base
            })
            .collect();
        (bases, next)
    }
}

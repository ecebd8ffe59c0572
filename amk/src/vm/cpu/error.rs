//! Errors of the CPU VM.

use crate::megakernel::MegakernelError;
use crate::registry::RegistryError;
use crate::rows::{GroupName, contract};
use crate::vm::OtherConstant;
use amk_ir::text::Shown;
use amk_ir::verify::Message;
use amk_ir::{TaskId, WorkerId};
use core::fmt;
use core::time::Duration;

/// The reasons why the VM cannot be created or cannot continue.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum VmError {
    /// The function yields no program for the instance.
    #[error(transparent)]
    Megakernel(#[from] MegakernelError),
    /// An instruction of the program is not linked.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A call in the program does not match its function.
    #[error("{0}")]
    Unfit(Box<Message>),
    /// This VM does not support a use of a buffer.
    #[error("`{}` cannot be {role}: {why}", Shown(buffer))]
    Buffer {
        /// The buffer's name.
        buffer: String,
        /// The kind of binding that the program uses it as.
        role: Role,
        /// The reason.
        why: &'static str,
    },
    /// No tensor is bound to a weight buffer.
    #[error("nothing is bound to weight `{}`; add the layout or the weight to the bindings", Shown(buffer))]
    Unbound {
        /// The buffer's name.
        buffer: String,
    },
    /// The tensor bound to a buffer has a different shape.
    #[error("`{}` has shape {expected:?}, but shape {found:?} is bound to it", Shown(buffer))]
    Misshaped {
        /// The buffer's name.
        buffer: String,
        /// The program's shape.
        expected: Vec<u32>,
        /// The bound tensor's.
        found: Vec<usize>,
    },
    /// A bound layout has a different constant than the program.
    #[error(transparent)]
    Constant(#[from] OtherConstant),
    /// The buffers do not fit into memory.
    #[error("no memory for {bytes} bytes of `{}`; use a shorter context", Shown(buffer))]
    Memory {
        /// The buffer's name.
        buffer: String,
        /// Its size in bytes.
        bytes: u64,
    },
    /// A worker thread did not start.
    #[error("a worker thread did not start: {cause}; use fewer workers")]
    Thread {
        /// The system's reason.
        cause: String,
    },
    /// The program has no input of this name, or it takes something else.
    #[error("the program has no {wanted} input `{}`", Shown(input))]
    Input {
        /// The name.
        input: String,
        /// The kind of input given.
        wanted: &'static str,
    },
    /// The program has no token state of this name.
    #[error("the program keeps no tokens in a state `{}`", Shown(state))]
    NoTokens {
        /// The name.
        state: String,
    },
    /// The number of tokens in a step differs from the program's.
    #[error("a step takes {expected} tokens, {found} were given")]
    Tokens {
        /// Token inputs of the program.
        expected: usize,
        /// Tokens of the step.
        found: usize,
    },
    /// A position for which the program was not verified.
    #[error("position {pos} is outside the program's 0..{positions}")]
    Position {
        /// The position.
        pos: u32,
        /// Positions of the program.
        positions: u32,
    },
    /// A program with rows was asked for a step without rows.
    #[error("the steps of this program have rows; use `RowVm::step_rows`, or a session")]
    HasRows,
    /// A program without rows was asked for a step of rows.
    #[error("the steps of this program have no rows; lower it with `rows(most = 64)` in its schedule")]
    NoRows,
    /// The rows of a step break its contract; nothing has run.
    #[error(transparent)]
    Contract(#[from] contract::Breach),
    /// There is no such page.
    #[error("there is no page {page}{group}; the VM has {pages}")]
    NoPage {
        /// The group.
        group: GroupName,
        /// The page.
        page: u32,
        /// Pages of the VM.
        pages: usize,
    },
    /// A state cannot be paged.
    #[error("state `{}` cannot be in pages: {why}", Shown(state))]
    NotPaged {
        /// The state's name.
        state: String,
        /// Why.
        why: &'static str,
    },
    /// The program has no output of this kind.
    #[error("the program's first output is not a tensor")]
    NoTensor,
    /// A wait was not met in time.
    #[error(transparent)]
    Stalled(#[from] Box<Stall>),
    /// An instruction panicked.
    #[error("{worker} in {task} ({}): the instruction panicked: {message}", Shown(label))]
    Panicked {
        /// The worker.
        worker: WorkerId,
        /// The task.
        task: TaskId,
        /// The task's op.
        label: String,
        /// The panic message.
        message: String,
    },
    /// An instruction returned a result that differs from its signature.
    #[error("{worker} in {task} ({}): result {result} should be {expected}, but is {found}", Shown(label))]
    Result {
        /// The worker.
        worker: WorkerId,
        /// The task.
        task: TaskId,
        /// The task's op.
        label: String,
        /// The result's number.
        result: usize,
        /// The region's extents or a token.
        expected: String,
        /// The value found.
        found: String,
    },
    /// A table does not keep its contract.
    #[error("table `{}`, row {row}, entry {column} is {value}, {breach}", Shown(table))]
    Table {
        /// The table's name.
        table: String,
        /// The row.
        row: usize,
        /// The entry in the row.
        column: usize,
        /// The entry's value.
        value: f32,
        /// The constraint it breaks.
        breach: Breach,
    },
    /// An earlier step failed, so states and counters are undefined.
    #[error("an earlier step of this VM failed; make a new one")]
    Poisoned,
}

/// The uses of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// An operand of a task.
    Operand(TaskId),
    /// The constraint that a table breaks.
    Table,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operand(task) => write!(f, "an operand of {task}"),
            Self::Table => f.write_str("a table"),
        }
    }
}

/// How an entry of a table breaks the contract that the program was verified for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Breach {
    /// It is not a whole number below `values`.
    Range {
        /// One more than the largest.
        values: u32,
    },
    /// It is in its row already.
    Repeated,
    /// It is not a whole number from `least` to `total`.
    Order {
        /// The entry before; `total` for the last entry.
        least: u32,
        /// The last entry's required value.
        total: u32,
    },
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range { values } => write!(f, "which is not a whole number below {values}"),
            Self::Repeated => write!(f, "which is in the row already; entries of a row are distinct"),
            Self::Order { least, total } if least == total => write!(f, "which is not {total}, where splits end"),
            Self::Order { least, total } => {
                write!(f, "which is not a whole number from {least} to {total}; splits start at 0 and go up")
            }
        }
    }
}

/// A wait that was not satisfied before the deadline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stall {
    /// Who waited.
    pub worker: WorkerId,
    /// With which task; `None` at the end of a step.
    pub task: Option<TaskId>,
    /// The task's op.
    pub label: String,
    /// The element waited for.
    pub on: String,
    /// The value waited for.
    pub wanted: u64,
    /// The value found.
    pub found: u64,
    /// For how long.
    pub waited: Duration,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.worker)?;
        match self.task {
            Some(task) => write!(f, " with {task} ({})", Shown(&self.label))?,
            None => write!(f, " at the end of a step")?,
        }
        let Self { on, wanted, found, .. } = self;
        write!(f, " waited {:.1} s for {on} >= {wanted}, found {found}", self.waited.as_secs_f64())
    }
}

impl core::error::Error for Stall {}

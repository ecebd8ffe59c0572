//! Seeing the arguments of calls.

use crate::registry::Argument;
use amk_ir::TaskId;

/// Sees calls while a program runs. Workers call it concurrently, each in the order in which it
/// runs its tasks; a step waits for it.
pub trait Observer: Send + Sync {
    /// A call is about to run.
    fn see(&self, call: &ObservedCall<'_>);
}

/// A call that is about to run: one of the program, `program.tasks[task].calls[number]`.
pub struct ObservedCall<'a> {
    /// Its task.
    pub task: TaskId,
    /// Its number in the task.
    pub number: usize,
    /// The rows of the step that the call is for, in order; row 0 in a program without rows.
    /// Tensors of a call for several rows have one more dimension, the first, with one element per
    /// row.
    pub rows: &'a [usize],
    /// The arguments, in the order of the function's parameters.
    pub arguments: &'a [Argument<'a>],
}

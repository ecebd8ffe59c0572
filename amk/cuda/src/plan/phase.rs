//! Phases: the work that all workers do in parallel, and the trait behind each.

use super::{Generic, Plan, TaskCalls, Work};
use crate::cost::{CostModel, Load, Overhead};
use crate::image::abi::CHUNK;
use crate::image::{Encoder, Record};
use crate::tape::Piece;
use amk_ir::BufferId;
use core::any::Any;
use core::fmt::Debug;
use std::sync::Arc;

/// A step of the plan that all workers take part in.
#[derive(Clone, Debug)]
pub struct Phase(Arc<dyn PhaseKind>);

/// The kind of a phase: how a worker's part of it becomes calls, a record and a piece of tape.
pub trait PhaseKind: Any + Debug + Send + Sync {
    /// Its name in programs and traces.
    fn label(&self) -> String;
    /// Adds the calls of a worker's part to its task.
    fn calls(&self, task: &mut TaskCalls<'_>, worker: u32, work: &Work);
    /// Returns the record of a worker's part, without the task's number and its waits.
    fn record(&self, encoder: &mut Encoder<'_>, work: &Work) -> Record;
    /// The piece of its tape that a worker's part consumes, if any.
    fn piece(&self, _plan: &Plan, _work: &Work) -> Option<Piece> {
        None
    }
    /// The weights of rank 1 that its records refer to by their place among the constants.
    fn constants(&self, _plan: &Plan) -> Vec<BufferId> {
        Vec::new()
    }
    /// Buffers that it writes and that have no packets of their own.
    fn carried(&self, _plan: &Plan) -> Vec<BufferId> {
        Vec::new()
    }
    /// Whether every worker has a task, even without rows.
    fn everyone(&self) -> bool {
        false
    }
    /// Whether most steps skip it: its tasks neither signal nor wait for counters.
    fn skipped(&self) -> bool {
        false
    }
    /// Bytes of weights that all workers read in a step.
    fn weight_bytes(&self, _plan: &Plan) -> u64 {
        0
    }
    /// The length of a ring's slots that suits its weights, from [`CHUNK`] to
    /// [`LONGEST_SLOT`](crate::LONGEST_SLOT) bytes.
    fn slot_bytes(&self) -> u32 {
        CHUNK
    }
    /// The cost of a worker's part at position `pos`; `None` if it has no work there.
    fn load(&self, _cost: &CostModel, _plan: &Plan, _work: &Work, _pos: u32) -> Option<Load> {
        Some(Load::default())
    }
    /// The cost of every task of the phase in addition to its load.
    fn overhead(&self, cost: &CostModel) -> Overhead {
        Overhead { hops: true, fixed: cost.task }
    }
    /// Whether another phase is equal.
    fn same(&self, other: &dyn PhaseKind) -> bool;
}

impl Phase {
    /// A phase of a kind.
    pub fn new(kind: impl PhaseKind) -> Self {
        Self(Arc::new(kind))
    }

    /// Its kind.
    pub fn kind(&self) -> &dyn PhaseKind {
        &*self.0
    }

    /// Returns its kind if it is a `T`.
    pub fn as_kind<T: PhaseKind>(&self) -> Option<&T> {
        (self.kind() as &dyn Any).downcast_ref()
    }

    /// The phase of calls with generic bodies, if it is one.
    pub fn generic(&self) -> Option<&Generic> {
        self.as_kind()
    }
}

impl PartialEq for Phase {
    fn eq(&self, other: &Self) -> bool {
        self.kind().same(other.kind())
    }
}

/// Whether `kind` equals `other`, for [`PhaseKind::same`].
pub fn same<T: PhaseKind + PartialEq>(kind: &T, other: &dyn PhaseKind) -> bool {
    (other as &dyn Any).downcast_ref::<T>() == Some(kind)
}

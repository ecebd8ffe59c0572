//! From the calls of a function to the tasks that the device runs.
//!
//! The fusions that linked crates register ([`crate::set::Fusion`]) find groups of calls that one
//! of their bodies computes in one task (`group.rs`). A group becomes phases, and a phase becomes
//! one task per worker ([`PhaseKind`]). Any other call is a phase of its own, with one task per
//! tile of the instruction's own `task` clause, which runs its generic device body ([`Generic`]). A
//! call whose tiles match those that another call produces joins that call's tasks (`chain.rs`),
//! and a weight that a crate allows to stream comes through the ring ([`Stream`]). With
//! [`Precision::F32`] every call is a phase of its own. A state of such a call stays with one
//! worker.
//!
//! Values pass between workers in packets; steps are pipelined. The phases that choose the next
//! token ([`crate::set::Sampling`]) follow all others.

mod calls;
mod chain;
mod exchange;
mod forms;
mod generic;
mod group;
mod missed;
mod operand;
mod phase;
mod planner;

pub use amk_ir::lower::flow::Flow;
pub use amk_ir::lower::place::{even, level, rotated};
pub use calls::TaskCalls;
pub use forms::{Precision, WeightForms};
pub use generic::{Body, Generic, Sequence, Step, View};
pub use group::{FusedGroup, Grouping};
pub use missed::{Because, Lacks, Missed, lines};
pub use operand::{early, operand, read, write};
pub use phase::{Phase, PhaseKind, same};
pub use planner::Planner;

use super::extensions::Extensions;
use super::pointwise::Pointwise;
use super::ring::{RingMemory, suited_slot};
use super::schedule::{MOST_RING_SLOTS, is_wide};
use super::set;
use super::stream::Stream;
use amk::rows::{PageGroup, PoolSize};
use amk_ir::graph::Graph;
use amk_ir::lower::lift::{has_rows, lift};
use amk_ir::lower::unroll::Unrolled;
use amk_ir::rows::{PageGroups, Reach, distinct};
use amk_ir::schedule::Schedule;
use amk_ir::{BufferId, BufferKind, Constants, DType, Program, TaskId, TensorId};
use group::{GivenUp, group};
use planner::NoPlan;
use std::collections::HashSet;
use std::ops::Range;

/// Rows of a weight tile. The last one of a projection may have fewer.
pub const UNIT: u32 = 8;

/// The device code does not support a form of the function.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the CUDA VM cannot run this: {what}, at `{at}`; the CPU VM computes it")]
pub struct Unsupported {
    /// The form found, or the form required.
    pub what: String,
    /// The call.
    pub at: String,
}

/// Sizes of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Logits.
    pub vocab: u32,
    /// Number of rows of the smallest table that tokens index: a token must be below it.
    pub tokens: u32,
    /// Positions of the context.
    pub context: u32,
}

/// A worker's part of a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Rows, in elements of the phase's output.
    Rows(Range<u32>),
    /// A cell of a grid of work.
    Cell {
        /// Its row.
        row: u32,
        /// Its column.
        column: u32,
    },
    /// A tile of generic calls.
    Tile(u32),
    /// The worker itself.
    Own,
    /// Elements of the phase's output for some rows of a step.
    Block(Block),
    /// A share of the terms whose sums are elements of the phase's output.
    Share(Share),
}

/// A worker's part of a phase that is also divided by rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The elements of the phase's output.
    pub elements: Range<u32>,
    /// The rows of the step.
    pub rows: Range<u32>,
    /// The elements whose weights are on the worker's own tape.
    pub own: Range<u32>,
}

/// A worker's part of a phase whose sums are also divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The elements of the phase's output.
    pub elements: Range<u32>,
    /// The number of the share.
    pub share: u32,
    /// The rows of the step; `None`: all.
    pub rows: Option<Range<u32>>,
    /// The elements whose weights are on the worker's own tape.
    pub own: Range<u32>,
}

impl Work {
    /// The elements of the phase's output.
    pub fn elements(&self) -> Option<&Range<u32>> {
        match self {
            Self::Rows(elements) | Self::Block(Block { elements, .. }) | Self::Share(Share { elements, .. }) => {
                Some(elements)
            }
            _ => None,
        }
    }

    /// The elements whose weights are on the worker's own tape.
    pub fn own(&self) -> Option<&Range<u32>> {
        match self {
            Self::Rows(own) | Self::Block(Block { own, .. }) | Self::Share(Share { own, .. }) => Some(own),
            _ => None,
        }
    }

    /// Whether there is nothing to compute.
    pub fn is_empty(&self) -> bool {
        self.elements().is_some_and(Range::is_empty)
    }

    /// The rows of the step; `None`: all.
    pub fn rows(&self) -> Option<&Range<u32>> {
        match self {
            Self::Block(Block { rows, .. }) => Some(rows),
            Self::Share(Share { rows, .. }) => rows.as_ref(),
            _ => None,
        }
    }
}

/// A program for the device, and the role of each of its tasks.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program, not verified.
    pub program: Program,
    /// The floats and flags that it was made with.
    pub constants: Constants,
    /// The phases in order.
    pub phases: Vec<Phase>,
    /// Phase, worker and part of each task.
    pub tasks: Vec<(usize, u32, Work)>,
    /// Generic device bodies.
    pub bodies: Vec<Body>,
    /// Sequences of bodies that generic tasks run.
    pub sequences: Vec<Sequence>,
    /// Sizes.
    pub sizes: Sizes,
    /// The schedule, with the number of workers that have rows of the logits.
    pub schedule: Schedule,
    /// The length of a ring's slots that suits most of its weights, in bytes.
    pub(super) suited_slot: u32,
    /// The precision in which it computes, and the forms of its weights.
    pub forms: WeightForms,
    /// The tokens, one a worker.
    pub token: BufferId,
    /// The logits.
    pub logits: BufferId,
    /// The reasons why calls are not faster, in order of the calls.
    pub missed: Vec<Missed>,
    /// Facts about the whole plan that the fused bodies share.
    pub shared: Extensions,
    /// With rows, what workers exchange.
    pub exchanged: HashSet<BufferId>,
    /// The groups of its states, with their pages for all sequences ([`Self::set_pages`]). A plan
    /// without rows has the pages of its launch's sequence; if there are no groups, it has one
    /// sequence and no pages.
    pub groups: Vec<PageGroup>,
}

/// Plans the tasks of a function that takes a token and returns the logits for the next one.
///
/// # Errors
/// [`Unsupported`] with the first call that the device cannot compute.
pub fn plan(graph: &Graph, unrolled: &Unrolled, schedule: &Schedule, forms: &WeightForms) -> Result<Plan, Unsupported> {
    let flow = Flow::new(graph, unrolled);
    let refuse = |what: String| Unsupported { what, at: graph.name.clone() };
    Stream::check_linked().map_err(|error| refuse(error.to_string()))?;
    Pointwise::check_linked().map_err(|error| refuse(error.to_string()))?;
    let logits = logits(&flow)?;
    let vocab = flow.shape(logits)[0];
    let sampling = set::sampling().ok_or_else(|| refuse("no linked crate chooses tokens".to_owned()))?;
    // Every worker has a part of the logits.
    let units = vocab.div_ceil(UNIT);
    let workers = schedule.workers.min(units);
    let schedule = Schedule { workers, ..schedule.clone() };
    let mut given_up = GivenUp::default();
    loop {
        let groups = group(&flow, &schedule, forms, &given_up);
        let mut plan = match Planner::run(&flow, &groups, logits, &schedule, forms, sampling) {
            Ok(plan) => plan,
            Err(NoPlan::Unsupported(why)) => return Err(why),
            Err(NoPlan::Unplaced(calls)) => {
                given_up.add(&calls, "it reads a value that no group before it leaves");
                continue;
            }
        };
        plan.exchange();
        plan.suited_slot = suited_slot(&plan);
        if let Some(rows) = schedule.rows {
            lift(&mut plan.program, rows.most).map_err(|error| refuse(error.headline))?;
            plan.set_pages(&PoolSize::Pages(0), rows.most);
            return Ok(plan);
        }
        let keep = groups.keeping_states();
        if keep.is_empty() || plan.fills_the_ring() {
            return Ok(plan);
        }
        keep.iter().for_each(|calls| given_up.add(calls, "a step has too few weights to fill the ring"));
    }
}

/// The one result of the function: the logits.
fn logits(flow: &Flow<'_>) -> Result<TensorId, Unsupported> {
    let refuse = |what: &str, at: &str| Err(Unsupported { what: what.to_owned(), at: at.to_owned() });
    let count = flow.unrolled.tensors.len();
    let mut outputs = (0..count).map(TensorId::from).filter(|&id| flow.kind(id) == BufferKind::Output);
    let (Some(logits), None) = (outputs.next(), outputs.next()) else {
        return refuse("a function must give one result, the logits", &flow.graph.name);
    };
    let tensor = flow.tensor(logits);
    if let Some(&user) = flow.users(logits).first() {
        return Err(Unsupported::at(flow, user, "what the function gives is read again"));
    }
    match (tensor.dtype, &tensor.shape[..]) {
        (DType::F32, &[vocab]) if vocab > 0 => Ok(logits),
        (dtype, shape) => refuse(&format!("logits must be a vector in f32, not {dtype}{shape:?}"), &tensor.name),
    }
}

impl Sizes {
    /// The number of logits, including the rows that the last unit lacks.
    pub fn padded_vocab(&self) -> u32 {
        self.vocab.next_multiple_of(UNIT)
    }
}

impl Unsupported {
    /// An error about a call.
    pub fn at(flow: &Flow<'_>, call: usize, what: impl Into<String>) -> Self {
        Self { what: what.into(), at: flow.call(call).label.clone() }
    }
}

impl Plan {
    /// The phases of a kind, in order.
    pub fn phases_of<T: PhaseKind>(&self) -> impl Iterator<Item = &T> {
        self.phases.iter().filter_map(Phase::as_kind)
    }

    /// Buffers without packets of their own: the packets of another carry their elements.
    pub(super) fn carried(&self) -> HashSet<BufferId> {
        self.phases.iter().flat_map(|phase| phase.kind().carried(self)).collect()
    }

    /// Whether a step uses every slot of the ring at least once, so that the loader cannot fetch
    /// part of a state for the next step before the consumers have written it in this one.
    pub(super) fn fills_the_ring(&self) -> bool {
        let mut pieces = vec![0; self.schedule.workers as usize];
        for (phase, worker, work) in &self.tasks {
            pieces[*worker as usize] += u32::from(self.phases[*phase].kind().piece(self, work).is_some());
        }
        pieces.iter().all(|&pieces| pieces >= MOST_RING_SLOTS)
    }

    /// Checks that a record can state the rows of each task, and its bytes of the tape.
    ///
    /// # Errors
    /// The phase of the first task that is too large.
    fn check_sizes(&self) -> Result<(), Unsupported> {
        const MOST_ROWS: u32 = u16::MAX as u32 * UNIT;
        for (phase, _, work) in &self.tasks {
            let kind = self.phases[*phase].kind();
            let (own, bytes) = kind.piece(self, work).map_or((0, 0), |piece| (piece.rows(), piece.bytes()));
            let rows = work.elements().map_or(own, |elements| own.max(elements.end - elements.start));
            if rows > MOST_ROWS || bytes > u64::from(u32::MAX) {
                let workers = self.schedule.workers;
                let most = format!("up to {MOST_ROWS} rows and 4095 MiB fit in one");
                let what = format!("with `workers` = {workers} a task has {rows} rows of {} MiB; {most}", bytes >> 20);
                return Err(Unsupported { what, at: kind.label() });
            }
        }
        Ok(())
    }

    /// The shape of a buffer of the program.
    pub fn shape(&self, buffer: BufferId) -> &[u32] {
        self.program.buffers.get(buffer.index()).map_or(&[], |buffer| &buffer.shape)
    }

    /// The shape of a buffer of the program, per row if it has rows.
    pub(crate) fn row_shape(&self, buffer: BufferId) -> &[u32] {
        let Some(of) = self.program.buffers.get(buffer.index()) else { return &[] };
        let lifted = self.program.rows.is_some() && has_rows(of.kind);
        &of.shape[usize::from(lifted)..]
    }

    /// The bytes of a task's piece of its worker's tape; `None`: it streams nothing.
    pub(super) fn streamed(&self, task: TaskId) -> Option<u64> {
        let (phase, _, work) = self.tasks.get(task.index())?;
        Some(self.phases.get(*phase)?.kind().piece(self, work)?.bytes())
    }

    /// Maximum number of rows in a step; `None`: a step is one call of the function.
    pub fn rows(&self) -> Option<u32> {
        self.schedule.rows.map(|rows| rows.most)
    }

    /// Whether the values of rows are packets: words that are absent until they are written.
    pub fn has_row_packets(&self) -> bool {
        self.rows().is_some() && self.program.has_packets()
    }

    /// Whether its states are paged.
    pub fn has_pages(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Gives each group of states its pages, beside programs with steps of up to `rows` rows.
    pub fn set_pages(&mut self, pages: &PoolSize, rows: u32) {
        let reaches = match self.program.rows {
            Some(_) => PageGroups::of(&self.program).reaches().to_vec(),
            // A launch's calls claim more than their bodies read.
            None => distinct(set::body_sets().into_iter().flat_map(|set| set.shared.reaches(self))),
        };
        let reaches = reaches.into_iter().map(|reach| reach.map(|reach| reach as usize));
        self.groups = pages.groups(reaches, rows as usize);
    }

    /// The group of the states of which rows read this many positions; the first group if the
    /// states are not paged.
    pub fn group(&self, reach: Reach) -> usize {
        let reach = reach.map(|reach| reach as usize);
        self.groups.iter().position(|group| group.reach == reach).unwrap_or(0)
    }

    /// Whether weights do not come through the ring in its steps, see [`is_wide`].
    pub fn is_wide(&self) -> bool {
        is_wide(&self.schedule)
    }

    /// Bytes of a slot of its ring.
    pub fn slot_bytes(&self) -> u32 {
        RingMemory::of(self).slot_bytes
    }

    /// Maximum number of units of rows that a narrow step of rows reduces together.
    pub fn row_units(&self) -> u32 {
        RingMemory::of(self).row_units
    }

    /// Elements of a buffer of rank 1, rows of a matrix.
    pub fn extent(&self, buffer: BufferId) -> u32 {
        self.shape(buffer).first().copied().unwrap_or(0)
    }
}

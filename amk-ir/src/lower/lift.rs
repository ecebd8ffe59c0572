//! Lifting: tasks for one row become tasks for ranges of rows.

use super::group::Group;
use super::tile::{Axis, signature};
use super::unroll::Unrolled;
use crate::graph::Graph;
use crate::graph_error::GraphError;
use crate::program::{Buffer, BufferKind, Call, Operand, Program};
use crate::schedule::Schedule;
use crate::{CallRows, Interval, Region};

/// The most rows of a step.
const MOST_ROWS: u32 = 65_536;
/// Maximum number of blocks of rows per worker for an op that reads no matrix: enough to balance
/// the work.
const BLOCKS_PER_WORKER: u32 = 2;
/// Maximum number of tasks into which the tiles of an op are split by blocks of rows, if there are
/// fewer workers. Dependencies between ops grow with the product of their task counts.
const ENOUGH_TASKS: u32 = 128;

/// How the ops of a program are lifted.
pub(super) struct Lift {
    /// The most rows of a step.
    rows: u32,
    /// Rows of a task that reads no matrix, if the schedule sets it.
    block: Option<u32>,
    workers: u32,
    /// Calls whose results reach only outputs, by number.
    wanted: Vec<bool>,
}

impl Lift {
    /// `None` if a step is one call of the function.
    ///
    /// # Errors
    /// Numbers of rows out of range, and hand-written events, which name tiles of one row.
    pub(super) fn new(graph: &Graph, unrolled: &Unrolled, schedule: &Schedule) -> Result<Option<Self>, GraphError> {
        let Some(rows) = schedule.rows else { return Ok(None) };
        let refuse = |headline, help: &str| Err(GraphError::new("AMK0611", headline, help));
        if rows.most == 0 || rows.most > MOST_ROWS {
            let help = format!("give it 1 to {MOST_ROWS}: `rows(most = 64)`");
            return refuse(format!("the schedule has steps of {} rows", rows.most), &help);
        }
        if rows.block == Some(0) {
            return refuse("the schedule has tasks of no rows".to_owned(), "give a block at least one row");
        }
        let has_events = |call: &&super::unroll::PlannedCall| !(call.signals.is_empty() && call.waits.is_empty());
        if let Some(call) = unrolled.calls.iter().find(has_events) {
            let headline = "the schedule has rows, and events are written by hand".to_owned();
            let error = GraphError::new("AMK0611", headline, "leave out `#[signal]` and `#[wait]`, or the rows");
            return Err(error.at(call.site));
        }
        let block = rows.block.map(|block| block.min(rows.most));
        let wanted = only_for_outputs(graph, unrolled);
        Ok(Some(Self { rows: rows.most, block, workers: schedule.workers, wanted }))
    }

    /// The rows of each task of a tile, for a group that is tiled along these axes.
    pub(super) fn blocks(&self, graph: &Graph, unrolled: &Unrolled, group: &Group, axes: &[Axis]) -> Vec<CallRows> {
        let block = self.block(graph, unrolled, group, axes);
        let starts = (0..self.rows).step_by(block as usize);
        starts.map(|first| CallRows { first, end: (first + block).min(self.rows), wanted: false }).collect()
    }

    /// The number of tasks of a tile.
    pub(super) fn count(&self, graph: &Graph, unrolled: &Unrolled, group: &Group, axes: &[Axis]) -> u64 {
        u64::from(self.rows.div_ceil(self.block(graph, unrolled, group, axes)))
    }

    /// The most rows of a task. A group that reads a tile of a matrix takes all, so that the matrix
    /// is read once.
    fn block(&self, graph: &Graph, unrolled: &Unrolled, group: &Group, axes: &[Axis]) -> u32 {
        let lead = &unrolled.calls[group.members[group.lead].call];
        let tiled = signature(graph, lead).is_ok_and(|signature| !signature.grid.is_empty());
        let is_matrix = |tensor: &Buffer| tensor.kind == BufferKind::Weight && tensor.shape.len() > 1;
        let reads_matrix = lead.operands.iter().any(|operand| is_matrix(&unrolled.tensors[operand.tensor.index()]));
        if tiled && reads_matrix { self.rows } else { self.block.unwrap_or_else(|| self.even(axes)) }
    }

    /// The default number of rows in a block: blocks for all workers, as long as the tiles do not
    /// become more tasks than balancing the work requires.
    fn even(&self, axes: &[Axis]) -> u32 {
        let tiles = axes.iter().fold(1u64, |tiles, axis| tiles.saturating_mul(axis.len()));
        let most = u64::from(self.workers.max(ENOUGH_TASKS)) / tiles.max(1);
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        self.rows.div_ceil(self.workers.saturating_mul(BLOCKS_PER_WORKER).min(most).max(1))
    }

    /// The rows of a call, of a task for `rows`.
    pub(super) fn of(&self, call: usize, rows: CallRows) -> CallRows {
        CallRows { wanted: self.wanted.get(call).copied().unwrap_or(false), ..rows }
    }

    /// A tensor with its dimension of rows.
    pub(super) fn tensor(&self, tensor: &Buffer) -> Buffer {
        with_rows(tensor, self.rows)
    }
}

/// Lifts the tasks of one row, without packets, to tasks for all rows of a step. A call that names
/// its rows keeps them. A call that writes only outputs is made for the wanted rows.
///
/// # Errors
/// A tile that would have more than 4 dimensions, or bounds over 32 bits.
pub fn lift(program: &mut Program, rows: u32) -> Result<(), GraphError> {
    program.rows = Some(rows);
    let mut of_buffers = vec![rows; program.buffers.len()];
    for call in program.tasks.iter_mut().flat_map(|task| &mut task.calls) {
        let wanted = writes_only_outputs(call, &program.buffers);
        let of = *call.rows.get_or_insert(CallRows { first: 0, end: rows, wanted });
        for operand in &mut call.operands {
            let kind = program.buffers[operand.buffer.index()].kind;
            self::operand(operand, kind, of)?;
            if kind == BufferKind::Local {
                of_buffers[operand.buffer.index()] = of.len();
            }
        }
    }
    for (buffer, rows) in program.buffers.iter_mut().zip(of_buffers) {
        *buffer = with_rows(buffer, rows);
    }
    Ok(())
}

fn writes_only_outputs(call: &Call, buffers: &[Buffer]) -> bool {
    let mut written = call.operands.iter().filter(|operand| operand.access.writes());
    written.all(|operand| buffers[operand.buffer.index()].kind == BufferKind::Output)
}

/// The region of one row of an operand, for the rows of its call.
///
/// # Errors
/// As for [`lift`].
pub fn lifted(region: Region, kind: BufferKind, rows: CallRows) -> Result<Region, GraphError> {
    let lifted = match kind {
        BufferKind::Weight => Some(region),
        BufferKind::State => rows.hull(&region),
        BufferKind::Local => with_interval(&region, Interval::fixed(0, rows.len())),
        _ => with_interval(&region, Interval::fixed(rows.first, rows.end)),
    };
    lifted.ok_or_else(|| {
        let headline = "with rows a tile would have over 4 dimensions, or bounds over 32 bits";
        GraphError::new("AMK0612", headline, "use tensors of at most 3 dimensions")
    })
}

/// Returns a tensor with this many rows; weights and states have none.
pub(super) fn with_rows(tensor: &Buffer, rows: u32) -> Buffer {
    let mut lifted = tensor.clone();
    if has_rows(tensor.kind) {
        lifted.shape.insert(0, rows);
    }
    lifted
}

/// Whether buffers of a kind have a dimension of rows.
pub const fn has_rows(kind: BufferKind) -> bool {
    !matches!(kind, BufferKind::Weight | BufferKind::State)
}

/// Lifts an operand on a buffer of this kind. A local has only the rows of its task.
pub(super) fn operand(operand: &mut Operand, kind: BufferKind, rows: CallRows) -> Result<(), GraphError> {
    operand.region = lifted(operand.region, kind, rows)?;
    Ok(())
}

fn with_interval(region: &Region, first: Interval) -> Option<Region> {
    let intervals: Vec<Interval> = [first].into_iter().chain(region.intervals().iter().copied()).collect();
    Region::new(&intervals)
}

/// The calls whose results reach no state.
fn only_for_outputs(graph: &Graph, unrolled: &Unrolled) -> Vec<bool> {
    let flow = super::flow::Flow::new(graph, unrolled);
    let mut kept = vec![false; unrolled.calls.len()];
    for at in (0..unrolled.calls.len()).rev() {
        kept[at] = flow.written(at).any(|tensor| {
            flow.kind(tensor) == BufferKind::State || flow.readers(tensor).iter().any(|&reader| kept[reader])
        });
    }
    kept.into_iter().map(|kept| !kept).collect()
}

//! Lowering: a graph, the values of an instance and a schedule become a program.
//!
//! ```text
//! unroll (loops, flags, dims) -> flow (use-def) -> group (calls of a task; join) -> tile, task
//!     -> exchange (events) -> place (queues)
//! ```
//!
//! A VM with passes of its own uses `unroll`, `flow`, `join`, `tile`, `owners`, the events of
//! `exchange`, and the shares of `place`.
//!
//! The program's eager order is the order of the graph's ops, each op's tiles in row-major order.

mod bound;
mod decided;
pub mod exchange;
mod explicit;
pub mod flow;
mod group;
pub mod join;
pub mod lift;
pub mod owners;
pub mod place;
mod reasons;
mod task;
pub mod tile;
mod unfused;
pub mod unroll;

pub use decided::{Decided, DecidedCall, DecidedOp, TileCut};
pub use reasons::{Iteration, once};
pub use unfused::{Refused, Unfused};

use crate::graph::{Graph, Instance};
use crate::graph_error::GraphError;
use crate::program::{Instruction, OperandSpec, Program};
use crate::schedule::{CACHES, Changed, Schedule};
use crate::signature::{ParamKind, Signature};
use crate::{Access, Constants};

/// Workers of a schedule at most: each has a queue, and no target has more.
const MOST_WORKERS: u32 = 65_536;

/// The fields of a schedule that the lowering to the CPU VM honours.
pub(crate) const HONOURED: [&str; 11] =
    ["workers", "tiles", "queue", "assign", "steps", "rows", "weights", "cache", "fusion", "fuse", "limits"];

/// A program, and the origin of its ops.
#[derive(Clone, PartialEq, Debug)]
pub struct Lowered {
    /// The program, not verified.
    pub program: Program,
    /// The source call from which each of [`Program::ops`] comes.
    pub op_sites: Vec<u32>,
    /// The floats and flags that it was made with.
    pub constants: Constants,
    /// Decisions made on the way.
    pub decided: Decided,
}

/// Lowers a graph that passed [`crate::shapes::check`] for an instance, with its own schedule or
/// the graph's, which override the CPU's.
pub fn lower(graph: &Graph, instance: &Instance) -> Result<Lowered, Vec<GraphError>> {
    lower_with(graph, instance, &instance.schedule_in(graph).over(Schedule::default()))
}

/// Lowers a graph for an instance with the given schedule.
///
/// # Errors
/// A schedule with fields that only a device honours, among others.
pub fn lower_with(graph: &Graph, instance: &Instance, schedule: &Schedule) -> Result<Lowered, Vec<GraphError>> {
    check_schedule(graph, schedule)?;
    let unrolled = unroll::unroll(graph, instance, schedule)?;
    let group::Fused { groups, refused } = group::fuse(graph, &unrolled, schedule).map_err(|error| vec![error])?;
    let tiled = task::tasks(graph, &unrolled, &groups, schedule)?;
    let mut program = Program {
        name: format!("{}.{}", graph.name, instance.name),
        dims: instance.dims.clone(),
        positions: unrolled.positions,
        rows: schedule.rows.map(|rows| rows.most),
        steps: schedule.steps,
        limits: schedule.limits.clone(),
        instructions: graph.signatures.iter().map(instruction).collect(),
        ops: tiled.ops.iter().map(|op| op.label.clone()).collect(),
        buffers: tiled.buffers,
        tables: Vec::new(),
        events: Vec::new(),
        tasks: tiled.tasks,
        queues: crate::Queues::default(),
    };
    let explicit = explicit::apply(graph, &unrolled, &tiled.ops, &mut program)?;
    exchange::connect(&mut program, &tiled.ops, &explicit).map_err(|error| vec![error])?;
    program.queues = place::place(&program, &tiled.ops, schedule);
    let op_sites = tiled.ops.iter().map(|op| op.site).collect();
    let decided = Decided::of(graph, &unrolled, &groups, tiled.ops, refused);
    Ok(Lowered { program, op_sites, constants: unrolled.constants, decided })
}

/// Returns the program's record of an instruction: tensor operands in order, results last; then the
/// scalar parameters.
pub fn instruction(signature: &Signature) -> Instruction {
    let mut operands = Vec::new();
    let mut params = Vec::new();
    for param in &signature.params {
        match &param.kind {
            ParamKind::Tensor { access, .. } => {
                operands.push(OperandSpec { name: param.name.clone(), access: *access })
            }
            ParamKind::Float | ParamKind::Dim(_) | ParamKind::Pos => params.push(param.name.clone()),
        }
    }
    let results =
        signature.results.iter().map(|result| OperandSpec { name: result.name.clone(), access: Access::Write });
    operands.extend(results);
    Instruction { name: signature.name.clone(), path: signature.path.clone(), operands, params }
}

fn check_schedule(graph: &Graph, schedule: &Schedule) -> Result<(), Vec<GraphError>> {
    if let Some(Changed { field, to, .. }) = schedule.unhonoured(&Schedule::default(), &HONOURED) {
        let headline = format!("the CPU VM cannot honour `{field}` = {to} of the schedule");
        return Err(vec![GraphError::new("AMK0611", headline, format!("leave `{field}` out on a CPU"))]);
    }
    if let Some(cache) = schedule.cache.filter(|cache| !CACHES.contains(cache)) {
        let headline = format!("the schedule keeps caches in {cache}");
        return Err(vec![GraphError::new("AMK0611", headline, "keep them in f32, bf16 or e4m3")]);
    }
    let names = || graph.signatures.iter().map(|signature| signature.name.as_str());
    let named = schedule.tiles.keys().chain(schedule.fuse.iter().map(|fusion| &fusion.op));
    let mut errors: Vec<GraphError> = named
        .filter(|name| !names().any(|known| known == name.as_str()))
        .map(|name| {
            let known: Vec<&str> = names().collect();
            GraphError::new(
                "AMK0611",
                format!("the schedule names `{name}`, which `{}` does not call", graph.name),
                format!("name one of: {}", known.join(", ")),
            )
        })
        .collect();
    if errors.is_empty() {
        errors.extend(schedule.tiles.keys().filter_map(|name| without_tile(graph, name)));
    }
    if schedule.workers == 0 {
        errors.push(GraphError::new("AMK0611", "the schedule has no workers", "give it at least one: `workers = 1`"));
    }
    if schedule.workers > MOST_WORKERS {
        let headline = format!("the schedule has {} workers", schedule.workers);
        errors.push(GraphError::new("AMK0611", headline, format!("give it at most {MOST_WORKERS}")));
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// Returns an error if a tile is set for an instruction whose tiles have fixed sizes, or that has a
/// single task.
fn without_tile(graph: &Graph, name: &str) -> Option<GraphError> {
    let settable =
        |signature: &&Signature| signature.grid.iter().any(|grid| tile::free_tile(signature, grid).is_some());
    let known: Vec<&str> = graph.signatures.iter().filter(settable).map(|signature| signature.name.as_str()).collect();
    let headline = format!("the schedule gives a tile to `{name}`, which has none to set");
    let help = match known.is_empty() {
        true => "leave it out".to_owned(),
        false => format!("leave it out; a tile can be set of: {}", known.join(", ")),
    };
    (!known.contains(&name)).then(|| GraphError::new("AMK0611", headline, help))
}

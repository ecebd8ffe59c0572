//! Tasks: each group of calls becomes one task per tile.

use super::bound;
use super::group::{Group, Member};
use super::lift::{self, Lift};
use super::tile::{Axis, Cut, TileEnv, axis, free_tile, grid_value, part, signature};
use super::unroll::{PlannedCall, Unrolled};
use crate::expr::Expr;
use crate::graph::Graph;
use crate::graph_error::GraphError;
use crate::program::{Buffer, BufferKind, Call, Operand, Task};
use crate::schedule::{Schedule, Tile};
use crate::signature::Signature;
use crate::{BufferId, CallRows, InstructionId, OpId, TensorId};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// The tasks of all ops.
pub(super) struct Tiled {
    pub(super) tasks: Vec<Task>,
    pub(super) buffers: Vec<Buffer>,
    pub(super) ops: Vec<TiledOp>,
}

/// An op (a group of calls) and its tasks.
pub(super) struct TiledOp {
    pub(super) label: String,
    pub(super) site: u32,
    /// The lead call.
    pub(super) call: usize,
    pub(super) tasks: Range<usize>,
    /// Tile numbers of each task in the lead call's grid, by grid variable.
    pub(super) coordinates: Vec<BTreeMap<String, i64>>,
    /// The tiling of each grid variable of the lead call.
    pub(super) axes: Vec<Vec<Range<i64>>>,
    /// The rows of each task of a tile; empty if steps have one row.
    pub(super) blocks: Vec<CallRows>,
}

pub(super) fn tasks(
    graph: &Graph,
    unrolled: &Unrolled,
    groups: &[Group],
    schedule: &Schedule,
) -> Result<Tiled, Vec<GraphError>> {
    let lift = Lift::new(graph, unrolled, schedule).map_err(|error| vec![error])?;
    let mut buffers = Buffers::of(unrolled, lift);
    let mut out = Tiled { tasks: Vec::new(), buffers: Vec::new(), ops: Vec::new() };
    let mut errors = set_tiles(graph, unrolled, groups, schedule);
    let mut axes = Vec::with_capacity(groups.len());
    for group in groups {
        match group_axes(graph, unrolled, group, schedule) {
            Ok(found) => axes.push(found),
            Err(error) => errors.push(error),
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let count = |(group, axes): (&Group, &Vec<Axis>)| buffers.blocks(graph, unrolled, group, axes);
    let blocks: Vec<u64> = groups.iter().zip(&axes).map(count).collect();
    let cut = axes.iter().map(Vec::as_slice).zip(blocks.iter().copied());
    bound::tasks(graph, unrolled, groups, cut).map_err(|error| vec![error])?;
    for (group, axes) in groups.iter().zip(&axes) {
        if let Err(error) = tile_group(graph, unrolled, group, axes, &mut buffers, &mut out) {
            errors.push(error);
        }
    }
    out.buffers = buffers.used(&mut out.tasks);
    if errors.is_empty() { Ok(out) } else { Err(errors) }
}

fn tile_group(
    graph: &Graph,
    unrolled: &Unrolled,
    group: &Group,
    axes: &[Axis],
    buffers: &mut Buffers,
    out: &mut Tiled,
) -> Result<(), GraphError> {
    let lead = &group.members[group.lead];
    let lead_call = &unrolled.calls[lead.call];
    let at = |error: GraphError| error.at(lead_call.site);
    let lead_signature = signature(graph, lead_call).map_err(at)?;
    let blocks: Vec<Option<CallRows>> = match &buffers.lift {
        Some(lift) => lift.blocks(graph, unrolled, group, axes).into_iter().map(Some).collect(),
        None => vec![None],
    };
    let axes: Vec<Vec<Range<i64>>> = axes.iter().map(Axis::cuts).collect();
    let first = out.tasks.len();
    let mut coordinates = Vec::new();
    for &rows in &blocks {
        for (numbers, cuts) in product(&axes) {
            let op = OpId::from(out.ops.len());
            let task =
                task(graph, unrolled, group, Part { axes: &axes, cuts: &cuts, rows }, op, buffers).map_err(at)?;
            out.tasks.push(task);
            coordinates.push(lead_signature.grid.iter().map(|grid| grid.var.clone()).zip(numbers).collect());
        }
    }
    let labels: Vec<&str> = group.members.iter().map(|member| unrolled.calls[member.call].label.as_str()).collect();
    out.ops.push(TiledOp {
        label: labels.join(" then "),
        site: lead_call.site,
        call: lead.call,
        tasks: first..out.tasks.len(),
        coordinates,
        axes,
        blocks: blocks.into_iter().flatten().collect(),
    });
    Ok(())
}

/// The tiling of each grid variable of the lead call.
fn group_axes(graph: &Graph, unrolled: &Unrolled, group: &Group, schedule: &Schedule) -> Result<Vec<Axis>, GraphError> {
    let call = &unrolled.calls[group.members[group.lead].call];
    let found = signature(graph, call).and_then(|signature| {
        let tile = schedule.tiles.get(&signature.name).copied().unwrap_or(Tile::PerWorker);
        let cut = Cut { workers: schedule.workers, unit: 1, tile };
        signature.grid.iter().map(|grid| Ok(axis(signature, grid, call, cut)?.1)).collect()
    });
    found.map_err(|error| error.at(call.site))
}

/// Errors for tile sizes of the schedule that do not divide the extent, one per instruction.
fn set_tiles(graph: &Graph, unrolled: &Unrolled, groups: &[Group], schedule: &Schedule) -> Vec<GraphError> {
    let sizes = schedule.tiles.iter().filter_map(|(name, tile)| match tile {
        Tile::Size(size) => Some((name.as_str(), i64::from(*size))),
        Tile::PerWorker | Tile::Whole => None,
    });
    let leads: Vec<&PlannedCall> = groups.iter().map(|group| &unrolled.calls[group.members[group.lead].call]).collect();
    sizes.filter_map(|(name, size)| set_tile(graph, &leads, name, size)).collect()
}

fn set_tile(graph: &Graph, leads: &[&PlannedCall], name: &str, size: i64) -> Option<GraphError> {
    let called = leads.iter().filter_map(|call| Some((signature(graph, call).ok()?, *call)));
    // The tiled extents, each with the first call that is tiled along it.
    let mut extents: BTreeMap<i64, &str> = BTreeMap::new();
    for (signature, call) in called.filter(|(signature, _)| signature.name == name) {
        for grid in signature.grid.iter().filter(|grid| free_tile(signature, grid).is_some()) {
            if let Ok(extent) = grid_value(signature, call, &grid.extent) {
                extents.entry(extent).or_insert(&call.label);
            }
        }
    }
    let (extent, label) = extents.iter().find(|(extent, _)| size < 1 || *extent % size != 0)?;
    let common = extents.keys().fold(0, |common, &extent| gcd(common, extent));
    let help = match largest_divisor(common, size) {
        Some(fits) => format!("write `{name} = {fits}`, which divides every extent that `{name}` cuts here"),
        None => format!("write `{name} = whole`, or leave it out for about one tile a worker"),
    };
    let headline = format!("tile {size} of `{name}` does not divide {extent}");
    let error = GraphError::new("AMK0608", headline, help).note(format!("{extent} is cut in `{label}`"));
    let others: Vec<String> = extents.keys().filter(|other| *other != extent).map(ToString::to_string).collect();
    let shown = if others.len() > 6 { format!("{}, ..", others[..6].join(", ")) } else { others.join(", ") };
    Some(if others.is_empty() { error } else { error.note(format!("other calls of `{name}` cut {shown}")) })
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The largest divisor of `of` from 2 to `most`, of extents that buffers can have.
fn largest_divisor(of: i64, most: i64) -> Option<i64> {
    let of = u32::try_from(of).ok().map(i64::from)?;
    let pairs = (1..).take_while(|small| small * small <= of).filter(|small| of % small == 0);
    pairs.flat_map(|small| [small, of / small]).filter(|divisor| (2..=most).contains(divisor)).max()
}

/// All combinations of cuts, the last variable fastest: tile numbers and cuts.
fn product(axes: &[Vec<Range<i64>>]) -> Vec<(Vec<i64>, Vec<Range<i64>>)> {
    axes.iter().fold(vec![(Vec::new(), Vec::new())], |starts, axis| {
        let mut out = Vec::with_capacity(starts.len() * axis.len());
        for (numbers, cuts) in &starts {
            for (number, cut) in axis.iter().enumerate() {
                let mut head: (Vec<i64>, Vec<Range<i64>>) = (numbers.clone(), cuts.clone());
                head.0.push(number as i64);
                head.1.push(cut.clone());
                out.push(head);
            }
        }
        out
    })
}

/// The part of its group's calls that a task covers.
#[derive(Clone, Copy)]
struct Part<'a> {
    /// The cuts of each grid variable.
    axes: &'a [Vec<Range<i64>>],
    /// The task's range of each.
    cuts: &'a [Range<i64>],
    rows: Option<CallRows>,
}

fn task(
    graph: &Graph,
    unrolled: &Unrolled,
    group: &Group,
    Part { axes, cuts, rows }: Part<'_>,
    op: OpId,
    buffers: &mut Buffers,
) -> Result<Task, GraphError> {
    let mut locals: HashMap<TensorId, BufferId> = HashMap::new();
    let mut task = Task { op: Some(op), ..Task::default() };
    for member in &group.members {
        let call = &unrolled.calls[member.call];
        let signature = signature(graph, call)?;
        let env = tile_env(signature, call, member, axes, cuts)?;
        let part = part(unrolled, signature, call, &env)?;
        let mut operands = Vec::with_capacity(part.operands.len());
        for operand in part.operands {
            let tensor = &unrolled.tensors[operand.tensor.index()];
            let buffer = match member.local.contains(&operand.tensor) {
                true => *locals.entry(operand.tensor).or_insert_with(|| buffers.local(tensor, rows)),
                false => buffers.shared[operand.tensor.index()],
            };
            let early = tensor.kind == BufferKind::Weight;
            let (region, access) = (operand.region, operand.access);
            let mut operand = Operand { buffer, region, access, early, routed: None };
            if let Some(rows) = rows {
                lift::operand(&mut operand, buffers.all[buffer.index()].kind, rows)?;
            }
            operands.push(operand);
        }
        let instruction = InstructionId::from(call.signature);
        let rows = rows.zip(buffers.lift.as_ref()).map(|(rows, lift)| lift.of(member.call, rows));
        task.calls.push(Call { instruction, operands, params: part.params, rows });
    }
    Ok(task)
}

/// The signature's dims and the tile: `n` = first element, the tile's name = its length.
fn tile_env(
    signature: &Signature,
    call: &PlannedCall,
    member: &Member,
    axes: &[Vec<Range<i64>>],
    cuts: &[Range<i64>],
) -> Result<TileEnv, GraphError> {
    let mut env = call.env.clone();
    for (number, grid) in signature.grid.iter().enumerate() {
        let extent = axes.get(number).and_then(|axis| axis.last()).map(|last| last.end);
        let cut = match (member.whole, cuts.get(number)) {
            (false, Some(cut)) => cut.clone(),
            _ => {
                let value = grid.extent.eval(&|name| call.env.get(name).copied());
                0..value.ok().or(extent).unwrap_or(0)
            }
        };
        env.insert(grid.var.clone(), cut.start);
        if let Expr::Name(step) = &grid.step
            && signature.tiles.iter().any(|tile| tile.name == *step)
        {
            env.insert(step.clone(), cut.end - cut.start);
        } else if member.whole && cut.end > grid.step.eval(&|name| call.env.get(name).copied()).unwrap_or(0) {
            let headline = format!("`{}` has several tasks and cannot be fused into its consumers", signature.name);
            return Err(GraphError::new("AMK0613", headline, "fuse instructions that have one task"));
        }
    }
    Ok(env)
}

/// The buffers of a program in the making.
struct Buffers {
    all: Vec<Buffer>,
    /// The buffer of each tensor that passes between tasks.
    shared: Vec<BufferId>,
    /// How they are lifted over rows.
    lift: Option<Lift>,
}

impl Buffers {
    fn of(unrolled: &Unrolled, lift: Option<Lift>) -> Self {
        let tensor = |tensor: &Buffer| lift.as_ref().map_or_else(|| tensor.clone(), |lift| lift.tensor(tensor));
        let all: Vec<Buffer> = unrolled.tensors.iter().map(tensor).collect();
        let shared = (0..all.len()).map(BufferId::from).collect();
        Self { all, shared, lift }
    }

    /// The number of blocks of rows of a group.
    fn blocks(&self, graph: &Graph, unrolled: &Unrolled, group: &Group, axes: &[Axis]) -> u64 {
        self.lift.as_ref().map_or(1, |lift| lift.count(graph, unrolled, group, axes))
    }

    /// A task's own copy of a tensor, of its rows.
    fn local(&mut self, tensor: &Buffer, rows: Option<CallRows>) -> BufferId {
        let local = Buffer { kind: BufferKind::Local, ..tensor.clone() };
        self.all.push(rows.map_or_else(|| local.clone(), |rows| lift::with_rows(&local, rows.len())));
        BufferId::from(self.all.len() - 1)
    }

    /// Returns the buffers that tasks use (some tensors have only local copies), and renumbers the
    /// tasks' operands.
    fn used(self, tasks: &mut [Task]) -> Vec<Buffer> {
        let mut used = vec![false; self.all.len()];
        let operands = |tasks: &mut [Task], visit: &mut dyn FnMut(&mut Operand)| {
            for operand in tasks.iter_mut().flat_map(|task| &mut task.calls).flat_map(|call| &mut call.operands) {
                visit(operand);
            }
        };
        operands(tasks, &mut |operand| used[operand.buffer.index()] = true);
        let mut next = 0;
        let renumbered: Vec<BufferId> = used
            .iter()
            .map(|&used| {
                next += usize::from(used);
                BufferId::from(next.max(1) - 1)
            })
            .collect();
        operands(tasks, &mut |operand| operand.buffer = renumbered[operand.buffer.index()]);
        let mut keep = used.into_iter();
        self.all.into_iter().filter(|_| keep.next().unwrap_or(false)).collect()
    }
}

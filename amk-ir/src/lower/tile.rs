//! Tiles: one call split by its own tile and task clauses.

use super::bound;
use super::place::share;
use super::unroll::{PlannedCall, Unrolled};
use crate::expr::{Expr, Op};
use crate::graph::Graph;
use crate::graph_error::GraphError;
use crate::program::Param;
use crate::schedule::Tile;
use crate::signature::{GridSig, Signature, Span, TileSig};
use crate::{Access, Bound, Interval, Region, TensorId};
use std::collections::BTreeMap;
use std::ops::Range;

/// How many tasks a call becomes.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Tasks along a tiled dimension, at most.
    pub workers: u32,
    /// If the size of the tile is free, tiles begin at multiples of this many elements.
    pub unit: u32,
    /// The size of the tile, if it is free.
    pub tile: Tile,
}

impl Cut {
    /// About one tile a worker, in units.
    pub fn per_worker(workers: u32, unit: u32) -> Self {
        Self { workers, unit, tile: Tile::PerWorker }
    }
}

/// A tile: the value of each dim, of each grid variable and of its step's name.
pub(super) type TileEnv = BTreeMap<String, i64>;

/// A tile of a call: a call on parts of the function's tensors.
#[derive(Clone, PartialEq, Debug)]
pub struct Part {
    /// The tensor operands in order, results last.
    pub operands: Vec<PartOperand>,
    /// The scalar parameters in order.
    pub params: Vec<Param>,
}

/// An operand of a tile.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PartOperand {
    /// The tensor.
    pub tensor: TensorId,
    /// The region of it that the tile covers.
    pub region: Region,
    /// How the call accesses it.
    pub access: Access,
}

/// Returns the tiles of a call in the order of its grid.
///
/// # Errors
/// A grid or a region without a value, or more tasks than a program may have.
pub fn parts(graph: &Graph, unrolled: &Unrolled, call: &PlannedCall, cut: Cut) -> Result<Vec<Part>, GraphError> {
    let signature = signature(graph, call)?;
    let axes: Vec<(_, Axis)> =
        signature.grid.iter().map(|grid| axis(signature, grid, call, cut)).collect::<Result<_, _>>()?;
    bound::parts(call, axes.iter().map(|(_, axis)| axis.len()))?;
    let mut envs = vec![call.env.clone()];
    for (grid, (tile, axis)) in signature.grid.iter().zip(&axes) {
        let cuts = axis.cuts();
        let tiled = |env: &BTreeMap<String, i64>, cut: &Range<i64>| at_cut(env, grid, *tile, cut);
        envs = envs.iter().flat_map(|env| cuts.iter().map(|cut| tiled(env, cut)).collect::<Vec<_>>()).collect();
    }
    envs.iter().map(|env| part(unrolled, signature, call, env)).collect()
}

/// Returns how [`parts`] tiles a call whose grid is one variable that steps by a tile of free size;
/// `None` for any other grid.
///
/// # Errors
/// A grid without a value.
pub fn cuts(graph: &Graph, call: &PlannedCall, cut: Cut) -> Result<Option<Vec<Range<i64>>>, GraphError> {
    let signature = signature(graph, call)?;
    let [grid] = &signature.grid[..] else { return Ok(None) };
    let (tile, axis) = axis(signature, grid, call, cut)?;
    Ok(tile.map(|_| axis.cuts()))
}

/// Splits a call into tasks at the given `cuts`. `None` if the grid is not one variable that steps
/// by a tile of free size, or if the cuts do not cover its extent in order.
///
/// # Errors
/// A grid or a region without a value.
pub fn parts_at(
    graph: &Graph,
    unrolled: &Unrolled,
    call: &PlannedCall,
    cuts: &[Range<i64>],
) -> Result<Option<Vec<Part>>, GraphError> {
    let signature = signature(graph, call)?;
    let [grid] = &signature.grid[..] else { return Ok(None) };
    let Some(tile) = free_tile(signature, grid) else { return Ok(None) };
    let mut end = 0;
    for cut in cuts {
        if cut.start != end || cut.is_empty() {
            return Ok(None);
        }
        end = cut.end;
    }
    if end != grid_value(signature, call, &grid.extent)? {
        return Ok(None);
    }
    let tiles = cuts.iter().map(|cut| part(unrolled, signature, call, &at_cut(&call.env, grid, Some(&tile.name), cut)));
    tiles.collect::<Result<_, _>>().map(Some)
}

/// `env` with the values of a grid's variable and tile at a cut.
fn at_cut(env: &BTreeMap<String, i64>, grid: &GridSig, tile: Option<&str>, cut: &Range<i64>) -> BTreeMap<String, i64> {
    let mut env = env.clone();
    env.insert(grid.var.clone(), cut.start);
    env.extend(tile.map(|tile| (tile.to_owned(), cut.end - cut.start)));
    env
}

/// Returns the name of the tile that a grid variable steps by, if its size is free, and the tiling
/// of the variable.
pub(super) fn axis<'s>(
    signature: &'s Signature,
    grid: &'s GridSig,
    call: &PlannedCall,
    cut: Cut,
) -> Result<(Option<&'s str>, Axis), GraphError> {
    let Some(tile) = free_tile(signature, grid) else { return Ok((None, stepped(signature, grid, call)?)) };
    let value = |expr| grid_value(signature, call, expr);
    let extent = value(&grid.extent)?;
    let axis = match cut.tile {
        Tile::Whole => Axis::per_worker(extent, extent, 1),
        Tile::Size(size) => Axis::each(extent, i64::from(size.max(1))),
        Tile::PerWorker => {
            let unit = i64::from(cut.unit.max(1));
            let step = value(&tile.default)?.max(1).saturating_add(unit - 1) / unit * unit;
            Axis::per_worker(extent, step, cut.workers)
        }
    };
    Ok((Some(&tile.name), axis))
}

/// A call on the regions of one tile.
pub(super) fn part(
    unrolled: &Unrolled,
    signature: &Signature,
    call: &PlannedCall,
    env: &TileEnv,
) -> Result<Part, GraphError> {
    let mut operands = Vec::with_capacity(call.operands.len());
    for operand in &call.operands {
        let none = || GraphError::new("AMK0603", "an operand has no tensor", "pass a tensor");
        let tensor = unrolled.tensors.get(operand.tensor.index()).ok_or_else(none)?;
        let region = region(&operand.spans, &tensor.shape, env, &signature.name)?;
        operands.push(PartOperand { tensor: operand.tensor, region, access: operand.access });
    }
    Ok(Part { operands, params: call.params.clone() })
}

/// The signature of a call.
pub(super) fn signature<'g>(graph: &'g Graph, call: &PlannedCall) -> Result<&'g Signature, GraphError> {
    let missing = || GraphError::new("AMK0604", "the call names no instruction", "call an instruction");
    graph.signatures.get(call.signature).ok_or_else(missing)
}

/// A grid variable divided into `parts` at multiples of `step`, of which `0..extent` has `units`.
pub(super) struct Axis {
    extent: i64,
    step: i64,
    units: i64,
    parts: i64,
}

impl Axis {
    /// At most `workers` cuts, as even as whole steps are.
    pub(super) fn per_worker(extent: i64, step: i64, workers: u32) -> Self {
        let step = step.max(1);
        let units = extent / step + i64::from(extent % step > 0);
        Self { extent, step, units, parts: units.min(i64::from(workers)).max(1) }
    }

    /// Tiles of `step` elements, which divides the extent.
    fn each(extent: i64, step: i64) -> Self {
        let units = (extent / step).max(0);
        Self { extent, step, units, parts: units }
    }

    /// Number of cuts.
    pub(super) fn len(&self) -> u64 {
        self.parts.unsigned_abs()
    }

    /// The cuts `start..end`.
    pub(super) fn cuts(&self) -> Vec<Range<i64>> {
        let Self { extent, step, units, parts } = *self;
        let cut = |part: i64| share(units, part, parts).saturating_mul(step).min(extent);
        (0..parts).map(|part| cut(part)..cut(part + 1)).collect()
    }
}

/// A grid variable whose step is fixed by the instruction.
pub(super) fn stepped(signature: &Signature, grid: &GridSig, call: &PlannedCall) -> Result<Axis, GraphError> {
    let value = |expr| grid_value(signature, call, expr);
    let (extent, step) = (value(&grid.extent)?, value(&grid.step)?);
    if step < 1 || extent % step != 0 {
        let (name, of) = (&signature.name, &grid.extent);
        let headline = format!("`{name}` takes steps of {step}, which do not divide `{of}` = {extent}");
        let help = format!("choose dims for which `{of}` is a multiple of `{}`", grid.step);
        return Err(GraphError::new("AMK0608", headline, help));
    }
    Ok(Axis::each(extent, step))
}

/// Returns the tile that a grid variable steps by, if its size is free.
pub(super) fn free_tile<'s>(signature: &'s Signature, grid: &GridSig) -> Option<&'s TileSig> {
    signature.tiles.iter().find(|tile| matches!(&grid.step, Expr::Name(name) if *name == tile.name))
}

/// A number of a call's grid.
pub(super) fn grid_value(signature: &Signature, call: &PlannedCall, expr: &Expr) -> Result<i64, GraphError> {
    expr.eval(&|name| call.env.get(name).copied()).map_err(|error| {
        GraphError::new("AMK0612", format!("the grid of `{}`: {error}", signature.name), "bind its dims in `shape`")
    })
}

/// The concrete region of an operand; bounds may be `pos + constant` or `max(0, pos + constant)`.
pub(super) fn region(spans: &[Span], shape: &[u32], env: &TileEnv, name: &str) -> Result<Region, GraphError> {
    let mut intervals = Vec::with_capacity(shape.len());
    for (dim, &extent) in shape.iter().enumerate() {
        let interval = match spans.get(dim) {
            None | Some(Span::Full) => Interval::fixed(0, extent),
            Some(Span::Range { lo, hi }) => Interval { lo: bound(lo, env, name)?, hi: bound(hi, env, name)? },
        };
        intervals.push(interval);
    }
    let too_deep = || {
        GraphError::new("AMK0612", format!("an operand of `{name}` has over 4 dimensions"), "use at most 4 dimensions")
    };
    Region::new(&intervals).ok_or_else(too_deep)
}

fn bound(expr: &Expr, env: &TileEnv, name: &str) -> Result<Bound, GraphError> {
    let bad = |why: String| {
        let help = "use grid variables, tiles, dims and at most `+ pos`, from 0 on: `max(0, pos - W)`";
        GraphError::new("AMK0612", format!("bound `{expr}` of `{name}` {why}"), help)
    };
    let moves = || bad("is not `pos + constant` or `max(0, pos + constant)`".to_owned());
    let line = |expr: &Expr| {
        let affine = expr.affine("pos", &|name| env.get(name).copied());
        affine.map_err(|error| bad(format!("has no value: {error}")))
    };
    if let Expr::Binary(Op::Max, a, b) = expr
        && let (Some((0, 0)), Some((1, offset))) | (Some((1, offset)), Some((0, 0))) = (line(a)?, line(b)?)
    {
        return Bound::from_pos(offset).ok_or_else(|| bad("has over 32 bits".to_owned()));
    }
    let (slope, base) = line(expr)?.ok_or_else(moves)?;
    let base = u32::try_from(base).map_err(|_| bad(format!("is {base} at position 0, no element")))?;
    match slope {
        0 => Ok(Bound::fixed(base)),
        1 => Ok(Bound::at_pos(base)),
        _ => Err(moves()),
    }
}

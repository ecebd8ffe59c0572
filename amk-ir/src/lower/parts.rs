//! One call cut into tasks by its own tile and task clauses, fused with no other.

use super::bound;
use super::tile::{Axis, free_tile, grid_value, region, signature, stepped};
use super::unroll::{PlannedCall, Unrolled};
use crate::graph::Graph;
use crate::graph_error::GraphError;
use crate::program::Param;
use crate::signature::{GridSig, Signature};
use crate::{Access, Region, TensorId};
use std::collections::BTreeMap;
use std::ops::Range;

/// How many tasks a call becomes.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Tasks along a tiled dimension, at most.
    pub workers: u32,
    /// Tiles begin at multiples of this many elements where the tile's size is free.
    pub unit: u32,
}

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
    /// The region that the tile has of it.
    pub region: Region,
    /// How the call accesses it.
    pub access: Access,
}

/// The tiles of a call in the order of its grid.
///
/// # Errors
/// A grid or a region that has no value, or more tasks than a program may have.
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

/// How [`parts`] cuts a call whose grid is one variable that steps by a tile of free size; `None`
/// for any other grid.
///
/// # Errors
/// A grid that has no value.
pub fn cuts(graph: &Graph, call: &PlannedCall, cut: Cut) -> Result<Option<Vec<Range<i64>>>, GraphError> {
    let signature = signature(graph, call)?;
    let [grid] = &signature.grid[..] else { return Ok(None) };
    let (tile, axis) = axis(signature, grid, call, cut)?;
    Ok(tile.map(|_| axis.cuts()))
}

/// Cuts a call into tasks at the given `cuts`. `None` where the grid is not one variable that steps
/// by a tile of free size, or where the cuts do not cover its extent in order.
///
/// # Errors
/// A grid or a region that has no value.
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

/// The name of the tile that a grid variable steps by, where its size is free, and how the variable
/// is cut.
fn axis<'s>(
    signature: &'s Signature,
    grid: &'s GridSig,
    call: &PlannedCall,
    cut: Cut,
) -> Result<(Option<&'s str>, Axis), GraphError> {
    let Some(tile) = free_tile(signature, grid) else { return Ok((None, stepped(signature, grid, call)?)) };
    let value = |expr| grid_value(signature, call, expr);
    let extent = value(&grid.extent)?;
    let unit = i64::from(cut.unit.max(1));
    let step = value(&tile.default)?.max(1).saturating_add(unit - 1) / unit * unit;
    Ok((Some(&tile.name), Axis::per_worker(extent, step, cut.workers)))
}

fn part(
    unrolled: &Unrolled,
    signature: &Signature,
    call: &PlannedCall,
    env: &BTreeMap<String, i64>,
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

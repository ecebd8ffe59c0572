//! Decisions of the lowering: the calls fused into one task, how they are tiled, and why others are
//! not fused.

use super::group::{Group, Member};
use super::reasons::once;
use super::task::TiledOp;
use super::tile::signature;
use super::unfused::Refused;
use super::unroll::Unrolled;
use crate::graph::Graph;
use crate::schedule::FuseInto;
use crate::text::Shown;
use crate::{CallRows, OpId};
use core::fmt::{self, Display, Formatter};
use std::ops::Range;

/// Decisions of the lowering.
#[derive(Clone, PartialEq, Debug)]
pub struct Decided {
    /// The ops in the order of [`crate::Program::ops`].
    pub ops: Vec<DecidedOp>,
    /// Fusions that were requested or possible but not done, in the order of the calls.
    pub refused: Vec<Refused>,
}

/// The calls that run in the tasks of one op.
#[derive(Clone, PartialEq, Debug)]
pub struct DecidedOp {
    /// The calls in eager order.
    pub calls: Vec<DecidedCall>,
    /// The call of [`Self::calls`] whose grid determines the tiles.
    pub lead: usize,
    /// The tiling of each grid variable of that call, outermost first.
    pub cuts: Vec<TileCut>,
    /// The rows of each task of a tile; empty if steps have one row.
    pub blocks: Vec<CallRows>,
}

/// A call of an op's tasks.
#[derive(Clone, PartialEq, Debug)]
pub struct DecidedCall {
    /// The call with its values' names.
    pub label: String,
    /// The call into whose tasks it was fused; `None`: it leads its group.
    pub fused: Option<FuseInto>,
    /// The values that are private to a task here.
    pub local: Vec<String>,
}

/// The tiling of a grid variable.
#[derive(Clone, PartialEq, Debug)]
pub struct TileCut {
    /// The variable.
    pub var: String,
    /// The tiles in order.
    pub tiles: Vec<Range<i64>>,
}

impl Decided {
    pub(super) fn of(
        graph: &Graph,
        unrolled: &Unrolled,
        groups: &[Group],
        tiled: Vec<TiledOp>,
        refused: Vec<Refused>,
    ) -> Self {
        let call = |group: &Group, number: usize, member: &Member| DecidedCall {
            label: unrolled.calls[member.call].label.clone(),
            fused: match (member.whole, number == group.lead) {
                (true, _) => Some(FuseInto::Consumers),
                (false, true) => None,
                (false, false) => Some(FuseInto::Producer),
            },
            local: member.local.iter().map(|tensor| unrolled.tensors[tensor.index()].name.clone()).collect(),
        };
        let op = |(group, tiled): (&Group, TiledOp)| {
            let grid = signature(graph, &unrolled.calls[tiled.call]).map_or(&[][..], |lead| &lead.grid);
            let cuts = grid.iter().zip(tiled.axes).map(|(grid, tiles)| TileCut { var: grid.var.clone(), tiles });
            DecidedOp {
                calls: group.members.iter().enumerate().map(|(number, member)| call(group, number, member)).collect(),
                lead: group.lead,
                cuts: cuts.collect(),
                blocks: tiled.blocks,
            }
        };
        Self { ops: groups.iter().zip(tiled).map(op).collect(), refused }
    }

    /// Returns the refused fusions as text. Calls that are refused for the same reason share a
    /// line.
    pub fn unfused(&self) -> Vec<String> {
        once(self.refused.iter().map(|refused| (refused.to_string(), &refused.iteration)))
    }
}

impl Display for Decided {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (number, op) in self.ops.iter().enumerate() {
            writeln!(f, "op {} {op}", OpId::from(number))?;
        }
        Ok(())
    }
}

impl Display for DecidedOp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let tasks: usize = self.cuts.iter().map(|cut| cut.tiles.len()).product();
        let lead = self.calls.get(self.lead).map_or("", |call| &call.label);
        write!(f, "{}: {tasks} task{}", Shown(lead), if tasks == 1 { "" } else { "s" })?;
        for (number, cut) in self.cuts.iter().enumerate() {
            write!(f, "{}{cut}", if number == 0 { ", " } else { " by " })?;
        }
        match &self.blocks[..] {
            [] => {}
            [all] => write!(f, ", all {} rows", all.len())?,
            [first, ..] => write!(f, ", rows in {} blocks of {}", self.blocks.len(), first.len())?,
        }
        for call in &self.calls {
            let how = match call.fused {
                Some(FuseInto::Consumers) => "whole in each task",
                Some(FuseInto::Producer) => "on each tile",
                None => continue,
            };
            write!(f, "\n    with {}, {how}", Shown(&call.label))?;
        }
        let mut shown: Vec<String> = Vec::new();
        for value in self.calls.iter().flat_map(|call| &call.local).map(|value| Shown(value).to_string()) {
            if !shown.contains(&value) {
                shown.push(value);
            }
        }
        if shown.is_empty() { Ok(()) } else { write!(f, "\n    local {}", shown.join(", ")) }
    }
}

impl Display for TileCut {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let sizes = || self.tiles.iter().map(|tile| tile.end - tile.start);
        let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
        write!(f, "{} in tiles of {least}", Shown(&self.var))?;
        if most == least { Ok(()) } else { write!(f, " to {most}") }
    }
}

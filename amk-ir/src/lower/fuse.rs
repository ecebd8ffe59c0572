//! Fusion: which calls run in one task.
//!
//! *Into consumers*: a call that has one task anyway (a norm of a vector) is repeated in every task that reads its result.
//! *Into its producer*: an element-wise call runs on each tile right after the calls that make that tile.
//! Results that no other group reads become task-local. A group runs where its last call stands. The values are the same either
//! way, the same calls run on the same inputs: where that would not be so, calls are not fused.

use super::bound;
use super::tile::free_tile;
use super::unroll::{PlannedCall, PlannedOperand, Unrolled};
use crate::expr::{Expr, Op};
use crate::graph::Graph;
use crate::graph_error::GraphError;
use crate::program::BufferKind;
use crate::schedule::{FuseInto, Schedule};
use crate::signature::{ParamKind, Signature, Span};
use crate::{Access, BufferId};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Calls that run in one task, tile by tile.
pub(super) struct Group {
    /// The calls in eager order.
    pub(super) members: Vec<Member>,
    /// The member whose grid cuts the tiles.
    pub(super) lead: usize,
}

/// A call of a group.
pub(super) struct Member {
    pub(super) call: usize,
    /// Runs whole in every task of the group instead of tile by tile.
    pub(super) whole: bool,
    /// Buffers that are private to the task in this member.
    pub(super) local: Vec<BufferId>,
}

pub(super) fn fuse(graph: &Graph, unrolled: &Unrolled, schedule: &Schedule) -> Result<Vec<Group>, GraphError> {
    let fusion = |call: &PlannedCall| {
        let name = graph.signatures.get(call.signature).map(|signature| signature.name.as_str());
        let hand_written = !call.signals.is_empty() || !call.waits.is_empty();
        schedule.fuse.iter().find(|fusion| !hand_written && Some(fusion.op.as_str()) == name).map(|fusion| fusion.into)
    };
    let uses = Uses::of(unrolled);
    let mut prologues: HashMap<BufferId, usize> = HashMap::new();
    let mut grouped = Grouped { graph, unrolled, uses: &uses, group_of: HashMap::new(), groups: Vec::new() };
    for (index, call) in unrolled.calls.iter().enumerate() {
        match fusion(call) {
            Some(FuseInto::Consumers) if uses.repeatable(unrolled, index) => {
                prologues.extend(uses.written(unrolled, index).map(|buffer| (buffer, index)));
            }
            Some(FuseInto::Producer) => grouped.add_to_producers(index),
            _ => grouped.add(vec![index]),
        }
    }
    let mut groups = grouped.groups;
    groups.retain(|group| !group.is_empty());
    groups.sort_by_key(|group| group.last().copied());
    let mut members = 0;
    let counted = groups.iter().map(|calls| {
        let group = group(graph, unrolled, &uses, &prologues, calls)?;
        members += group.members.len();
        bound::grouped(graph, members, unrolled.calls[calls[0]].site)?;
        Ok(group)
    });
    counted.collect()
}

/// The calls as a group, with the repeated calls that they need.
fn group(
    graph: &Graph,
    unrolled: &Unrolled,
    uses: &Uses,
    prologues: &HashMap<BufferId, usize>,
    calls: &[usize],
) -> Result<Group, GraphError> {
    let members = calls.iter().map(|&call| Member { call, whole: false, local: Vec::new() }).collect();
    let mut group = Group { members, lead: 0 };
    add_prologues(graph, unrolled, prologues, &mut group)?;
    mark_locals(unrolled, uses, &mut group);
    Ok(group)
}

/// Which calls write and read each buffer.
struct Uses {
    writers: BTreeMap<BufferId, Vec<usize>>,
    readers: BTreeMap<BufferId, Vec<usize>>,
}

impl Uses {
    fn of(unrolled: &Unrolled) -> Self {
        let mut uses = Self { writers: BTreeMap::new(), readers: BTreeMap::new() };
        for (index, call) in unrolled.calls.iter().enumerate() {
            for operand in &call.operands {
                if operand.access.writes() {
                    uses.writers.entry(operand.buffer).or_default().push(index);
                }
                if operand.access.reads() {
                    uses.readers.entry(operand.buffer).or_default().push(index);
                }
            }
        }
        uses
    }

    fn writers(&self, buffer: BufferId) -> &[usize] {
        self.writers.get(&buffer).map_or(&[], Vec::as_slice)
    }

    fn readers(&self, buffer: BufferId) -> &[usize] {
        self.readers.get(&buffer).map_or(&[], Vec::as_slice)
    }

    /// The calls that must keep their order with one that has this operand.
    fn conflicting(&self, operand: &PlannedOperand) -> impl Iterator<Item = usize> {
        let readers = if operand.access.writes() { self.readers(operand.buffer) } else { &[] };
        self.writers(operand.buffer).iter().chain(readers).copied()
    }

    fn written<'a>(&self, unrolled: &'a Unrolled, call: usize) -> impl Iterator<Item = BufferId> + 'a {
        unrolled.calls[call].operands.iter().filter(|operand| operand.access.writes()).map(|operand| operand.buffer)
    }

    /// Whether a call may be repeated: it writes activations only, and nothing it reads is written again.
    fn repeatable(&self, unrolled: &Unrolled, call: usize) -> bool {
        unrolled.calls[call].operands.iter().all(|operand| match operand.access {
            Access::Write => unrolled.buffers[operand.buffer.index()].kind == BufferKind::Activation,
            Access::Read => self.writers(operand.buffer).iter().all(|&writer| writer < call),
            Access::Update => false,
        })
    }
}

/// The calls that run tile by tile, grouped so far.
struct Grouped<'a> {
    graph: &'a Graph,
    unrolled: &'a Unrolled,
    uses: &'a Uses,
    group_of: HashMap<usize, usize>,
    /// The calls of each group in eager order; none where they went into another group.
    groups: Vec<Vec<usize>>,
}

impl Grouped<'_> {
    fn add(&mut self, calls: Vec<usize>) {
        self.group_of.extend(calls.iter().map(|&call| (call, self.groups.len())));
        self.groups.push(calls);
    }

    /// A call with those of its producers' groups that it may join, the last ones first: they may stand between it and the others.
    fn add_to_producers(&mut self, call: usize) {
        let mut calls = vec![call];
        let mut producers = self.producers(call);
        producers.sort_by_key(|&producer| self.groups[producer].last().copied());
        for producer in producers.into_iter().rev() {
            let mut joined = [self.groups[producer].as_slice(), &calls].concat();
            joined.sort_unstable();
            if joined.len() <= bound::MOST_FUSED && self.keeps_tiles(&joined) && self.keeps_order(&joined) {
                self.groups[producer].clear();
                calls = joined;
            }
        }
        self.add(calls);
    }

    /// The groups that make the tiles an element-wise call works on; none where its tiles are not theirs.
    fn producers(&self, call: usize) -> Vec<usize> {
        let mut found = Vec::new();
        let Some(extent) = self.signature(call).filter(|s| element_wise(s)).and_then(|_| self.grid_extent(call)) else {
            return found;
        };
        for operand in self.unrolled.calls[call].operands.iter().filter(|operand| operand.access == Access::Read) {
            let ([writer], [_]) = (self.uses.writers(operand.buffer), self.uses.readers(operand.buffer)) else {
                continue;
            };
            let Some(&group) = self.group_of.get(writer) else { continue };
            let Some(&lead) = self.groups[group].first() else { continue };
            let tiled = self.signature(lead).is_some_and(|signature| signature.grid.len() == 1);
            let planned = &self.unrolled.calls[lead];
            let no_events = planned.signals.is_empty() && planned.waits.is_empty();
            if tiled && no_events && self.grid_extent(lead) == Some(extent) && !found.contains(&group) {
                found.push(group);
            }
        }
        found
    }

    /// Whether a task may have one tile of each call: what they exchange is cut by the tile alone, which is the first call's.
    fn keeps_tiles(&self, calls: &[usize]) -> bool {
        let cut = |&call: &usize| {
            let exchanged = |operand: &PlannedOperand| {
                self.uses.conflicting(operand).any(|other| other != call && calls.binary_search(&other).is_ok())
            };
            let by_tile = |operand: &PlannedOperand| {
                self.signature(call).and_then(tile).is_some_and(|tile| operand.spans == [tile])
            };
            self.unrolled.calls[call].operands.iter().all(|operand| !exchanged(operand) || by_tile(operand))
        };
        let free = |&call: &usize| {
            self.signature(call).is_some_and(|s| s.grid.first().is_some_and(|grid| free_tile(s, grid).is_some()))
        };
        calls.iter().all(cut) && calls.iter().skip(1).all(free)
    }

    /// Whether the calls may run where the last one does: no other call from the first on writes what one before it uses, or
    /// uses what one before it writes.
    fn keeps_order(&self, calls: &[usize]) -> bool {
        let Some(&last) = calls.last() else { return true };
        calls.iter().all(|&call| {
            let mut conflicting =
                self.unrolled.calls[call].operands.iter().flat_map(|operand| self.uses.conflicting(operand));
            !conflicting.any(|other| call < other && other < last && calls.binary_search(&other).is_err())
        })
    }

    fn signature(&self, call: usize) -> Option<&Signature> {
        self.graph.signatures.get(self.unrolled.calls[call].signature)
    }

    fn grid_extent(&self, call: usize) -> Option<i64> {
        let grid = self.signature(call)?.grid.first()?;
        grid.extent.eval(&|name| self.unrolled.calls[call].env.get(name).copied()).ok()
    }
}

/// The interval `n..n + T` of the one grid variable.
fn tile(signature: &Signature) -> Option<Span> {
    let [grid] = signature.grid.as_slice() else { return None };
    let lo = Expr::name(&grid.var);
    let hi = Expr::binary(Op::Add, lo.clone(), grid.step.clone());
    Some(Span::Range { lo, hi })
}

/// One grid variable, and every operand is a vector cut by it alone: `y[n..n+T] <- x[n..n+T]`.
fn element_wise(signature: &Signature) -> bool {
    let Some(tile) = tile(signature) else { return false };
    let regions = signature.params.iter().filter_map(|param| match &param.kind {
        ParamKind::Tensor { region, .. } => Some(region),
        _ => None,
    });
    regions
        .chain(signature.results.iter().map(|result| &result.region))
        .all(|region| region.as_slice() == std::slice::from_ref(&tile))
}

/// Puts the repeated calls a group needs before its own, in eager order.
fn add_prologues(
    graph: &Graph,
    unrolled: &Unrolled,
    prologues: &HashMap<BufferId, usize>,
    group: &mut Group,
) -> Result<(), GraphError> {
    let mut needed: BTreeSet<usize> = BTreeSet::new();
    let mut pending: Vec<usize> = group.members.iter().map(|member| member.call).collect();
    while let Some(call) = pending.pop() {
        for operand in &unrolled.calls[call].operands {
            if operand.access.reads()
                && let Some(&prologue) = prologues.get(&operand.buffer)
                && needed.insert(prologue)
            {
                bound::repeated(graph, needed.len(), unrolled.calls[prologue].site)?;
                pending.push(prologue);
            }
        }
    }
    group.lead += needed.len();
    let whole = needed.into_iter().map(|call| Member { call, whole: true, local: Vec::new() });
    group.members.splice(0..0, whole);
    Ok(())
}

/// Buffers written and read inside the group only are private to its tasks.
fn mark_locals(unrolled: &Unrolled, uses: &Uses, group: &mut Group) {
    let inside: Vec<usize> = group.members.iter().map(|member| member.call).collect();
    let whole: Vec<usize> = group.members.iter().filter(|member| member.whole).map(|member| member.call).collect();
    for member in &mut group.members {
        for operand in &unrolled.calls[member.call].operands {
            let activation = unrolled.buffers[operand.buffer.index()].kind == BufferKind::Activation;
            let (writers, readers) = (uses.writers(operand.buffer), uses.readers(operand.buffer));
            let repeated = writers.iter().any(|writer| whole.contains(writer));
            let closed = writers.iter().chain(readers).all(|call| inside.contains(call));
            if activation && (repeated || closed) && !writers.is_empty() {
                member.local.push(operand.buffer);
            }
        }
    }
}

//! Fusion: the selection of calls that run in one task.
//!
//! *Into consumers*: a call that has a single task anyway (such as a norm of a vector) is repeated
//! in every task that reads its result. *Into its producer*: an element-wise call runs on each tile
//! right after the calls that compute that tile. Results that no other group reads become
//! task-local. A group runs at the place of its last call. Fusion changes no value, since the same
//! calls run on the same inputs; calls are not fused if that would not hold.

use super::bound;
use super::flow::Flow;
use super::join::{cut_alike, element_wise, passes};
use super::unfused::{Refused, Unfused};
use super::unroll::{PlannedCall, PlannedOperand, Unrolled};
use crate::graph::Graph;
use crate::graph_error::GraphError;
use crate::program::BufferKind;
use crate::schedule::{FuseInto, Schedule};
use crate::signature::Signature;
use crate::{Access, TensorId};
use std::collections::{BTreeSet, HashMap};

/// Calls that run in one task, tile by tile.
pub(super) struct Group {
    /// The calls in eager order.
    pub(super) members: Vec<Member>,
    /// The member whose grid determines the tiles.
    pub(super) lead: usize,
}

/// A call of a group.
pub(super) struct Member {
    pub(super) call: usize,
    /// Runs whole in every task of the group instead of tile by tile.
    pub(super) whole: bool,
    /// Tensors that are private to the task in this member.
    pub(super) local: Vec<TensorId>,
}

/// The groups of calls, and the fusions that were asked for or possible and not done.
pub(super) struct Fused {
    pub(super) groups: Vec<Group>,
    pub(super) refused: Vec<Refused>,
}

pub(super) fn fuse(graph: &Graph, unrolled: &Unrolled, schedule: &Schedule) -> Result<Fused, GraphError> {
    let asked = |call: &PlannedCall| {
        let name = graph.signatures.get(call.signature).map(|signature| signature.name.as_str());
        let mut asked = schedule.fuse.iter().filter(|_| schedule.fusion);
        asked.find(|fusion| Some(fusion.op.as_str()) == name).map(|fusion| fusion.into)
    };
    let flow = Flow::new(graph, unrolled);
    let mut prologues: HashMap<TensorId, usize> = HashMap::new();
    let mut grouped = Grouped {
        flow: &flow,
        group_of: HashMap::new(),
        groups: Vec::new(),
        prologues: BTreeSet::new(),
        refused: Vec::new(),
    };
    for (index, call) in unrolled.calls.iter().enumerate() {
        match asked(call) {
            Some(into) if has_events(call) => {
                grouped.refuse(index, into, Unfused::HandWritten);
                grouped.add(vec![index]);
            }
            Some(FuseInto::Consumers) => match grouped.repeatable(index) {
                Ok(()) => {
                    prologues.extend(flow.written(index).map(|tensor| (tensor, index)));
                    grouped.prologues.insert(index);
                }
                Err(because) => {
                    grouped.refuse(index, FuseInto::Consumers, because);
                    grouped.add(vec![index]);
                }
            },
            Some(FuseInto::Producer) => grouped.add_to_producers(index),
            None => {
                if let Some(into) = grouped.possible(index) {
                    grouped.refuse(index, into, Unfused::NotAsked);
                }
                grouped.add(vec![index]);
            }
        }
    }
    let (mut groups, refused) = (grouped.groups, grouped.refused);
    groups.retain(|group| !group.is_empty());
    groups.sort_by_key(|group| group.last().copied());
    let mut members = 0;
    let counted = groups.iter().map(|calls| {
        let group = group(&flow, &prologues, calls)?;
        members += group.members.len();
        bound::grouped(graph, members, unrolled.calls[calls[0]].site)?;
        Ok(group)
    });
    Ok(Fused { groups: counted.collect::<Result<_, _>>()?, refused })
}

/// Whether a call has hand-written signals or waits.
fn has_events(call: &PlannedCall) -> bool {
    !call.signals.is_empty() || !call.waits.is_empty()
}

/// The calls as a group, with the repeated calls that they need.
fn group(flow: &Flow<'_>, prologues: &HashMap<TensorId, usize>, calls: &[usize]) -> Result<Group, GraphError> {
    let members = calls.iter().map(|&call| Member { call, whole: false, local: Vec::new() }).collect();
    let mut group = Group { members, lead: 0 };
    add_prologues(flow, prologues, &mut group)?;
    mark_locals(flow, &mut group);
    Ok(group)
}

/// The calls that run tile by tile, grouped so far.
struct Grouped<'a> {
    flow: &'a Flow<'a>,
    group_of: HashMap<usize, usize>,
    /// The calls of each group in eager order; empty if they went into another group.
    groups: Vec<Vec<usize>>,
    /// Calls that are repeated in the tasks of their consumers.
    prologues: BTreeSet<usize>,
    refused: Vec<Refused>,
}

impl Grouped<'_> {
    fn add(&mut self, calls: Vec<usize>) {
        self.group_of.extend(calls.iter().map(|&call| (call, self.groups.len())));
        self.groups.push(calls);
    }

    fn refuse(&mut self, call: usize, into: FuseInto, because: Unfused) {
        let iteration = self.flow.call(call).indices.clone();
        self.refused.push(Refused { call, iteration, op: self.op(call), into, because });
    }

    /// Adds a call to its producers' groups, latest first: a later group may lie between the call
    /// and an earlier one.
    fn add_to_producers(&mut self, call: usize) {
        let mut calls = vec![call];
        let (mut producers, mut refused) = self.producers(call);
        producers.sort_by_key(|&producer| self.groups[producer].last().copied());
        for producer in producers.into_iter().rev() {
            match self.joined(producer, &calls) {
                Ok(joined) => {
                    self.groups[producer].clear();
                    calls = joined;
                }
                Err(because) => refused.push(because),
            }
        }
        refused.into_iter().for_each(|because| self.refuse(call, FuseInto::Producer, because));
        self.add(calls);
    }

    /// Returns the call together with the calls of a producer's group, if they may run in one task.
    fn joined(&self, producer: usize, calls: &[usize]) -> Result<Vec<usize>, Unfused> {
        let mut joined = [self.groups[producer].as_slice(), calls].concat();
        joined.sort_unstable();
        if joined.len() > bound::MOST_FUSED {
            return Err(Unfused::TooLong { calls: joined.len(), most: bound::MOST_FUSED });
        }
        cut_alike(self.flow, &joined)?;
        self.keeps_order(&joined)?;
        Ok(joined)
    }

    /// Returns a fusion that would be possible for a call.
    fn possible(&self, call: usize) -> Option<FuseInto> {
        if has_events(self.flow.call(call)) {
            return None;
        }
        let one_task = self.signature(call).is_some_and(|signature| signature.grid.is_empty());
        let computes = |operand: &PlannedOperand| !self.flow.writers(operand.tensor).is_empty();
        let read = || self.flow.written(call).any(|tensor| !self.flow.readers(tensor).is_empty());
        let from_calls = self.flow.call(call).operands.iter().any(|o| o.access == Access::Read && computes(o));
        if one_task && from_calls && read() && self.repeatable(call).is_ok() {
            return Some(FuseInto::Consumers);
        }
        let (producers, _) = self.producers(call);
        producers.iter().any(|&producer| self.joined(producer, &[call]).is_ok()).then_some(FuseInto::Producer)
    }

    /// The groups that make the tiles an element-wise call works on, and why others do not.
    fn producers(&self, call: usize) -> (Vec<usize>, Vec<Unfused>) {
        let (mut found, mut refused) = (Vec::new(), Vec::new());
        if !self.signature(call).is_some_and(element_wise) {
            return (found, vec![Unfused::NotElementWise]);
        }
        for operand in self.flow.call(call).operands.iter().filter(|operand| operand.access == Access::Read) {
            match self.producer(operand) {
                Some(Ok(group)) if !found.contains(&group) => found.push(group),
                Some(Err(because)) if !refused.contains(&because) => refused.push(because),
                _ => {}
            }
        }
        if found.is_empty() && refused.is_empty() {
            refused.push(Unfused::NoProducer);
        }
        (found, refused)
    }

    /// The group that makes an operand's tiles, if a call makes them and no other needs them.
    fn producer(&self, operand: &PlannedOperand) -> Option<Result<usize, Unfused>> {
        let writer = match passes(self.flow, operand.tensor) {
            Ok((writer, _)) => writer,
            Err(Unfused::NoProducer) => return None,
            Err(because) => return Some(Err(because)),
        };
        if self.prologues.contains(&writer) {
            return Some(Err(Unfused::Repeated { producer: self.op(writer) }));
        }
        let &group = self.group_of.get(&writer)?;
        let &lead = self.groups[group].first()?;
        Some(match has_events(self.flow.call(lead)) {
            true => Err(Unfused::ProducerEvents { producer: self.op(lead) }),
            false => Ok(group),
        })
    }

    /// Whether a call may be repeated: it writes activations only, and nothing it reads is written
    /// again.
    fn repeatable(&self, call: usize) -> Result<(), Unfused> {
        for operand in &self.flow.call(call).operands {
            let kind = self.flow.kind(operand.tensor);
            let value = || self.value(operand.tensor);
            match operand.access {
                Access::Write if kind == BufferKind::Activation => {}
                Access::Write => return Err(Unfused::Kept { value: value(), kind }),
                Access::Read => {
                    if let Some(&by) = self.flow.writers(operand.tensor).iter().find(|&&writer| writer >= call) {
                        return Err(Unfused::Overwritten { value: value(), by: self.op(by) });
                    }
                }
                Access::Update => return Err(Unfused::Updates { value: value() }),
            }
        }
        Ok(())
    }

    /// Whether the calls may run at the place of the last one: no other call from the first on
    /// writes a value that an earlier one uses, or uses one that an earlier one writes.
    fn keeps_order(&self, calls: &[usize]) -> Result<(), Unfused> {
        let Some(&last) = calls.last() else { return Ok(()) };
        for &call in calls {
            let between = |other: usize| call < other && other < last && calls.binary_search(&other).is_err();
            for operand in &self.flow.call(call).operands {
                if let Some(other) = self.flow.conflicting(operand).find(|&other| between(other)) {
                    return Err(Unfused::Between { call: self.op(other), value: self.value(operand.tensor) });
                }
            }
        }
        Ok(())
    }

    /// The name of a call's instruction.
    fn op(&self, call: usize) -> String {
        self.flow.op(call)
    }

    /// The name of a value.
    fn value(&self, tensor: TensorId) -> String {
        self.flow.tensor(tensor).name.clone()
    }

    fn signature(&self, call: usize) -> Option<&Signature> {
        self.flow.signature(call)
    }
}

/// Puts the repeated calls a group needs before its own, in eager order.
fn add_prologues(flow: &Flow<'_>, prologues: &HashMap<TensorId, usize>, group: &mut Group) -> Result<(), GraphError> {
    let mut needed: BTreeSet<usize> = BTreeSet::new();
    let mut pending: Vec<usize> = group.members.iter().map(|member| member.call).collect();
    while let Some(call) = pending.pop() {
        for operand in &flow.call(call).operands {
            if operand.access.reads()
                && let Some(&prologue) = prologues.get(&operand.tensor)
                && needed.insert(prologue)
            {
                bound::repeated(flow.graph, needed.len(), flow.call(prologue).site)?;
                pending.push(prologue);
            }
        }
    }
    group.lead += needed.len();
    let whole = needed.into_iter().map(|call| Member { call, whole: true, local: Vec::new() });
    group.members.splice(0..0, whole);
    Ok(())
}

/// Tensors written and read inside the group only are private to its tasks.
fn mark_locals(flow: &Flow<'_>, group: &mut Group) {
    let inside: Vec<usize> = group.members.iter().map(|member| member.call).collect();
    let whole: Vec<usize> = group.members.iter().filter(|member| member.whole).map(|member| member.call).collect();
    for member in &mut group.members {
        for operand in &flow.call(member.call).operands {
            let activation = flow.kind(operand.tensor) == BufferKind::Activation;
            let (writers, readers) = (flow.writers(operand.tensor), flow.readers(operand.tensor));
            let repeated = writers.iter().any(|writer| whole.contains(writer));
            let closed = writers.iter().chain(readers).all(|call| inside.contains(call));
            if activation && (repeated || closed) && !writers.is_empty() {
                member.local.push(operand.tensor);
            }
        }
    }
}

//! Fusion: which calls run in one task.
//!
//! *Into consumers*: a call that has one task anyway (a norm of a vector) is repeated in every task that reads its result.
//! *Into its producer*: an element-wise call runs on each tile right after the calls that make that tile.
//! Results that no other group reads become task-local. The values are the same either way: the same calls run on the same
//! inputs.

use super::unroll::{PlannedCall, Unrolled};
use crate::expr::Expr;
use crate::graph::Graph;
use crate::program::BufferKind;
use crate::schedule::{FuseInto, Schedule};
use crate::signature::{Signature, Span};
use crate::{Access, BufferId};
use std::collections::{BTreeMap, HashMap};

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

pub(super) fn fuse(graph: &Graph, unrolled: &Unrolled, schedule: &Schedule) -> Vec<Group> {
    let fusion = |call: &PlannedCall| {
        let name = graph.signatures.get(call.signature).map(|signature| signature.name.as_str());
        let hand_written = !call.signals.is_empty() || !call.waits.is_empty();
        schedule.fuse.iter().find(|fusion| !hand_written && Some(fusion.op.as_str()) == name).map(|fusion| fusion.into)
    };
    let uses = Uses::of(unrolled);
    let mut group_of: HashMap<usize, usize> = HashMap::new();
    let mut groups: Vec<Group> = Vec::new();
    let mut prologues: HashMap<BufferId, usize> = HashMap::new();
    for (index, call) in unrolled.calls.iter().enumerate() {
        match fusion(call) {
            Some(FuseInto::Consumers) if uses.repeatable(unrolled, index) => {
                prologues.extend(uses.written(unrolled, index).map(|buffer| (buffer, index)));
                continue;
            }
            Some(FuseInto::Producer) => {
                let parts = producers(graph, unrolled, &uses, &group_of, &groups, index);
                if let Some(target) = parts {
                    merge(&mut groups, &mut group_of, &target, index);
                    continue;
                }
            }
            _ => {}
        }
        group_of.insert(index, groups.len());
        groups.push(Group { members: vec![Member { call: index, whole: false, local: Vec::new() }], lead: 0 });
    }
    groups.retain(|group| !group.members.is_empty());
    for group in &mut groups {
        add_prologues(unrolled, &prologues, group);
        mark_locals(unrolled, &uses, group);
    }
    groups.sort_by_key(|group| group.members.iter().map(|member| member.call).max());
    groups
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

    fn written<'a>(&self, unrolled: &'a Unrolled, call: usize) -> impl Iterator<Item = BufferId> + 'a {
        unrolled.calls[call].operands.iter().filter(|operand| operand.access.writes()).map(|operand| operand.buffer)
    }

    /// Whether a call may be repeated: it writes activations only, and nothing it reads is written again.
    fn repeatable(&self, unrolled: &Unrolled, call: usize) -> bool {
        unrolled.calls[call].operands.iter().all(|operand| match operand.access {
            Access::Write => unrolled.buffers[operand.buffer.index()].kind == BufferKind::Activation,
            Access::Read => self.writers.get(&operand.buffer).is_none_or(|writers| writers.iter().all(|&w| w < call)),
            Access::Update => false,
        })
    }
}

/// The groups that make the tiles an element-wise call works on; `None` where its tiles are not theirs.
fn producers(
    graph: &Graph,
    unrolled: &Unrolled,
    uses: &Uses,
    group_of: &HashMap<usize, usize>,
    groups: &[Group],
    call: usize,
) -> Option<Vec<usize>> {
    let signature = graph.signatures.get(unrolled.calls[call].signature)?;
    element_wise(signature).then_some(())?;
    let extent = grid_extent(graph, unrolled, call)?;
    let mut found: Vec<usize> = Vec::new();
    for operand in unrolled.calls[call].operands.iter().filter(|operand| operand.access == Access::Read) {
        let [writer] = uses.writers.get(&operand.buffer).map_or(&[][..], Vec::as_slice) else { continue };
        let Some(&group) = group_of.get(writer) else { continue };
        let lead = groups[group].members.get(groups[group].lead)?.call;
        let tiled = graph.signatures.get(unrolled.calls[lead].signature).is_some_and(|s| s.grid.len() == 1);
        let only_reader = uses.readers.get(&operand.buffer).is_some_and(|readers| readers.len() == 1);
        let no_events = unrolled.calls[lead].signals.is_empty() && unrolled.calls[lead].waits.is_empty();
        if tiled
            && only_reader
            && no_events
            && grid_extent(graph, unrolled, lead) == Some(extent)
            && !found.contains(&group)
        {
            found.push(group);
        }
    }
    (!found.is_empty()).then_some(found)
}

/// One grid variable, and every operand's last dimension is cut by it alone: `y[n..n+T] <- x[n..n+T]`.
fn element_wise(signature: &Signature) -> bool {
    let [grid] = signature.grid.as_slice() else { return false };
    let tile = Span::Range {
        lo: Expr::name(&grid.var),
        hi: Expr::binary(crate::expr::Op::Add, Expr::name(&grid.var), grid.step.clone()),
    };
    let regions = signature.params.iter().filter_map(|param| match &param.kind {
        crate::signature::ParamKind::Tensor { region, .. } => Some(region),
        _ => None,
    });
    regions
        .chain(signature.results.iter().map(|result| &result.region))
        .all(|region| region.as_slice() == [tile.clone()])
}

fn grid_extent(graph: &Graph, unrolled: &Unrolled, call: usize) -> Option<i64> {
    let planned = &unrolled.calls[call];
    let grid = graph.signatures.get(planned.signature)?.grid.first()?;
    grid.extent.eval(&|name| planned.env.get(name).copied()).ok()
}

fn merge(groups: &mut [Group], group_of: &mut HashMap<usize, usize>, parts: &[usize], call: usize) {
    let Some((&target, others)) = parts.split_first() else { return };
    for &other in others {
        let members = std::mem::take(&mut groups[other].members);
        for member in &members {
            group_of.insert(member.call, target);
        }
        groups[target].members.extend(members);
    }
    group_of.insert(call, target);
    groups[target].members.push(Member { call, whole: false, local: Vec::new() });
    groups[target].members.sort_by_key(|member| member.call);
}

/// Puts the repeated calls a group needs before its own, in eager order.
fn add_prologues(unrolled: &Unrolled, prologues: &HashMap<BufferId, usize>, group: &mut Group) {
    let mut needed: Vec<usize> = Vec::new();
    let mut pending: Vec<usize> = group.members.iter().map(|member| member.call).collect();
    while let Some(call) = pending.pop() {
        for operand in &unrolled.calls[call].operands {
            if operand.access.reads()
                && let Some(&prologue) = prologues.get(&operand.buffer)
                && !needed.contains(&prologue)
            {
                needed.push(prologue);
                pending.push(prologue);
            }
        }
    }
    needed.sort_unstable();
    group.lead += needed.len();
    let whole = needed.into_iter().map(|call| Member { call, whole: true, local: Vec::new() });
    group.members.splice(0..0, whole);
}

/// Buffers written and read inside the group only are private to its tasks.
fn mark_locals(unrolled: &Unrolled, uses: &Uses, group: &mut Group) {
    let inside: Vec<usize> = group.members.iter().map(|member| member.call).collect();
    let whole: Vec<usize> = group.members.iter().filter(|member| member.whole).map(|member| member.call).collect();
    for member in &mut group.members {
        for operand in &unrolled.calls[member.call].operands {
            let activation = unrolled.buffers[operand.buffer.index()].kind == BufferKind::Activation;
            let writers = uses.writers.get(&operand.buffer).map_or(&[][..], Vec::as_slice);
            let repeated = writers.iter().any(|writer| whole.contains(writer));
            let readers = uses.readers.get(&operand.buffer).map_or(&[][..], Vec::as_slice);
            let closed = writers.iter().chain(readers).all(|call| inside.contains(call));
            if activation && (repeated || closed) && !writers.is_empty() {
                member.local.push(operand.buffer);
            }
        }
    }
}

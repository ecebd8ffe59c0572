//! Grouping: which calls of a function the device computes together, found by following the data.
//!
//! Registered fusions take calls into groups where their calls, shapes and constants are what a
//! body computes and what passes between them is read by nothing else. Any other call becomes tasks
//! with the instruction's generic device body, and calls that follow in them. A group that cannot
//! get what it reads is given up, and the rest is grouped again without it.

use super::chain::{Chain, chains};
use super::flow::Flow;
use super::{Planner, Precision, UNIT, Unsupported};
use crate::extensions::Extensions;
use crate::set::body_sets;
use amk_ir::lower::parts::{Cut, parts};
use amk_ir::program::BufferKind;
use amk_ir::schedule::Schedule;
use amk_ir::{Access, TensorId};
use core::any::Any;
use core::fmt::Debug;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Calls that a fused body computes together.
pub trait FusedGroup: Any + Debug + Send + Sync {
    /// The calls; the first leads.
    fn calls(&self) -> &[usize];
    /// The values that its code reads as packets of bf16 pairs.
    fn packed(&self) -> Vec<TensorId> {
        Vec::new()
    }
    /// The value that it leaves with the workers and publishes to none.
    fn unpublished(&self) -> Option<TensorId> {
        None
    }
    /// Whether it finds an unpublished value by itself.
    fn finds(&self, _value: TensorId) -> bool {
        false
    }
    /// Whether it keeps a state that the loader reads ahead: a step must take every slot of the
    /// ring then.
    fn keeps_state(&self) -> bool {
        false
    }
    /// Checks that the group can come here in the order of all; `seen` is what the groups before
    /// it left.
    ///
    /// # Errors
    /// The call that leads a group which must be given up.
    fn check(&self, _flow: &Flow<'_>, _seen: &mut Extensions) -> Result<(), usize> {
        Ok(())
    }
    /// Adds the buffers that must have their place before any phase of the program.
    fn begin(&self, _planner: &mut Planner<'_>) {}
    /// Adds its phases.
    ///
    /// # Errors
    /// [`Unsupported`].
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), Unsupported>;
}

/// Calls that the device computes together.
#[derive(Clone, Debug)]
pub(super) enum Group {
    /// Calls by their generic device bodies.
    Chain(Chain),
    /// Calls of a fused body.
    Fused(Arc<dyn FusedGroup>),
}

/// The groups in the order in which the device computes them.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    pub(super) list: Vec<Group>,
    /// What the fusions know of the whole function.
    pub(super) shared: Extensions,
    /// Values that fused code reads: packets of bf16 pairs.
    pub(super) packed: HashSet<TensorId>,
}

impl Group {
    /// The call by which the group is known.
    fn lead(&self) -> usize {
        self.calls()[0]
    }

    fn calls(&self) -> &[usize] {
        match self {
            Self::Chain(chain) => &chain.calls,
            Self::Fused(group) => group.calls(),
        }
    }

    fn packed(&self) -> Vec<TensorId> {
        match self {
            Self::Chain(chain) => chain.packed.clone(),
            Self::Fused(group) => group.packed(),
        }
    }
}

impl Groups {
    /// The calls by generic device bodies.
    pub(super) fn chains(&self) -> impl Iterator<Item = &Chain> {
        self.list.iter().filter_map(|group| if let Group::Chain(chain) = group { Some(chain) } else { None })
    }

    /// The calls that lead groups which keep states.
    pub(super) fn keeping_states(&self) -> Vec<usize> {
        let keeps = |group: &&Group| matches!(group, Group::Fused(fused) if fused.keeps_state());
        self.list.iter().filter(keeps).map(Group::lead).collect()
    }
}

/// The calls of a function while fusions take them into groups.
pub struct Grouping<'a> {
    /// The data flow.
    pub flow: &'a Flow<'a>,
    /// What was chosen.
    pub schedule: &'a Schedule,
    /// What the fusions know of the whole function.
    pub shared: Extensions,
    excluded: &'a HashSet<usize>,
    taken: Vec<bool>,
    groups: Vec<Arc<dyn FusedGroup>>,
}

impl Grouping<'_> {
    /// The numbers of all calls.
    pub fn calls(&self) -> std::ops::Range<usize> {
        0..self.taken.len()
    }

    /// Whether a call is in no group.
    pub fn free(&self, at: usize) -> bool {
        !self.taken[at]
    }

    /// Whether a call may lead a group: one that had to be given up may not.
    pub fn may_lead(&self, at: usize) -> bool {
        !self.excluded.contains(&at)
    }

    /// Takes a call that every group which reads its result computes by itself.
    pub fn take(&mut self, at: usize) {
        self.taken[at] = true;
    }

    /// Adds a group, and takes its calls.
    pub fn push(&mut self, group: impl FusedGroup) {
        group.calls().iter().for_each(|&at| self.taken[at] = true);
        self.groups.push(Arc::new(group));
    }

    /// The groups of a kind so far.
    pub fn groups<T: FusedGroup>(&self) -> impl Iterator<Item = &T> {
        self.groups.iter().filter_map(|group| (&**group as &dyn Any).downcast_ref())
    }
}

/// Groups the calls of a function; those in `excluded` lead no group of fused code.
pub(super) fn group(flow: &Flow<'_>, schedule: &Schedule, precision: Precision, excluded: &HashSet<usize>) -> Groups {
    let mut excluded = excluded.clone();
    if precision == Precision::F32 || !schedule.fusion {
        let list = (0..flow.unrolled.calls.len()).map(|at| Group::Chain(Chain::of(at))).collect();
        return Groups { list, ..Groups::default() };
    }
    loop {
        let groups = form(flow, schedule, &excluded);
        match ordered(flow, groups) {
            Ok(groups) => return groups,
            Err(given_up) => excluded.insert(given_up),
        };
    }
}

fn form(flow: &Flow<'_>, schedule: &Schedule, excluded: &HashSet<usize>) -> Groups {
    let taken = vec![false; flow.unrolled.calls.len()];
    let shared = Extensions::default();
    let mut grouping = Grouping { flow, schedule, shared, excluded, taken, groups: Vec::new() };
    for fusion in body_sets().into_iter().flat_map(|set| set.fusions) {
        fusion.group(&mut grouping);
    }
    let Grouping { shared, taken, groups, .. } = grouping;
    let mut list: Vec<Group> = groups.into_iter().map(Group::Fused).collect();
    let others: Vec<usize> = (0..taken.len()).filter(|&at| !taken[at]).collect();
    list.extend(chains(flow, schedule, &others, excluded).into_iter().map(Group::Chain));
    let packed = list.iter().flat_map(Group::packed).collect();
    Groups { list, shared, packed }
}

/// The groups in the order of their data, or the call that leads a group that must be given up.
fn ordered(flow: &Flow<'_>, mut groups: Groups) -> Result<Groups, usize> {
    let order = sorted(flow, &groups)?;
    groups.list = order.into_iter().map(|at| groups.list[at].clone()).collect();
    let generic: HashSet<usize> = groups.chains().flat_map(|chain| &chain.calls).copied().collect();
    let fused =
        || groups.list.iter().filter_map(|group| if let Group::Fused(fused) = group { Some(fused) } else { None });
    let unpublished: HashSet<TensorId> = fused().filter_map(|fused| fused.unpublished()).collect();
    let mut seen = Extensions::default();
    for group in &groups.list {
        let fused = if let Group::Fused(fused) = group { Some(fused) } else { None };
        let reachable = |value: TensorId| match flow.writer(value) {
            None => false,
            Some(at) if generic.contains(&at) => pairs(flow, at),
            Some(_) => !unpublished.contains(&value) || fused.is_some_and(|fused| fused.finds(value)),
        };
        if !group.packed().into_iter().all(reachable) {
            return Err(group.lead());
        }
        if let Some(fused) = fused {
            fused.check(flow, &mut seen)?;
        }
    }
    Ok(groups)
}

/// Whether the tiles of a generic call's result are whole pairs.
fn pairs(flow: &Flow<'_>, at: usize) -> bool {
    let Some(result) = flow.result(at) else { return false };
    let cut = Cut { workers: 1 << 16, unit: UNIT };
    let even = |region: &amk_ir::Region| {
        region.intervals().iter().all(|interval| interval.lo.base % 2 == 0 && interval.hi.base % 2 == 0)
    };
    flow.shape(result).len() == 1
        && parts(flow.graph, flow.unrolled, flow.call(at), cut).is_ok_and(|parts| {
            parts.iter().flat_map(|call| &call.operands).filter(|o| o.tensor == result).all(|o| even(&o.region))
        })
}

/// Topological order; the first call decides among groups that are ready.
fn sorted(flow: &Flow<'_>, groups: &Groups) -> Result<Vec<usize>, usize> {
    let mut home: HashMap<usize, usize> = HashMap::new();
    for (number, group) in groups.list.iter().enumerate() {
        home.extend(group.calls().iter().map(|&at| (at, number)));
    }
    // A norm that products have taken in has no home: who reads it depends on what it reads.
    let maker = |value: TensorId| {
        let at = flow.writer(value)?;
        match home.get(&at) {
            Some(&group) => Some(group),
            None => flow.operand(at, 0).and_then(|input| flow.writer(input)).and_then(|at| home.get(&at).copied()),
        }
    };
    let mut before: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); groups.list.len()];
    let mut states: HashMap<TensorId, usize> = HashMap::new();
    for (at, call) in flow.unrolled.calls.iter().enumerate() {
        let Some(&group) = home.get(&at) else { continue };
        for operand in &call.operands {
            let needed = match flow.kind(operand.tensor) {
                BufferKind::State => states.insert(operand.tensor, group),
                _ if operand.access == Access::Read => maker(operand.tensor),
                _ => None,
            };
            before[group].extend(needed.filter(|&needed| needed != group));
        }
    }
    let first = |group: usize| groups.list[group].calls().iter().min().copied().unwrap_or(0);
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); groups.list.len()];
    for (group, needed) in before.iter().enumerate() {
        needed.iter().for_each(|&needed| after[needed].push(group));
    }
    let mut missing: Vec<usize> = before.iter().map(BTreeSet::len).collect();
    let mut ready: BTreeSet<(usize, usize)> =
        (0..missing.len()).filter(|&group| missing[group] == 0).map(|group| (first(group), group)).collect();
    let mut order = Vec::new();
    while let Some((_, group)) = ready.pop_first() {
        order.push(group);
        for &next in &after[group] {
            missing[next] -= 1;
            if missing[next] == 0 {
                ready.insert((first(next), next));
            }
        }
    }
    // Groups that wait for one another: the first of several calls is given up.
    let stuck = |&group: &usize| missing[group] > 0 && groups.list[group].calls().len() > 1;
    match (0..missing.len()).find(stuck) {
        Some(group) => Err(groups.list[group].lead()),
        None => Ok(order),
    }
}

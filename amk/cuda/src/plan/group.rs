//! Grouping: finds the calls of a function that the device computes together, by following the
//! data.
//!
//! Registered fusions take calls into groups if a body computes these calls, shapes and constants,
//! and if no other call reads the values that pass between them. Any other call becomes tasks with
//! the instruction's generic device body, which following calls may join. A group that cannot
//! obtain its inputs is given up, and the rest is grouped again without it.

use super::chain::{Chain, chains};
use super::missed::{Because, Lacks, Missed};
use super::{Planner, Precision, UNIT, Unsupported, WeightForms};
use crate::extensions::Extensions;
use crate::set::body_sets;
use amk::encoding::Encoding;
use amk_ir::lower::flow::Flow;
use amk_ir::lower::tile::{Cut, parts};
use amk_ir::program::BufferKind;
use amk_ir::schedule::Schedule;
use amk_ir::{Access, TensorId};
use core::any::Any;
use core::cell::RefCell;
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
    /// Whether it keeps a state that the loader reads ahead, in which case a step must use every
    /// slot of the ring.
    fn keeps_state(&self) -> bool {
        false
    }
    /// Checks that the group can occur here in the order of all groups; `seen` is the information
    /// left by the preceding groups.
    ///
    /// # Errors
    /// The leading call of a group that must be given up.
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
    /// Facts about the whole function that the fusions share.
    pub(super) shared: Extensions,
    /// Values that fused code reads: packets of bf16 pairs.
    pub(super) packed: HashSet<TensorId>,
    /// The reasons why calls are not faster, in order of the calls.
    pub(super) missed: Vec<Missed>,
}

/// Groups that were formed and had to be given up.
#[derive(Clone, Debug, Default)]
pub(super) struct GivenUp {
    /// The calls that led them, which may not lead a group again.
    leads: HashSet<usize>,
    /// All their calls, and why.
    calls: HashMap<usize, String>,
}

impl GivenUp {
    /// Adds a group.
    pub(super) fn add(&mut self, calls: &[usize], why: &str) {
        self.leads.extend(calls.first());
        self.calls.extend(calls.iter().map(|&at| (at, why.to_owned())));
    }
}

impl Group {
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

    /// The calls of each group that keeps a state, the first leading.
    pub(super) fn keeping_states(&self) -> Vec<&[usize]> {
        let keeps = |group: &&Group| matches!(group, Group::Fused(fused) if fused.keeps_state());
        self.list.iter().filter(keeps).map(Group::calls).collect()
    }
}

/// The calls of a function, while fusions take them into groups.
pub struct Grouping<'a> {
    /// The data flow.
    pub flow: &'a Flow<'a>,
    /// The schedule to plan for.
    pub schedule: &'a Schedule,
    forms: &'a WeightForms,
    /// Facts about the whole function that the fusions share.
    pub shared: Extensions,
    excluded: &'a HashSet<usize>,
    taken: Vec<bool>,
    groups: Vec<Arc<dyn FusedGroup>>,
    refused: RefCell<HashMap<usize, String>>,
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

    /// The encoding of a weight in blocks; `None`: it has floats.
    pub fn encoding(&self, weight: TensorId) -> Option<&'static Encoding> {
        self.forms.encoding(&self.flow.tensor(weight).name)
    }

    /// Records why a fusion does not take a call that it has a rule for, as a predicate with the
    /// call as its subject. If no fusion takes the call, the first reason is reported.
    pub fn refuse(&self, at: usize, because: impl Into<String>) {
        self.refused.borrow_mut().entry(at).or_insert_with(|| because.into());
    }

    /// Takes a call that every group that reads its result computes itself.
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

/// Groups the calls of a function, without the groups that were given up before.
pub(super) fn group(flow: &Flow<'_>, schedule: &Schedule, forms: &WeightForms, given_up: &GivenUp) -> Groups {
    let all = 0..flow.unrolled.calls.len();
    let alone = match forms.precision {
        Precision::F32 => Some(Because::Precision),
        Precision::BF16 => (!schedule.fusion).then_some(Because::NotAsked),
    };
    if let Some(because) = alone {
        let missed = all.clone().map(|at| Missed::of(flow, at, Lacks::FusedBody, because.clone())).collect();
        return Groups { list: all.map(|at| Group::Chain(Chain::of(at))).collect(), missed, ..Groups::default() };
    }
    let mut given_up = given_up.clone();
    loop {
        let groups = form(flow, schedule, forms, &given_up);
        match ordered(flow, groups) {
            Ok(groups) => return groups,
            Err((calls, why)) => given_up.add(&calls, why),
        };
    }
}

fn form(flow: &Flow<'_>, schedule: &Schedule, forms: &WeightForms, given_up: &GivenUp) -> Groups {
    let taken = vec![false; flow.unrolled.calls.len()];
    let (shared, excluded) = (Extensions::default(), &given_up.leads);
    let refused = RefCell::default();
    let mut grouping = Grouping { flow, schedule, forms, shared, excluded, taken, groups: Vec::new(), refused };
    for fusion in body_sets().into_iter().flat_map(|set| set.fusions) {
        fusion.group(&mut grouping);
    }
    let Grouping { shared, taken, groups, refused, .. } = grouping;
    let refused = refused.into_inner();
    let mut list: Vec<Group> = groups.into_iter().map(Group::Fused).collect();
    let others: Vec<usize> = (0..taken.len()).filter(|&at| !taken[at]).collect();
    let because = |at: usize| match (given_up.calls.get(&at), refused.get(&at)) {
        (Some(why), _) => Because::GivenUp(why.clone()),
        (None, Some(why)) => Because::Refused(why.clone()),
        (None, None) => Because::NoRule,
    };
    let mut missed: Vec<Missed> =
        others.iter().map(|&at| Missed::of(flow, at, Lacks::FusedBody, because(at))).collect();
    list.extend(chains(flow, schedule, &others, excluded, &mut missed).into_iter().map(Group::Chain));
    missed.sort_by_key(|missed| missed.call);
    let packed = list.iter().flat_map(Group::packed).collect();
    Groups { list, shared, packed, missed }
}

/// The calls of a group that must be given up, and the reason.
type Stuck = (Vec<usize>, &'static str);

/// The groups in the order of their data, or one that must be given up.
fn ordered(flow: &Flow<'_>, mut groups: Groups) -> Result<Groups, Stuck> {
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
            return Err((group.calls().to_vec(), "what it reads does not come as packets of pairs"));
        }
        if let Some(fused) = fused
            && let Err(lead) = fused.check(flow, &mut seen)
        {
            let calls = groups.list.iter().map(Group::calls).find(|calls| calls[0] == lead);
            return Err((calls.unwrap_or(&[lead]).to_vec(), "a later group needs its value in another form"));
        }
    }
    Ok(groups)
}

/// Whether the tiles of a generic call's result are whole pairs.
fn pairs(flow: &Flow<'_>, at: usize) -> bool {
    let Some(result) = flow.result(at) else { return false };
    let cut = Cut::per_worker(1 << 16, UNIT);
    let even = |region: &amk_ir::Region| {
        region.intervals().iter().all(|interval| interval.lo.base % 2 == 0 && interval.hi.base % 2 == 0)
    };
    flow.shape(result).len() == 1
        && parts(flow.graph, flow.unrolled, flow.call(at), cut).is_ok_and(|parts| {
            parts.iter().flat_map(|call| &call.operands).filter(|o| o.tensor == result).all(|o| even(&o.region))
        })
}

/// Topological order; the first call decides among groups that are ready.
fn sorted(flow: &Flow<'_>, groups: &Groups) -> Result<Vec<usize>, Stuck> {
    let mut home: HashMap<usize, usize> = HashMap::new();
    for (number, group) in groups.list.iter().enumerate() {
        home.extend(group.calls().iter().map(|&at| (at, number)));
    }
    // A norm that products have absorbed has no home: its readers depend on its own input.
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
        Some(group) => Err((groups.list[group].calls().to_vec(), "it waits for a group that waits for it")),
        None => Ok(order),
    }
}

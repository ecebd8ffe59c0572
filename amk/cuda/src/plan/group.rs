//! Grouping: which calls of a function the device computes together, found by following the data.
//!
//! | group | calls |
//! |---|---|
//! | product | `linear` with the norm of its input, its bias, the residual or the gate that takes its result; q, k and v together |
//! | attention | `attention` with head norms, rotary embeddings and appends |
//! | embed | the `embed` whose result only products read |
//! | chain | any other call: tasks with the instruction's generic device body, and calls that follow in them |
//!
//! A group is formed where its calls, shapes and constants are what the fast device code computes and what passes between them is
//! read by nothing else. A group that cannot get what it reads is given up, and the rest is grouped again without it.

use super::attention::{Attention, Turn, attention_at};
use super::chain::{Chain, chains};
use super::flow::Flow;
use super::product::{Delivered, Product, Products};
use super::{Precision, UNIT};
use crate::schedule::DeviceSchedule;
use amk_ir::lower::parts::{Cut, parts};
use amk_ir::program::BufferKind;
use amk_ir::{Access, BufferId};
use std::collections::{BTreeSet, HashMap, HashSet};

/// The instruction that looks a token up.
pub(super) const EMBED: &str = "amk_kernels::embed";

/// Calls that the device computes together.
#[derive(Clone, Debug)]
pub(super) enum Group {
    /// Calls by their generic device bodies.
    Chain(Chain),
    /// The embedding of the token.
    Embed(usize),
    /// A projection.
    Product(Product),
    /// The attention of a layer.
    Attention(Attention),
}

/// The groups in the order in which the device computes them, and the constants that all of them share.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    pub(super) list: Vec<Group>,
    /// Epsilon of all norms.
    pub(super) eps: f32,
    /// What all attentions turn by.
    pub(super) turn: Option<Turn>,
    /// Values that fast device code reads: packets of bf16 pairs.
    pub(super) narrow: HashSet<BufferId>,
}

impl Groups {
    /// The calls by generic device bodies.
    pub(super) fn chains(&self) -> impl Iterator<Item = &Chain> {
        self.list.iter().filter_map(|group| if let Group::Chain(chain) = group { Some(chain) } else { None })
    }
}

impl Group {
    /// The call by which the group is known.
    fn lead(&self) -> usize {
        match self {
            Self::Embed(at) => *at,
            Self::Chain(chain) => chain.calls[0],
            Self::Product(product) => product.calls[0],
            Self::Attention(attention) => attention.calls[0],
        }
    }

    fn calls(&self) -> &[usize] {
        match self {
            Self::Embed(at) => core::slice::from_ref(at),
            Self::Chain(chain) => &chain.calls,
            Self::Product(product) => &product.calls,
            Self::Attention(attention) => &attention.calls,
        }
    }

    /// The values that the fast code of the group reads as packets of pairs.
    fn narrow(&self) -> Vec<BufferId> {
        match self {
            Self::Embed(_) => Vec::new(),
            Self::Chain(chain) => chain.narrow.clone(),
            Self::Product(product) => vec![product.input],
            Self::Attention(attention) => attention.qkv.to_vec(),
        }
    }
}

/// Groups the calls of a function; `without` are calls that lead no group of fast code.
pub(super) fn group(
    flow: &Flow<'_>,
    schedule: &DeviceSchedule,
    precision: Precision,
    without: &HashSet<usize>,
) -> Groups {
    let mut without = without.clone();
    if precision == Precision::F32 || !schedule.fusion {
        let list = (0..flow.unrolled.calls.len()).map(|at| Group::Chain(Chain::of(at))).collect();
        return Groups { list, ..Groups::default() };
    }
    loop {
        let groups = form(flow, schedule, &without);
        match ordered(flow, groups) {
            Ok(groups) => return groups,
            Err(given_up) => without.insert(given_up),
        };
    }
}

fn form(flow: &Flow<'_>, schedule: &DeviceSchedule, without: &HashSet<usize>) -> Groups {
    let norms = ["amk_kernels::rms_norm", "amk_kernels::head_norm"];
    let all = 0..flow.unrolled.calls.len();
    let eps = all.clone().find(|&at| norms.contains(&flow.path(at))).and_then(|at| flow.float(at)).unwrap_or(0.0);
    let mut products = Products::new(flow, schedule, eps, without);
    let mut groups = Groups { eps, ..Groups::default() };
    for at in all.clone().filter(|at| !without.contains(at)) {
        if let Some(attention) = attention_at(flow, schedule, at, eps, groups.turn) {
            groups.turn = Some(attention.turn);
            products.take(&attention.calls);
            products.together(&attention.qkv);
            groups.list.push(Group::Attention(attention));
        }
    }
    all.clone().for_each(|at| products.gated(at));
    all.clone().for_each(|at| products.residual(at));
    all.clone().for_each(|at| products.single(at));
    products.inline_norms();
    let Products { list, mut taken, .. } = products;
    groups.list.extend(list.into_iter().map(Group::Product));
    if let Some(at) = embed(flow, &groups, &taken, without) {
        taken[at] = true;
        groups.list.push(Group::Embed(at));
    }
    let others: Vec<usize> = all.filter(|&at| !taken[at]).collect();
    groups.list.extend(chains(flow, schedule, &others, without).into_iter().map(Group::Chain));
    groups.narrow = groups.list.iter().flat_map(Group::narrow).collect();
    groups
}

/// The embedding that every product which needs it looks up by itself.
fn embed(flow: &Flow<'_>, groups: &Groups, taken: &[bool], without: &HashSet<usize>) -> Option<usize> {
    let calls = flow.unrolled.calls.len();
    let at = (0..calls).find(|&at| flow.path(at) == EMBED && !taken[at] && !without.contains(&at))?;
    let value = flow.result(at)?;
    let token = flow.operand(at, 1)?;
    let shape = flow.shape(value);
    let products = || groups.list.iter().filter_map(|group| if let Group::Product(p) = group { Some(p) } else { None });
    // Norms of it that products take in are read by nothing else.
    let fits = |user: usize| {
        let of_product = |product: &Product| {
            product.calls.contains(&user)
                || (product.input == value && product.norm.is_some() && flow.path(user) == "amk_kernels::rms_norm")
        };
        taken[user] && products().any(of_product)
    };
    let holds = flow.kind(token) == BufferKind::Input
        && flow.kind(value) == BufferKind::Activation
        && shape[0].is_multiple_of(32)
        && flow.users(value).iter().all(|&user| fits(user));
    holds.then_some(at)
}

/// The groups in the order of their data, or the call that leads a group that must be given up.
fn ordered(flow: &Flow<'_>, mut groups: Groups) -> Result<Groups, usize> {
    let order = sorted(flow, &groups)?;
    groups.list = order.into_iter().map(|at| groups.list[at].clone()).collect();
    let generic: HashSet<usize> = groups.chains().flat_map(|chain| &chain.calls).copied().collect();
    let embed = groups.list.iter().find_map(|group| if let Group::Embed(at) = group { Some(*at) } else { None });
    let embedded = embed.and_then(|at| flow.result(at));
    let mut held = None;
    for group in &groups.list {
        for value in group.narrow() {
            let whole = match flow.writer(value) {
                None => false,
                Some(at) if generic.contains(&at) => pairs(flow, at),
                Some(_) => embedded != Some(value) || matches!(group, Group::Product(_)),
            };
            if !whole {
                return Err(group.lead());
            }
        }
        match group {
            Group::Embed(_) => held = embedded,
            Group::Product(Product { output: Delivered::Residual { before, after }, .. }) => {
                // The embedding exists as the residual that the workers hold, and as nothing else.
                if let Some(at) = embed.filter(|_| embedded == Some(*before) && held != embedded) {
                    return Err(at);
                }
                if flow.writer(*before).is_none() {
                    return Err(group.lead());
                }
                held = Some(*after);
            }
            _ => {}
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
            parts.iter().flat_map(|call| &call.operands).filter(|o| o.buffer == result).all(|o| even(&o.region))
        })
}

/// Topological order; the first call decides among groups that are ready.
fn sorted(flow: &Flow<'_>, groups: &Groups) -> Result<Vec<usize>, usize> {
    let mut home: HashMap<usize, usize> = HashMap::new();
    for (number, group) in groups.list.iter().enumerate() {
        home.extend(group.calls().iter().map(|&at| (at, number)));
    }
    // A norm that products have taken in has no home: who reads it depends on what it reads.
    let maker = |value: BufferId| {
        let at = flow.writer(value)?;
        match home.get(&at) {
            Some(&group) => Some(group),
            None => flow.operand(at, 0).and_then(|input| flow.writer(input)).and_then(|at| home.get(&at).copied()),
        }
    };
    let mut before: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); groups.list.len()];
    let mut states: HashMap<BufferId, usize> = HashMap::new();
    for (at, call) in flow.unrolled.calls.iter().enumerate() {
        let Some(&group) = home.get(&at) else { continue };
        for operand in &call.operands {
            let needed = match flow.kind(operand.buffer) {
                BufferKind::State => states.insert(operand.buffer, group),
                _ if operand.access == Access::Read => maker(operand.buffer),
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

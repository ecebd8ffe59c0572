//! Connecting: dependencies between ops become event tensors, signals and waits.
//!
//! Every operand is matched with earlier conflicting accesses to the same buffer; overlapping tiles
//! become dependencies between tasks ([`crate::events`]). A dependency that others imply is
//! omitted.

use super::bound;
use super::explicit::Explicit;
use super::task::TiledOp;
use crate::events::{derive, overlaps};
use crate::graph_error::GraphError;
use crate::program::{BufferKind, Element, EventTensor, Program, Wait};
use crate::{Access, BufferId, EventId, Region};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// Budget of entries of the known order to examine when omitting implied dependencies.
const MOST_LOOKED_AT: usize = 1 << 26;

/// The accesses of an op to a buffer, task by task.
struct Touch {
    op: usize,
    access: Access,
    regions: Vec<Region>,
}

/// The producer tasks each task of an op depends on, ascending, by producer op.
type Dependencies = BTreeMap<usize, Vec<Vec<u32>>>;

/// Producer op, consumer op, and the producer tasks of each consumer task.
type Edge = (usize, usize, Vec<Vec<u32>>);
/// The producer tasks of each task of one consumer op.
type Consumer = (usize, Vec<Vec<u32>>);

/// For each task of an op, the ops that it depends on, and whether it depends on all tasks of each.
type Brought = Vec<(usize, bool)>;

pub(super) fn connect(program: &mut Program, ops: &[TiledOp], explicit: &Explicit) -> Result<(), GraphError> {
    let mut history: BTreeMap<BufferId, Vec<Touch>> = BTreeMap::new();
    let mut known = Known { brought: Vec::with_capacity(ops.len()), looked_at: 0 };
    let mut edges: Vec<Edge> = Vec::new();
    let mut pairs = 0u64;
    for (number, op) in ops.iter().enumerate() {
        let touches = touches(program, op, number);
        pairs = pairs.saturating_add(compared(&history, &touches));
        bound::pairs(pairs, program.rows.is_some(), &op.label, op.site)?;
        let mut dependencies = depend(program, ops, &history, &touches);
        let full =
            |dependency: usize, sets: &[Vec<u32>]| sets.iter().all(|set| set.len() == ops[dependency].tasks.len());
        let by_all = dependencies.iter().filter(|(_, sets)| sets.iter().all(|set| !set.is_empty()));
        let brought: Brought = by_all.map(|(&dependency, sets)| (dependency, full(dependency, sets))).collect();
        dependencies.retain(|&dependency, _| !known.implied(&brought, dependency));
        // Hand-written waits stand alone: no order is assumed beyond what they state.
        known.brought.push(if explicit.waits[number] { Brought::new() } else { brought });
        for (buffer, touch) in touches {
            history.entry(buffer).or_default().push(touch);
        }
        if !explicit.waits[number] {
            edges.extend(dependencies.into_iter().map(|(dependency, sets)| (dependency, number, sets)));
        }
    }
    add_events(program, ops, edges);
    Ok(())
}

/// The known order of ops.
struct Known {
    /// By op.
    brought: Vec<Brought>,
    /// Entries of `brought` examined so far.
    looked_at: usize,
}

impl Known {
    /// Whether another of the implied ops runs after all tasks of `dependency`, which is one of
    /// them.
    fn implied(&mut self, brought: &Brought, dependency: usize) -> bool {
        let later = &brought[brought.partition_point(|(other, _)| *other <= dependency)..];
        later.iter().any(|&(other, _)| self.looked_at < MOST_LOOKED_AT && self.follows(other, dependency))
    }

    /// Whether each task of an op runs after all tasks of an earlier one. Ops before that are not
    /// searched, and the search stops when the budget is spent: keeping an implied dependency only
    /// costs a wait.
    fn follows(&mut self, op: usize, earlier: usize) -> bool {
        let mut seen = BTreeSet::new();
        let mut pending = vec![op];
        while let Some(op) = pending.pop() {
            let first = self.brought[op].partition_point(|(before, _)| *before < earlier);
            for &(before, all) in &self.brought[op][first..] {
                self.looked_at += 1;
                if before == earlier && all {
                    return true;
                }
                if before > earlier && seen.insert(before) {
                    pending.push(before);
                }
            }
        }
        false
    }
}

/// Budget of pairs of tasks that [`depend`] compares, and its further cost for each earlier op.
fn compared(history: &BTreeMap<BufferId, Vec<Touch>>, touches: &[(BufferId, Touch)]) -> u64 {
    let earlier = touches
        .iter()
        .flat_map(|(buffer, touch)| history.get(buffer).into_iter().flatten().map(move |earlier| (earlier, touch)));
    earlier.fold(0u64, |sum, (earlier, touch)| {
        let writes = earlier.access.writes() || touch.access.writes();
        let pairs = if writes { earlier.regions.len() as u64 * touch.regions.len() as u64 + 16 } else { 1 };
        sum.saturating_add(pairs)
    })
}

fn touches(program: &Program, op: &TiledOp, number: usize) -> Vec<(BufferId, Touch)> {
    let mut touches: Vec<(BufferId, Touch)> = Vec::new();
    let Some(first) = program.tasks.get(op.tasks.start) else { return touches };
    for (c, call) in first.calls.iter().enumerate() {
        for (o, operand) in call.operands.iter().enumerate() {
            let kind = program.buffers[operand.buffer.index()].kind;
            if matches!(kind, BufferKind::Weight | BufferKind::Input | BufferKind::Local) {
                continue;
            }
            let regions = op.tasks.clone().map(|task| program.tasks[task].calls[c].operands[o].region).collect();
            touches.push((operand.buffer, Touch { op: number, access: operand.access, regions }));
        }
    }
    touches
}

fn depend(
    program: &Program,
    ops: &[TiledOp],
    history: &BTreeMap<BufferId, Vec<Touch>>,
    touches: &[(BufferId, Touch)],
) -> Dependencies {
    let mut dependencies = Dependencies::new();
    for (buffer, touch) in touches {
        for earlier in history.get(buffer).map_or(&[][..], Vec::as_slice) {
            if !(earlier.access.writes() || touch.access.writes()) {
                continue;
            }
            let found = overlaps(&earlier.regions, &touch.regions, program.positions);
            if found.iter().all(Vec::is_empty) {
                continue;
            }
            match dependencies.entry(earlier.op) {
                Entry::Vacant(vacant) => drop(vacant.insert(found)),
                Entry::Occupied(mut sets) => {
                    for (set, producers) in sets.get_mut().iter_mut().zip(found) {
                        set.extend(producers);
                        set.sort_unstable();
                        set.dedup();
                    }
                }
            }
        }
    }
    debug_assert!(dependencies.keys().all(|&op| op < ops.len()), "a dependency should be on an earlier op");
    dependencies
}

/// One event tensor an op, with the counters of all its consumers that need the same groups of
/// tiles.
fn add_events(program: &mut Program, ops: &[TiledOp], edges: Vec<Edge>) {
    let mut by_producer: BTreeMap<usize, Vec<Consumer>> = BTreeMap::new();
    for (producer, consumer, sets) in edges {
        by_producer.entry(producer).or_default().push((consumer, sets));
    }
    for (producer, consumers) in by_producer {
        let waiting: Vec<usize> = consumers.iter().flat_map(|(consumer, _)| ops[*consumer].tasks.clone()).collect();
        let all: Vec<Vec<u32>> = consumers.into_iter().flat_map(|(_, lists)| lists).collect();
        let derived = derive(ops[producer].tasks.len(), &all);
        let signals = ops[producer].tasks.clone().zip(&derived.signals);
        let signals = signals.flat_map(|(task, counters)| counters.iter().map(move |&counter| (task, counter)));
        let event = add_event(program, format!("o{producer}_done"), derived.fan_in.len(), signals);
        for (task, waits) in waiting.into_iter().zip(&derived.waits) {
            waits.iter().for_each(|&(counter, threshold)| add_wait(program, task, event, counter, threshold));
        }
    }
}

/// Adds an event tensor with this many counters, and the signals of tasks on them.
pub fn add_event(
    program: &mut Program,
    name: String,
    counters: usize,
    signals: impl IntoIterator<Item = (usize, u32)>,
) -> EventId {
    let event = EventId::from(program.events.len());
    let extent = u32::try_from(counters).unwrap_or(u32::MAX);
    let shape = if extent == 1 { Vec::new() } else { vec![extent] };
    program.events.push(EventTensor { name, shape });
    signals.into_iter().for_each(|(task, index)| add_signal(program, task, event, index));
    event
}

/// Makes a task signal a counter.
pub fn add_signal(program: &mut Program, task: usize, event: EventId, index: u32) {
    program.tasks[task].signals.push(Element { event, index });
}

/// Makes a task wait until a counter has `threshold` signals.
pub fn add_wait(program: &mut Program, task: usize, event: EventId, index: u32, threshold: u32) {
    program.tasks[task].waits.push(Wait { on: Element { event, index }, threshold });
}

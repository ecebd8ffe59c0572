//! Two programs without tables that stand in for all routings, and the translation back.
//!
//! *Least* has no routed waits and signals: what is ordered in it is ordered for every routing. A
//! buffer whose rows are sorted by routes gets the dimensions `[entries, values]` in place of its
//! rows: element `(n, v)` is the row of entry `n` when that is `v`. Each of them is a row for some
//! routing, and two tiles share an element exactly if they share a row for some routing. Rows
//! between splits get one dimension, the groups.
//!
//! *Most* has the waits of all routings at once: each entry signals all values, and a wait for an
//! entry's element waits for all elements. If all its tasks run, so do the tasks of every routing,
//! since waits are monotone.

use crate::verify::{Given, Party, Violation};
use crate::{
    Element, EventId, Holds, Interval, Operand, Program, Region, Routed, RoutedSignal, RoutedWait, TableId, Task, Wait,
};
use std::collections::BTreeMap;

/// How the rows of a buffer are followed, by buffer: the table, and the new dimensions.
type Tiled = BTreeMap<u32, (TableId, Vec<u32>)>;

fn tiled(program: &Program) -> Tiled {
    let mut tiled = Tiled::new();
    for (_, operand) in super::contract::operands(program) {
        if let Some(Routed::Row { table, .. } | Routed::Group { table, .. }) = operand.routed {
            let declared = &program.tables[table.index()];
            let dims = match declared.holds {
                Holds::Routes { values, .. } => vec![declared.entries(program), values],
                Holds::Splits { .. } => vec![declared.groups(program)],
            };
            tiled.entry(operand.buffer.0).or_insert((table, dims));
        }
    }
    tiled
}

/// The program with the least order.
pub(super) fn least(program: &Program) -> Program {
    let mut least = program.clone();
    let tiled = tiled(program);
    least.tables.clear();
    for (&buffer, (_, dims)) in &tiled {
        let shape = &mut least.buffers[buffer as usize].shape;
        shape.splice(..1, dims.iter().copied());
    }
    for task in &mut least.tasks {
        task.routed_waits.clear();
        task.routed_signals.clear();
        for operand in task.calls.iter_mut().flat_map(|call| &mut call.operands) {
            if let Some((_, dims)) = tiled.get(&operand.buffer.0) {
                operand.region = region(operand, dims);
            }
        }
    }
    least
}

/// The region in the new dimensions.
fn region(operand: &Operand, dims: &[u32]) -> Region {
    let mut intervals: Vec<Interval> = dims.iter().map(|&extent| Interval::fixed(0, extent)).collect();
    match operand.routed {
        Some(Routed::Row { entry, .. }) => intervals[0] = Interval::fixed(entry, entry + 1),
        Some(Routed::Group { group, .. }) => intervals[dims.len() - 1] = Interval::fixed(group, group + 1),
        Some(Routed::Pick { .. }) | None => {}
    }
    intervals.extend(operand.region.intervals().iter().skip(1));
    // The contract limits the rank so that a dimension can be added.
    Region::new(&intervals).unwrap_or(operand.region)
}

/// Returns the program with the waits of all routings, given the one with the least order; `None`
/// if there are too many.
///
/// All elements that entries signal get the same signals, so the first represents them.
pub(super) fn most(program: &Program, least: &Program) -> Option<Program> {
    const MOST_WAITS: usize = 1 << 22;
    let mut signalling: BTreeMap<EventId, u32> = BTreeMap::new();
    for task in &program.tasks {
        events(&task.routed_signals).for_each(|event| *signalling.entry(event).or_default() += 1);
    }
    let mut picked: BTreeMap<EventId, Vec<Element>> = BTreeMap::new();
    let picks = |task: &Task| task.routed_waits.iter().filter_map(RoutedWait::pick).collect::<Vec<_>>();
    for (event, _) in program.tasks.iter().flat_map(picks) {
        picked.entry(event).or_default();
    }
    for signal in program.tasks.iter().flat_map(|task| &task.signals) {
        if let Some(elements) = picked.get_mut(&signal.event) {
            elements.push(*signal);
        }
    }
    for elements in picked.values_mut() {
        elements.sort_unstable();
        elements.dedup();
    }
    let mut waits = 0;
    let mut most = least.clone();
    for (task, routed) in most.tasks.iter_mut().zip(&program.tasks) {
        task.signals.extend(events(&routed.routed_signals).map(|event| Element { event, index: 0 }));
        for wait in &routed.routed_waits {
            match *wait {
                RoutedWait::Count { event, .. } => {
                    let threshold = signalling.get(&event).copied().unwrap_or(0);
                    task.waits.push(Wait { on: Element { event, index: 0 }, threshold });
                }
                RoutedWait::Pick { event, threshold, .. } => {
                    let elements = picked.get(&event).map_or(&[][..], Vec::as_slice);
                    waits += elements.len();
                    if waits > MOST_WAITS {
                        return None;
                    }
                    task.waits.extend(elements.iter().map(|&on| Wait { on, threshold }));
                }
            }
        }
    }
    Some(most)
}

/// The event tensors of signals by entries, each once.
fn events(signals: &[RoutedSignal]) -> impl Iterator<Item = EventId> {
    let mut events: Vec<_> = signals.iter().map(|signal| signal.event).collect();
    events.sort_unstable();
    events.dedup();
    events.into_iter()
}

/// Translates violations of the least program to the program itself.
pub(super) fn restore(program: &Program, violations: &mut [Violation]) {
    let tiled = tiled(program);
    let given = |buffer: u32, elements: &mut Vec<(u64, u64)>| {
        let (table, dims) = tiled.get(&buffer)?;
        let first = |dim: usize| elements.get(dim).map_or(0, |side| side.0 as u32);
        let given = (dims.len() == 2).then(|| Given { table: *table, entry: first(0), value: first(1) });
        let rows = program.buffers[buffer as usize].shape.first().copied().unwrap_or(0);
        elements.splice(..dims.len().min(elements.len()), [(0, u64::from(rows))]);
        given
    };
    for violation in violations {
        for party in parties(violation) {
            if let Some(operand) = party.site.of(program) {
                party.region = operand.region;
            }
        }
        match violation {
            Violation::Uninitialised { site, elements, given: when, .. } => {
                let buffer = site.of(program).map_or(u32::MAX, |operand| operand.buffer.0);
                *when = given(buffer, elements);
            }
            Violation::OutputNotWritten { buffer, elements, given: when, .. } => *when = given(buffer.0, elements),
            _ => {}
        }
    }
}

fn parties(violation: &mut Violation) -> Vec<&mut Party> {
    match violation {
        Violation::Race(race) => vec![&mut race.first, &mut race.second],
        Violation::Early { read, write, .. } | Violation::Overwritten { read, write, .. } => vec![read, write],
        Violation::SameCall { first, second, .. } | Violation::PacketTwice { first, second, .. } => vec![first, second],
        Violation::SharedPlace { write, .. } => write.iter_mut().collect(),
        _ => Vec::new(),
    }
}

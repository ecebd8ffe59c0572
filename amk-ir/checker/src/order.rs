//! C1: the order of a proof runs each task after its waits are satisfied. One step decides (L1).

use crate::budget::Budget;
use crate::launch::Launch;
use crate::meet::Span;
use crate::refusal::{Ill, Missing, Refusal};
use amk_ir::TaskId;
use amk_ir::certificate::Proof;

/// Whether the tasks of one step can run in the order of the proof, from each of its start
/// positions.
///
/// Of tickets this asks for the order of the list, so that one worker is enough.
pub(crate) fn check(launch: &Launch<'_>, proof: &Proof, budget: &mut Budget) -> Result<(), Refusal> {
    let mut signals = vec![0u64; launch.counters.len()];
    let mut next = vec![0; launch.queues.len()];
    let mut finished = vec![false; launch.places.len()];
    if proof.order.len() != finished.len() {
        return Err(Ill::Order.into());
    }
    let starts = Span::new(proof.starts.first, proof.starts.last);
    for &task in &proof.order {
        if finished.get(task.index()) != Some(&false) {
            return Err(Ill::Order.into());
        }
        let sources = &launch.packets[task.index()];
        let writers: usize = sources.iter().map(|&source| launch.sources[source].len()).sum();
        budget.take(writers as u64, "running a step")?;
        if let Some(missing) = missing(launch, task, starts, &signals, &next, &finished) {
            return Err(Refusal::NotEnabled { position: proof.starts.first, task, missing });
        }
        finished[task.index()] = true;
        next[launch.places[task.index()].queue] += 1;
        for &counter in &launch.signals[task.index()] {
            signals[counter] += 1;
        }
    }
    Ok(())
}

fn missing(
    launch: &Launch<'_>,
    task: TaskId,
    starts: Span,
    signals: &[u64],
    next: &[usize],
    finished: &[bool],
) -> Option<Missing> {
    let place = launch.places[task.index()];
    if place.index != next[place.queue] {
        return Some(Missing::Queue);
    }
    let short = launch.waits[task.index()].iter().find(|&&(counter, threshold)| signals[counter] < threshold.into());
    if let Some(&(counter, threshold)) = short {
        return Some(Missing::Signals { on: launch.counters[counter].on, signals: signals[counter], threshold });
    }
    let mut writers = launch.packets[task.index()].iter().flat_map(|&source| launch.sources[source].within(starts));
    writers.find(|writer| !finished[writer.index()]).map(Missing::Packet)
}

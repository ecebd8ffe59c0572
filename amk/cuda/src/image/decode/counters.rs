//! Waits and signals.

use super::call::Refusal;
use super::places::Places;
use crate::image::abi::Record;
use amk_ir::{Element, EventId, Task, Wait};

/// Compares the waits and signals of a record with the verified task.
pub(super) fn check(record: &Record, places: &Places<'_>, task: &Task) -> Result<(), Refusal> {
    let signal = event(places, "signal", record.signal)?;
    if task.signals != signal.as_slice() {
        return Err(Refusal::new("signal", format!("is {}, the program has another", shown(places, signal))));
    }
    let on = event(places, "wait", record.wait)?;
    let threshold = record.arrivals;
    let wait = on.map(|on| Wait { on, threshold });
    // The device waits for all of the counter's arrivals in a step.
    let fan_in = on.map_or(0, |on| places.fan_in.get(on.event.index()).copied().unwrap_or(0));
    if threshold != fan_in {
        return Err(Refusal::new(
            "wait, arrivals",
            format!("is {threshold} where the counter has {fan_in} signals a step"),
        ));
    }
    if task.waits != wait.as_slice() {
        return Err(Refusal::new("wait", format!("is {}, the program has another", shown(places, on))));
    }
    if !task.routed_waits.is_empty() || !task.routed_signals.is_empty() {
        return Err(Refusal::new("wait", "has no room for what depends on a table"));
    }
    Ok(())
}

/// Returns the counter at a packet offset, or `None` at 0.
fn event(places: &Places<'_>, field: &'static str, at: u32) -> Result<Option<Element>, Refusal> {
    if at == 0 {
        return Ok(None);
    }
    let event = places.image.events.iter().position(|&known| known == at);
    let event = event.ok_or_else(|| Refusal::new(field, format!("points at packet {at}, which is no counter")))?;
    Ok(Some(Element { event: EventId::from(event), index: 0 }))
}

fn shown(places: &Places<'_>, counter: Option<Element>) -> String {
    let event = counter.and_then(|counter| places.program.events.get(counter.event.index()));
    event.map_or("no counter".to_owned(), |event| format!("the counter of `{}`", event.name))
}

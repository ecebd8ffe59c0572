//! Decodes the faults that the watchdogs report for an abandoned launch.

use super::error::Stuck;
use super::image::abi::{FAULT_PACKET, FAULT_RING_EMPTY, FAULT_RING_FULL, Fault};
use amk_ir::text::Shown;
use amk_ir::{BufferId, DType, Exchange, Program};
use std::collections::HashMap;

/// Words of a fault report: the launch's fault, then one per worker.
pub(super) const FAULT_WORDS: usize = size_of::<Fault>() / 4;

/// Returns the pending wait of an abandoned launch: among all workers, the wait of the earliest
/// task, since the waits of later tasks follow from it. `epoch` is the epoch of the launch's first
/// step.
pub(super) fn decode(
    words: &[u32],
    program: &Program,
    packet_at: &HashMap<BufferId, u32>,
    row_words: u32,
    events: &[u32],
    epoch: u32,
) -> Option<Stuck> {
    let mut told = words.chunks_exact(FAULT_WORDS);
    if told.next()?.first() == Some(&0) {
        return None;
    }
    let workers = (0u32..).zip(told).filter_map(|(worker, words)| {
        let &[_, kind, step, task, place, found, ..] = words else { return None };
        (kind != 0).then_some((step, task, kind != FAULT_PACKET, worker, kind, place, found))
    });
    let Some((step, task, _, worker, kind, place, found)) = workers.min() else {
        return Some(Stuck {
            worker: 0,
            task: "?".into(),
            event: "nothing: it is slow, not stuck".into(),
            wanted: epoch,
            found: epoch,
            step: 0,
        });
    };
    let op = program.tasks.get(task as usize).and_then(|task| task.op).and_then(|op| program.ops.get(op.index()));
    let mut wanted = epoch + step;
    let event = match kind {
        FAULT_PACKET => match events.iter().position(|&at| at == place) {
            Some(event) => {
                wanted = wanted.wrapping_mul(signals(program, event));
                let event = program.events.get(event);
                format!("the counter of `{}`", Shown(event.map_or("?", |event| event.name.as_str())))
            }
            None => packet(program, packet_at, row_words, place),
        },
        FAULT_RING_FULL => format!("ring slot {place} to be filled"),
        FAULT_RING_EMPTY => format!("ring slot {place} to be read"),
        _ => format!("an event of unknown kind {kind}"),
    };
    let task = format!("t{task} ({})", Shown(op.map_or("?", String::as_str)));
    Some(Stuck { worker, task, event, wanted, found, step })
}

/// Returns the signals of an event in a step.
fn signals(program: &Program, event: usize) -> u32 {
    let signals = program.tasks.iter().flat_map(|task| &task.signals);
    signals.filter(|signal| signal.event.index() == event).count() as u32
}

/// Formats an element of a packet buffer, such as `mlp.3[64]`. With rows a row has `row_words`
/// words of 8 bytes, and there are two halves of all rows.
fn packet(program: &Program, packet_at: &HashMap<BufferId, u32>, row_words: u32, place: u32) -> String {
    let (row, place) = match program.rows {
        Some(rows) => (Some(place / row_words.max(1) % rows.max(1)), place % row_words.max(1)),
        None => (None, place),
    };
    let holds = |&(id, at): &(&BufferId, &u32)| *at <= place && program.buffers.get(id.index()).is_some();
    let Some((id, at)) = packet_at.iter().filter(holds).max_by_key(|(_, at)| **at) else {
        return format!("packet {place}");
    };
    let buffer = &program.buffers[id.index()];
    let of_word = if row.is_some() { 2 } else { 1 };
    let each = of_word * if buffer.dtype == DType::BF16 { 2 } else { 1 };
    let elements = buffer.len() as u32;
    let mut element = (place - at) * each;
    if let Some(row) = row {
        element += row * (elements / program.rows.unwrap_or(1).max(1));
    } else if let Exchange::Packet { slots } = buffer.exchange
        && element < elements.next_multiple_of(each) * u32::from(slots)
    {
        element %= elements.max(1);
    }
    let mut index: Vec<String> = Vec::new();
    for &extent in buffer.shape.iter().rev() {
        index.push((element % extent.max(1)).to_string());
        element /= extent.max(1);
    }
    index.reverse();
    format!("`{}[{}]`", Shown(&buffer.name), index.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use amk_ir::{Buffer, BufferKind, Element, EventId, EventTensor, Task};

    fn program() -> (Program, HashMap<BufferId, u32>) {
        let buffer = |name: &str, dtype, shape: &[u32], slots| Buffer {
            name: name.into(),
            kind: BufferKind::Activation,
            dtype,
            shape: shape.to_vec(),
            exchange: Exchange::Packet { slots },
            place: None,
        };
        let program = Program {
            buffers: vec![buffer("x", DType::BF16, &[64], 1), buffer("best", DType::U32, &[4, 2], 2)],
            tasks: vec![Task::default(); 9],
            ..Program::default()
        };
        (program, HashMap::from([(BufferId(0), 0), (BufferId(1), 32)]))
    }

    #[test]
    fn the_first_task_of_all_workers_is_named_with_its_element() {
        let (program, at) = program();
        let mut words = vec![0; FAULT_WORDS * 4];
        assert_eq!(decode(&words, &program, &at, 0, &[], 5), None);
        words[0] = 1;
        // Worker 0 waits for its ring in step 1, worker 1 for a packet in step 0, worker 2 for a
        // packet of a later task.
        words[8..14].copy_from_slice(&[0, FAULT_RING_FULL, 1, 2, 3, 0]);
        words[16..22].copy_from_slice(&[0, FAULT_PACKET, 0, 7, 17, 4]);
        words[24..30].copy_from_slice(&[0, FAULT_PACKET, 0, 8, 45, 4]);
        let stuck = decode(&words, &program, &at, 0, &[], 5).expect("it was abandoned");
        assert_eq!(
            (stuck.worker, stuck.task.as_str(), stuck.event.as_str(), stuck.wanted, stuck.found, stuck.step),
            (1, "t7 (?)", "`x[34]`", 5, 4, 0)
        );
        words[17] = 0;
        // The second slot of `best`: element 5 of 8.
        assert_eq!(decode(&words, &program, &at, 0, &[], 5).expect("it was abandoned").event, "`best[2, 1]`");
    }

    #[test]
    fn a_counter_is_named_by_what_it_counts_and_wanted_as_often_as_there_were_steps() {
        let (mut program, at) = program();
        program.events.push(EventTensor { name: "x".into(), shape: Vec::new() });
        let signal = Element { event: EventId(0), index: 0 };
        program.tasks[..7].iter_mut().for_each(|task| task.signals.push(signal));
        let mut words = vec![0; FAULT_WORDS * 2];
        words[0] = 1;
        words[8..14].copy_from_slice(&[0, FAULT_PACKET, 2, 7, 64, 48]);
        let stuck = decode(&words, &program, &at, 0, &[64], 5).expect("it was abandoned");
        assert_eq!((stuck.event.as_str(), stuck.wanted, stuck.found), ("the counter of `x`", 49, 48));
    }
}

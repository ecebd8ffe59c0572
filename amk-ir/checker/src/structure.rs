//! The assumptions of sections 1 to 4: references exist, and the rules for each buffer kind hold.

use crate::refusal::{Counter, Malformed, Refusal};
use crate::uses::{self, Use};
use amk_ir::{Buffer, BufferId, BufferKind, Element, Exchange, MAX_RANK, Program, Queues, TaskId};
use std::collections::HashSet;
use std::ops::Range;

/// Whether the program is one, without tables.
pub(crate) fn check(program: &Program) -> Result<(), Refusal> {
    if has_tables(program) {
        return Err(Refusal::Tables);
    }
    if program.positions == 0 {
        return Err(Malformed::NoPositions.into());
    }
    sizes(program)?;
    queues(program)?;
    counters(program)?;
    buffers(program)?;
    let mut local: Vec<Option<TaskId>> = vec![None; program.buffers.len()];
    for one in uses::all(program) {
        operand(program, &one)?;
        let first = *local[one.at.buffer.index()].get_or_insert(one.task());
        if program.buffers[one.at.buffer.index()].kind == BufferKind::Local && first != one.task() {
            return Err(Malformed::Local { buffer: one.at.buffer, first, second: one.task() }.into());
        }
    }
    Ok(())
}

fn has_tables(program: &Program) -> bool {
    let routed = |task: &amk_ir::Task| !task.routed_waits.is_empty() || !task.routed_signals.is_empty();
    !program.tables.is_empty()
        || program.tasks.iter().any(routed)
        || uses::all(program).any(|one| one.operand.routed.is_some())
}

/// Indices fit in 31 bits.
fn sizes(program: &Program) -> Result<(), Malformed> {
    let most = i32::MAX as usize;
    let calls = || program.tasks.iter().flat_map(|task| &task.calls);
    let fits = program.tasks.len() < most
        && program.buffers.len() < most
        && program.events.len() < most
        && program.tasks.iter().all(|task| task.calls.len() < most)
        && calls().all(|call| call.operands.len() < most);
    if fits { Ok(()) } else { Err(Malformed::TooMany) }
}

fn queues(program: &Program) -> Result<(), Malformed> {
    let queued: Vec<&[TaskId]> = match &program.queues {
        Queues::Static(queues) => queues.iter().map(Vec::as_slice).collect(),
        Queues::Ticket { workers: 0, order } if !order.is_empty() => return Err(Malformed::NoWorkers),
        Queues::Ticket { order, .. } => vec![order],
    };
    let mut times = vec![0u32; program.tasks.len()];
    for &task in queued.into_iter().flatten() {
        *times.get_mut(task.index()).ok_or(Malformed::NoTask(task))? += 1;
    }
    match times.iter().position(|&times| times != 1) {
        Some(task) => Err(Malformed::Queued { task: TaskId::from(task), times: times[task] }),
        None => Ok(()),
    }
}

/// Whether an event tensor has the element.
pub(crate) fn exists(program: &Program, on: Element) -> bool {
    let event = program.events.get(on.event.index());
    event.is_some_and(|event| u64::from(on.index) < event.len())
}

fn counters(program: &Program) -> Result<(), Malformed> {
    for (task, body) in (0..).map(TaskId).zip(&program.tasks) {
        let named = body.waits.iter().map(|wait| wait.on).chain(body.signals.iter().copied());
        if let Some(on) = named.into_iter().find(|&on| !exists(program, on)) {
            return Err(Malformed::NoCounter(task, Counter(on)));
        }
        let mut signalled = HashSet::new();
        if let Some(&on) = body.signals.iter().find(|&&on| !signalled.insert(on)) {
            return Err(Malformed::SignalledTwice(task, Counter(on)));
        }
    }
    Ok(())
}

fn buffers(program: &Program) -> Result<(), Malformed> {
    for (id, buffer) in (0..).map(BufferId).zip(&program.buffers) {
        if buffer.shape.is_empty() || buffer.shape.len() > MAX_RANK {
            return Err(Malformed::Rank(id));
        }
        let between_tasks = matches!(buffer.kind, BufferKind::Activation | BufferKind::Output);
        if matches!(buffer.exchange, Exchange::Packet { slots } if slots == 0 || !between_tasks) {
            return Err(Malformed::Packet(id));
        }
        if buffer.place.is_some() && buffer.kind == BufferKind::Local {
            return Err(Malformed::PlacedLocal(id));
        }
        if buffer.place.is_some() && bytes(buffer).is_none() {
            return Err(Malformed::Place(id));
        }
    }
    let alone = |id: BufferId| program.buffers[id.index()].exchange != Exchange::Counter;
    let has_meaning = |id: BufferId| {
        matches!(program.buffers[id.index()].kind, BufferKind::Weight | BufferKind::Input | BufferKind::State)
    };
    // In the order of their places, each of a kind is held against the furthest before it.
    let (mut any, mut packet, mut meaning) = (Furthest::default(), Furthest::default(), Furthest::default());
    for (bytes, id) in places(program) {
        let of_all = if alone(id) { any.over(&bytes) } else { packet.over(&bytes) };
        let of_meaning = if has_meaning(id) { meaning.over(&bytes) } else { None };
        if let Some(other) = of_all.or(of_meaning) {
            return Err(Malformed::Shared(other, id));
        }
        any.add(&bytes, id);
        if alone(id) {
            packet.add(&bytes, id);
        }
        if has_meaning(id) {
            meaning.add(&bytes, id);
        }
    }
    Ok(())
}

/// Of the buffers seen, the one whose bytes end last.
#[derive(Default)]
struct Furthest {
    last: Option<(u64, BufferId)>,
}

impl Furthest {
    fn over(&self, bytes: &Range<u64>) -> Option<BufferId> {
        self.last.filter(|&(end, _)| end > bytes.start).map(|(_, id)| id)
    }

    fn add(&mut self, bytes: &Range<u64>, id: BufferId) {
        if self.last.is_none_or(|(end, _)| end < bytes.end) {
            self.last = Some((bytes.end, id));
        }
    }
}

/// The bytes of a placed buffer, with all slots.
pub(crate) fn bytes(buffer: &Buffer) -> Option<Range<u64>> {
    let place = buffer.place?;
    let slots = match buffer.exchange {
        Exchange::Packet { slots } => u64::from(slots),
        Exchange::Counter => 1,
    };
    let elements = buffer.shape.iter().try_fold(slots, |n, &extent| n.checked_mul(u64::from(extent)))?;
    Some(place..place.checked_add(elements.checked_mul(u64::from(buffer.dtype.bytes()))?)?)
}

/// The bytes of all placed buffers that have some, in order.
pub(crate) fn places(program: &Program) -> Vec<(Range<u64>, BufferId)> {
    let placed = (0..).map(BufferId).zip(&program.buffers);
    let mut places: Vec<_> = placed.filter_map(|(id, buffer)| Some((bytes(buffer)?, id))).collect();
    places.retain(|(bytes, _)| !bytes.is_empty());
    places.sort_by_key(|(bytes, id)| (bytes.start, *id));
    places
}

fn operand(program: &Program, one: &Use<'_>) -> Result<(), Malformed> {
    let buffer = program.buffers.get(one.at.buffer.index()).ok_or(Malformed::NoBuffer(one.at))?;
    let intervals = one.operand.region.intervals();
    // Differences of bounds and of a bound and an extent only grow or only fall: the ends decide.
    let last = u64::from(program.positions - 1);
    let inside = |(interval, &extent): (&amk_ir::Interval, &u32)| {
        interval.hi.at(last) <= u64::from(extent)
            && [0, last].iter().all(|&position| interval.lo.at(position) <= interval.hi.at(position))
    };
    if intervals.len() != buffer.shape.len() || !intervals.iter().zip(&buffer.shape).all(inside) {
        return Err(Malformed::Tile(one.at));
    }
    if one.writes() && matches!(buffer.kind, BufferKind::Weight | BufferKind::Input) {
        return Err(Malformed::ReadOnly(one.at));
    }
    if one.writes() && one.operand.early {
        return Err(Malformed::EarlyWrite(one.at));
    }
    Ok(())
}

//! AMK01xx, and the sizes and places of AMK04xx: rules that do not depend on the order of tasks.
//!
//! Runs first: an accepted program can be indexed freely, so the other families need no checks of
//! references.

use super::found::Found;
use super::meet::Meet;
use super::routing;
use super::violation::{Capacity, Mismatch, NoPacket, Reference, Shaped, Site, Violation};
use crate::{
    Bound, Buffer, BufferId, BufferKind, Call, Element, EventId, Exchange, Instruction, Interval, MAX_RANK, Param,
    Program, Queues, Region, Task, TaskId,
};

/// Reusable memory of the family.
#[derive(Default)]
pub(super) struct Structure {
    /// How often each task is queued.
    queued: Vec<u32>,
    /// The task that uses each local buffer, plus one.
    local_user: Vec<u32>,
    /// Counters of a task with many of them.
    elements: Vec<Element>,
}

impl Structure {
    /// Checks a program, or its stand-in; sizes in bytes are the original's.
    pub(super) fn check(&mut self, program: &Program, original: &Program, found: &mut Found) {
        counts(original, found);
        if !found.is_empty() {
            return;
        }
        shapes(program, found);
        let shapes_hold = found.is_empty();
        self.local_user.clear();
        self.local_user.resize(program.buffers.len(), 0);
        for (n, task) in program.tasks.iter().enumerate() {
            self.task(program, TaskId::from(n), task, shapes_hold, found);
        }
        self.queues(program, found);
        capacity(original, found);
        places(original, found);
    }

    fn task(&mut self, program: &Program, id: TaskId, task: &Task, shapes_hold: bool, found: &mut Found) {
        if let Some(op) = task.op.filter(|op| op.index() >= program.ops.len()) {
            found.push(Violation::Missing { from: Some(id), what: Reference::Op(op) });
        }
        routing::references(program, id, found);
        let mut local_bytes = 0u64;
        for (n, call) in task.calls.iter().enumerate() {
            match program.instructions.get(call.instruction.index()) {
                Some(instruction) => signature(id, n as u32, call, instruction, found),
                None => {
                    found.push(Violation::Missing { from: Some(id), what: Reference::Instruction(call.instruction) })
                }
            }
            params(id, n as u32, call, found);
            for (k, operand) in call.operands.iter().enumerate() {
                let site = Site { task: id, call: n as u32, operand: k as u32 };
                let Some(buffer) = program.buffers.get(operand.buffer.index()) else {
                    found.push(Violation::Missing { from: Some(id), what: Reference::Buffer(operand.buffer) });
                    continue;
                };
                if let Some(routed) = operand.routed {
                    routing::reference(program, id, routed.table(), found);
                }
                if operand.early && operand.access.writes() {
                    found.push(Violation::EarlyWrite { site });
                }
                if operand.access.writes() && matches!(buffer.kind, BufferKind::Weight | BufferKind::Input) {
                    found.push(Violation::ReadOnly { site });
                }
                if buffer.kind == BufferKind::Local && self.claim(id, operand.buffer, found) {
                    local_bytes = local_bytes.saturating_add(buffer.bytes());
                }
                if shapes_hold {
                    tile(program, site, buffer, operand.region.intervals(), found);
                }
            }
        }
        // No memory has as many as 64 bits count.
        if local_bytes > program.limits.local_bytes || local_bytes == u64::MAX {
            let available = program.limits.local_bytes;
            found.push(Violation::Capacity(Capacity::Local { task: id, needed: local_bytes, available }));
        }
        self.elements.clear();
        self.elements.extend(task.waits.iter().map(|wait| wait.on));
        self.counters(program, id, true, found);
        self.elements.clear();
        self.elements.extend_from_slice(&task.signals);
        self.counters(program, id, false, found);
    }

    /// Records that `task` uses the local `buffer`; returns whether this is its first use.
    fn claim(&mut self, task: TaskId, buffer: BufferId, found: &mut Found) -> bool {
        let user = &mut self.local_user[buffer.index()];
        match *user {
            0 => {
                *user = task.0 + 1;
                return true;
            }
            first if first != task.0 + 1 => {
                found.push(Violation::SharedLocal { buffer, first: TaskId(first - 1), second: task });
            }
            _ => {}
        }
        false
    }

    fn counters(&mut self, program: &Program, task: TaskId, wait: bool, found: &mut Found) {
        for &element in &self.elements {
            let event = program.events.get(element.event.index());
            if event.is_none_or(|event| u64::from(element.index) >= event.len()) {
                found.push(Violation::Missing { from: Some(task), what: Reference::Counter(element) });
            }
        }
        const FEW: usize = 8;
        if self.elements.len() > FEW {
            self.elements.sort_unstable();
            for pair in self.elements.windows(2) {
                if pair[0] == pair[1] {
                    found.push(Violation::Repeated { task, element: pair[0], wait });
                }
            }
        } else {
            for (n, &element) in self.elements.iter().enumerate() {
                if self.elements[..n].contains(&element) {
                    found.push(Violation::Repeated { task, element, wait });
                }
            }
        }
    }

    fn queues(&mut self, program: &Program, found: &mut Found) {
        self.queued.clear();
        self.queued.resize(program.tasks.len(), 0);
        let mut count = |queue: &[TaskId]| {
            for &task in queue {
                match self.queued.get_mut(task.index()) {
                    Some(times) => *times = times.saturating_add(1),
                    None => found.push(Violation::Missing { from: None, what: Reference::Task(task) }),
                }
            }
        };
        match &program.queues {
            Queues::Static(queues) => queues.iter().for_each(|queue| count(queue)),
            Queues::Ticket { workers, order } => {
                count(order);
                if *workers == 0 && !program.tasks.is_empty() {
                    found.push(Violation::NoWorkers { tasks: program.tasks.len() as u32 });
                }
            }
        }
        for (n, &times) in self.queued.iter().enumerate() {
            if times != 1 {
                found.push(Violation::Queued { task: TaskId::from(n), times });
            }
        }
    }
}

/// Ids are 32 bits wide, with one value to spare.
fn counts(program: &Program, found: &mut Found) {
    let most = u64::from(u32::MAX);
    let (_, counters) = program.counter_bases();
    let queued = match &program.queues {
        Queues::Static(queues) => queues.iter().map(|q| q.len() as u64).sum(),
        Queues::Ticket { order, .. } => order.len() as u64,
    };
    let tables = [
        ("tasks", program.tasks.len() as u64),
        ("buffers", program.buffers.len() as u64),
        ("instructions", program.instructions.len() as u64),
        ("tables", program.tables.len() as u64),
        ("event tensors", program.events.len() as u64),
        ("counters", counters),
        ("queue entries", queued),
        ("workers", program.queues.workers().into()),
    ];
    for (what, count) in tables {
        if count >= most {
            found.push(Violation::TooMany { what, count });
        }
    }
    const MOST_BYTES: u64 = 1 << 60;
    let ends = program.buffers.iter().map(|buffer| buffer.place.unwrap_or(0).saturating_add(memory(buffer)));
    for count in ends.filter(|&end| end > MOST_BYTES) {
        found.push(Violation::TooMany { what: "bytes", count });
    }
}

fn shapes(program: &Program, found: &mut Found) {
    if program.positions == 0 {
        found.push(Violation::Shape(Shaped::NoPositions));
    }
    for (n, buffer) in program.buffers.iter().enumerate() {
        let id = BufferId::from(n);
        if buffer.shape.is_empty() || buffer.shape.len() > MAX_RANK {
            found.push(Violation::Shape(Shaped::Rank { buffer: id, rank: buffer.shape.len() as u32 }));
        }
        if let Some(dim) = buffer.shape.iter().position(|&extent| extent == 0) {
            found.push(Violation::Shape(Shaped::EmptyBuffer { buffer: id, dim: dim as u32 }));
        }
        if let Exchange::Packet { slots } = buffer.exchange {
            if !matches!(buffer.kind, BufferKind::Activation | BufferKind::Output) {
                found.push(Violation::Packet { buffer: id, why: NoPacket::Kind });
            }
            if slots == 0 {
                found.push(Violation::Packet { buffer: id, why: NoPacket::NoSlots });
            }
        }
    }
    for (n, event) in program.events.iter().enumerate() {
        if let Some(dim) = event.shape.iter().position(|&extent| extent == 0) {
            found.push(Violation::Shape(Shaped::EmptyEvent { event: EventId::from(n), dim: dim as u32 }));
        }
    }
}

fn signature(task: TaskId, n: u32, call: &Call, instruction: &Instruction, found: &mut Found) {
    let mut mismatch = |mismatch| found.push(Violation::Call { task, call: n, mismatch });
    let (expected, given) = (instruction.operands.len() as u32, call.operands.len() as u32);
    if expected != given {
        mismatch(Mismatch::Operands { expected, found: given });
    }
    for (k, (operand, spec)) in call.operands.iter().zip(&instruction.operands).enumerate() {
        if operand.access != spec.access {
            mismatch(Mismatch::Access { operand: k as u32, expected: spec.access, found: operand.access });
        }
    }
    let (expected, given) = (instruction.params.len() as u32, call.params.len() as u32);
    if expected != given {
        mismatch(Mismatch::Params { expected, found: given });
    }
}

/// A program computes with finite numbers: infinities and NaN are left to each instruction, and
/// JSON cannot represent them.
fn params(task: TaskId, n: u32, call: &Call, found: &mut Found) {
    for (k, param) in call.params.iter().enumerate() {
        if matches!(param, Param::F32(value) if !value.is_finite()) {
            found.push(Violation::NotFinite { task, call: n, param: k as u32 });
        }
    }
}

/// The tile must lie in its buffer at every position. Bounds increase with the position, or are
/// constant and then increase, and so do lengths, or they shrink: the extremes decide.
fn tile(program: &Program, site: Site, buffer: &Buffer, intervals: &[Interval], found: &mut Found) {
    if intervals.len() != buffer.shape.len() {
        found.push(Violation::OutOfBounds { site, dim: None, position: 0 });
        return;
    }
    let last = u64::from(program.positions - 1);
    for (dim, (interval, &extent)) in intervals.iter().zip(&buffer.shape).enumerate() {
        let dim = dim as u32;
        let extent = u64::from(extent);
        if interval.hi.at(last) > extent {
            found.push(Violation::OutOfBounds { site, dim: Some(dim), position: first_beyond(interval.hi, extent) });
        }
        let crosses = |p| interval.lo.at(p) > interval.hi.at(p);
        if crosses(0) || crosses(last) {
            // The end has not moved yet.
            let at = if crosses(0) { 0 } else { first_beyond(interval.lo, interval.hi.at(0)) };
            found.push(Violation::EmptyTile { site, dim, crosses_at: Some(at) });
        } else if interval.len_at(0) == 0 && interval.len_at(last) == 0 {
            found.push(Violation::EmptyTile { site, dim, crosses_at: None });
        }
    }
    // Two dimensions that are empty at different positions also leave no element.
    let sometimes_empty = |interval: &&Interval| interval.len_at(0) == 0 || interval.len_at(last) == 0;
    let mut empty = intervals.iter().enumerate().filter(|(_, interval)| sometimes_empty(interval));
    if let (Some((dim, _)), Some(_), Some(region)) = (empty.next(), empty.next(), Region::new(intervals))
        && Meet::of(&region, &region, program.positions).within(0, 0).is_none()
    {
        found.push(Violation::EmptyTile { site, dim: dim as u32, crosses_at: None });
    }
}

/// Returns the first position at which a bound exceeds `end`, if there is one.
pub(super) fn first_beyond(bound: Bound, end: u64) -> u32 {
    let position = if bound.pos { end as i64 + 1 - bound.offset() } else { 0 };
    position.max(0) as u32
}

/// Bytes of a buffer with all its slots.
fn memory(buffer: &Buffer) -> u64 {
    let slots = match buffer.exchange {
        Exchange::Packet { slots } => u64::from(slots),
        Exchange::Counter => 1,
    };
    buffer.bytes().saturating_mul(slots)
}

fn capacity(program: &Program, found: &mut Found) {
    let needed = match &program.queues {
        Queues::Static(queues) => queues.len() as u64,
        // One resident worker draws all tickets.
        Queues::Ticket { .. } => u64::from(!program.tasks.is_empty()),
    };
    let available = u64::from(program.limits.workers);
    if needed > available {
        found.push(Violation::Capacity(Capacity::Workers { needed, available }));
    }
    let mut own = 0u64;
    let mut arena = 0u64;
    for buffer in program.buffers.iter().filter(|b| b.kind != BufferKind::Local) {
        let bytes = memory(buffer);
        match buffer.place {
            Some(place) => arena = arena.max(place.saturating_add(bytes)),
            None => own = own.saturating_add(bytes),
        }
    }
    let (needed, available) = (own.saturating_add(arena), program.limits.memory_bytes);
    if needed > available {
        found.push(Violation::Capacity(Capacity::Memory { needed, available }));
    }
}

/// Checks alignment, and that buffers whose bytes have meaning before a step do not share them with
/// each other. Whether buffers may share other bytes depends on the order of tasks.
fn places(program: &Program, found: &mut Found) {
    let mut placed: Vec<(u64, u64, BufferId, Sharing)> = Vec::new();
    for (n, buffer) in program.buffers.iter().enumerate() {
        let Some(place) = buffer.place else { continue };
        let id = BufferId::from(n);
        if buffer.kind == BufferKind::Local {
            found.push(Violation::PlacedLocal { buffer: id });
            continue;
        }
        let alignment = buffer.dtype.bytes();
        if place % u64::from(alignment) != 0 {
            found.push(Violation::Misaligned { buffer: id, alignment });
        }
        placed.push((place, place.saturating_add(memory(buffer)), id, Sharing::of(buffer)));
    }
    placed.sort_unstable();
    // The furthest end so far of buffers of each kind of sharing.
    let mut reach: [Option<(u64, BufferId)>; 3] = [None; 3];
    for &(start, end, id, sharing) in &placed {
        let clashes = match sharing {
            Sharing::Free => [Sharing::Never].as_slice(),
            Sharing::Keeps => &[Sharing::Keeps, Sharing::Never],
            Sharing::Never => &[Sharing::Free, Sharing::Keeps, Sharing::Never],
        };
        let other = clashes.iter().filter_map(|&other| reach[other as usize]).find(|&(reached, _)| reached > start);
        if let Some((_, other)) = other {
            found.push(Violation::SharedPlace { buffer: id, other, write: None, position: 0 });
        }
        let furthest = &mut reach[sharing as usize];
        if furthest.is_none_or(|(reached, _)| end > reached) {
            *furthest = Some((end, id));
        }
    }
}

/// The buffers with which a buffer may share bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sharing {
    /// With all but packets, in a proven order.
    Free,
    /// Like `Free`, but not with others that have values before a step.
    Keeps,
    /// With none, other words could be mistaken for packets.
    Never,
}

impl Sharing {
    fn of(buffer: &Buffer) -> Self {
        match (buffer.exchange, buffer.kind) {
            (Exchange::Packet { .. }, _) => Self::Never,
            (_, BufferKind::Activation | BufferKind::Output | BufferKind::Local) => Self::Free,
            (_, BufferKind::Weight | BufferKind::Input | BufferKind::State) => Self::Keeps,
        }
    }
}

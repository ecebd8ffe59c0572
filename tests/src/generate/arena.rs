//! Buffers of every kind in one arena: what is dead makes room for what comes after it, byte by
//! byte, in elements of other widths and rows of other lengths.

use super::Draft;
use amk_ir::{Access, Buffer, BufferId, BufferKind, DType, Exchange, Operand, Region, Task};
use core::ops::Range;

impl Draft<'_> {
    /// Adds what is given, and what is written once more; then places all.
    pub(super) fn in_one_arena(&mut self) {
        if self.rng.chance(50) {
            self.given();
        }
        if self.rng.chance(50) {
            self.rewrite();
        }
        self.arena();
    }

    /// A weight or an input that some tasks read, now and then before their waits.
    fn given(&mut self) {
        let kind = if self.rng.chance(50) { BufferKind::Weight } else { BufferKind::Input };
        let dtype = *self.rng.pick(&[DType::F32, DType::F16, DType::U8]).unwrap_or(&DType::F32);
        let shape = vec![self.program.positions + self.rng.below(3)];
        let exchange = Exchange::Counter;
        let buffer = self.add(Buffer { name: String::new(), kind, dtype, shape, exchange, place: None });
        for _ in 0..self.rng.between(1, 2) {
            let read = self.used(buffer, Access::Read);
            let early = self.rng.chance(30);
            self.anywhere(Operand { early, ..read }, true);
        }
    }

    /// Places the buffers: mostly over what no task uses any more.
    fn arena(&mut self) {
        let mut placed: Vec<(BufferId, Range<u64>)> = Vec::new();
        for id in (0..self.program.buffers.len()).map(BufferId::from) {
            let buffer = &self.program.buffers[id.index()];
            let (width, bytes) = (u64::from(buffer.dtype.bytes()), buffer.bytes() * slots(buffer));
            if buffer.kind == BufferKind::Local || self.rng.chance(20) {
                continue;
            }
            let end = placed.iter().map(|(_, range)| range.end).max().unwrap_or(0);
            let careless = self.careless && self.rng.chance(10);
            for _ in 0..12 {
                let place = u64::from(self.rng.below((end / width) as u32 + 2)) * width;
                let range = place..place + bytes;
                let over = placed.iter().filter(|(_, other)| other.start < range.end && range.start < other.end);
                if careless || over.into_iter().all(|(other, _)| self.makes_room(*other, id)) {
                    self.program.buffers[id.index()].place = Some(place);
                    placed.push((id, range));
                    break;
                }
            }
        }
    }

    /// Whether the last task that uses one buffer comes before, or is, the first of the other; and
    /// nothing of the first is kept.
    fn makes_room(&self, one: BufferId, other: BufferId) -> bool {
        let uses = |id| {
            move |task: &Task| task.calls.iter().flat_map(|call| &call.operands).any(|operand| operand.buffer == id)
        };
        let [one, other] =
            if self.program.tasks.iter().position(uses(one)) <= self.program.tasks.iter().position(uses(other)) {
                [one, other]
            } else {
                [other, one]
            };
        let (last, first) =
            (self.program.tasks.iter().rposition(uses(one)), self.program.tasks.iter().position(uses(other)));
        let [of_one, of_other] = [one, other].map(|id| &self.program.buffers[id.index()]);
        let free = of_one.kind == BufferKind::Activation
            && !matches!(of_other.kind, BufferKind::Weight | BufferKind::Input)
            && [of_one, of_other].iter().all(|buffer| buffer.exchange == Exchange::Counter);
        free && last <= first
    }

    /// A task that writes all of a buffer at once, where its pieces have more than one writer.
    fn rewrite(&mut self) {
        let states: Vec<BufferId> = (0..self.program.buffers.len())
            .map(BufferId::from)
            .filter(|id| matches!(self.program.buffers[id.index()].kind, BufferKind::State | BufferKind::Output))
            .collect();
        let Some(&buffer) = self.rng.pick(&states) else { return };
        let region = Region::full(&self.program.buffers[buffer.index()].shape);
        self.anywhere(Operand { buffer, region, access: Access::Write, early: false, routed: None }, false);
    }
}

fn slots(buffer: &Buffer) -> u64 {
    match buffer.exchange {
        Exchange::Packet { slots } => u64::from(slots),
        Exchange::Counter => 1,
    }
}

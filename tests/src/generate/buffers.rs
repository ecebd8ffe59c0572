//! Random buffers and tiles.

use super::{Draft, intersects};
use amk_ir::{Bound, Buffer, BufferId, BufferKind, DType, Exchange, Interval, Region};

impl Draft<'_> {
    pub(super) fn buffers(&mut self) {
        for _ in 0..self.rng.between(self.size.buffers.0, self.size.buffers.1) {
            let kind = match self.rng.below(100) {
                0..60 => BufferKind::Activation,
                60..80 => BufferKind::State,
                _ => BufferKind::Output,
            };
            self.buffer(kind);
        }
        if self.rng.chance(12) {
            (0..2).for_each(|_| self.buffer(BufferKind::Activation));
        }
        if self.rng.chance(50) {
            let kind = if self.rng.chance(50) { BufferKind::Weight } else { BufferKind::Input };
            self.buffer(kind);
        }
    }

    /// Activations that are not alive at the same time, and now and then others, get the same bytes
    /// of the arena.
    pub(super) fn share_memory(&mut self) {
        let (share, blindly) = (self.rng.chance(60), self.careless && self.rng.chance(30));
        let mut last = None;
        for at in (0..self.program.buffers.len()).filter(|_| share) {
            let buffer = &self.program.buffers[at];
            if buffer.kind != BufferKind::Activation || buffer.exchange != Exchange::Counter {
                continue;
            }
            let users = |(_, task): &(usize, &amk_ir::Task)| {
                task.calls.iter().flat_map(|call| &call.operands).any(|operand| operand.buffer.index() == at)
            };
            let mut users = self.program.tasks.iter().enumerate().filter(users).map(|(task, _)| task);
            let Some(first) = users.next() else { continue };
            if last.is_none_or(|last| first > last) || blindly {
                last = Some(users.next_back().unwrap_or(first));
                self.program.buffers[at].place = Some(u64::from(self.rng.below(3)) * 4);
            }
        }
    }

    fn buffer(&mut self, kind: BufferKind) {
        let positions = self.program.positions;
        let rows = if positions > 1 && (kind == BufferKind::State || self.rng.chance(40)) {
            positions + self.rng.below(2)
        } else {
            self.rng.between(1, self.size.rows)
        };
        let mut shape = vec![rows];
        if self.rng.chance(25) {
            shape.push(self.rng.between(1, 2));
        }
        let dtype = *self.rng.pick(&[DType::F32, DType::F32, DType::F16, DType::U8]).unwrap_or(&DType::F32);
        let packet = match kind {
            BufferKind::Activation => self.rng.chance(25),
            BufferKind::Output => self.rng.chance(8),
            _ => false,
        };
        let exchange =
            if packet { Exchange::Packet { slots: self.rng.between(1, 2) as u8 } } else { Exchange::Counter };
        self.add(Buffer { name: String::new(), kind, dtype, shape, exchange, place: None });
    }

    pub(super) fn add(&mut self, buffer: Buffer) -> BufferId {
        let id = BufferId::from(self.program.buffers.len());
        self.program.buffers.push(Buffer { name: format!("m{}", id.0), ..buffer });
        self.written.push(Vec::new());
        id
    }

    /// A tile of a buffer, inside of it at every position.
    pub(super) fn tile(&mut self, buffer: BufferId) -> Region {
        let shape = self.program.buffers[buffer.index()].shape.clone();
        let intervals: Vec<Interval> = shape.iter().map(|&extent| self.interval(extent)).collect();
        Region::new(&intervals).unwrap_or(Region::full(&shape))
    }

    fn interval(&mut self, extent: u32) -> Interval {
        let positions = self.program.positions;
        if positions > 1 && extent >= positions && self.rng.chance(60) {
            let ahead = self.rng.below(extent - positions + 1);
            if self.rng.chance(8) {
                // Empty at position 0: elements from earlier positions.
                let hi = if positions > 2 && self.rng.chance(30) { Bound::behind(1) } else { Bound::at_pos(0) };
                return Interval { lo: Bound::fixed(0), hi };
            }
            let hi = Bound::at_pos(ahead + 1);
            let lo = match self.rng.below(100) {
                0..30 => Bound::fixed(0),
                30..50 => Bound::behind(self.rng.between(1, positions)),
                _ => Bound::at_pos(ahead),
            };
            return Interval { lo, hi };
        }
        if self.rng.chance(35) {
            return Interval::fixed(0, extent);
        }
        let lo = self.rng.below(extent);
        Interval::fixed(lo, self.rng.between(lo + 1, extent))
    }

    /// A tile that may be read: mostly of written elements.
    pub(super) fn readable(&mut self, buffer: BufferId) -> Option<Region> {
        let kind = self.program.buffers[buffer.index()].kind;
        if matches!(kind, BufferKind::Weight | BufferKind::Input | BufferKind::State)
            || self.careless && self.rng.chance(4)
        {
            return Some(self.tile(buffer));
        }
        let mut region = *self.rng.pick(&self.written[buffer.index()].clone())?;
        for interval in region.intervals_mut() {
            let fixed = !interval.moves();
            if fixed && self.rng.chance(30) {
                let lo = self.rng.between(interval.lo.base, interval.hi.base - 1);
                *interval = Interval::fixed(lo, self.rng.between(lo + 1, interval.hi.base));
            }
        }
        Some(region)
    }

    /// A tile that may be written: of a packet buffer, not twice.
    pub(super) fn writable(&mut self, buffer: BufferId) -> Option<Region> {
        let region = self.tile(buffer);
        let packet = self.program.buffers[buffer.index()].exchange != Exchange::Counter;
        let twice = self.written[buffer.index()].iter().any(|tile| intersects(tile, &region, self.program.positions));
        (!(packet && twice)).then_some(region)
    }
}
